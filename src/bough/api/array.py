"""Arrays in the user's hands: sequences of tasks, with waits and iterators, without an object per task.

This is what all have in common. `view.View` looks at elements of one record, `tasklist.TaskList` holds loose
tasks. Rule: what is defined here uses only indexing, waiting and states, which those two provide.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from bough.api.task import Task
from bough.core.states import TaskState
from bough.errors import UserError
from bough.model.tasks import Dep

if TYPE_CHECKING:
    from bough.api.ledger import Ledger

_S = TaskState
QUEUED = (_S.WAITING, _S.HELD, _S.READY, _S.PLACED)
ENDED = (_S.DONE, _S.FAILED, _S.NOTRUN, _S.CANCELLED)


class Array(Sequence[Task]):
    """A sequence of tasks. Iterating what `map` returned gives values; iterating any other array gives tasks."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Array: ...
    @abstractmethod
    def __getitem__(self, index: int | slice) -> Task | Array:
        """One task, or a view of several."""

    @abstractmethod
    def deps(self) -> tuple[Dep, ...]:
        """What waits for all of these tasks waits for these dependencies."""

    @abstractmethod
    def owners(self) -> Iterable[Ledger]:
        """The sessions its tasks belong to."""

    @property
    @abstractmethod
    def is_command(self) -> bool:
        """Whether its tasks are commands."""

    @abstractmethod
    def wait_all(self, timeout: float | None = None) -> Array:
        """Wait until every task has ended, in whatever way; TimeoutError when it takes longer."""

    @abstractmethod
    def as_completed(self, timeout: float | None = None) -> Iterator[Task]:
        """The tasks in the order in which they end, those that have ended first."""

    @abstractmethod
    def select(self, keep: Callable[[Task], object]) -> Array:
        """The tasks for which `keep(task)` is true, now."""

    @abstractmethod
    def _in_states(self, states: Iterable[TaskState]) -> Array:
        """The tasks that are in one of these states now."""

    @abstractmethod
    def cancel(self) -> int:
        """Cancel what has not ended; returns how many tasks that was."""

    @abstractmethod
    def kill(self) -> None:
        """End what is running: those attempts fail and are not tried again."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """How many tasks are in which state."""

    def tasks(self) -> Iterator[Task]:
        """The tasks in order, whatever iterating the array itself gives."""
        return (self[i] for i in range(len(self)))

    def results(self, errors: str = "raise", timeout: float | None = None) -> list[Any]:
        """The values of all tasks, in order, once all have ended.

        With errors="raise" the first failure in order is raised; with "return" exceptions stand in its place.
        """
        check_errors(errors)
        self.wait_all(timeout)
        return [value_of(task, errors) for task in self.tasks()]

    def wait_any(self, timeout: float | None = None) -> Task:
        """Wait until a task has ended, and return it."""
        found = self.wait_some(1, timeout)
        if not found:
            raise UserError("wait_any: the array is empty, so no task will end")
        return found[0]

    def wait_some(self, count: int, timeout: float | None = None) -> list[Task]:
        """Wait until `count` tasks have ended (or all, if there are fewer), and return them."""
        found: list[Task] = []
        if count > 0:
            for task in self.as_completed(timeout):
                found.append(task)
                if len(found) >= count:
                    break
        return found

    def failed(self) -> Array:
        """The tasks that have failed or could not run."""
        return self._in_states((_S.FAILED, _S.NOTRUN))

    def running(self) -> Array:
        """The tasks that are running now."""
        return self._in_states((_S.RUNNING,))

    def queued(self) -> Array:
        """The tasks that have not started yet."""
        return self._in_states(QUEUED)

    def finished(self) -> Array:
        """The tasks that have ended, in whatever way."""
        return self._in_states(ENDED)

    def add(self, what: Task | str | Sequence[Any], **options: Any) -> Task:
        """Add a task, or a command, to an array made by `Session.array()`."""
        raise UserError("add: this array is complete; make one that grows with session.array()")

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {word}" for word, count in self.counts().items() if count)
        return f"<array of {len(self)} tasks: {counts or 'empty'}>"

    def __reduce__(self) -> Any:
        from bough.errors import NotPicklable

        raise NotPicklable(
            "an array cannot travel inside another object; give the array itself, or a list, tuple or dict"
        )


def check_errors(errors: str) -> None:
    """Refuse what `results` does not know."""
    if errors not in {"raise", "return"}:
        raise UserError(f'results: errors is {errors!r}; give "raise" or "return"')


def value_of(task: Task, errors: str) -> Any:
    """A task's value, or with errors="return" the exception that stands in its place."""
    if errors == "raise":
        return task.result()
    try:
        error = task.exception()
    except BaseException as cancelled:  # noqa: BLE001 - CancelledError, handed back as asked
        return cancelled
    return error if error is not None else task.result()
