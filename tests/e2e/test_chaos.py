"""Kills at random moments: whatever dies, each task's effect is there once per success, and the store is right.

`BOUGH_CHAOS_KILLS` sets how many (200 take some minutes), `BOUGH_CHAOS_SEED` which ones.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from chaos_workflow_labels import labels_of, text_of
from processes import PATIENCE, Processes, Script, kill, parent_of, until

from bough.journal.codec import decode
from bough.model.events.facts import MemoLookedUp, RunClosed, RunOpened, SpanEnded, Submitted
from bough.model.tasks import ArraySpec, TaskSpec

KILLS = int(os.environ.get("BOUGH_CHAOS_KILLS", "15"))
SEED = int(os.environ.get("BOUGH_CHAOS_SEED", "1"))
WORKFLOW = Path(__file__).with_name("chaos_workflow.py")
WEIGHTS = {"script": 15, "server": 15, "executor": 20, "worker": 25, "command": 25}
TOO_OFTEN = 75  # the workflow's exit code when a task lost more workers than one forgives


class Success(NamedTuple):
    """One success as the journal tells it."""

    record: int
    index: int
    attempt: int
    nonce: str  # a function's value

    @property
    def effect(self) -> str:
        """The line it has written, after its name."""
        return f"function {self.nonce}" if self.nonce else f"{self.record}.{self.index} {self.attempt}"


class Chaos:
    """Runs the workflow again and again while killing parts of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.dice = random.Random(seed)
        self.processes = Processes(folder / ".bough" / "chaos_workflow")
        self.killed: Counter[str] = Counter()
        self.script: Script | None = None
        self.runs = 0
        self._excused = False  # the script may fail: its server was killed
        for name in ("rounds", "out"):
            (folder / name).mkdir()

    def run(self, kills: int) -> None:
        """Kill so many processes, then let the workflow finish."""
        while self.killed.total() < kills:
            self._kill_one(self._running())
        (self.folder / "enough").touch()
        while not (self.folder / "finished").exists():
            self._running().finish(PATIENCE * 2)
            self._judge()
        self.processes.wait_until_gone()

    def _running(self) -> Script:
        if self.script is not None and self.script.is_over:
            self._judge()
        if self.script is None:
            self.runs += 1
            self._excused = False
            self.script = Script(WORKFLOW, cwd=self.folder)
        return self.script

    def _judge(self) -> None:
        """Only what we did may have ended it."""
        script, self.script = self.script, None
        assert script is not None
        code = script.finish()
        expected = code in {0, TOO_OFTEN} or self._excused
        assert expected, f"the script ended with {code}:\n{script.said()}\n{self.processes.story()}"
        assert code != 0 or (self.folder / "finished").exists()

    def _kill_one(self, script: Script) -> None:
        kind = self.dice.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        moment = time.monotonic() + self.dice.uniform(0, 0.6)
        until(lambda: script.is_over or time.monotonic() >= moment, "a random moment")
        if kind == "script":
            if not script.is_over:
                self._excused = True
                script.process.kill()
                script.finish()
                self.killed[kind] += 1
            return
        pids: list[int] = []
        while not (script.is_over or pids or time.monotonic() >= moment + 2):
            pids = self.processes.of(kind)
        if not pids:
            return
        pid = self.dice.choice(pids)
        own = kind == "server" and parent_of(pid) == script.pid  # not one that is about to leave, its script being gone
        if kill(pid, lambda: self.processes.kind(pid) == kind):
            self.killed[kind] += 1
            if own:
                self._excused = True
                until(lambda: script.is_over, "the script's end without its server", story=self.processes.story)


class Journal:
    """What a store tells of all its runs."""

    def __init__(self, store: Path) -> None:
        self.successes: dict[str, list[Success]] = {}
        self.recalls = 0
        names: dict[int, TaskSpec | ArraySpec] = {}
        with sqlite3.connect(f"file:{store / 'journal.db'}?mode=ro", uri=True) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            rows = database.execute("SELECT facts FROM journal ORDER BY turn").fetchall()
        database.close()
        self.opened: list[int] = []
        self.closed: list[tuple[int, str]] = []
        for (data,) in rows:
            for fact in decode(data):
                if isinstance(fact, Submitted):
                    names.update((item.id, item) for item in fact.items if isinstance(item, TaskSpec | ArraySpec))
                elif isinstance(fact, SpanEnded):
                    self._succeeded(fact, names[fact.record])
                elif isinstance(fact, MemoLookedUp):
                    self.recalls += fact.found * (fact.stop - fact.start)
                elif isinstance(fact, RunOpened):
                    self.opened.append(fact.run)
                elif isinstance(fact, RunClosed):
                    self.closed.append((fact.run, fact.reason))

    def _succeeded(self, fact: SpanEnded, spec: TaskSpec | ArraySpec) -> None:
        values = pickle.loads(fact.results) if isinstance(fact.results, bytes) else [""] * (fact.stop - fact.start)
        for index, value in zip(range(fact.start, fact.stop), values, strict=True):
            label = f"{spec.name}-{index}" if isinstance(spec, ArraySpec) else spec.name
            self.successes.setdefault(label, []).append(Success(fact.record, index, fact.attempt, value))


@pytest.mark.slow
@pytest.mark.timeout(max(120, 15 * KILLS))
def test_after_random_kills_every_effect_is_there_once_per_success_and_the_store_agrees(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, SEED)
    try:
        chaos.run(KILLS)
        check(tmp_path, chaos)
        rounds = len(os.listdir(tmp_path / "rounds"))
        print(f"{chaos.runs} runs, {rounds} rounds of work, kills: {dict(chaos.killed)}")
    except BaseException:
        keep = os.environ.get("BOUGH_CHAOS_KEEP")
        if keep:
            shutil.copytree(tmp_path, keep, ignore=shutil.ignore_patterns("*.sock"))
        raise
    finally:
        if chaos.script is not None and not chaos.script.is_over:
            chaos.script.process.send_signal(signal.SIGKILL)
            chaos.script.finish()
        chaos.processes.end()


def check(folder: Path, chaos: Chaos) -> None:
    store = chaos.processes.store
    labels = [label for number in range(len(os.listdir(folder / "rounds"))) for label in labels_of(number)]
    journal = Journal(store)
    check_effects(folder, labels, journal)
    check_outputs(folder, labels, journal)
    check_database(folder, store, labels)
    assert [run for run, _ in journal.closed] == journal.opened == list(range(1, len(journal.opened) + 1))
    assert journal.closed[-1][1] == "done"
    assert not [path for path in folder.rglob(".bough-*") if store not in path.parents]
    assert not list((store / "spill").iterdir())
    check_again(folder, chaos, labels)


def check_effects(folder: Path, labels: list[str], journal: Journal) -> None:
    """One success for each task, whose effect is there once and was the last one."""
    effects: dict[str, list[str]] = {}
    for line in (folder / "effects.txt").read_text().splitlines():
        label, _, effect = line.partition(" ")
        effects.setdefault(label, []).append(effect)
    assert set(journal.successes) == set(labels) == set(effects)
    for label in labels:
        (success,) = journal.successes[label]
        assert effects[label].count(success.effect) == 1, (label, success, effects[label])
        assert effects[label][-1] == success.effect, (label, success, effects[label])
        assert len(set(effects[label])) == len(effects[label]), f"an attempt ran twice: {label}, {effects[label]}"


def check_outputs(folder: Path, labels: list[str], journal: Journal) -> None:
    for label in labels:
        (success,) = journal.successes[label]
        expected = f"{label} {success.nonce}\n" if success.nonce else text_of(label)
        assert (folder / "out" / f"{label}.txt").read_text() == expected


def check_database(folder: Path, store: Path, labels: list[str]) -> None:
    """The relational tables agree with the files."""
    database = sqlite3.connect(f"file:{store / 'journal.db'}?mode=ro", uri=True)
    try:
        run = database.execute("SELECT max(run) FROM runs").fetchone()[0]
        states = database.execute("SELECT name, state, done, length FROM tasks WHERE run = ?", (run,)).fetchall()
        assert {state for _, state, _, _ in states} == {"done"}
        assert sum(length for _, _, _, length in states) == sum(done for _, _, done, _ in states) == len(labels)
        files = database.execute("SELECT id, idx, path, size, mtime_ns FROM files").fetchall()
        known = {(path, size, mtime) for _, _, path, size, mtime in files}
        commands = [label for label in labels if label[0] in "cs"]
        for label in commands:
            path = folder / "out" / f"{label}.txt"
            state = path.stat()
            found = {row for row in known if row[0].endswith(f"/{label}.txt")}
            assert found == {(str(path), state.st_size, state.st_mtime_ns)}
        left = database.execute("SELECT count(*) FROM tasks WHERE state IN ('placed', 'running')").fetchone()[0]
        assert left == 0, "something is recorded as running for ever"
    finally:
        database.close()


def check_again(folder: Path, chaos: Chaos, labels: list[str]) -> None:
    """Another run finds everything done."""
    effects = (folder / "effects.txt").read_bytes()
    chaos.script = script = Script(WORKFLOW, cwd=folder)
    assert script.finish() == 0, script.said()
    chaos.processes.wait_until_gone()
    assert (folder / "effects.txt").read_bytes() == effects
    again = Journal(chaos.processes.store)
    assert {label: len(found) for label, found in again.successes.items()} == dict.fromkeys(labels, 1)
