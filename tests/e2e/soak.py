"""The soak: random faults under load, and then a look whether everything agrees.

`make soak` (python tests/e2e/soak.py) runs 10 minutes and 200,000 tasks: a server, a relay and three executors, one
on the Unix socket, one behind a cable, one behind the relay. They are killed, stopped and cut off, the disk under the
store is filled, the server killed, and three workflows go on. `BOUGH_SOAK_SECONDS`, `BOUGH_SOAK_TASKS` and
`BOUGH_SOAK_SEED` change it; `BOUGH_SOAK_KEEP` keeps the folder of a soak that fails. Rule: only processes that were
started here are signalled.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from processes import is_alive
from workshop import Link, Process, SmallDisk, Workshop, why_no_networks

from bough.journal.codec import decode
from bough.model.events.facts import (
    ElementFailed,
    ExecutorLost,
    Placed,
    RunClosed,
    RunOpened,
    Skipped,
    SpanEnded,
    SpanReturned,
    Submitted,
)
from bough.model.outcomes import Cause, ResultFile
from bough.model.tasks import ArraySpec, Kind, TaskSpec

WORKFLOW = Path(__file__).with_name("soak_workflow.py")
NAMES = ("north", "middle", "south")
ROUNDS = 20
MOST_OPEN = 60  # descriptors that a process has when nothing is going on
PATIENCE = 240.0  # seconds for the rest once there are no more faults


class Soak:
    """One soak. `run` makes the faults, `check` looks at what is left."""

    def __init__(self, folder: Path, seconds: float, tasks: int, seed: int) -> None:
        self.folder, self.seconds, self.tasks = folder, seconds, tasks
        self.dice = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.notes: list[str] = []
        self.shop = Workshop(folder)
        self.cable: Link | None = None
        self.disk: SmallDisk | None = None
        self.relay: Process | None = None
        self.scripts: dict[str, subprocess.Popen[bytes]] = {}
        self.starts: list[float] = []
        self._made: dict[str, Callable[[], Process]] = {}
        self._now: dict[str, Process] = {}
        self.settled = 0.0

    # --- setting up -----------------------------------------------------------------------------------

    def set_up(self) -> None:
        reason = why_no_networks()
        store, host = self.folder / "disk", "127.0.0.1"
        if reason:
            self.notes.append(f"no cable is cut and no disk filled: {reason}")
        else:
            self.cable = Link()
            host = self.cable.here
            self.disk = SmallDisk(store, 64 + self.tasks // 300)
        shop = self.shop
        shop.start("--listen", f"{host}:0", "--heartbeat", "2s", "--reconnect", "3s", "--store", str(store / "store"))
        access = shop.access("execute")
        inside = self.cable.inside if self.cable else ()
        self._made = {
            "near": lambda: shop.executor(cores=2),
            "far": lambda: shop.executor("--server", access, cores=2, prefix=inside),
        }
        if shop.bough("relay", "--help", check=False).returncode == 0:
            self._start_relay(access)
            behind = str(shop.home / "relay" / "access.json")
            self._made["behind"] = lambda: shop.executor("--server", behind, cores=2)
        else:
            self.notes.append("there is no relay")
            self._made["behind"] = lambda: shop.executor("--server", access, cores=2)
        for name, make in self._made.items():
            self._now[name] = make()
        for name in NAMES:
            words = [str(WORKFLOW), shop.address, name, str(self.tasks // len(NAMES)), str(ROUNDS), str(self.seconds)]
            with open(self.folder / f"{name}.err", "wb") as err, open(self.folder / f"{name}.out", "wb") as out:
                self.scripts[name] = subprocess.Popen(
                    [sys.executable, *words], env=shop.environment, cwd=self.folder, stdout=out, stderr=err
                )
        shop.until(lambda: {one["name"] for one in shop.ask("workflows")}.issuperset(NAMES), "the workflows")

    def _start_relay(self, access: str) -> None:
        words = ("relay", "start", "--server", access, "--listen", "127.0.0.1:0", "--site", "behind")
        self.relay = relay = self.shop.spawn(*words, log="relay.log")
        self.shop.others.append(relay)
        place = self.shop.home / "relay" / "relay.json"

        def is_up() -> bool:
            assert not relay.is_over, relay.said()
            try:
                return bool(json.loads(place.read_bytes())["pid"] == relay.pid)
            except (OSError, ValueError):
                return False

        self.shop.until(is_up, "the relay")

    # --- faults ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Faults, until the time is over; then wait for all workflows."""
        kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "server killed": (3, self._kill_server),
            "server stopped for a while": (1, self._pause_server),
            "executor killed": (4, self._kill_executor),
            "executor stopped for a while": (3, self._pause_executor),
        }
        if self.relay is not None:
            kinds["relay killed"] = (2, self._kill_relay)
        if self.cable is not None:
            kinds["cable cut for a while"] = (3, self._cut)
            kinds["disk filled for a while"] = (2, self._fill)
            kinds["disk filled and server killed"] = (1, self._fill_and_kill)
        end = time.monotonic() + self.seconds
        while time.monotonic() < end and not all(script.poll() is not None for script in self.scripts.values()):
            self._wait(self.dice.uniform(0.2, 2.0))
            kind = self.dice.choices([*kinds], [weight for weight, _ in kinds.values()])[0]
            kinds[kind][1]()
            self.faults[kind] += 1
        begun = time.monotonic()
        self._look()
        for name, script in self.scripts.items():
            try:
                code = script.wait(max(1.0, begun + PATIENCE - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"the workflow {name} has not ended\n{self.story()}") from None
            assert code == 0, (
                f"the workflow {name} ended with {code}\n{(self.folder / f'{name}.err').read_text()[-4000:]}"
            )
        self.settled = time.monotonic() - begun

    def story(self) -> str:
        status = self.shop.bough("server", "status", check=False).stdout
        listed = self.shop.bough("executor", "list", check=False).stdout
        return f"{status}\n{listed}\n{self.shop.story()}"

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._look()
            time.sleep(0.05)

    def _look(self) -> None:
        """Only what we did may have ended anything."""
        shop = self.shop
        assert shop.server is not None
        assert not shop.server.is_over, f"the server ended by itself\n{shop.log()[-4000:]}"
        assert self.relay is None or not self.relay.is_over, f"the relay ended by itself\n{self.relay.said()[-4000:]}"
        for name, process in self._now.items():
            assert not process.is_over, f"the executor {name} ended by itself\n{process.said()[-4000:]}"
        for name, script in self.scripts.items():
            code = script.poll()
            said = (self.folder / f"{name}.err").read_text()[-4000:]
            assert code in {None, 0}, f"the workflow {name} ended with {code}\n{said}"

    def _kill_server(self) -> None:
        self.shop.kill()
        self._idle(self.dice.uniform(0.0, 1.5))
        self.starts.append(self.shop.start())

    def _pause_server(self) -> None:
        assert self.shop.server is not None
        self.shop.server.pause()
        self._idle(self.dice.uniform(0.5, 3.0))
        self.shop.server.resume()

    def _idle(self, seconds: float) -> None:
        time.sleep(seconds)  # the length of a fault

    def _kill_executor(self) -> None:
        name = self.dice.choice([*self._now])
        self._now[name].kill()
        self._now[name] = self._made[name]()

    def _pause_executor(self) -> None:
        process = self._now[self.dice.choice([*self._now])]
        process.pause()
        self._idle(self.dice.uniform(0.5, 7.0))
        process.resume()

    def _kill_relay(self) -> None:
        assert self.relay is not None
        self.relay.kill()
        self._idle(self.dice.uniform(0.0, 2.0))
        self._start_relay(str(self.folder / "execute.json"))

    def _cut(self) -> None:
        assert self.cable is not None
        self.cable.cut()
        self._idle(self.dice.uniform(0.5, 8.0))
        self.cable.mend()

    def _fill(self) -> None:
        assert self.disk is not None
        self.disk.fill()
        self._idle(self.dice.uniform(0.5, 4.0))
        self.disk.free()

    def _fill_and_kill(self) -> None:
        assert self.disk is not None
        self.disk.fill()
        self._idle(self.dice.uniform(0.0, 1.0))
        self.shop.kill()
        self.disk.free()
        self.starts.append(self.shop.start())

    # --- the end --------------------------------------------------------------------------------------

    def check(self) -> list[tuple[str, object]]:
        """Everything agrees; what there was, as rows of a table."""
        shop = self.shop
        for name, process in self._now.items():  # one that is away would not hear that it may go
            shop.until(lambda process=process: shop.state_of(process) == "idle", f"the executor {name} to be idle")
        shop.ask("project")
        living = {"server": shop.server, "relay": self.relay, **self._now}
        opened = {name: len(os.listdir(f"/proc/{process.pid}/fd")) for name, process in living.items() if process}
        assert max(opened.values()) < MOST_OPEN, f"descriptors are left open: {opened}"
        shop.bough("server", "stop", "--executors")
        for process in shop.processes():
            if process is not self.relay:
                shop.until(lambda process=process: process.is_over, f"the end of {process.log.name}")
        if self.relay is not None and not self.relay.is_over:
            self.relay.popen.send_signal(signal.SIGTERM)
            self.relay.popen.wait(30)
        shop.until(lambda: not shop.leftovers(), "the end of all processes")
        store = Path(shop.options[-1])
        journal = Journal(store)
        totals = {name: int((self.folder / f"{name}.out").read_text()) for name in NAMES}
        assert totals == {name: len(journal.successes[name]) for name in NAMES}, (
            "what scripts got is not what is stored"
        )
        assert not journal.unsuccessful, journal.unsuccessful[:5]
        extra = sum(self._check_effects(journal, name) for name in NAMES)
        self._check_database(store, sum(totals.values()))
        self._check_files(store)
        return [
            ("tasks done", sum(totals.values())),
            *sorted(self.faults.items()),
            ("executions of attempts that were lost", extra),
            ("attempts recorded as lost", sum(journal.lost.values())),
            ("attempts that a full disk ended", journal.sites),
            ("late successes of lost executors", journal.late),
            ("longest start of the server, s", round(max(self.starts, default=0.0), 2)),
            ("journal rows", journal.rows),
            ("most descriptors open in one process", max(opened.values())),
            ("seconds from the last fault to the end", round(self.settled, 1)),
        ]

    def _check_effects(self, journal: Journal, name: str) -> int:
        """The effect of every recorded success is there once; others only of attempts that were recorded as lost."""
        effects: defaultdict[str, list[str]] = defaultdict(list)
        for kind in ("functions", "commands"):
            for line in (self.folder / f"{name}.{kind}").read_text().splitlines():
                label, mark = line.split()
                effects[label].append(mark)
        expected = journal.successes[name]
        assert effects.keys() == {label for label, _, _ in expected.values()}, "effects of tasks that are not there"
        extra = 0
        for task, (label, mark, _) in expected.items():
            found = effects[label]
            assert found.count(mark) == 1, (
                f"{task} ({label}): the effect of {mark} is there {found.count(mark)} times: {found}"
            )
            assert len(found) - 1 <= journal.lost[task], (
                f"{task} ({label}) ran too often: {found}, {journal.lost[task]} lost"
            )
            extra += len(found) - 1
        return extra

    def _check_database(self, store: Path, total: int) -> None:
        """The relational tables agree with the journal."""
        database = sqlite3.connect(f"file:{store / 'journal.db'}?mode=ro", uri=True)
        try:
            rows = database.execute("SELECT state, sum(length), sum(done) FROM tasks GROUP BY state").fetchall()
            assert rows == [("done", total, total)], rows
            for path, size, mtime in database.execute("SELECT path, size, mtime_ns FROM files"):
                found = os.stat(path)
                assert (found.st_size, found.st_mtime_ns) == (size, mtime), path
        finally:
            database.close()

    def _check_files(self, store: Path) -> None:
        outside = [path for path in self.folder.rglob(".bough-*") if store not in path.parents]
        assert not outside, f"hidden outputs are left: {outside[:5]}"
        spilled = list((store / "spill").iterdir()) if (store / "spill").is_dir() else []
        assert not spilled, spilled
        sockets = [path for path in self.shop.home.rglob("*") if path.is_socket()]
        assert not sockets, f"sockets are left: {sockets}"
        assert not (self.shop.home / "server" / "server.json").exists()

    def clean_up(self) -> None:
        for script in self.scripts.values():
            if script.poll() is None:
                script.kill()
            script.wait()
        self.shop.clean_up()
        for pid in self.shop.leftovers():
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        if self.cable is not None:
            self.cable.remove()
        if self.disk is not None:
            self.disk.remove()


class Journal:
    """What the store tells: per workflow and task its success, and how often an attempt of it was lost."""

    def __init__(self, store: Path) -> None:
        self.successes: dict[str, dict[str, tuple[str, str, int]]] = {}
        self.lost: Counter[str] = Counter()
        self.unsuccessful: list[object] = []
        self.late = self.rows = self.sites = 0
        self._items: dict[int, tuple[TaskSpec | ArraySpec, str]] = {}
        self._spans: dict[int, tuple[Placed, set[int]]] = {}
        self._runs: dict[int, str] = {}
        self._groups: dict[int, str] = {}
        opened, closed = set(), set()
        database = sqlite3.connect(f"file:{store / 'journal.db'}?mode=ro", uri=True)
        try:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            for (data,) in database.execute("SELECT facts FROM journal ORDER BY turn"):
                self.rows += 1
                for fact in decode(data):
                    if isinstance(fact, RunOpened) and fact.group:
                        self._groups[fact.group] = fact.name
                        self.successes[fact.name] = {}
                        opened.add(fact.run)
                    elif isinstance(fact, RunClosed):
                        closed.add(fact.run)
                    else:
                        self._take(fact)
        finally:
            database.close()
        assert opened == closed, f"workflows are open: {opened - closed}"
        missing = [name for name, (_, workflow) in self._tasks() if name not in self.successes[workflow]]
        assert not missing, f"{len(missing)} tasks have no success: {missing[:5]}"

    def _tasks(self) -> Iterator[tuple[str, tuple[TaskSpec | ArraySpec, str]]]:
        for record, item in self._items.items():
            for index in range(item[0].length if isinstance(item[0], ArraySpec) else 1):
                yield f"{record}.{index}", item

    def _take(self, fact: object) -> None:  # noqa: C901 -- a table of facts
        match fact:
            case Submitted():
                for item in fact.items:
                    if isinstance(item, TaskSpec | ArraySpec):
                        assert item.id not in self._items, f"{item.id} was submitted twice"
                        self._items[item.id] = (item, self._groups[item.group])
            case Placed():
                self._spans[fact.span] = (fact, set(range(fact.start, fact.stop)))
            case SpanEnded():
                self._succeed(fact)
            case ElementFailed():
                self._end(fact.span, {fact.index})
                self.lost[f"{fact.record}.{fact.index}"] += 1
                self.sites += fact.failure.site
                if fact.retry_at < 0 or not (fact.failure.cause is Cause.LOST or fact.failure.site):
                    self.unsuccessful.append(fact)
            case SpanReturned():
                self._end(fact.span, set(range(fact.start, fact.stop)))
            case ExecutorLost():
                for span, (placed, left) in list(self._spans.items()):
                    if placed.executor == fact.executor:
                        self.lost.update(f"{placed.record}.{index}" for index in left)
                        del self._spans[span]
            case Skipped():
                self.unsuccessful.append(fact)

    def _end(self, span: int, indices: set[int]) -> None:
        if span in self._spans:
            left = self._spans[span][1]
            left -= indices
            if not left:
                del self._spans[span]

    def _succeed(self, fact: SpanEnded) -> None:
        spec, workflow = self._items[fact.record]
        self.late += fact.stop - fact.start if fact.span not in self._spans else 0
        self._end(fact.span, set(range(fact.start, fact.stop)))
        for span, (placed, left) in list(self._spans.items()):  # attempts that a late success has ended
            if placed.record == fact.record and fact.span not in self._spans:
                overtaken = left & set(range(fact.start, fact.stop))
                self.lost.update(f"{fact.record}.{index}" for index in overtaken)
                self._end(span, overtaken)
        values: list[str] | None = None
        if spec.kind is Kind.FUNCTION:
            results = fact.results
            data = Path(results.path).read_bytes() if isinstance(results, ResultFile) else results
            assert isinstance(data, bytes)
            values = pickle.loads(data)
        for index in range(fact.start, fact.stop):
            task = f"{fact.record}.{index}"
            assert task not in self.successes[workflow], f"{task} has two successes"
            if values is not None:
                label = f"{spec.name}.{index}" if isinstance(spec, ArraySpec) else spec.name
                found = (label, values[index - fact.start], fact.attempt)
            else:
                found = (task, str(fact.attempt), fact.attempt)
            self.successes[workflow][task] = found


def soak(folder: Path, seconds: float, tasks: int, seed: int) -> None:
    """One soak, from nothing to nothing; AssertionError says what is wrong."""
    made = Soak(folder, seconds, tasks, seed)
    begun = time.monotonic()
    try:
        made.set_up()
        made.run()
        rows = made.check()
    except BaseException:
        print(f"seed {seed}, {time.monotonic() - begun:.0f} s, faults: {dict(made.faults)}", flush=True)
        keep = os.environ.get("BOUGH_SOAK_KEEP")
        made.clean_up()
        if keep:
            shutil.copytree(folder, keep, ignore=shutil.ignore_patterns("*.sock", "ballast"), dirs_exist_ok=True)
        raise
    finally:
        made.clean_up()
        made.remove()
    width = max(len(name) for name, _ in rows)
    print(f"\nsoak of {time.monotonic() - begun:.0f} s, seed {seed}")
    for name, value in rows:
        print(f"  {name:<{width}}  {value:>10,}")
    for note in made.notes:
        print(f"  {note}")


def main() -> int:
    seconds = float(os.environ.get("BOUGH_SOAK_SECONDS", "600"))
    tasks = int(os.environ.get("BOUGH_SOAK_TASKS", "200000"))
    seed = int(os.environ.get("BOUGH_SOAK_SEED", str(int(time.time()) % 100_000)))
    print(f"soak of {seconds:g} s and {tasks:,} tasks, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="bough-soak-", ignore_cleanup_errors=True) as folder:
        soak(Path(folder), seconds, tasks, seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
