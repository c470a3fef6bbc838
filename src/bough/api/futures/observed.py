"""What was seen of watched tasks, for scripts: series of metrics, progress, tags, and values that monitors emit.

The server is asked, also about tasks that have ended; once the session is closed, its store is read. `emissions` also
listens to what the server tells as it comes.

Rule: of several attempts the last one counts, but tags and emitted values are those of all.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bough.model.ids import Seconds
from bough.model.monitoring.observations import Fired, SeenTask
from bough.wire.client_messages import TasksObserved

if TYPE_CHECKING:
    from bough.api.futures.task import Home, Task

_LOOK = 0.2  # seconds between looks at whether all tasks have ended


class Point(NamedTuple):
    """One value of a series."""

    step: float
    time: Seconds  # since 1970
    value: float


class TaskProgress(NamedTuple):
    """How far a task is, by the metrics that it prints or reports."""

    step: float | None = None  # the latest of all metrics; None: there is none
    total: int | None = None  # steps of a whole run, if that is known
    share: float | None = None  # of it that is done, 0 to 1, if the total is known
    values: dict[str, float] = {}  # noqa: RUF012 - the latest of each metric; nothing changes it


class Emission(NamedTuple):
    """A value that a monitor emitted."""

    task: Task
    name: str  # as the monitor's action says
    value: float | None  # the number on which it fired, if it is one
    text: str  # the line or group on which it fired
    time: Seconds
    monitor: str


def last_seen(home: Home, record: int, start: int, stop: int) -> dict[int, SeenTask]:
    """What was seen of the last attempts of elements [start, stop), by element."""
    return {seen.index: seen for seen in home.seen(record, start, stop)}  # attempts come in order


def points(seen: SeenTask | None, metric: str) -> list[Point]:
    """One series."""
    return [] if seen is None else [Point(*point) for point in seen.metrics.get(metric, ())]


def progress(seen: SeenTask | None) -> TaskProgress:
    """How far a task is."""
    latest = {name: Point(*found[-1]) for name, found in seen.metrics.items() if found} if seen is not None else {}
    if seen is None or not latest:
        return TaskProgress()
    step = max(point.step for point in latest.values())
    total = max(seen.totals.values(), default=0) or None
    share = None if total is None else min(1.0, max(0.0, step / total))
    return TaskProgress(step, total, share, {name: point.value for name, point in latest.items()})


def tags(seen: Iterable[SeenTask]) -> list[str]:
    """The tags of a task, each once."""
    return list(dict.fromkeys(tag for one in seen for tag in one.tags))


def emitted(task: Task, seen: Iterable[SeenTask]) -> list[Emission]:
    """What monitors of a task emitted."""
    return [_emission(task, fired) for one in seen for fired in one.fired if fired.action == "emit"]


def _emission(task: Task, fired: Fired) -> Emission:
    return Emission(task, fired.name, fired.value, fired.text, fired.at, fired.monitor)


class WatchedRecord(NamedTuple):
    """Elements of one record, whose emissions are wanted."""

    home: Home
    record: int
    indices: Sequence[int]
    task: Callable[[int], Task]  # by its element

    def has(self, index: int) -> bool:
        """Whether an element is among them."""
        return index in self.indices  # a range, or a slice of one, for all but selections


News = tuple[WatchedRecord, TasksObserved]


def emissions(
    records: Sequence[WatchedRecord], is_over: Callable[[], bool], timeout: float | None
) -> Iterator[Emission]:
    """What is emitted, in the order of time for each task, until all tasks have ended."""
    until = None if timeout is None else time.monotonic() + timeout
    news: queue.SimpleQueue[News] = queue.SimpleQueue()
    listeners = [(one, _listener(one, news)) for one in records]
    for one, listener in listeners:  # before the server is asked, so that nothing is missed
        one.home.may_wait()
        one.home.observers.setdefault(one.record, []).append(listener)
    try:
        told: set[tuple[int, int, int, Fired]] = set()
        for one in records:
            for seen in one.home.seen(one.record, min(one.indices, default=0), max(one.indices, default=-1) + 1):
                if one.has(seen.index):
                    told.update((one.record, seen.index, seen.attempt, fired) for fired in seen.fired)
                    yield from emitted(one.task(seen.index), [seen])
        for one, message in _coming(news, is_over, until):
            for fired in message.observations:
                key = (message.record, message.index, message.attempt, fired)
                if isinstance(fired, Fired) and fired.action == "emit" and key not in told:
                    yield _emission(one.task(message.index), fired)
    finally:
        for one, listener in listeners:
            one.home.observers[one.record].remove(listener)


def _coming(news: queue.SimpleQueue[News], is_over: Callable[[], bool], until: float | None) -> Iterator[News]:
    """What comes until all is over; what was told before the last end has come by then."""
    while True:
        ended = is_over()
        left = _LOOK if until is None else min(_LOOK, until - time.monotonic())
        if left <= 0:
            raise TimeoutError("the tasks have not ended within the timeout")
        try:
            yield news.get(timeout=0.001 if ended else left)
        except queue.Empty:
            if ended:
                return


def _listener(one: WatchedRecord, news: queue.SimpleQueue[News]) -> Callable[[TasksObserved], None]:
    def listen(message: TasksObserved) -> None:
        if one.has(message.index):
            news.put((one, message))

    return listen
