"""What the end of a task means to its user: the word for it, the exception that `result()` raises, and a few lines.

A function's own exception comes back as it was, with the remote traceback as its cause. Rule: every other failure
names the task, what happened, where, and the last line it wrote to stderr.
"""

from __future__ import annotations

import signal
from typing import Final

from bough.errors import NotPicklable, NotRun, TaskFailed
from bough.model.outcomes import Cause, Failure
from bough.model.states import TaskState
from bough.wire.client_messages import TasksFailed, TasksRunning, TasksSucceeded

_NOT_RUN: Final = frozenset({Cause.DEPENDENCY, Cause.FAIL_FAST, Cause.CLOSED})


def ending_of(message: TasksRunning | TasksSucceeded | TasksFailed | None) -> str:
    """The word for how a task ended; no message means that it was cancelled here."""
    if isinstance(message, TasksSucceeded):
        return TaskState.DONE.label
    if isinstance(message, TasksFailed):
        return ending_state(message.failure).label
    return TaskState.CANCELLED.label


def ending_state(failure: Failure) -> TaskState:
    """The state of a task that failed like this."""
    if failure.cause is Cause.CANCELLED:
        return TaskState.CANCELLED
    return TaskState.SKIPPED if failure.cause in _NOT_RUN else TaskState.FAILED


def exception_of(message: TasksFailed, label: str, *, is_command: bool) -> BaseException:
    """What `result()` raises for a task that did not succeed; `label` names the task."""
    failure = message.failure
    if failure.cause is Cause.EXCEPTION and failure.error:
        from bough.api.futures.remote_exceptions import load_exception  # most tasks succeed

        found = load_exception(failure)
        if found is not None:
            BaseException.add_note(found, _origin(message, label))
            return found
    error = _own_exception(message, label, is_command=is_command)
    if failure.parameters:
        error.add_note(_origin(message, label))
    if failure.traceback:
        from bough.api.futures.remote_exceptions import add_traceback

        add_traceback(error, failure.traceback)
    return error


def _origin(message: TasksFailed, label: str) -> str:
    """Which task an exception comes from: its parameters, host and attempt."""
    called = f" with {message.failure.parameters}" if message.failure.parameters else ""
    where = f", on {message.host}" if message.host else ""
    return f"{label}{called}{where}, attempt {message.attempt}"


def _own_exception(message: TasksFailed, label: str, *, is_command: bool) -> BaseException:
    """An exception of ours for a failure."""
    failure = message.failure
    if failure.cause in _NOT_RUN:
        return NotRun(f"{label} was not run: {failure.message or failure.cause.value}", failure.source)
    if failure.cause is Cause.UNSENDABLE and not is_command:
        return NotPicklable(f"{label}: {failure.message}")
    where = f" on {message.host}" if message.host else ""
    attempt = f", attempt {message.attempt}" if message.attempt else ""
    text = f"{label}: {what_happened(failure)}{where}{attempt}"
    if failure.cause is Cause.DIED:
        text += "; say retries=N to have it tried again"
    last = last_line(failure.stderr)
    if last:
        text += f": {last}"
    kind = TaskFailed
    if not is_command and failure.cause in {Cause.DIED, Cause.LOST}:
        from bough.errors import WorkerDied  # late: it loads multiprocessing

        kind = WorkerDied
    return kind(
        text,
        exit_code=failure.exit_code,
        signal=failure.signal,
        host=message.host,
        attempt=message.attempt,
        stderr=failure.stderr,
    )


def ending_lines(message: TasksRunning | TasksSucceeded | TasksFailed | None, label: str) -> list[str]:
    """How a task ended, in a few lines, as far as its session was told."""
    if not isinstance(message, TasksFailed):
        where = f" on {message.host}" if message is not None and message.host else ""
        return [f"{label} is {ending_of(message)}{where}"]
    failure = message.failure
    if failure.cause in _NOT_RUN:
        return [f"{label} was skipped: {failure.message or failure.cause.value}"]
    where = f" on {message.host}, attempt {message.attempt}" if message.host else ""
    lines = [f"{label} failed: {what_happened(failure)}{where}"]
    if failure.parameters:
        lines.append(f"its parameters: {failure.parameters}")
    if failure.stderr:
        lines += ["the last lines of its stderr:", *(f"  {line}" for line in failure.stderr.splitlines()[-10:])]
    if failure.traceback:
        lines += ["its traceback:", *(f"  {line}" for line in failure.traceback.splitlines())]
    return lines


def what_happened(failure: Failure) -> str:
    """A failure in a few words, as in "exit code 3" or "ended by SIGSEGV"."""
    match failure.cause:
        case Cause.EXIT if failure.exit_code is not None:
            said = f"exit code {failure.exit_code}"
            return failure.message if failure.message.startswith(said) else said
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
