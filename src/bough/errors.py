"""Every exception Bough raises, as one tree.

    BoughError
      UserError            the caller can fix it        exit 2, message only
        BadValue             a value that an option cannot have; a ValueError too
          WrongType            a value of another type than the option takes; a TypeError too
        UnknownKeyword       a keyword that a call does not know; a TypeError too
        InvalidWorkload      a graph, template or table that cannot be run
        Clash                a path that is already taken
        UnknownName          a policy, selector, group or id that does not exist
        WorkflowTaken        another session has the workflow open
        NotPicklable         a function, argument or result that cannot travel; a pickle.PicklingError too
        SessionClosed        work for a session that was shut down; a RuntimeError too
        MissingFile          a file that a running task does not have; a FileNotFoundError too
      SiteError            the world misbehaved         exit 3, `.transient` decides a retry
        StoreHeld            another process holds the store
        StoreFailed          the disk is full, the store cannot be read or written
        PeerLost             the other end of a connection went away
        ProtocolError        the other end speaks another language
        NotRunning           a task that was to be asked does not run now
          AttemptEnded         the attempt that was to be asked has ended
            TaskEnded            and there will be no other one
      InternalError        our bug                      exit 70, message and story
        InvalidTransition    a state machine was asked for an edge it has not
        InvariantBroken      a conservation law does not hold
      TaskFailed           a task ended badly; raised by `Task.result()`
        WorkerDied           the process that ran a function died; a BrokenProcessPool too
        InitializerFailed    the initializer of a session raised in a worker; a BrokenProcessPool too
        WorkflowFailed       tasks failed and nobody looked; raised at the end of a session's `with` block
      NotRun               a task could not run because another failed; names it

Many are also what `concurrent.futures` raises in their place, so that a program written for a `ProcessPoolExecutor`
catches them. The two that are a `BrokenProcessPool` are made at their first use: its module loads multiprocessing.

Rules: messages say what, which one and what to do, on one line, without a final stop. Nothing heavy is imported here.
"""

from __future__ import annotations

from _pickle import PicklingError  # pickle's own name for it, without loading pickle
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures.process import BrokenProcessPool


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """What to put behind the message about a name that does not exist: "; did you mean cores?", or nothing."""
    from difflib import get_close_matches  # loaded only for a mistyped name

    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


class BoughError(Exception):
    """Base of everything Bough raises on purpose."""

    exit_code = 70


class UserError(BoughError):
    """The caller can fix it."""

    exit_code = 2


class BadValue(UserError, ValueError):
    """A value that an option or an argument cannot have."""


class WrongType(BadValue, TypeError):
    """A value of another type than an option or an argument takes."""


class UnknownKeyword(UserError, TypeError):
    """A keyword that a call does not know."""


def unknown_keyword(call: str, name: str, known: Iterable[str], hint: str = "") -> UnknownKeyword:
    """The error for a keyword that a call does not know, with a hint: the one that may have been meant, or all."""
    names = sorted(known)
    said = f"; {hint}" if hint else did_you_mean(name, names) or f"; it has {', '.join(names)}"
    return UnknownKeyword(f"{call} has no option {name!r}{said}")


class InvalidWorkload(BadValue):
    """A graph, a template or a parameter table that cannot be run."""


class Clash(UserError):
    """A path or name that is already taken."""


class UnknownName(BadValue):
    """A policy, selector, group or id that does not exist."""


class WorkflowTaken(UserError):
    """Another session has the workflow open: the message names its pid and host."""


class NotPicklable(UserError, PicklingError):
    """A function, argument or result that cannot travel to another process."""


class SessionClosed(UserError, RuntimeError):
    """Work for a session that was shut down; a RuntimeError too, as `concurrent.futures` raises."""


class MissingFile(UserError, FileNotFoundError):
    """A file or folder that is not there where a task runs."""


class SiteError(BoughError):
    """The world misbehaved; `transient` says whether trying again can help."""

    exit_code = 3

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class SiteFull(SiteError):
    """A site takes no more pilots for now: it has as many of this user as it wants."""

    def __init__(self, message: str) -> None:
        super().__init__(message, transient=True)


class StoreHeld(SiteError, UserError):
    """Another process holds the store: the message names its pid and host."""

    exit_code = 2


class StoreFailed(SiteError):
    """The store cannot be read or written."""


class PeerLost(SiteError):
    """The other end of a connection went away."""


class ProtocolError(SiteError):
    """The other end speaks another version, or no language of ours."""


class NotRunning(SiteError):
    """A task that was to be asked something does not run now."""


class AttemptEnded(NotRunning):
    """The attempt at a task that was to be asked or told something has ended; another one may follow."""


class TaskEnded(AttemptEnded):
    """A task that was to be asked or told something has ended for good."""


class InternalError(BoughError):
    """Our bug; `story` holds what led to it."""

    def __init__(self, message: str, story: str = "") -> None:
        super().__init__(message)
        self.story = story


class InvalidTransition(InternalError):
    """A state machine was asked for an edge it does not have."""


class InvariantBroken(InternalError):
    """A conservation law of the core does not hold."""


class TaskFailed(BoughError):
    """A task ended badly: exit code or signal, host, attempt and the last lines of stderr."""

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        host: str = "",
        attempt: int = 0,
        stderr: str = "",
    ) -> None:
        super().__init__(message)
        self.returncode = exit_code
        self.signal = signal
        self.host = host
        self.attempt = attempt
        self.stderr = stderr

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with every field, so that a failure can cross processes."""
        fields = {k: getattr(self, k) for k in ("signal", "host", "attempt", "stderr")}
        return (_task_failed, (self.args[0], {"exit_code": self.returncode, **fields}, type(self)))


class WorkflowFailed(TaskFailed):
    """Tasks failed and the script looked at none of these failures; the end of a session's `with` block raises it.

    `failures` are the exceptions of the first of them, `failed` and `skipped` say how many tasks failed, and how many
    were not run because of that.
    """

    def __init__(
        self, message: str, failures: tuple[BaseException, ...] = (), *, failed: int = 0, skipped: int = 0
    ) -> None:
        super().__init__(message)
        self.failures = failures
        self.failed = failed
        self.skipped = skipped

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with every field."""
        return (_workflow_failed, (self.args[0], self.failures, self.failed, self.skipped))


def _workflow_failed(message: str, failures: tuple[BaseException, ...], failed: int, skipped: int) -> WorkflowFailed:
    return WorkflowFailed(message, failures, failed=failed, skipped=skipped)


def _task_failed(message: str, fields: dict[str, object], kind: type[TaskFailed] = TaskFailed) -> TaskFailed:
    return kind(message, **fields)  # type: ignore[arg-type]


if TYPE_CHECKING:

    class WorkerDied(TaskFailed, BrokenProcessPool):
        """The process that ran a function died: by a signal, or because the function ended it."""

    class InitializerFailed(TaskFailed, BrokenProcessPool):
        """The initializer of a session raised in the worker that was to run the task."""


_BROKEN = {
    "WorkerDied": "The process that ran a function died: by a signal, or because the function ended it.",
    "InitializerFailed": "The initializer of a session raised in the worker that was to run the task.",
}


def __getattr__(name: str) -> type[TaskFailed]:
    """Make one of the classes that are also a `BrokenProcessPool`."""
    if name not in _BROKEN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from concurrent.futures.process import BrokenProcessPool

    made = type(name, (TaskFailed, BrokenProcessPool), {"__doc__": _BROKEN[name], "__module__": __name__})
    found: type[TaskFailed] = globals().setdefault(name, made)  # another thread may have made one meanwhile
    return found


class NotRun(BoughError):
    """A task did not run because something it depends on failed; `cause` is that task's id."""

    exit_code = 1

    def __init__(self, message: str, cause: int = 0) -> None:
        super().__init__(message)
        self.cause = cause

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the cause."""
        return (NotRun, (self.args[0], self.cause))
