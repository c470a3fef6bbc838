"""Arrays as users hold them: sequences of tasks, with waits and iterators, without an object per task.

`Array` is what all arrays share. `TaskList` holds loose tasks and may grow: `Session.array()` makes one.
`array_view.ArrayView` shows elements of one record.

Rules: what `Array` defines uses only indexing, waiting, states and values in order, which its subclasses provide. A
list holds the tasks it was given, in that order; a task may be in several lists.
"""

from __future__ import annotations

import _thread
import concurrent.futures
import contextlib
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload

from bough.api.futures import observed
from bough.api.futures.observed import WatchedRecord
from bough.api.futures.task import PENDING, Task
from bough.errors import BadValue, NotPicklable, UserError, WrongType
from bough.model.states import ENDED, OPEN, TaskState
from bough.model.tasks import Dep
from bough.model.texts.plurals import counted

if TYPE_CHECKING:
    from bough.api.futures.observed import Emission, Point
    from bough.api.futures.task import Home
    from bough.monitors import Metric, Monitor, Remote
    from bough.monitors.comparison import Rule

_S = TaskState
QUEUED = tuple(sorted(OPEN - {_S.RUNNING}))  # has not started, as far as this process knows


class Array(Sequence[Task]):
    """A sequence of tasks. Iterating what `map` returned gives values; iterating any other array gives tasks."""

    __slots__ = ("_given", "_is_closed", "_iterator", "_values")

    def __init__(self, *, values: bool) -> None:
        self._values = values  # iterating gives values: it is what a map returned
        self._iterator: Generator[Any] | None = None  # that iteration
        self._given: list[bool] = []  # not empty: it has given all its values, or failed
        self._is_closed = False  # it gives no more

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Array: ...
    @abstractmethod
    def __getitem__(self, index: int | slice) -> Task | Array:
        """One task, or a view of several."""

    def __next__(self) -> Any:
        """The next value of what `map` returned, which concurrent.futures promises to be an iterator."""
        if not self._values:
            raise TypeError("an array of tasks is not an iterator; use iter(array)")
        return next(self._iteration())

    def close(self) -> None:
        """No more values of what `map` returned are wanted: what has not started is cancelled."""
        if not self._values:
            raise TypeError("an array of tasks is not an iterator, and has nothing to close; use cancel()")
        self._is_closed = True
        if not self._given:
            self._given.append(True)
            self._cancel_waiting()
        if self._iterator is not None:
            self._iterator.close()

    def _iteration(self, *, anew: bool = False) -> Iterator[Any]:
        if self._is_closed:
            return iter(())
        if self._iterator is None or anew:
            self._given = []
            self._iterator = self._values_in_order(self._given)
        return self._iterator

    @abstractmethod
    def _values_in_order(self, given: list[bool]) -> Generator[Any]:
        """The iteration over values in order; it adds to `given` when it has given all of them, or failed."""

    @abstractmethod
    def _cancel_waiting(self) -> None:
        """Cancel what has not started."""

    @abstractmethod
    def deps(self) -> tuple[Dep, ...]:
        """What waits for all of these tasks waits for these dependencies."""

    @abstractmethod
    def owners(self) -> Iterable[Home]:
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

    @abstractmethod
    def rule(self, rule: Rule | None) -> None:
        """Let a rule compare its tasks and end those that need not go on; None: no rule any more."""

    @abstractmethod
    def monitor(self, *monitors: Monitor | Metric | Remote | str) -> None:
        """Have its tasks watched from now on, also those that run. They do not count for memo keys."""

    @abstractmethod
    def series(self, metric: str = "value") -> list[list[Point]]:
        """The values of a metric so far, of each task in order, as `Task.series`; empty where nothing was seen."""

    @abstractmethod
    def _watched(self) -> list[WatchedRecord]:
        """Its tasks by record."""

    def emissions(self, timeout: float | None = None) -> Iterator[Emission]:
        """The values that monitors of its tasks emit, as they come, until all tasks have ended.

        TimeoutError when that takes longer.
        """

        def is_over() -> bool:
            counts = self.counts()
            return not (counts["waiting"] or counts["running"])

        return observed.emissions(self._watched(), is_over, timeout)

    def tagged(self, tag: str) -> Array:
        """The tasks on which a monitor has put a tag."""
        found = {
            (one.home, one.record, seen.index)
            for one in self._watched()
            for seen in one.home.seen(one.record, min(one.indices, default=0), max(one.indices, default=-1) + 1)
            if tag in seen.tags
        }
        return self.select(lambda task: (task._registry, task.record, task.index) in found)

    def tasks(self) -> Iterator[Task]:
        """The tasks in order, whatever iterating the array itself gives."""
        return (self[i] for i in range(len(self)))

    def results(self, errors: str = "raise", timeout: float | None = None) -> list[Any]:
        """The values of all tasks, in order, once all have ended.

        With errors="raise" the first failure in order is raised; with "return" exceptions stand in its place.
        """
        check_errors(errors)
        self.wait_all(timeout)
        try:
            return [value_of(task, errors) for task in self.tasks()]
        except BaseException:
            self.failed()  # the caller sees the first failure, and has been told of the others by that
            raise

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
        return self._in_states((_S.FAILED, _S.SKIPPED))

    def running(self) -> Array:
        """The tasks that are running now."""
        return self._in_states((_S.RUNNING,))

    def queued(self) -> Array:
        """The tasks that have not started yet."""
        return self._in_states(QUEUED)

    def finished(self) -> Array:
        """The tasks that have ended, in whatever way."""
        return self._in_states(tuple(ENDED))

    def add(self, what: Task | str | Sequence[Any], **options: Any) -> Task:
        """Add a task, or a command, to an array made by `Session.array()`."""
        raise UserError("add: this array is complete; make one that grows with session.array()")

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {word}" for word, count in self.counts().items() if count)
        return f"<array of {counted(len(self), 'task')}: {counts or 'empty'}>"

    def __reduce__(self) -> Any:
        raise NotPicklable(
            "an array cannot travel inside another object; give the array itself, or a list, tuple or dict"
        )


def check_errors(errors: str) -> None:
    """Refuse what `results` does not know."""
    if errors not in {"raise", "return"}:
        raise BadValue(f'results: errors is {errors!r}; give "raise" or "return"')


def value_of(task: Task, errors: str) -> Any:
    """A task's value, or with errors="return" the exception that stands in its place."""
    if errors == "raise":
        return task.result()
    try:
        error = task.exception()
    except BaseException as cancelled:  # noqa: BLE001 - CancelledError, handed back as asked
        return cancelled
    return error if error is not None else task.result()


class CommandSubmitter(Protocol):
    """Where the commands of a growing array are submitted: a session, a group or `options(...)`."""

    def command(self, text: str | Sequence[Any], /, **options: Any) -> Task:
        """Run a command."""


class TaskList(Array):
    """See the module."""

    __slots__ = ("_adder", "_deadline", "_shared", "_tasks")

    def __init__(
        self,
        tasks: Iterable[Task] = (),
        adder: CommandSubmitter | None = None,
        *,
        values: bool = False,
        deadline: float | None = None,
    ) -> None:
        super().__init__(values=values)
        self._tasks = list(tasks)
        self._adder = adder  # where new commands are submitted; None: complete
        self._deadline = deadline
        self._shared: list[bool] = []  # not empty: more than an iteration over its values uses it

    def add(self, what: Task | str | Sequence[Any], **options: Any) -> Task:
        """Add a task, or submit a command and add it; returns the task."""
        if self._adder is None:
            return super().add(what)
        if isinstance(what, Array):
            raise WrongType("add takes a task or a command; s.array([*a, *b]) joins arrays")
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
        self._shared.append(True)
        if isinstance(index, slice):
            found = TaskList(self._tasks[index], values=self._values, deadline=self._deadline)
            found._shared = self._shared
            return found
        return self._tasks[index]

    def __iter__(self) -> Iterator[Any]:
        return self._iteration(anew=bool(self._given)) if self._values else iter(list(self._tasks))

    def _values_in_order(self, given: list[bool]) -> Generator[Any]:
        return _values_in_order(list(self._tasks), self._deadline, given, self._shared)

    def _cancel_waiting(self) -> None:
        _cancel_waiting(self._tasks)

    @property
    def is_command(self) -> bool:
        """Whether its tasks are commands."""
        return any(task.is_command for task in self._tasks)

    def owners(self) -> Iterable[Home]:
        """The sessions its tasks belong to."""
        return (task._registry for task in self._tasks)

    def deps(self) -> tuple[Dep, ...]:
        """Every task as a dependency."""
        self._shared.append(True)
        return tuple(task.dep() for task in self._tasks)

    def counts(self) -> dict[str, int]:
        """How many tasks are in which state, as far as this process has heard."""
        found = dict.fromkeys(("waiting", "running", "done", "failed", "skipped", "cancelled"), 0)
        for task in self._tasks:
            found[task.known_state] += 1
        return found

    def wait_all(self, timeout: float | None = None) -> TaskList:
        """Wait until every task has ended, in whatever way; TimeoutError when it takes longer."""
        for task in self._tasks:
            task._registry.may_wait()
        pending = [task for task in self._tasks if not task.done()]
        if concurrent.futures.wait(pending, timeout).not_done:
            raise TimeoutError(f"{self!r} has not ended within {timeout} s")
        return self

    def as_completed(self, timeout: float | None = None) -> Iterator[Task]:
        """The tasks in the order in which they end, those that have ended first."""
        self._shared.append(True)
        futures: list[concurrent.futures.Future[Any]] = list(self._tasks)
        for task in concurrent.futures.as_completed(futures, timeout):
            assert isinstance(task, Task)
            task._registry.looked_at(task.record, task.index)
            yield task

    def select(self, keep: Callable[[Task], object]) -> TaskList:
        """The tasks for which `keep(task)` is true, now."""
        self._shared.append(True)
        return TaskList(task for task in self._tasks if keep(task))

    def _in_states(self, states: Iterable[TaskState]) -> TaskList:
        self._shared.append(True)
        words = {state.label for state in states}
        found = TaskList(task for task in self._tasks if task.known_state in words)
        if "failed" in words:
            for task in found._tasks:
                task._registry.looked_at(task.record, task.index)
        return found

    def cancel(self) -> int:
        """Cancel what has not ended; returns how many tasks that was."""
        return sum(not task.done() and task.cancel() for task in self._tasks)

    def kill(self) -> None:
        """End what is running: those attempts fail and are not tried again."""
        for task in self._tasks:
            if not task.done():
                task.kill()

    def rule(self, rule: Rule | None) -> None:
        """Single tasks can be compared as those of a group."""
        raise UserError("a rule is for an array of one submission, or for a group: put these tasks into a group")

    def monitor(self, *monitors: Monitor | Metric | Remote | str) -> None:
        """Have its tasks watched from now on, also those that run. They do not count for memo keys."""
        homes: dict[Home, list[tuple[Dep, int]]] = {}
        for task in self._tasks:
            if not task.done():
                homes.setdefault(task._registry, []).append((task.dep(), 0))
        for home, targets in homes.items():
            home.monitor(targets, monitors)

    def series(self, metric: str = "value") -> list[list[Point]]:
        """The values of a metric so far, of each task in order."""
        return [task.series(metric) for task in self._tasks]

    def _watched(self) -> list[WatchedRecord]:
        return [WatchedRecord(task._registry, task.record, (task.index,), _always(task)) for task in self._tasks]


def _always(task: Task) -> Callable[[int], Task]:
    return lambda _: task


def _values_in_order(
    tasks: list[Task], deadline: float | None, given: list[bool], shared: list[bool]
) -> Generator[Any]:
    """Values in order; see `array_view`, whose iterations end in the same way."""
    try:
        for position, task in enumerate(tasks, 1):
            if position == len(tasks):
                given.append(True)
            yield task.result(left_until(deadline))
    except GeneratorExit:
        if not given and not shared and not tasks[0]._registry.keeps_dropped:
            in_a_thread(_cancel_waiting, tasks)
        raise
    except Exception:
        for task in tasks:  # the caller sees this failure, and cannot go on to the others
            task._registry.looked_at_all(task.id, for_good=True)
        if not shared:
            _cancel_waiting(tasks)
        raise
    finally:
        given.append(True)


def _cancel_waiting(tasks: Iterable[Task]) -> None:
    """Cancel what has not started."""
    for task in tasks:
        if task._state == PENDING:
            task.cancel()


def in_a_thread(call: Callable[..., object], *arguments: object) -> None:
    """Call something whose locks this thread may hold: an iterator may be dropped, and collected, anywhere."""
    with contextlib.suppress(RuntimeError):  # the interpreter ends, and the session with it
        _thread.start_new_thread(_quietly, (call, arguments))


def _quietly(call: Callable[..., object], arguments: tuple[object, ...]) -> None:
    with contextlib.suppress(Exception):
        call(*arguments)


def left_until(deadline: float | None) -> float | None:
    """Seconds until a time; None: there is none."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
