"""Jobs, the files they declare, their stages, and the bundles in which they are submitted.

A bundle is one array whose elements are its jobs. A group's bundle leaves when it has as many jobs as the group's
factor says, when nothing was added for a while, or at a barrier. Without a factor it leaves at the first pause, or
after a moment, and how much of it is dispatched at a time follows from measured run times, as for any array.
A declared path that stands by itself in a command line becomes a slot that the executor fills in: jobs whose command
lines have the same form, whatever their words and paths, can be one array. The stages of a pipeline run one after the
other in one worker, and so on one host, each with its own end and output.
Rule: after a stage that fails nothing more is started, unless the pipeline is to keep going; what was not started says
so. No program can leave one of the codes from 1000 on. `run_stages` travels by name to workers.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bough.errors import UserError
from bough.model.commands.shell_text import needs_shell, split_words
from bough.model.files import absolute

if TYPE_CHECKING:
    from bough.api.futures.array import Array

NOT_RUN = 1000  # a stage of its pipeline failed before it, or the workflow stopped
CANCELLED = 1001
LOST = 1002  # its executor died under it, once too often
NO_OUTPUT = 1003  # it left 0, but not a file that it had declared
_NOT_STARTED = 127  # what shells say of a program that cannot be started
MOST = 512  # jobs in a bundle of a group without a factor
LONGEST = 0.01  # seconds for which such a bundle takes more while jobs are issued without a pause
_BESIDE = r"[\w./-]"  # what belongs to a longer path

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Job(msgspec.Struct, eq=False):
    """One command line: where it is now, and how it ended once that was asked for."""

    key: int
    command: str | Sequence[Any]
    stage: Stage
    producer: object
    label: str
    files: JobFiles | None = None
    bundle: Bundle | None = None  # that it joined; None: its pipeline is not complete
    index: int = 0  # in the bundle
    place: int = -1  # in its pipeline; -1: it is none's
    code: int | None = None


class Pipeline(msgspec.Struct, eq=False):
    """Stages that run one after the other."""

    label: str
    length: int
    group: str
    keep_going: bool
    stages: list[Job]

    def missing(self) -> str:
        """What to tell a caller that waits for it."""
        return (
            f"pipeline {self.label!r} has {len(self.stages)} of its {self.length} stages:"
            " issue the others before waiting for it"
        )


class JobGroup(msgspec.Struct, eq=False):
    """A label, and how its jobs are batched."""

    label: str
    factor: int | None  # None: chosen by Bough
    timeout: float  # seconds after the last job in which an incomplete bundle waits for more


class Bundle(msgspec.Struct, eq=False):
    """Jobs, or whole pipelines, that are submitted together."""

    group: JobGroup
    is_pipelines: bool
    rows: list[list[Job]]  # of jobs: one in each
    begun: float = 0.0  # when the first one was added
    changed: float = 0.0  # when the last one was
    array: Array | None = None  # once it is submitted
    error: Exception | None = None  # why it could not be submitted
    is_cancelled: bool = False  # before it could be submitted
    keep_going: bool = False  # of pipelines: after a stage that failed

    def add(self, jobs: list[Job]) -> None:
        """One more."""
        for job in jobs:
            job.bundle, job.index = self, len(self.rows)
        self.changed = time.monotonic()
        self.begun = self.begun or self.changed
        self.rows.append(jobs)

    @property
    def jobs(self) -> int:
        """How many jobs it has; those of its pipelines all count."""
        return sum(map(len, self.rows))

    @property
    def is_full(self) -> bool:
        """Whether nothing more may join."""
        return len(self.rows) >= (self.group.factor or MOST)

    @property
    def due(self) -> float:
        """When it has waited long enough for more."""
        return self.changed + self.group.timeout if self.group.factor else min(self.changed, self.begun + LONGEST)

    def left(self) -> int:
        """How many of its rows have not ended."""
        if self.array is None:
            return len(self.rows) if self.error is None else 0
        return int(self.array._elements.left)  # type: ignore[attr-defined]


def read_command(command: object) -> list[str]:
    """A command line's words; a text that needs a shell is given to one."""
    if isinstance(command, str):
        if not command.strip() or "\0" in command:
            raise UserError("the command is empty" if not command.strip() else "the command holds a null character")
        if needs_shell(command):
            return ["/bin/sh", "-c", command]
        return ["".join(str(part) for part, _ in word) for word in split_words([command])]
    if isinstance(command, bytes) or not isinstance(command, Sequence) or not command:
        raise UserError(f"a command is a text or a list of words, not {command!r:.60}")
    try:
        return [os.fsdecode(word) for word in command]
    except TypeError:
        raise UserError(f"a command's words are texts and paths, not {command!r:.60}") from None


# --- declared files -----------------------------------------------------------------------------------


class JobFiles(msgspec.Struct, frozen=True, eq=False):
    """A command line over slots."""

    form: str  # the kinds of its parts: v a text, r and w a file; words are parted by blanks
    values: list[str]
    reads: frozenset[str]  # absolute
    writes: frozenset[str]

    def claim(self, written: dict[str, int], key: int) -> None:
        """Enter what job `key` writes, if it can be: one file has one writer, and what is read is there or coming."""
        for path in self.writes:
            if path in written:
                raise UserError(f"{path} is written by job {written[path]} already; give it another name")
        for path in self.reads:
            if path not in written and not os.path.exists(path):
                raise UserError(f"the input {path} does not exist, and no job issued before makes it")
        written.update(dict.fromkeys(self.writes, key))

    def text(self, name: str) -> str:
        """The template that it fills in; all of the same form have the same."""
        made, number = "", 0
        for kind in self.form:
            if kind == " ":
                made += " "
                continue
            made += f"{{{name}_{number}}}" if kind == "v" else f"{{{name}_{number}:{kind}}}"
            number += 1
        return made


def read_files(words: list[str], cwd: str, inputs: Paths, outputs: Paths) -> JobFiles | None:
    """What a command declares; None: nothing."""
    reads, writes = _paths("inputs", inputs), _paths("outputs", outputs)
    if not reads and not writes:
        return None
    both = next((path for path in reads if path in writes), None)
    if both is not None:
        raise UserError(f"{both} is declared as an input and as an output; give what is written another name")
    kinds = {**dict.fromkeys(reads, "r"), **dict.fromkeys(writes, "w")}
    found = _split(words, kinds)
    named = {text for word in found for kind, text in word if kind != "v"}
    unnamed = next((path for path in writes if path not in named), None)
    if unnamed is not None:
        raise UserError(f"the output {unnamed} does not stand in the command; name it there as it is declared")
    beside = [path for path in reads if path not in named]
    if beside:  # a shell takes them off, and becomes the command
        shell = [[("v", word)] for word in ("/bin/sh", "-c", f'shift {len(beside)}; exec "$@"', "sh")]
        found = [*shell, *([("r", path)] for path in beside), *found]
    return JobFiles(
        " ".join("".join(kind for kind, _ in word) for word in found),
        [text for word in found for _, text in word],
        frozenset(absolute(path, cwd) for path in reads),
        frozenset(absolute(path, cwd) for path in writes),
    )


def _paths(name: str, given: Paths) -> list[str]:
    some = [given] if isinstance(given, str | os.PathLike) else list(given)
    try:
        paths = [os.fsdecode(path) for path in some]
    except TypeError:
        raise UserError(f"{name} are paths, not {given!r:.60}") from None
    if not all(paths):
        raise UserError(f"{name} are paths, and one of them is empty")
    return list(dict.fromkeys(paths))


def _split(words: Sequence[str], kinds: dict[str, str]) -> list[list[tuple[str, str]]]:
    """Words as texts and files, longer paths first; a word always has a part."""
    some = "|".join(re.escape(path) for path in sorted(kinds, key=len, reverse=True))
    pattern = re.compile(f"(?<!{_BESIDE})({some})(?!{_BESIDE})")
    found = []
    for word in words:
        parts = [(kinds.get(text, "v") if at % 2 else "v", text) for at, text in enumerate(pattern.split(word))]
        found.append([part for part in parts if part[1]] or [("v", "")])
    return found


# --- stages of a pipeline, run in a worker ------------------------------------------------------------


class Stage(NamedTuple):
    """How a stage is started."""

    words: list[str]
    cwd: str
    env: dict[str, str]  # beside what the executor has


class Ended(NamedTuple):
    """How a stage ended; a negative code is a signal's number."""

    code: int
    stdout: bytes = b""
    stderr: bytes = b""
    started: float = 0.0
    ended: float = 0.0


def run_stages(stages: Sequence[Stage], keep_going: bool) -> list[Ended]:
    """Run them; called in a worker, whose process group they join, so that they end with it."""
    said: list[Ended] = []
    for stage in stages:
        if said and said[-1].code and not keep_going:
            said += [Ended(NOT_RUN)] * (len(stages) - len(said))
            break
        said.append(_run(stage))
    return said


def _run(stage: Stage) -> Ended:
    started = time.time()
    try:
        done = subprocess.run(
            stage.words,
            cwd=stage.cwd,
            env={**os.environ, **stage.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        return Ended(_NOT_STARTED, b"", f"{stage.words[0]}: {error.strerror}\n".encode(), started, time.time())
    return Ended(done.returncode, done.stdout, done.stderr, started, time.time())
