"""A simulated executor: takes spans as a real one does, and reports when their time has passed.

It runs the elements of a span one after the other, and keeps spans that do not fit in a queue. It reports the end of an
element when that ends, if the model says so, and otherwise together with those that follow it.
Rule: it never occupies more than it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bough.model.events.facts import ExecutorJoined, ExecutorLost
from bough.model.events.news import WorkFailed, WorkReturned, WorkSucceeded
from bough.model.events.orders import EndSpan, SendSpan, StopSpan
from bough.model.ids import ExecutorId, Seconds
from bough.model.monitors import Finish as EndWell
from bough.model.monitors import Restart
from bough.model.outcomes import Cause, Failure
from bough.model.resources import Needs
from bough.model.tasks import ArraySpec, TaskSpec


class ExecutorTraits(NamedTuple):
    """What a model may tell executors apart by."""

    id: ExecutorId
    site: str
    host: str
    speed: float
    capacity: Needs


class Fate(NamedTuple):
    """How a task goes."""

    seconds: Seconds  # on an executor of speed 1
    failure: Failure | None = None  # why it fails, if it does
    reported_at_once: bool = False  # its end is reported when it ends; otherwise with the next that is, or its span


Model = Callable[[TaskSpec | ArraySpec, int, int, ExecutorTraits], Fate]  # spec, index, attempt, where it runs
News = WorkSucceeded | WorkFailed | WorkReturned | ExecutorLost


class Finish(NamedTuple):
    """The end of elements [start, stop) of a span, put on the agenda when the span starts."""

    executor: ExecutorId
    order: SendSpan
    start: int
    stop: int
    after: Seconds  # since the span started
    seconds: Seconds  # that these elements take
    failures: dict[int, Failure]  # by element

    @property
    def is_last(self) -> bool:
        """Whether the span has ended then."""
        return self.stop == self.order.stop


class SimulatedExecutor:
    """See the module."""

    def __init__(self, id_: int, capacity: Needs, speed: float = 1.0, host: str = "", site: str = "sim") -> None:
        self.traits = ExecutorTraits(ExecutorId(id_), site, host or f"sim{id_}", speed, capacity)
        self.busy: Seconds = 0.0  # core-seconds of work done
        self.now: Seconds = 0.0  # set by those that drive it, before they say something
        self._free = dict(capacity.amounts())
        self._queue: list[SendSpan] = []
        self._running: dict[int, bool] = {}  # spans, and whether all of each has succeeded so far
        self._stopped: dict[int, set[int]] = {}
        self._begun: dict[int, tuple[Seconds, SendSpan]] = {}  # of those that run: when what runs of it began

    @property
    def id(self) -> ExecutorId:
        """Its number."""
        return self.traits.id

    @property
    def host(self) -> str:
        """Its host."""
        return self.traits.host

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do."""
        return not (self._queue or self._running)

    def hello(self) -> ExecutorJoined:
        """What it says when it joins."""
        return ExecutorJoined(self.id, self.traits.site, self.host, 0, self.traits.capacity)

    def take(self, order: SendSpan, model: Model) -> list[Finish]:
        """Accept a span; return the ends of what starts now."""
        self._queue.append(order)
        return self._start(model)

    def stop(self, order: StopSpan, model: Model) -> tuple[list[News], list[Finish]]:
        """Report nothing of these elements: what it says all the same, and the ends of what starts in their place.

        A span of one element ends at once. Elements of a longer one still take their time, since others follow them.
        """
        stopped = self._stopped.setdefault(order.span, set())
        stopped.update(range(order.start, order.stop))
        begun = self._begun.get(order.span)
        if begun is None or begun[1].stop - begun[1].start > 1:
            return [], []
        since, sent = begun
        self.busy += (self.now - since) * sent.spec.needs.cores
        self._leave(sent)
        return self._give_back_after(order.span), self._start(model)

    def give_backlog(self) -> list[News]:
        """Give back what has not begun."""
        queue, self._queue = self._queue, []
        return [WorkReturned(order.span, order.start, order.stop) for order in queue]

    def end(self, order: EndSpan) -> list[WorkSucceeded | WorkFailed]:
        """End elements that run by a verdict: it is reported at once, and they still take their time."""
        if order.span not in self._running:
            return []
        stopped = self._stopped.setdefault(order.span, set())
        wanted = [index for index in range(order.start, order.stop) if index not in stopped]
        stopped.update(wanted)
        return [_ended_early(order, index) for index in wanted]

    def has(self, end: Finish) -> bool:
        """Whether the span that is to end then is still here."""
        return end.order.span in self._running

    def finish(self, end: Finish, model: Model) -> tuple[list[News], list[Finish]]:
        """Elements of a span have ended: what it reports, and the ends of what starts in their place."""
        span, needs = end.order.span, end.order.spec.needs
        if span not in self._running:
            return [], []  # it was stopped
        stopped = self._stopped.get(span, set())
        news = _news(end, stopped)
        self.busy += end.seconds * needs.cores
        if end.failures or stopped:
            self._running[span] = False
        if not end.is_last:
            return news, []
        succeeded = self._running[span]
        self._leave(end.order)
        if not succeeded:
            news += self._give_back_after(span)
        return news, self._start(model)

    def _leave(self, order: SendSpan) -> None:
        """A span is here no more."""
        self._stopped.pop(order.span, None)
        del self._running[order.span], self._begun[order.span]
        for name, amount in order.spec.needs.amounts().items():
            self._free[name] += amount

    def _give_back_after(self, span: int) -> list[News]:
        """What was to follow on a success goes back, and what was to follow on that."""
        news: list[News] = []
        for order in [order for order in self._queue if order.behind == span]:
            self._queue.remove(order)
            news.append(WorkReturned(order.span, order.start, order.stop))
            news += self._give_back_after(order.span)
        return news

    def _start(self, model: Model) -> list[Finish]:
        ends: list[Finish] = []
        for order in list(self._queue):
            needs = order.spec.needs.amounts()
            if order.behind and (order.behind in self._running or order.behind in {one.span for one in self._queue}):
                continue
            if any(amount > self._free.get(name, 0) for name, amount in needs.items()):
                continue
            self._queue.remove(order)
            for name, amount in needs.items():
                self._free[name] -= amount
            self._running[order.span] = True
            self._begun[order.span] = self.now, order
            ends += self._ends_of(order, model)
        return ends

    def _ends_of(self, order: SendSpan, model: Model) -> list[Finish]:
        """When which elements of a span will have ended."""
        ends: list[Finish] = []
        start, passed, work = order.start, 0.0, 0.0
        failures: dict[int, Failure] = {}
        for index in range(order.start, order.stop):
            fate = model(order.spec, index, order.attempt, self.traits)
            work += fate.seconds
            if fate.failure is not None:
                failures[index] = fate.failure
            if fate.reported_at_once or index + 1 == order.stop:
                seconds = work / self.traits.speed
                passed += seconds
                ends.append(Finish(self.id, order, start, index + 1, passed, seconds, failures))
                start, work, failures = index + 1, 0.0, {}
        return ends


def _ended_early(order: EndSpan, index: int) -> WorkSucceeded | WorkFailed:
    if isinstance(order.verdict, EndWell):
        return WorkSucceeded(order.span, index, index + 1, 0.0)
    restarts = order.verdict.times if isinstance(order.verdict, Restart) else 0
    return WorkFailed(order.span, index, Failure(Cause.MONITOR, order.reason, restarts=restarts))


def _news(end: Finish, stopped: set[int]) -> list[News]:
    """Successes in ranges, failures one by one, nothing of what was stopped."""
    span, start = end.order.span, end.start
    each = end.seconds / (end.stop - start)
    silent = {index for index in stopped if start <= index < end.stop}
    news: list[News] = []
    for index in [*sorted(silent.union(end.failures)), end.stop]:
        if start < index:
            news.append(WorkSucceeded(span, start, index, each * (index - start)))
        if index in end.failures and index not in stopped:
            news.append(WorkFailed(span, index, end.failures[index]))
        start = index + 1
    return news
