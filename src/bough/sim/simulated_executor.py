"""A simulated executor: takes spans as a real one does, and answers when their time has passed.

It runs the elements of a span one after the other, keeps spans that do not fit in a queue, and never
occupies more than it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bough.model.events.facts import ExecutorJoined, ExecutorLost
from bough.model.events.news import WorkFailed, WorkReturned, WorkSucceeded
from bough.model.events.orders import SendSpan, StopSpan
from bough.model.ids import ExecutorId, Seconds
from bough.model.outcomes import Failure
from bough.model.resources import Needs
from bough.model.tasks import ArraySpec, TaskSpec

# How a task goes: seconds on an executor of speed 1, and why it fails, if it does
Fate = tuple[Seconds, Failure | None]
News = WorkSucceeded | WorkFailed | WorkReturned | ExecutorLost
Model = Callable[[TaskSpec | ArraySpec, int, int], Fate]  # spec, index, attempt


class Finish(NamedTuple):
    """The end of a span's run, put on the agenda when it starts."""

    executor: ExecutorId
    order: SendSpan
    seconds: Seconds
    failures: tuple[tuple[int, Failure], ...]


class SimulatedExecutor:
    """See the module."""

    def __init__(self, id_: int, capacity: Needs, speed: float = 1.0, host: str = "") -> None:
        self.id = ExecutorId(id_)
        self.capacity = capacity
        self.speed = speed
        self.host = host or f"sim{id_}"
        self.busy: Seconds = 0.0  # core-seconds of work done
        self._free = dict(capacity.amounts())
        self._queue: list[SendSpan] = []
        self._running: dict[int, SendSpan] = {}
        self._stopped: dict[int, set[int]] = {}

    def hello(self) -> ExecutorJoined:
        """What it says when it joins."""
        return ExecutorJoined(self.id, "sim", self.host, 0, self.capacity)

    def take(self, order: SendSpan, model: Model) -> list[Finish]:
        """Accept a span; return what starts now."""
        self._queue.append(order)
        return self._start(model)

    def stop(self, order: StopSpan) -> None:
        """Forget elements; a stopped span still ends its time, since nobody waits for it."""
        self._stopped.setdefault(order.span, set()).update(range(order.start, order.stop))

    def finish(self, end: Finish, model: Model) -> tuple[list[News], list[Finish]]:
        """A span has ended: what it reports, and what starts in its place."""
        order = end.order
        del self._running[order.span]
        stopped = self._stopped.pop(order.span, set())
        news = _news(end, stopped)
        if end.failures or stopped:
            news += self._give_back_behind(order.span)
        for name, amount in order.spec.needs.amounts().items():
            self._free[name] += amount
        self.busy += end.seconds * order.spec.needs.cores
        return news, self._start(model)

    def _give_back_behind(self, span: int) -> list[News]:
        """What was to follow on a success goes back, and what was to follow on that."""
        news: list[News] = []
        for order in [order for order in self._queue if order.behind == span]:
            self._queue.remove(order)
            news.append(WorkReturned(order.span, order.start, order.stop))
            news += self._give_back_behind(order.span)
        return news

    def _start(self, model: Model) -> list[Finish]:
        started = []
        for order in list(self._queue):
            needs = order.spec.needs.amounts()
            if order.behind and (order.behind in self._running or order.behind in {one.span for one in self._queue}):
                continue
            if any(amount > self._free.get(name, 0) for name, amount in needs.items()):
                continue
            self._queue.remove(order)
            for name, amount in needs.items():
                self._free[name] -= amount
            self._running[order.span] = order
            fates = [(i, *model(order.spec, i, order.attempt)) for i in range(order.start, order.stop)]
            seconds = sum(fate[1] for fate in fates) / self.speed
            failures = tuple((index, failure) for index, _, failure in fates if failure is not None)
            started.append(Finish(self.id, order, seconds, failures))
        return started


def _news(end: Finish, stopped: set[int]) -> list[News]:
    """Successes in ranges, failures one by one, nothing of what was stopped."""
    order = end.order
    failed = dict(end.failures)
    each = end.seconds / (order.stop - order.start)
    news: list[News] = []
    start = order.start
    for index in [*sorted({*failed, *stopped}), order.stop]:
        if start < index:
            news.append(WorkSucceeded(order.span, start, index, each * (index - start)))
        if index in failed and index not in stopped:
            news.append(WorkFailed(order.span, index, failed[index]))
        start = index + 1
    return news
