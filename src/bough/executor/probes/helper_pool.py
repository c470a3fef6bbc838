"""Helper processes that answer questions about running tasks, so that the executor never waits for a file or a pattern.

A helper is a fork of the executor, made when a question finds no idle one, and answers one question at a time. It is
kept for the next one. Rules: there are a few of them, and what waits for one is bounded. A helper that is over its time
is killed, and so is one whose question nobody waits for any more; its question is answered by an error.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NoReturn

import msgspec

from bough import fork_warning
from bough.errors import BoughError
from bough.executor.host.descriptors import Descriptors
from bough.executor.host.processes import die_with_parent, fork_deaf, hear_signals, kill
from bough.executor.probes.file_answers import ProbePlace, answer_file
from bough.wire.executor_messages import ProbeAnswer
from bough.wire.framing import Frames, frame
from bough.wire.probes import ProbeQuestion, RunCommand, SendSignal

MOST_HELPERS = 4
MOST_WAITING = 256  # questions
TIME = 10.0  # seconds for a question about files
_SPARE = 5.0  # seconds that a helper has beyond the time limit of a command, which it keeps itself
_CHUNK = 1 << 18
_FAILED = 70  # the exit code of a helper with a bug

Answered = Callable[[ProbeAnswer], None]


class ProbeWork(msgspec.Struct, frozen=True, array_like=True):
    """A question for a helper."""

    question: ProbeQuestion
    place: ProbePlace


class _Job:
    """A question on its way."""

    __slots__ = ("deadline", "done", "work")

    def __init__(self, work: ProbeWork, done: Answered) -> None:
        self.work = work
        self.done = done
        self.deadline = 0.0


class _Helper:
    """The executor's side of a helper process."""

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self.job: _Job | None = None
        self.frames: Frames[ProbeAnswer] = Frames(ProbeAnswer)
        self._out = bytearray()
        self.sock, theirs = socket.socketpair()
        executor = os.getpid()
        fork_warning.keep_quiet()
        self.pid = fork_deaf()
        if self.pid == 0:
            _be_helper(theirs, executor)
        theirs.close()
        self.sock.setblocking(False)

    def give(self, job: _Job) -> None:
        """Have it answer a question."""
        question = job.work.question
        job.deadline = time.monotonic() + (question.timeout + _SPARE if isinstance(question, RunCommand) else TIME)
        self.job = job
        self._out += frame(job.work)
        self.write()

    def write(self) -> None:
        """Send what the socket takes."""
        with contextlib.suppress(BlockingIOError, OSError):  # that it died is read
            while self._out:
                del self._out[: self.sock.send(self._out)]
        self._descriptors.want_write(self.sock.fileno(), bool(self._out))

    def end(self) -> None:
        """End it, and a command that it runs; it is reaped as other children that nobody waits for."""
        self._descriptors.remove(self.sock.fileno())
        self.sock.close()
        busy = self.job.work.question if self.job is not None else None
        kill(self.pid, signal.SIGTERM if isinstance(busy, RunCommand) else signal.SIGKILL)


class HelperPool:
    """See the module."""

    def __init__(self, descriptors: Descriptors, most: int = MOST_HELPERS) -> None:
        self._descriptors = descriptors
        self._most = most
        self._helpers: list[_Helper] = []
        self._waiting: deque[_Job] = deque()

    @property
    def is_busy(self) -> bool:
        """Whether a question is on its way."""
        return any(helper.job is not None for helper in self._helpers)

    def ask(self, work: ProbeWork, done: Answered) -> None:
        """Have a question answered, now or when a helper is free."""
        if len(self._waiting) >= MOST_WAITING:
            done(ProbeAnswer(0, error=f"{MOST_WAITING} questions to tasks of this executor wait already; ask later"))
            return
        self._waiting.append(_Job(work, done))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting:
            helper = next((helper for helper in self._helpers if helper.job is None), None)
            if helper is None:
                if len(self._helpers) >= self._most:
                    return
                helper = self._start()
            helper.give(self._waiting.popleft())

    def _start(self) -> _Helper:
        helper = _Helper(self._descriptors)
        self._helpers.append(helper)
        self._descriptors.add(helper.sock.fileno(), partial(self._on_ready, helper))
        return helper

    def _on_ready(self, helper: _Helper) -> None:
        helper.write()
        try:
            data = helper.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(helper, "the helper process that looked for the answer died")
            return
        try:
            answers = helper.frames.feed(data)
        except BoughError as error:
            self._drop(helper, f"what the helper process says cannot be read: {error}")
            return
        for answer in answers:
            job, helper.job = helper.job, None
            if job is not None:
                job.done(answer)
        self._go_on()

    def _drop(self, helper: _Helper, why: str) -> None:
        helper.end()
        self._helpers.remove(helper)
        job, helper.job = helper.job, None
        if job is not None:
            job.done(ProbeAnswer(0, error=why))
        self._go_on()

    def tick(self, now: float) -> None:
        """End what is over its time."""
        for helper in [helper for helper in self._helpers if helper.job is not None and now >= helper.job.deadline]:
            self._drop(helper, f"no answer within {TIME:g} s: the file, or the pattern, takes too long")

    def forget(self) -> None:
        """Nobody waits for an answer any more."""
        self._waiting.clear()
        for helper in [helper for helper in self._helpers if helper.job is not None]:
            helper.end()
            self._helpers.remove(helper)

    def close(self) -> None:
        """End all helpers."""
        self.forget()
        for helper in self._helpers:
            helper.end()
        self._helpers.clear()


# --- in the helper -------------------------------------------------------------------------------------


def _be_helper(sock: socket.socket, executor: int) -> NoReturn:
    """Answer questions until the executor is gone."""
    try:
        os.setsid()  # so that it is not taken for something that a dead worker left
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        hear_signals()
        die_with_parent(signal.SIGTERM)
        if os.getppid() != executor:
            os._exit(0)
        os.closerange(3, sock.fileno())
        os.closerange(sock.fileno() + 1, 1 << 16)
        os.nice(5)
        _serve(sock)
    finally:
        os._exit(_FAILED)


def _serve(sock: socket.socket) -> NoReturn:
    frames: Frames[ProbeWork] = Frames(ProbeWork)
    while True:
        data = sock.recv(_CHUNK)
        if not data:
            os._exit(0)
        for work in frames.feed(data):
            sock.sendall(frame(_answer(work)))


def _answer(work: ProbeWork) -> ProbeAnswer:
    try:
        question = work.question
        if isinstance(question, RunCommand):
            from bough.executor.probes.beside_command import run_beside

            return ProbeAnswer(0, run_beside(question, work.place))
        assert not isinstance(question, SendSignal)
        return ProbeAnswer(0, answer_file(question, work.place))
    except BoughError as error:
        return ProbeAnswer(0, error=str(error), kind=type(error).__name__)
    except OSError as error:  # the process of the task is gone
        return ProbeAnswer(0, error=f"the task cannot be looked at: {error.strerror}", kind="AttemptEnded")
    except Exception as error:  # noqa: BLE001 -- our bug concerns this question only
        return ProbeAnswer(0, error=f"{type(error).__name__}: {error}", kind="InternalError")
