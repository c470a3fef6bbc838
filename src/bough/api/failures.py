"""A task's failure, a value inside Bough, becomes an exception in the user's hands.

Rule: a function's own exception comes back as it was, with the remote traceback as its cause; everything
else names the task, what happened, where, and the last line it wrote to stderr.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from bough.api.classes import loads
from bough.errors import NotPicklable, NotRun, TaskFailed
from bough.model.outcomes import Cause, Failure
from bough.wire.messages import Outcome, Running, Unsuccess

if TYPE_CHECKING:
    from bough.api.task import Task

_NOT_RUN = frozenset({Cause.DEPENDENCY, Cause.FAIL_FAST, Cause.CLOSED})


def ending_of(message: Running | Outcome | Unsuccess | None) -> str:
    """The word for how a task ended; no message means that it was cancelled here."""
    if isinstance(message, Outcome):
        return "done"
    if isinstance(message, Unsuccess):
        return "cancelled" if message.failure.cause is Cause.CANCELLED else ending_word(message.failure)
    return "cancelled"


def ending_word(failure: Failure) -> str:
    """The state of a task that failed like this."""
    if failure.cause is Cause.CANCELLED:
        return "cancelled"
    return "notrun" if failure.cause in _NOT_RUN else "failed"


def label_of(task: Task) -> str:
    """A task's name in messages, as in "task 12 (plot)" or "task 7.3 (align)"."""
    number = f"{task.id}.{task.index}" if task._array is not None else str(task.id)
    return f"task {number} ({task.name})" if task.name else f"task {number}"


def exception_of(message: Unsuccess, task: Task, *, is_command: bool) -> BaseException:
    """What `result()` raises for a task that did not succeed."""
    failure = message.failure
    if failure.cause is Cause.EXCEPTION and failure.error:
        found = _load_exception(failure.error)
        if found is not None:
            return found
    label = label_of(task)
    if failure.cause in _NOT_RUN:
        return NotRun(f"{label} was not run: {failure.message or failure.cause.value}", failure.source)
    if failure.cause is Cause.UNSENDABLE and not is_command:
        return NotPicklable(f"{label}: {failure.message}")
    where = f" on {message.host}" if message.host else ""
    attempt = f", attempt {message.attempt}" if message.attempt else ""
    text = f"{label}: {what_happened(failure)}{where}{attempt}"
    last = last_line(failure.stderr)
    if last:
        text += f": {last}"
    return TaskFailed(
        text,
        exit_code=failure.exit_code,
        signal=failure.signal,
        host=message.host,
        attempt=message.attempt,
        stderr=failure.stderr,
    )


def what_happened(failure: Failure) -> str:
    """A failure in a few words, as in "exit code 3" or "ended by SIGSEGV"."""
    match failure.cause:
        case Cause.EXIT if failure.exit_code is not None:
            return f"exit code {failure.exit_code}"
        case Cause.SIGNAL if failure.signal is not None:
            return f"ended by {_signal_name(failure.signal)}"
        case _:
            return failure.message or failure.cause.value


def last_line(text: str) -> str:
    """The last line that is not empty, not too long."""
    stripped = text.strip()
    return stripped.rsplit("\n", 1)[-1].strip()[:300] if stripped else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _load_exception(data: bytes) -> BaseException | None:
    """The pickled exception; None when its class cannot be made here."""
    try:
        found = loads(data)
    except Exception:  # noqa: BLE001 - unpickling runs the user's code, which may raise anything
        return None
    return found if isinstance(found, BaseException) else None
