"""Talks to a running task, wherever it runs: `task.communicator()`.

    talk = task.communicator()
    for _ in talk.every(10):                                   # ends with the task
        if "diverged" in talk.tail("log.txt", 5):
            talk.fail("it diverged")

A call waits until the task runs. Questions (`tail`, `read`, `exists`, `list`, `size`) are about the task as it is now:
when the attempt ends before it has answered, or its executor or the server is lost, the next attempt is asked. Deeds
(`signal`, `run`) are for the attempt that was last heard of, and are never done twice: when it has ended they raise
`AttemptEnded`. Rule: when the task has ended, whatever waits or is called raises `TaskEnded`; the loops end.
"""

from __future__ import annotations

import concurrent.futures
import os
import re
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec.structs import replace

from bough.errors import (
    AttemptEnded,
    BadValue,
    BoughError,
    MissingFile,
    NotRunning,
    PeerLost,
    ProtocolError,
    TaskEnded,
)
from bough.model.bounds import shown, within
from bough.model.ids import RecordId, read_seconds
from bough.model.monitoring.monitors import Fail, Finish, compile_pattern
from bough.wire.probes import (
    DEEDS,
    LONGEST_COMMAND,
    MOST_READ,
    STREAMS,
    CommandRan,
    Exists,
    FarPath,
    FileData,
    FileSize,
    FileThere,
    FolderNames,
    ListFolder,
    ProbeQuestion,
    ReadPart,
    RunCommand,
    SendSignal,
    Tail,
)
from bough.wire.questions import Probe, ProbeReply

if TYPE_CHECKING:
    from bough.api.futures.observed import Point, TaskProgress
    from bough.api.futures.task import Task

    Points = list[Point]

T = TypeVar("T")
Names = list[str]
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds between two looks whether the task runs
_PART = 1 << 20  # bytes of lines that are asked for at a time
_HEARD = 5.0  # seconds in which this process hears of an end that the server knows of


class Attempt(NamedTuple):
    """Which attempt at a task answered, and where."""

    number: int
    executor: int
    host: str


class CommandResult(NamedTuple):
    """What a command beside a task did."""

    exit_code: int
    stdout: str
    stderr: str
    is_cut: bool  # it wrote more than 1 MiB to one of them


class Communicator:
    """See the module. Threads may share one."""

    def __init__(self, task: Task, timeout: float | None = None) -> None:
        """`timeout`: seconds that a call may wait until the task runs; None: as long as it takes."""
        self.task = task
        self.attempt: Attempt | None = None  # that answered last
        self._timeout = timeout

    # --- questions ----------------------------------------------------------------------------------

    def tail(self, path: str = "stdout", lines: int = 10, pattern: str | None = None) -> str:
        """The last lines of a file, of "stdout" or of "stderr"; with a pattern, of the lines that it is found in."""
        question = Tail(_path(path), within("lines", lines, int), _pattern(pattern))
        return self._expect(FileData, self._ask(question)).data.decode("utf-8", "replace")

    def read(self, path: str = "stdout", pattern: str | None = None, *, offset: int = 0, size: int = MOST_READ) -> str:
        """A file from an offset on, at most `size` bytes; with a pattern only the lines that it is found in."""
        return self.read_bytes(path, pattern, offset=offset, size=size).decode("utf-8", "replace")

    def read_bytes(
        self, path: str = "stdout", pattern: str | None = None, *, offset: int = 0, size: int = MOST_READ
    ) -> bytes:
        """As `read`, as bytes."""
        question = ReadPart(_path(path), offset, size, _pattern(pattern))
        pieces: list[bytes] = []
        attempt = 0
        while True:
            try:
                reply = self._ask(question, attempt)
            except TaskEnded:
                raise
            except AttemptEnded:  # what was read so far is of another file
                pieces, attempt, question = [], 0, replace(question, offset=offset, size=size)
                continue
            part = self._expect(FileData, reply)
            pieces.append(part.data)
            left = question.size - len(part.data)
            if not part.more or left <= 0:
                return b"".join(pieces)
            attempt, question = reply.attempt, replace(question, offset=part.offset, size=left)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return self._expect(FileThere, self._ask(Exists(_path(path)))).is_there

    def size(self, path: str = "stdout") -> int:
        """How many bytes a file has."""
        return self._expect(FileThere, self._ask(FileSize(_path(path)))).size

    def list(self, path: str = ".") -> Names:
        """What is in a folder, folders with a slash behind; of a huge one some 10,000 names."""
        return [os.fsdecode(name) for name in self._expect(FolderNames, self._ask(ListFolder(_path(path)))).names]

    def progress(self) -> TaskProgress:
        """How far it is, by the metrics that it prints or reports, as `task.progress`."""
        return self.task.progress

    def series(self, metric: str = "value") -> Points:
        """The values of a metric so far, as `task.series`."""
        return self.task.series(metric)

    # --- loops --------------------------------------------------------------------------------------

    def started(self, timeout: float | None = None) -> Attempt:
        """Wait until it runs; which attempt, and where."""
        self._ask(Exists("."), timeout=timeout)
        assert self.attempt is not None
        return self.attempt

    def every(self, seconds: float | str = 1.0) -> Iterator[Attempt]:
        """Once each so many seconds while the task runs, through all attempts; ends with the task."""
        pause = read_seconds(seconds)
        while True:
            try:
                yield self.started()
            except TaskEnded:
                return
            if self._ends_within(pause):
                return

    def lines(self, path: str = "stdout", pattern: str | None = None, every: float | str = 1.0) -> Iterator[str]:
        """The lines of a file as they are written, of all attempts; ends with the task.

        Of "stdout" and "stderr" all lines come, of another file those that were there at the last look.
        """
        pause, search = read_seconds(every), _pattern(pattern)
        attempt = offset = 0
        while True:
            try:
                reply = self._ask(ReadPart(_path(path), offset, _PART, search, whole=True), attempt)
            except TaskEnded:
                break
            except AttemptEnded:
                attempt = offset = 0  # the next one begins anew
                continue
            except MissingFile:
                self._ends_within(pause)
                continue
            part = self._expect(FileData, reply)
            attempt, offset = reply.attempt, part.offset
            yield from _split(part.data)
            if not part.more:
                self._ends_within(pause)
        if path in STREAMS:
            yield from self._last_lines(path, search, attempt, offset)

    def _last_lines(self, name: str, search: str, attempt: int, offset: int) -> Iterator[str]:
        """What was written between the last look and the end."""
        concurrent.futures.wait([self.task], _HEARD)
        if self.task.attempts != attempt:
            offset = 0
        try:
            data = self.task._written(name)[offset:]
        except BoughError:  # nobody knows any more
            return
        found = re.compile(search.encode())
        yield from (line.decode("utf-8", "replace") for line in data.splitlines() if found.search(line))

    # --- deeds --------------------------------------------------------------------------------------

    def signal(self, number: int | str) -> None:
        """Send a signal, as 10 or "USR1", to the processes of a command, or to the one that runs a function."""
        self._do(SendSignal(_signal(number)))

    def run(self, command: str, timeout: float | str = 60.0) -> CommandResult:
        """Run a command line beside the task, in its directory; the executor must have been started with leave to.

        $BOUGH_PID is the process of the task. SiteError: it took longer than `timeout`, and was ended.
        """
        seconds = read_seconds(timeout)
        if not 0.001 <= seconds <= LONGEST_COMMAND:
            raise BadValue(f"timeout is {shown(timeout)}; it must be from 0.001 to {LONGEST_COMMAND:g} s")
        ran = self._expect(CommandRan, self._do(RunCommand(command, seconds)))
        stdout, stderr = ran.stdout.decode("utf-8", "replace"), ran.stderr.decode("utf-8", "replace")
        return CommandResult(ran.exit_code, stdout, stderr, ran.cut)

    def kill(self) -> None:
        """End the running attempt: the task fails and is not tried again."""
        self._check_going()
        self.task.kill()

    def finish(self, reason: str = "", *, grace: float = 5.0) -> None:
        """End the task as a success, with what it wrote so far as its outputs; `grace`: seconds from TERM to KILL."""
        self._end(Finish(grace), reason)

    def fail(self, reason: str = "", *, grace: float = 5.0) -> None:
        """End the running attempt as a failure: the task is tried again if it has retries."""
        self._end(Fail(reason, grace), reason)

    def _end(self, verdict: Finish | Fail, reason: str) -> None:
        deadline = _deadline(self._timeout)
        pause = _FIRST_PAUSE
        while not self.task._registry.end_early(self.task.dep(), verdict, reason):  # it does not run
            pause = self._wait(pause, deadline)

    # --- asking -------------------------------------------------------------------------------------

    def _ask(self, question: ProbeQuestion, attempt: int = 0, timeout: float | None = None) -> ProbeReply:
        """Ask the attempt that runs, or this one; wait until one does."""
        task, pause = self.task, _FIRST_PAUSE
        deadline = _deadline(self._timeout if timeout is None else timeout)
        is_deed = isinstance(question, DEEDS)
        while True:
            try:
                reply = task._registry.probe(Probe(RecordId(task.record), question, task.index, attempt))
            except AttemptEnded:
                if attempt or is_deed or task.done():
                    raise
            except NotRunning:
                self._check_going()
            except PeerLost:
                if is_deed or task._registry.is_closed:
                    raise
            else:
                self.attempt = Attempt(reply.attempt, reply.executor, reply.host)
                return reply
            pause = self._wait(pause, deadline)

    def _do(self, question: ProbeQuestion) -> ProbeReply:
        """Have something done by the attempt that was last heard of."""
        try:
            return self._ask(question, self.attempt.number if self.attempt is not None else 0)
        except AttemptEnded:
            self.attempt = None  # the next deed is for the next one
            raise

    def _wait(self, pause: float, deadline: float) -> float:
        """Wait a moment for the task to run; how long to wait the next time."""
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{self._label} does not run")
        self._ends_within(min(pause, deadline - time.monotonic()))
        self._check_going()
        return min(2 * pause, _LONGEST_PAUSE)

    def _ends_within(self, seconds: float) -> bool:
        return bool(concurrent.futures.wait([self.task], seconds).done)

    def _check_going(self) -> None:
        if self.task.done():
            raise TaskEnded(f"{self._label} has ended: only a running task can be asked")

    def _expect(self, kind: type[T], reply: ProbeReply) -> T:
        if not isinstance(reply.result, kind):
            raise ProtocolError(f"{self._label} was answered by {type(reply.result).__name__}")
        return reply.result

    @property
    def _label(self) -> str:
        from bough.api.futures.task import label_of

        return label_of(self.task)

    def __repr__(self) -> str:
        where = f", attempt {self.attempt.number} on {self.attempt.host}" if self.attempt is not None else ""
        return f"<communicator to {self._label}{where}>"


def _path(path: str) -> str:
    return within("path", os.fspath(path), FarPath)


def _pattern(pattern: str | None) -> str:
    if pattern:
        compile_pattern(pattern, "pattern")
    return pattern or ""


def _signal(number: int | str) -> int:
    try:
        if isinstance(number, str):
            return int(signal.Signals[number if number.startswith("SIG") else f"SIG{number}"])
        return int(signal.Signals(number))
    except (KeyError, ValueError):
        raise BadValue(f"{shown(number)} is no signal; say USR1 or 10") from None


def _split(data: bytes) -> Iterator[str]:
    return (line.decode("utf-8", "replace") for line in data.splitlines())


def _deadline(timeout: float | None) -> float:
    return float("inf") if timeout is None else time.monotonic() + timeout
