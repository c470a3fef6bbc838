"""What `Popen` needs of a process that runs as a task, wherever that is; and how a task's end becomes a return code.

Rule: the return code is what the process itself left: its exit code, or the negated number of the signal that ended it.
What has no return code, because the process was lost with its executor, raises.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, NamedTuple, Protocol

from bough.errors import BoughError, TaskFailed
from bough.model.outcomes import Cause
from bough.wire.messages import Unsuccess

if TYPE_CHECKING:
    from bough.api.task import Task

NOT_FOUND = 127  # what shells say of a program that cannot be started
_ENDED_BY_US = {Cause.TIMEOUT: signal.SIGTERM, Cause.KILLED: signal.SIGKILL, Cause.MEMORY: signal.SIGKILL}


INHERITED = -1  # a stream that is this process' own


class Streams(NamedTuple):
    """Descriptors, in this process, of what a process reads and writes."""

    stdin: int
    stdout: int
    stderr: int
    pipes: frozenset[int]  # those that lead to this process and to nobody else

    def is_merged(self) -> bool:
        """Whether standard error goes where standard output goes."""
        return self.stderr != INHERITED and self.stderr == self.stdout

    def is_stage(self) -> bool:
        """Whether a stream comes from, or goes to, another process, which waits for this one to run."""
        return any(fd != INHERITED and fd not in self.pipes and _is_pipe(fd) for fd in self[:3])


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class Link(Protocol):
    """The process of a `Popen`."""

    def pid(self) -> int | None:
        """Its number on its machine, once it has begun; None if it never will, or nobody can know."""

    def ended(self) -> bool:
        """Whether it has."""

    def wait(self, timeout: float | None) -> int:
        """Wait for its end and return its return code; TimeoutError when it takes longer."""

    def signal(self, number: int) -> None:
        """Send it a signal."""

    def abandon(self) -> None:
        """End it: the program that started it ends."""


def wait_for(task: Task, timeout: float | None) -> None:
    """Wait until a task has ended, in whatever way; TimeoutError when it takes longer."""
    with contextlib.suppress(CancelledError):
        task.exception(None if timeout is None else max(0.0, timeout))


def return_code(task: Task, sent: int = signal.SIGTERM) -> int:
    """How a task that has ended ended; `sent`: the signal it was cancelled for."""
    try:
        error = task.exception()
    except CancelledError:
        return -sent
    if error is None:
        return 0
    if isinstance(error, TaskFailed):
        if error.signal is not None:
            return -error.signal
        if error.returncode is not None:
            return error.returncode
    cause = cause_of(task)
    if cause in _ENDED_BY_US:
        return -_ENDED_BY_US[cause]
    if cause is Cause.NOT_STARTED:
        return NOT_FOUND
    raise error if isinstance(error, BoughError) else TaskFailed(str(error))


def cause_of(task: Task) -> Cause | None:
    """Why a task did not succeed."""
    message = task._heard()
    return message.failure.cause if isinstance(message, Unsuccess) else None
