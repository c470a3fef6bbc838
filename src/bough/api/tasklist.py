"""An array of loose tasks, which grows: what `Session.array()` makes.

Rule: it holds the tasks it was given, in that order; a task may be in several lists.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from bough.api.array import Array
from bough.api.task import Task
from bough.core.states import TaskState
from bough.errors import UserError
from bough.model.tasks import Dep

if TYPE_CHECKING:
    from bough.api.ledger import Ledger
    from bough.api.submitter import Submitter


class TaskList(Array):
    """See the module."""

    __slots__ = ("_adder", "_deadline", "_iterator", "_tasks", "_values")

    def __init__(
        self,
        tasks: Iterable[Task] = (),
        adder: Submitter | None = None,
        *,
        values: bool = False,
        deadline: float | None = None,
    ) -> None:
        self._tasks = list(tasks)
        self._adder = adder  # where new commands are submitted; None: complete
        self._values = values  # iterating gives values: it is what a map over tasks returned
        self._deadline = deadline
        self._iterator: Iterator[Any] | None = None

    def add(self, what: Task | str | Sequence[Any], **options: Any) -> Task:
        """Add a task, or submit a command and add it; returns the task."""
        if self._adder is None:
            return super().add(what)
        if isinstance(what, Task):
            if options:
                raise UserError("add: a task that is submitted already takes no options")
            task = what
        else:
            task = self._adder.command(what, **options)
        self._tasks.append(task)
        return task

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Array: ...
    def __getitem__(self, index: int | slice) -> Task | Array:
        if isinstance(index, slice):
            return TaskList(self._tasks[index], values=self._values, deadline=self._deadline)
        return self._tasks[index]

    def __iter__(self) -> Iterator[Any]:
        if not self._values:
            return iter(list(self._tasks))
        return (task.result(_left(self._deadline)) for task in self._tasks)

    def __next__(self) -> Any:
        """The next value of what `map` returned, which concurrent.futures promises to be an iterator."""
        if not self._values:
            raise TypeError("an array of tasks is not an iterator; use iter(array)")
        if self._iterator is None:
            self._iterator = iter(self)
        return next(self._iterator)

    @property
    def is_command(self) -> bool:
        """Whether its tasks are commands."""
        return any(task.is_command for task in self._tasks)

    def owners(self) -> Iterable[Ledger]:
        """The sessions its tasks belong to."""
        return (task._ledger for task in self._tasks)

    def deps(self) -> tuple[Dep, ...]:
        """Every task as a dependency."""
        return tuple(task.dep() for task in self._tasks)

    def counts(self) -> dict[str, int]:
        """How many tasks are in which state, as far as this process has heard."""
        found = dict.fromkeys(("waiting", "running", "done", "failed", "notrun", "cancelled"), 0)
        for task in self._tasks:
            found[task.state] += 1
        return found

    def wait_all(self, timeout: float | None = None) -> TaskList:
        """Wait until every task has ended, in whatever way; TimeoutError when it takes longer."""
        for task in self._tasks:
            task._ledger.may_wait()
        pending = [task for task in self._tasks if not task.done()]
        if concurrent.futures.wait(pending, timeout).not_done:
            raise TimeoutError(f"{self!r} has not ended within {timeout} s")
        return self

    def as_completed(self, timeout: float | None = None) -> Iterator[Task]:
        """The tasks in the order in which they end, those that have ended first."""
        futures: list[concurrent.futures.Future[Any]] = list(self._tasks)
        for task in concurrent.futures.as_completed(futures, timeout):
            assert isinstance(task, Task)
            task._ledger.looked_at(task.id, task.index)
            yield task

    def select(self, keep: Callable[[Task], object]) -> TaskList:
        """The tasks for which `keep(task)` is true, now."""
        return TaskList(task for task in self._tasks if keep(task))

    def _in_states(self, states: Iterable[TaskState]) -> TaskList:
        words = {state.label for state in states}
        found = TaskList(task for task in self._tasks if task.state in words)
        if "failed" in words:
            for task in found._tasks:
                task._ledger.looked_at(task.id, task.index)
        return found

    def cancel(self) -> int:
        """Cancel what has not ended; returns how many tasks that was."""
        return sum(not task.done() and task.cancel() for task in self._tasks)

    def kill(self) -> None:
        """End what is running: those attempts fail and are not tried again."""
        for task in self._tasks:
            if not task.done():
                task.kill()


def _left(deadline: float | None) -> float | None:
    import time

    return None if deadline is None else max(0.0, deadline - time.monotonic())
