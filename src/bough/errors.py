"""Every exception Bough raises, as one tree.

    BoughError
      UserError            the caller can fix it        exit 2, message only
        InvalidWorkload      a graph, template or table that cannot be run
        Clash                a path that is already taken
        UnknownName          a policy, selector, group or id that does not exist
        WorkflowTaken        another session has the workflow open
        NotPicklable         a function, argument or result that cannot travel
        SessionClosed        work for a session that was shut down
      SiteError            the world misbehaved         exit 3, `.transient` decides a retry
        StoreHeld            another process holds the store
        StoreFailed          the disk is full, the store cannot be read or written
        PeerLost             the other end of a connection went away
        ProtocolError        the other end speaks another language
      InternalError        our bug                      exit 70, message and story
        InvalidTransition    a state machine was asked for an edge it has not
        InvariantBroken      a conservation law does not hold
      TaskFailed           a task ended badly; raised by `Task.result()`
      NotRun               a task could not run because another failed; names it

Rule: messages say what, which one and what to do, on one line, without a final stop.
"""

from __future__ import annotations


class BoughError(Exception):
    """Base of everything Bough raises on purpose."""

    exit_code = 70


class UserError(BoughError):
    """The caller can fix it."""

    exit_code = 2


class InvalidWorkload(UserError):
    """A graph, a template or a parameter table that cannot be run."""


class Clash(UserError):
    """A path or name that is already taken."""


class UnknownName(UserError):
    """A policy, selector, group or id that does not exist."""


class WorkflowTaken(UserError):
    """Another session has the workflow open: the message names its pid and host."""


class NotPicklable(UserError):
    """A function, argument or result that cannot travel to another process."""


class SessionClosed(UserError, RuntimeError):
    """Work for a session that was shut down; a RuntimeError too, as `concurrent.futures` raises."""


class SiteError(BoughError):
    """The world misbehaved; `transient` says whether trying again can help."""

    exit_code = 3

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class StoreHeld(SiteError, UserError):
    """Another process holds the store: the message names its pid and host."""

    exit_code = 2


class StoreFailed(SiteError):
    """The store cannot be read or written."""


class PeerLost(SiteError):
    """The other end of a connection went away."""


class ProtocolError(SiteError):
    """The other end speaks another version, or no language of ours."""


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
        return (_task_failed, (self.args[0], {"exit_code": self.returncode, **fields}))


def _task_failed(message: str, fields: dict[str, object]) -> TaskFailed:
    return TaskFailed(message, **fields)  # type: ignore[arg-type]


class NotRun(BoughError):
    """A task did not run because something it depends on failed; `cause` is that task's id."""

    exit_code = 1

    def __init__(self, message: str, cause: int = 0) -> None:
        super().__init__(message)
        self.cause = cause

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the cause."""
        return (NotRun, (self.args[0], self.cause))
