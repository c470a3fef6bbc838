"""Failures that the script did not look at: told on standard error when a session ends, and raised as one exception.

Failures that are alike (of one array or name, with one exit code or class of exception) are told once, with the numbers
of the others. Tasks that were skipped because of them are counted.

Rule: what is told is of bounded length, however many tasks failed; the exception that follows does not repeat it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from bough.api.display.failure_lines import cut, what_ran
from bough.api.display.surroundings import notebook
from bough.api.futures.endings import ending_state, exception_of, what_happened
from bough.api.futures.task import Task
from bough.errors import WorkflowFailed
from bough.model.arrays.array_indices import task_label
from bough.model.ids import number_of
from bough.model.outcomes import Cause
from bough.model.states import TaskState
from bough.model.texts.plurals import counted
from bough.model.texts.terminal_text import harmless_name

if TYPE_CHECKING:
    from bough.api.futures.elements import ArrayElements
    from bough.api.futures.progress import Progress
    from bough.api.futures.task_registry import TaskRegistry, Unseen

_KINDS = 5  # of failures that are told
_ALIKE = 6  # numbers of others of a kind
_LINES = 5  # of stderr
_EXCEPTIONS = 100  # in the exception
_AGAIN = "When it is mended, run {} again: what is done is not run again."
_NAMED = 3  # tasks that the exception's text names


def _again() -> str:
    """What to do next."""
    return _AGAIN.format("the cell" if notebook() is not None else "the script")


class ReportedSession(Protocol):
    """What is asked of a session here."""

    name: str
    store: str
    address: str
    registry: TaskRegistry

    @property
    def is_remote(self) -> bool:
        """Whether its server is a service."""

    @property
    def progress(self) -> Progress:
        """Counts of its tasks."""


class Kind(NamedTuple):
    """Failures that are alike: the elements from the first index on, with what is known of them."""

    members: list[tuple[int, Unseen]]

    @property
    def size(self) -> int:
        """How many tasks."""
        return sum(unseen.stop - start for start, unseen in self.members)


class FailureReport:
    """What a session has to tell, as of now."""

    def __init__(self, session: ReportedSession) -> None:
        self._session = session
        self.skipped = 0
        self.kinds: dict[object, Kind] = {}
        for start, unseen in sorted(session.registry.unseen(), key=_place):
            failure = unseen.message.failure
            if ending_state(failure) is TaskState.SKIPPED and failure.source:
                self.skipped += unseen.stop - start
            else:
                self.kinds.setdefault(_likeness(unseen), Kind([])).members.append((start, unseen))
        if not self.kinds and self.skipped:  # what failed is not of this session
            for start, unseen in session.registry.unseen():
                self.kinds.setdefault(_likeness(unseen), Kind([])).members.append((start, unseen))
            self.skipped = 0
        self.failed = sum(kind.size for kind in self.kinds.values())

    def text(self) -> str:
        """All of it, for people."""
        lines = [f"bough: {self._summary()} in workflow {harmless_name(self._session.name)}"]
        for kind in list(self.kinds.values())[:_KINDS]:
            lines += ["", *_told(kind)]
        rest = sum(kind.size for kind in list(self.kinds.values())[_KINDS:])
        if rest:
            lines += ["", f"and {rest} more of {len(self.kinds) - _KINDS} other kinds"]
        return "\n".join([*lines, "", *map(harmless_name, self._advice()), ""])

    def exception(self) -> WorkflowFailed:
        """The exception that the `with` block raises."""
        members = [member for kind in self.kinds.values() for member in kind.members]
        named = [unseen.label(start) for start, unseen in members[:_NAMED]]
        more = ["..."] if len(members) > _NAMED else []
        errors = tuple(
            exception_of(unseen.message, unseen.label(start), is_command=False)
            for start, unseen in members[:_EXCEPTIONS]
        )
        text = f"{self._summary()}: {', '.join(named + more)}"
        return WorkflowFailed(text, errors, failed=self.failed, skipped=self.skipped)

    def _summary(self) -> str:
        total = sum(self._session.progress.counts().values())
        said = f"{self.failed} of {counted(total, 'task')} failed"
        return f"{said}, {self.skipped} skipped because of that" if self.skipped else said

    def _advice(self) -> list[str]:
        """What to do next."""
        if "BOUGH_TASK" in os.environ or "BOUGH_RUN" in os.environ:
            return []  # the store of a session inside a task is forgotten with it
        members = (member for kind in self.kinds.values() for member in kind.members)
        ran = next((member for member in members if member[1].message.attempt), None)
        if ran is None:  # the server has nothing to say of what never began
            return [_again()]
        start, unseen = ran
        number = _number(unseen, start)
        if self._session.is_remote:
            where = f" --server {self._session.address}" if self._session.address else ""
            number = f"{self._session.name}:{number}"
        else:
            where = store_option(self._session.store, self._session.name)
        lines = [
            f"why:        bough explain {number}{where}",
            f"its output: bough log {number}{where}",
        ]
        if len(self.kinds) > 1 or self.failed > 1:
            lines.append(f"all:        bough status --failed{where}")
        return [*lines, _again()]


def tell(report: FailureReport) -> None:
    """Print it, if there is somewhere to print."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it is closed, or there is none
        sys.stderr.write(report.text())
        sys.stderr.flush()


def tell_broken_feed(elements: ArrayElements) -> None:
    """Say that what feeds an array has raised something."""
    error = elements.feed_error
    what = harmless_name(f"{number_of(elements.record)} ({elements.name}): {type(error).__name__}: {error}")
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"bough: no more items came for the feed {cut(what)}\n")
        sys.stderr.flush()


def _place(member: tuple[int, Unseen]) -> tuple[int, int]:
    start, unseen = member
    return unseen.message.record, start


def _likeness(unseen: Unseen) -> object:
    failure = unseen.message.failure
    what: object = failure.message
    if failure.cause is Cause.EXCEPTION:
        what = failure.message.partition(":")[0]
    elif failure.cause in {Cause.EXIT, Cause.SIGNAL}:
        what = (failure.exit_code, failure.signal)
    owner = unseen.message.record if unseen.is_array else unseen.owner.name
    return owner, unseen.is_array, failure.cause, what


def _told(kind: Kind) -> list[str]:
    start, unseen = kind.members[0]
    message, failure = unseen.message, unseen.message.failure
    one = unseen._replace(stop=start + 1) if unseen.is_array else unseen
    where = f" on {message.host}" if message.host else ""
    tries = f", attempt {message.attempt}" if message.attempt > 1 else ""
    lines = [cut(f"{one.label(start)}: {what_happened(failure)}{where}{tries}")]
    lines += [f"  {line}" for line in what_ran(failure.parameters, one.command(start), failure.traceback)]
    tail = [line for line in failure.stderr.splitlines() if line.strip()][-_LINES:]
    if tail:
        lines += ["  last lines of stderr:", *(cut(f"    {line}") for line in tail)]
    more = kind.size - 1
    if more:
        others = ", ".join(_numbers(kind)) + (", ..." if more > _ALIKE else "")
        lines.append(cut(f"  and {more} more of the same kind: {others}"))
    return lines


def _number(unseen: Unseen, index: int) -> str:
    """A task as a selector."""
    record, owner = unseen.message.record, unseen.owner
    return str(number_of(record)) if isinstance(owner, Task) else task_label(record, index, owner.indices)


def _numbers(kind: Kind) -> Iterable[str]:
    """The numbers of the others, with their parameters if these are short."""
    left = _ALIKE
    for start, unseen in kind.members:
        parameters = unseen.message.failure.parameters
        for index in range(start, unseen.stop):
            if (start, index) == (kind.members[0][0], kind.members[0][0]) and unseen is kind.members[0][1]:
                continue
            if not left:
                return
            left -= 1
            number = _number(unseen, index)
            yield f"{number} ({parameters})" if 0 < len(parameters) <= 40 else number


def store_option(store: str, name: str) -> str:
    """The options by which a command finds this store; none if it is the only one here, and no server goes before."""
    from bough.transport.home import has_note

    home = os.path.join(os.getcwd(), ".bough")
    if os.path.dirname(store) != home or os.path.basename(store) != name:
        return f" --store {store}"
    with contextlib.suppress(OSError):
        if len(os.listdir(home)) == 1 and not has_note():
            return ""
    return f" --name {name}"
