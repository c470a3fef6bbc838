"""Arrays of one record: all of its elements, a slice or a selection of them; and feeds whose results are taken once.

Rules: an index gives the same task object while a caller holds it. A slice is a view and copies nothing. What `map`
returned has one iteration at a time, as an iterator has: who stops and begins again continues where it was; once all
values were given the next one begins anew. One that was closed gives no more. A `FeedArray` gives each end once.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from bough.api.futures.array import QUEUED, Array, check_errors, in_a_thread, left_until, value_of
from bough.api.futures.completed import load_results
from bough.api.futures.elements import ArrayElements, runs_of
from bough.api.futures.feed_elements import AS_ENDED, IN_ORDER, FeedElements
from bough.api.futures.observed import WatchedRecord, last_seen, points
from bough.api.futures.task import Task
from bough.errors import UserError
from bough.model.bounds import MOST_TASKS
from bough.model.ids import RecordId, number_of
from bough.model.states import ENDED, TaskState
from bough.model.tasks import Dep, On
from bough.wire.client_messages import TasksSucceeded

if TYPE_CHECKING:
    from bough.api.futures.observed import Point
    from bough.api.futures.task import Home
    from bough.monitors import Metric, Monitor, Remote
    from bough.monitors.comparison import Rule

_S = TaskState


class ArrayView(Array):
    """Elements of one record. `indices` None: all of them, also those that are still to come."""

    __slots__ = ("__weakref__", "_deadline", "_elements", "_indices")

    def __init__(
        self,
        elements: ArrayElements,
        indices: Sequence[int] | None = None,
        *,
        values: bool = False,
        deadline: float | None = None,
    ) -> None:
        super().__init__(values=values)
        self._elements = elements
        self._indices = indices
        self._deadline = deadline  # of an iteration over values, as map's timeout says

    # --- a sequence ---------------------------------------------------------------------------------

    @property
    def id(self) -> int:
        """The number that people use."""
        return number_of(self._elements.record)

    @property
    def record(self) -> int:
        """What the server knows it by."""
        return self._elements.record

    @property
    def name(self) -> str:
        """The name given to it."""
        return self._elements.name

    def __len__(self) -> int:
        return len(self._elements.states) if self._indices is None else len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Array: ...
    def __getitem__(self, index: int | slice) -> Task | Array:
        indices = self._all()
        self._elements.is_shared = True
        if isinstance(index, slice):
            return ArrayView(self._elements, indices[index], values=self._values, deadline=self._deadline)
        try:
            return self._elements.task(indices[index])
        except IndexError:
            raise IndexError(f"task {index} of an array of {len(self)}") from None

    def __iter__(self) -> Iterator[Any]:
        return self._iteration(anew=bool(self._given)) if self._values else self.tasks()

    def _values_in_order(self, given: list[bool]) -> Generator[Any]:
        return _values_in_order(self._elements, self._indices, self._deadline, given)

    def _cancel_waiting(self) -> None:
        self._elements.cancel_waiting(self._indices)

    def _all(self) -> Sequence[int]:
        return range(len(self._elements.states)) if self._indices is None else self._indices

    def deps(self) -> tuple[Dep, ...]:
        """The whole array as one dependency, a part of it element by element."""
        record = RecordId(self._elements.record)
        self._elements.is_shared = True
        if self._indices is None:
            return (Dep(On.ARRAY, record),) if len(self) or self._elements.is_open else ()
        return tuple(Dep(On.TASK, record, index) for index in self._indices)

    def tasks(self) -> Iterator[Task]:
        """The tasks in order, whatever iterating the array itself gives; of a feed also those to come."""
        elements = self._elements
        if self._indices is None and (elements.is_open or elements.feed_error is not None):
            return self._fed_tasks()
        return super().tasks()

    def _fed_tasks(self) -> Iterator[Task]:
        elements, position = self._elements, 0
        elements.registry.may_wait()
        while elements.wait_for_length(position + 1, None):
            yield self[position]
            position += 1
        self._check_feed()

    @property
    def is_command(self) -> bool:
        """Whether its tasks are commands."""
        return self._elements.is_command

    def owners(self) -> Iterable[Home]:
        """The session its tasks belong to."""
        return (self._elements.registry,)

    @property
    def indices(self) -> Sequence[int]:
        """The places of its tasks in the array it is part of."""
        return self._all()

    @property
    def is_whole(self) -> bool:
        """Whether it is the array and not a part of it."""
        return self._indices is None

    def counts(self) -> dict[str, int]:
        """How many tasks are in which state, as far as this process has heard."""
        shown = {state: self._elements.count(self._indices, state) for state in TaskState}
        waiting = sum(shown[state] for state in QUEUED)
        return {"waiting": waiting, **{state.label: shown[state] for state in (_S.RUNNING, *sorted(ENDED))}}

    # --- waiting ------------------------------------------------------------------------------------

    def wait_all(self, timeout: float | None = None) -> ArrayView:
        """Wait until every task has ended, in whatever way; TimeoutError when it takes longer."""
        self._elements.registry.may_wait()
        is_over = self._over_test()
        with self._elements.condition:
            if not self._elements.condition.wait_for(is_over, timeout):
                raise TimeoutError(f"{self!r} has not ended within {timeout} s")
        self._check_feed()
        return self

    def _check_feed(self) -> None:
        _check_feed(self._elements, self._indices)

    def _over_test(self) -> Callable[[], bool]:
        """A test that costs little when it is made after every piece of news."""
        elements, indices = self._elements, self._indices
        if indices is None:
            return lambda: not elements.left and not elements.is_open
        if isinstance(indices, range) and indices.step == 1:
            at = indices.start

            def reached_the_end() -> bool:
                nonlocal at
                at = elements.first_open(at, indices.stop)
                return at >= indices.stop

            return reached_the_end
        left = list(indices)

        def none_left() -> bool:
            while left and elements.states[left[-1]] >= _S.DONE:
                left.pop()
            return not left

        return none_left

    def as_completed(self, timeout: float | None = None) -> Iterator[Task]:
        """The tasks in the order in which they end, those that have ended first."""
        elements = self._elements
        elements.registry.may_wait()
        elements.is_shared = True
        deadline = None if timeout is None else time.monotonic() + timeout
        wanted = None if self._indices is None else _membership(self._indices)
        queue = elements.watch()
        given = 0
        try:
            while True:
                while queue:
                    for index in range(*queue.popleft()):
                        if wanted is None or index in wanted:
                            given += 1
                            elements.registry.looked_at(elements.record, index)
                            yield elements.task(index)
                if given >= len(self) and not (wanted is None and elements.is_open) and not queue:
                    self._check_feed()
                    return
                if not elements.wait_for_news(queue, left_until(deadline)):
                    raise TimeoutError(f"{len(self) - given} of {len(self)} tasks have not ended")
        finally:
            elements.unwatch(queue)

    # --- values -------------------------------------------------------------------------------------

    def results(self, errors: str = "raise", timeout: float | None = None) -> list[Any]:
        """The values of all tasks, in order, once all have ended; see `Array.results`."""
        check_errors(errors)
        self.wait_all(timeout)
        elements = self._elements
        if self._indices is None:  # the caller gets every failure, or the first is raised
            elements.registry.looked_at_all(elements.record)
        else:
            self.failed()
        if elements.is_command:
            return [value_of(task, errors) for task in self.tasks()]
        found: list[Any] = []
        for start, stop in _runs_in_order(self._all()):
            self._collect(start, stop, errors, found)
        return found

    def _collect(self, start: int, stop: int, errors: str, found: list[Any]) -> None:
        elements = self._elements
        at = start
        while at < stop:
            end, message = elements.span_at(at)
            end = min(end, stop)
            if isinstance(message, TasksSucceeded) and elements.count(range(at, end), _S.DONE) == end - at:
                page = elements.page(message)
                found += page[at - message.start : end - message.start]
                at = end
            else:
                found.append(value_of(elements.task(at), errors))
                at += 1

    # --- choosing and acting --------------------------------------------------------------------------

    def select(self, keep: Callable[[Task], object]) -> ArrayView:
        """The tasks for which `keep(task)` is true, now."""
        self._elements.is_shared = True
        return ArrayView(self._elements, array("q", [i for i in self._all() if keep(self._elements.task(i))]))

    def _in_states(self, states: Iterable[TaskState]) -> ArrayView:
        self._elements.is_shared = True
        return ArrayView(self._elements, self._elements.chosen(self._all(), states))

    def failed(self) -> ArrayView:
        """The tasks that have failed or could not run."""
        found = self._in_states((_S.FAILED, _S.SKIPPED))
        if self._indices is None:
            self._elements.registry.looked_at_all(self._elements.record)
        else:
            for index in found._all():
                self._elements.registry.looked_at(self._elements.record, index)
        return found

    def cancel(self) -> int:
        """Cancel what has not ended; returns how many tasks that was."""
        elements, indices = self._elements, self._indices
        ended = elements.cancel_all() if indices is None else elements.cancel(indices)
        return sum(stop - start for start, stop in ended)

    def kill(self) -> None:
        """End what is running: those attempts fail and are not tried again."""
        elements, record = self._elements, RecordId(self._elements.record)
        if self._indices is None:
            elements.registry.kill(Dep(On.ARRAY, record))
            return
        for start, stop in runs_of(sorted(self._indices)):
            elements.registry.kill(Dep(On.TASK, record, start), stop)

    def monitor(self, *monitors: Monitor | Metric | Remote | str) -> None:
        """Have its tasks watched from now on, also those that run, and those that are fed later."""
        record = RecordId(self._elements.record)
        targets = [(Dep(On.ARRAY, record), 0)]
        if self._indices is not None:
            targets = [(Dep(On.TASK, record, start), stop) for start, stop in runs_of(sorted(self._indices))]
        self._elements.registry.monitor(targets, monitors)

    def rule(self, rule: Rule | None) -> None:
        """Let a rule compare its tasks and end those that need not go on; None: no rule any more."""
        if self._indices is not None:
            raise UserError("a rule is for all tasks of an array, not for a part of it")
        self._elements.registry.rule(Dep(On.ARRAY, RecordId(self._elements.record)), rule)

    def series(self, metric: str = "value") -> list[list[Point]]:
        """The values of a metric so far, of each task in order, as `Task.series`; empty where nothing was seen."""
        indices = self._all()
        start, stop = min(indices, default=0), max(indices, default=-1) + 1
        seen = last_seen(self._elements.registry, self.record, start, stop)
        return [points(seen.get(index), metric) for index in indices]

    def _watched(self) -> list[WatchedRecord]:
        elements = self._elements
        indices = range(MOST_TASKS) if self._indices is None and elements.is_open else self._all()
        return [WatchedRecord(elements.registry, elements.record, indices, elements.task)]


def _values_in_order(
    elements: ArrayElements, indices: Sequence[int] | None, deadline: float | None, given: list[bool]
) -> Generator[Any]:
    """Values in order, each as soon as it and all before it are there; none is held here once it was given.

    As with `Executor.map`, an iteration that fails, takes too long or is dropped cancels what has not started. Not so
    when something else uses the array, nor when the script just ends and a service is to go on.
    """
    elements.registry.may_wait()
    try:
        for values, is_last in _told_in_order(elements, indices, deadline):
            while values:
                if is_last and len(values) == 1:
                    given.append(True)
                yield values.pop()
        _check_feed(elements, indices)
    except GeneratorExit:
        if not given and not elements.is_shared and not elements.registry.keeps_dropped:
            in_a_thread(elements.cancel_waiting, indices)
        raise
    except Exception:
        elements.registry.looked_at_all(elements.record, for_good=True)  # the caller cannot go on to the others
        if not elements.is_shared:
            elements.cancel_waiting(indices)
        raise
    finally:
        given.append(True)


def _told_in_order(
    elements: ArrayElements, indices: Sequence[int] | None, deadline: float | None
) -> Iterator[tuple[list[Any], bool]]:
    """The values that were told together, the last one first, and whether no others follow."""
    position = 0
    while True:
        if indices is None and not elements.wait_for_length(position + 1, left_until(deadline)):
            return
        here = range(len(elements.states)) if indices is None else indices
        if position >= len(here):
            return
        if not elements.wait_for_end(here[position], left_until(deadline)):
            raise TimeoutError(f"{len(here) - position} of {len(here)} values are not there yet")
        values = _told(elements, here[position:] if _is_run(here) else here[position : position + 1])
        position += len(values)
        yield values, position == len(here)


def _told(elements: ArrayElements, indices: Sequence[int]) -> list[Any]:
    """The values of the first of these elements, which has ended, and of those told with it; the last one first."""
    start = indices[0]
    stop, message = elements.span_at(start)
    stop = min(stop, start + len(indices))
    if (
        not isinstance(message, TasksSucceeded)
        or elements.is_command
        or elements.count(range(start, stop), _S.DONE) < stop - start  # some were cancelled here before they were told
    ):
        return [elements.task(start).result()]
    if (start, stop) == (message.start, message.stop):
        values = load_results(message.results)
    else:
        values = elements.page(message)[start - message.start : stop - message.start]
    values.reverse()
    return values


def _is_run(indices: Sequence[int]) -> bool:
    return isinstance(indices, range) and indices.step == 1


def _check_feed(elements: ArrayElements, indices: Sequence[int] | None) -> None:
    """Raise what the generator raised that fed an array."""
    if elements.feed_error is not None and indices is None:
        elements.is_feed_error_seen = True
        raise elements.feed_error


def _membership(indices: Sequence[int]) -> Any:
    return indices if isinstance(indices, range) else frozenset(indices)


def _runs_in_order(indices: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Indices as ranges; those in falling order come singly."""
    if isinstance(indices, range) and indices.step != 1:
        return ((i, i + 1) for i in indices)
    return runs_of(indices)


_AT_ONCE = 1000  # values that are given before the generator may know of it


class FeedArray(ArrayView):
    """See the module."""

    __slots__ = ("_fed",)

    def __init__(self, elements: FeedElements) -> None:
        super().__init__(elements, values=True)
        self._fed = elements

    def __iter__(self) -> Iterator[Any]:
        return iter(()) if self._is_closed else self._iterate_values()

    def close(self) -> None:
        """No more values are wanted: what has not started is cancelled, and the generator is not asked for more."""
        self._is_closed = True
        self._fed.abandon()
        self.cancel()

    def __next__(self) -> Any:
        """The next value; after a failure was raised, the one behind it."""
        if self._is_closed:
            raise StopIteration
        if self._iterator is None:
            self._iterator = self._iterate_values()
        try:
            return next(self._iterator)
        except StopIteration:
            raise
        except BaseException:
            self._iterator = None
            raise

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return ArrayView(self._fed, self._all()[index])
        return super().__getitem__(index)

    def _iterate_values(self) -> Generator[Any]:
        """Values in the order of tasks, each dropped once it is given."""
        fed = self._fed
        fed.registry.may_wait()
        fed.begin(IN_ORDER)
        try:
            while (told := fed.wait_in_order(None)) is not None:
                start, stop, message = told
                at = start
                try:
                    if isinstance(message, TasksSucceeded) and not fed.is_command:
                        end = min(start + _AT_ONCE, stop) - message.start
                        for value in fed.page(message)[start - message.start : end]:
                            at += 1
                            yield value
                            if self._is_closed:
                                return
                    else:
                        at = stop = start + 1
                        yield fed.task(start).result()
                        if self._is_closed:
                            return
                finally:
                    fed.taken(start, at, stop)
            self._check_feed()
        finally:
            fed.pause()

    def as_completed(self, timeout: float | None = None) -> Iterator[Task]:
        """The tasks in the order in which they end, those that have ended first; each is given once."""
        fed = self._fed
        fed.registry.may_wait()
        deadline = None if timeout is None else time.monotonic() + timeout
        fed.begin(AS_ENDED)
        try:
            while (ended := fed.wait_for_ends(deadline)) is not None:
                start, stop = ended
                at = start
                try:
                    for task in fed.ended_tasks(start, min(start + _AT_ONCE, stop)):
                        fed.registry.looked_at(fed.record, at)
                        at += 1
                        yield task
                finally:
                    fed.taken(start, at, stop)
            self._check_feed()
        finally:
            fed.pause()

    def wait_all(self, timeout: float | None = None) -> ArrayView:
        """Wait until every task has ended; results that were not taken by then are discarded."""
        self._fed.abandon()
        return super().wait_all(timeout)

    def results(self, errors: str = "raise", timeout: float | None = None) -> list[Any]:
        """There are none: this feed keeps no results."""
        raise UserError("results: this feed keeps none; iterate over it, or give keep=True to feed")
