"""A process at a service, on whatever machine: its input travels with the task, its output comes back.

Its input is gathered until its end, for it must be known when the task is submitted; what it writes is asked for while
it runs, now and then, and passed on. Rule: every byte is passed on once, in order; when
`wait` returns, all of it is in the files and in this process' own streams.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
from typing import TYPE_CHECKING

from bough.driver.process_link import INHERITED, Streams, cause_of, return_code, wait_for, write_all
from bough.errors import BoughError, UserError
from bough.model.ids import RecordId
from bough.model.outcomes import Cause, Detail
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.futures.task import Task
    from bough.driver.process_link import ProcessRequest
    from bough.driver.session_choice import SessionChoice

_PAUSE = 0.3  # seconds between two looks at what a running process has written
_PIECE = 1 << 20
_ENDING = frozenset({signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})


class RemoteProcess:
    """See the module."""

    def __init__(self, place: SessionChoice, request: ProcessRequest, streams: Streams) -> None:
        self._place = place
        self._request = request
        self._task: Task | None = None
        self._error: BaseException | None = None
        self._sent: int = 0  # the signal it was ended with
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._is_merged = streams.is_merged()
        self._stdin = os.dup(streams.stdin) if streams.stdin != INHERITED else -1
        self._sinks = {"stdout": _sink(streams.stdout, 1, streams)}
        if not self._is_merged:
            self._sinks["stderr"] = _sink(streams.stderr, 2, streams)
        if self._stdin < 0 or not _is_stream(self._stdin):
            self._submit()
        threading.Thread(target=self._work, name="bough-driver-far", daemon=True).start()

    def _submit(self) -> None:
        request = self._request
        given = _read_all(self._stdin) if self._stdin >= 0 else None
        words = request.words
        if request.program != words[0]:
            words = ["bash", "-c", 'exec -a "$1" -- "$0" "${@:2}"', request.program, *words]
        if self._is_merged:
            words = ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *words]
        with self._lock:
            if self._sent:
                return
            self._task = self._place.submitter.command(
                words, cwd=request.cwd, env=request.env, stdin=given, memo=False, name=os.path.basename(words[0])[:40]
            )

    def _work(self) -> None:
        try:
            if self._task is None:
                self._submit()
            if self._task is not None:
                self._follow(self._task)
        except BaseException as error:  # noqa: BLE001 -- raised where the process is waited for
            self._error = error
        finally:
            self._over.set()
            for fd, _ in self._sinks.values():
                if fd >= 0:
                    os.close(fd)

    def _follow(self, task: Task) -> None:
        seen = dict.fromkeys(self._sinks, 0)
        while True:
            try:
                wait_for(task, _PAUSE)
                break
            except TimeoutError:
                if task.running():
                    self._pass_on(task, seen)
        detail = task._detail() or Detail(task.index)
        rest = {name: task._output(name, getattr(detail, name))[seen[name] :] for name in self._sinks}
        if cause_of(task) is Cause.NOT_STARTED and "stderr" in rest:
            rest["stderr"] += f"{task.exception()}\n".encode()
        for is_pipe in (False, True):  # a pipe that is not read must not keep files waiting
            if is_pipe:
                self._over.set()
            for name, data in rest.items():
                if self._sinks[name][1] is is_pipe:
                    self._write(name, data)

    def _pass_on(self, task: Task, seen: dict[str, int]) -> None:
        for name in self._sinks:
            with contextlib.suppress(BoughError):  # it has ended just now, or its executor is out of reach
                question = questions.Output(RecordId(task.record), 0, questions.stream_name(name), seen[name], _PIECE)
                data = self._place.session.ask(question).data
                seen[name] += len(data)
                self._write(name, data)

    def _write(self, name: str, data: bytes) -> None:
        fd = self._sinks[name][0]
        if fd >= 0 and data:
            with contextlib.suppress(BrokenPipeError):
                write_all(fd, data)

    # --- what `Popen` asks ------------------------------------------------------------------------------

    def pid(self) -> int | None:
        """Nobody here knows, nor could use it."""
        return None

    def ended(self) -> bool:
        """Whether it has, and what it wrote is here."""
        return self._over.is_set()

    def wait(self, timeout: float | None) -> int:
        """See `ProcessLink`."""
        if not self._over.wait(None if timeout is None else max(0.0, timeout)):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        if self._task is None:
            return -self._sent
        return return_code(self._task, self._sent or signal.SIGTERM)

    def signal(self, number: int) -> None:
        """End it; other signals do not travel."""
        if number not in _ENDING:
            raise UserError(f"signal {number} cannot be sent to a process at a server: only those that end it can")
        with self._lock:
            self._sent = number
        if self._task is not None:
            self._task.cancel()
        else:
            self._over.set()

    def abandon(self) -> None:
        """See `ProcessLink`."""
        self.signal(signal.SIGTERM)


def _sink(given: int, own: int, streams: Streams) -> tuple[int, bool]:
    """A descriptor of our own, and whether it leads to this process."""
    try:
        return os.dup(own if given == INHERITED else given), given in streams.pipes
    except OSError:
        return -1, False


def _is_stream(fd: int) -> bool:
    """Whether reading it may take its time."""
    mode = os.fstat(fd).st_mode
    return not stat.S_ISREG(mode) and os.fstat(fd).st_rdev != os.stat(os.devnull).st_rdev


def _read_all(fd: int) -> bytes:
    pieces: list[bytes] = []
    while piece := os.read(fd, _PIECE):
        pieces.append(piece)
    os.close(fd)
    return b"".join(pieces)
