"""Call `bough` with hostile arguments: python tests/fuzz/fuzz_cli.py --inputs 100000 --processes 1000 --seed 1.

The arguments are made from the commands' own parsers, so that a new command or option is covered by itself, with
hostile values beside fitting ones, in a scratch folder with a store, and with a server that has no executors, so that
what is submitted is stored and never run. Commands that serve until somebody ends them are called as processes.
Rule: the exit code is 0, 1, 2 or 3 (where the world is at fault) or one that a command documents, never 70, never a
traceback, never a hang, a refusal is one line, and the server outlives all of it and starts again with a sound store.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # when it is called as a program

from bough.api.session.session import opened_sessions
from bough.cli.main import COMMANDS, load_command, make_parser
from bough.cli.main import main as bough
from bough.transport import home
from tests.fuzz.fuzz_descriptions import SAFE
from tests.fuzz.hostile import (
    DEADLINE,
    FINE,
    LONG_DEADLINE,
    NUMBERS,
    RANGES,
    SELECTORS,
    TEXTS,
    Outcome,
    Tally,
    attack_by_hand,
    call,
    call_process,
    lay_traps,
    pick,
    scratch,
)

GOOD = {  # by what an option is about: values with which commands get further
    "numbers": ("1", "2", "3", "0.5", "10", "0"),
    "times": ("1s", "10m", "1:30:00", "250ms", "30d", "90"),
    "amounts": ("1GB", "512 MiB", "1000", "0"),
    "names": ("default", "list", "q", "work", "align", "fifo", "sjf", "me@here", "status", "local"),
    "selectors": ("last", "all", "1", "1.0", "2", "1-3", "list:all", "default:all", "align/*", "true"),
    "forms": ("make", "flat", "dot", "json", "wfformat", "mqsub"),
    "places": (".bough", ".bough/list", "list.txt", "plan.json", "w.dag", "groups.txt", "out", "new/one"),
    "statements": (
        "select * from tasks",
        "select count(*) from runs",
        "select 1/0",
        "select * from nothing",
        "delete from runs",
    ),
    "calendars": ("Mon-Fri 20:00-07:00, Sat, Sun", "daily", "Sat-Mon", "08:00-24:00", "Mon 25:00-1:00", "Mon,,Tue"),
    "addresses": ("access.json", "broken.json", "unix:/nowhere"),
}
FITTING = (  # by a piece of an option's name, its metavar or its type
    (
        (
            "older_than",
            "since",
            "timeout",
            "heartbeat",
            "reconnect",
            "overlong_least",
            "keep",
            "replay",
            "until",
            "grace",
            "every",
        ),
        "times",
    ),
    (("memory",), "amounts"),
    (("calendar",), "calendars"),
    (("array",), "ranges"),
    (("selector", "after", "executors", "id", "task"), "selectors"),
    (("server", "address", "listen"), "addresses"),
    (("statement",), "statements"),
    (("file", "store", "work", "output", "folder", "source", "target", "each_line", "what"), "places"),
    (
        ("run", "priority", "retries", "cores", "gpus", "tail", "exit_code", "count", "whole", "amount", "number"),
        "numbers",
    ),
    (("to",), "forms"),
)
ENVIRONMENT = (
    "BOUGH_SERVER",
    "BOUGH_HERE",
    "BOUGH_TASK",
    "BOUGH_ATTEMPT",
    "COLUMNS",
    "TERM",
    "NO_COLOR",
    "LC_ALL",
    "BOUGH_RUN",
)
SERVES = frozenset({"server start", "executor start", "relay start", "watch", "browse"})  # until somebody ends it
PATIENT = {"site test": 200.0, "site remove": 200.0}  # seconds: they wait for hosts and for pilots, within bounds
MEASURES = frozenset({"bench", "study", "simulate"})  # for minutes, unless something is wrong with what is asked for
OWN_CODES = {"take": frozenset({10, 11, 12}), "run": frozenset({126, 127})}  # 127: the program was not found
CALLED_BY_HAND = frozenset({"server stop"})  # with which all others would have nothing to talk to
COMMAND_WORDS = (
    ("true",),
    ("true", "{index}"),
    ("true {line}",),
    ("true", "{}", "{line.stem}"),
    ("true {indx} ${HOME} {{x}}",),
    ("true", "a b"),
    ("awk '{print}' x",),
    ("",),
    ("true", "\udcff"),
)


class Leaf(NamedTuple):
    """A command, or a verb of one, and its options."""

    words: tuple[str, ...]
    parser: argparse.ArgumentParser

    @property
    def name(self) -> str:
        """As one types it."""
        return " ".join(self.words)


def leaves() -> list[Leaf]:
    """All commands that there are, found by their parsers."""
    found: list[Leaf] = []
    for name in COMMANDS:
        parser = make_parser(name, load_command(name))
        verbs = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        inner = [Leaf((name, verb), one) for action in verbs for verb, one in action.choices.items()]
        found += inner or [Leaf((name,), parser)]
    return found


class CommandLines:
    """Makes command lines for the folder we are in."""

    def __init__(self, dice: random.Random, folder: Path) -> None:
        self.dice = dice
        self.traps = tuple(lay_traps(folder))
        self.leaves = leaves()
        for name, text in SAFE.values():
            Path(name).write_text(text)
        Path("plan.json").write_text('{"bough_plan": 1, "root": {"name": "", "tasks": [{"command": "true"}]}}')
        Path("list.txt").write_text("true\nname: cores=1 :: true x\nfails: after=name :: false\n")
        Path("a.sub").write_text("executable = /bin/true\nqueue\n")
        Path("inner.dag").write_text("JOB X a.sub\n")
        Path("more.dag").write_text("JOB M a.sub\n")
        Path("bough.toml").write_text("[profile.work]\nretries = 1\nfail-fast = true\n[profile.q]\ncorse = 1\n")
        Path("script.py").write_text("import sys\nprint(sys.argv)\n")
        Path("access.json").write_text(
            '{"address": "127.0.0.1:1", "role": "submit", "token": "x", "fingerprint": "00"}'
        )
        Path("broken.json").write_text('{"address": 5, "role": [["submit"]]')
        for name in ("access.json", "broken.json"):
            Path(name).chmod(0o600)

    def make(self, *, serving: bool) -> tuple[Leaf, list[str], dict[str, str], bytes]:
        """A command, its words, what is different in the environment, and what it reads."""
        dice = self.dice
        while True:
            leaf = dice.choice(self.leaves)
            if leaf.name not in CALLED_BY_HAND and (serving or leaf.name not in SERVES):
                break
        words = self._arguments(leaf)
        if dice.random() < 0.05:
            words.insert(dice.randrange(len(words) + 1), pick(dice, TEXTS, NUMBERS))
        environment = {}
        if dice.random() < 0.08:
            environment[dice.choice(ENVIRONMENT)] = pick(dice, TEXTS, NUMBERS, SELECTORS, self.traps)
        stdin = dice.choice((b"", b"true\n", b"\xff\0", b"x " * 1000, b"select 1", b"{", b"::\n" * 50))
        return leaf, self._bounded(leaf, [*leaf.words, *words]), environment, stdin

    def _arguments(self, leaf: Leaf) -> list[str]:
        dice = self.dice
        options: list[str] = []
        positional: list[str] = []
        for action in leaf.parser._actions:
            if isinstance(action, argparse._HelpAction):
                if dice.random() < 0.01:
                    options.append("--help")
            elif not action.option_strings:
                positional += self._positional(leaf, action)
            elif action.required or dice.random() < min(0.25, 2.5 / len(leaf.parser._actions)):
                options += self._option(action)
        if dice.random() < 0.1:
            options += options[:2]
        return positional + options if dice.random() < 0.1 else options + positional

    def _option(self, action: argparse.Action) -> list[str]:
        dice = self.dice
        name = dice.choice(action.option_strings)
        if action.nargs == 0:
            return [name] if dice.random() < 0.97 else [f"{name}={self._value(action)}"]
        if action.nargs == "?" and dice.random() < 0.5:
            return [name]
        value = self._value(action)
        return [f"{name}={value}"] if dice.random() < 0.4 and name.startswith("--") else [name, value]

    def _positional(self, leaf: Leaf, action: argparse.Action) -> list[str]:
        dice = self.dice
        if action.nargs == argparse.REMAINDER:
            if leaf.name in {"submit", "run"} and dice.random() < 0.7:
                return ["--", *dice.choice(COMMAND_WORDS)]
            if leaf.name in {"submit", "run"}:
                return [dice.choice((*GOOD["places"], "script.py", "-", *self.traps))]
            return [self._value(action) for _ in range(dice.choice((0, 0, 0, 1, 2)))]
        few = {None: (1,), "?": (0, 1), "*": (0, 1, 2), "+": (1, 2)}[action.nargs]  # type: ignore[index]
        if dice.random() < 0.03:
            few = (0, 3)
        return [self._value(action) for _ in range(dice.choice(few))]

    def _value(self, action: argparse.Action) -> str:
        """A value of the kind that an option is about, good or hostile, or of any other."""
        dice = self.dice
        if action.choices is not None and dice.random() < 0.7:
            return str(dice.choice(list(action.choices)))
        kind = _kind(action)
        hostile = {"numbers": NUMBERS, "ranges": RANGES, "selectors": SELECTORS, "places": self.traps, "times": NUMBERS}
        chance = dice.random()
        if chance < 0.6 and kind in GOOD:
            return dice.choice(GOOD[kind])
        if chance < 0.8:
            return dice.choice(hostile.get(kind, TEXTS))
        return pick(dice, NUMBERS, RANGES, SELECTORS, TEXTS, self.traps, *GOOD.values())

    def _bounded(self, leaf: Leaf, words: list[str]) -> list[str]:
        """The same without what would measure for minutes, wait for what nobody runs, outlive us or run for real."""
        if leaf.name == "site availability":
            words = _without_commands(words)
        if leaf.name in MEASURES:
            words += ["--only", "nothing"] if leaf.name == "bench" else ["nothing"]
        words = [word for word in words if word not in {"--wait", "--follow", "-f", "--detach"}]
        if leaf.name == "run" and "--dry-run" not in words and self.dice.random() < 0.97:
            words.insert(1, "--dry-run")
        return words


def _without_commands(words: list[str]) -> list[str]:
    """The server runs what `--command` says, whatever it is: here it is `false`."""
    kept = ["--command=false" if word.startswith("--com") and "=" in word else word for word in words]
    named = [at for at, word in enumerate(kept[:-1]) if word.startswith("--com") and "=" not in word]
    return ["false" if at - 1 in named else word for at, word in enumerate(kept)]


def _kind(action: argparse.Action) -> str:
    said = {action.dest, str(action.metavar or "").lower(), getattr(action.type, "__name__", "").strip("_")}
    for names, kind in FITTING:
        if any(name in said for name in names) or any(name in action.dest for name in names if len(name) > 3):
            return kind
    return "names"


# --- the world --------------------------------------------------------------------------------------------


class World:
    """A server without executors, which is started again when a command has ended it."""

    def __init__(self) -> None:
        self.starts = 0
        self.pid = 0

    def ensure(self) -> bool:
        """Start the server unless it runs; whether it had died."""
        note = home.read_note()
        if note is not None and note.pid == self.pid and _is_alive(self.pid):
            return False
        self.starts += 1
        subprocess.run(
            [sys.executable, "-P", "-m", "bough.cli.main", "server", "start", "--detach"],
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=120,
        )
        note = home.read_note()
        assert note is not None
        self.pid = note.pid
        return self.starts > 1

    def last_words(self) -> str:
        """What the server wrote last."""
        with contextlib.suppress(OSError):
            return Path(home.server_dir(), "server.log").read_text(errors="replace")[-3000:]
        return ""

    def end(self) -> None:
        """End the server, and a relay if one was left."""
        for folder in (home.server_dir(), home.relay_dir()):
            for path in Path(folder).glob("*.json"):
                with contextlib.suppress(ValueError, KeyError, OSError, TypeError):
                    import json

                    pid = json.loads(path.read_text())["pid"]
                    if b"bough" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + 30
        while self.pid and _is_alive(self.pid) and time.monotonic() < until:
            time.sleep(0.05)
        if self.pid and _is_alive(self.pid):
            os.kill(self.pid, signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def world(seed: int) -> Iterator[tuple[World, CommandLines]]:
    """A folder with files, a store of a run that is over, and a server."""
    with scratch("fuzz-cli-") as folder:
        lines = CommandLines(random.Random(seed), folder)
        subprocess.run(
            [sys.executable, "-P", "-m", "bough.cli.main", "run", "--quiet", "list.txt"], check=False, timeout=120
        )
        made = World()
        try:
            made.ensure()
            yield made, lines
        finally:
            made.end()


@contextlib.contextmanager
def _surroundings(changed: dict[str, str]) -> Iterator[None]:
    kept = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _patience(leaf: Leaf, words: list[str], usual: float) -> float:
    return usual if "--force" in words else PATIENT.get(leaf.name, usual)


def _call(leaf: Leaf, words: list[str], stdin: bytes) -> Outcome:
    try:
        return call(lambda: bough(words), stdin, _patience(leaf, words, DEADLINE))
    finally:  # what one process leaves to its own end
        opened_sessions.clear()


def _ours(words: list[str], outcome: Outcome) -> Outcome:
    """What is said of a command that ran, its exit code and its stderr are its own.

    One that is bound to a site waits for as long as that has nothing for it.
    """
    if words[:1] == ["run"] and str(outcome.code).startswith("hung") and any(one.startswith("--si") for one in words):
        return Outcome(0, outcome.err)
    ran = words[:1] == ["run"] and "bough: task 1 " in outcome.err and "exit code 2" in outcome.err
    return Outcome(1, outcome.err) if ran and outcome.code == 2 else outcome


def attack(inputs: int, seed: int, report: Callable[[str], None]) -> tuple[Counter[str], int]:
    """Call this many commands in this process; what became of them, and how many broke something."""
    tally = Tally(report)
    recent: list[object] = []
    with world(seed) as (server, lines):
        for number in range(inputs):
            leaf, words, environment, stdin = lines.make(serving=False)
            with _surroundings(environment):
                outcome = _call(leaf, words, stdin)
            shown = (words, environment, stdin)
            recent = [*recent[-30:], shown]
            tally.add(leaf.name, _ours(words, outcome), shown, FINE | OWN_CODES.get(leaf.name, frozenset()))
            if number % 100 == 99 and server.ensure():
                tally.add("the server", Outcome(f"it died: {server.last_words()}", ""), recent)
        for words in (["server", "stop"], ["store", "check", "--store", f"{home.server_dir()}/store"]):
            tally.add(" ".join(words[:2]), call_process(words), words, frozenset({0}))
        server.ensure()
        tally.add("status", call_process(["status"]), "after a restart", frozenset({0}))
    return tally.counts, tally.broken


def attack_processes(inputs: int, seed: int, report: Callable[[str], None]) -> tuple[Counter[str], int]:
    """The same with a process for each, also of the commands that serve, which are ended after a while."""
    tally = Tally(report)
    with world(seed) as (server, lines):
        for number in range(inputs):
            leaf, words, environment, stdin = lines.make(serving=True)
            serves = leaf.name in SERVES
            with _surroundings(environment):
                outcome = call_process(words, stdin, 3.0 if serves else _patience(leaf, words, LONG_DEADLINE))
            if serves and str(outcome.code).startswith("hung"):
                outcome = Outcome(0, outcome.err)
            fine = FINE | OWN_CODES.get(leaf.name, frozenset())
            tally.add(leaf.name, _ours(words, outcome), (words, environment, stdin), fine)
            if number % 20 == 19 and server.ensure():
                tally.add("the server", Outcome(f"it died: {server.last_words()}", ""), words)
    return tally.counts, tally.broken


if __name__ == "__main__":
    sys.exit(attack_by_hand(__doc__, "command lines", attack, attack_processes))
