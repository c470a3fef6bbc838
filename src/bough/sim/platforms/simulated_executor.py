"""A simulated executor: takes spans as a real one does, and reports when their time has passed.

It runs the elements of a span one after the other, and keeps spans that do not fit in a queue. It reports the end of an
element when that ends, if the model says so, and otherwise together with those that follow it.
Rule: it never occupies more than it has. What runs longer than its limit, or that of its named queue, is ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from bough.model.events.facts import ExecutorJoined, ExecutorLost, PilotEnded
from bough.model.events.news import WorkFailed, WorkReturned, WorkSucceeded
from bough.model.events.orders import EndSpan, SendSpan, StopSpan
from bough.model.ids import ExecutorId, Seconds
from bough.model.monitoring.monitors import Finish as EndWell
from bough.model.monitoring.monitors import Restart
from bough.model.outcomes import Cause, Failure
from bough.model.sites.requirements import Attributes
from bough.model.sites.resources import Needs
from bough.model.tasks import ArraySpec, TaskSpec
from bough.sim.platforms.availability_traces import Trace


class ExecutorTraits(NamedTuple):
    """What a model may tell executors apart by."""

    id: ExecutorId
    site: str
    host: str
    speed: float
    capacity: Needs


UNSAID_MEMORY = 1 << 60  # bytes of a host of which nobody says how much it has: what is not said never runs short


class Node(NamedTuple):
    """A host behind the batch system of a site."""

    speed: float = 1.0
    has: Needs | None = None  # None: the cores of its pilot, and nothing else is said
    availability: Trace | None = None  # over time; None: all of it
    attributes: Attributes = ()  # for requirements of tasks


class Fate(msgspec.Struct, frozen=True, gc=False):
    """How a task goes."""

    seconds: Seconds  # on an executor of speed 1
    failure: Failure | None = None  # why it fails, if it does
    reported_at_once: bool = False  # its end is reported when it ends; otherwise with the next that is, or its span


Model = Callable[[TaskSpec | ArraySpec, int, int, ExecutorTraits], Fate]  # spec, index, attempt, where it runs
News = WorkSucceeded | WorkFailed | WorkReturned | ExecutorLost | PilotEnded


class SpanModel(Protocol):
    """A model that is asked once for a whole span, however long that is."""

    def __call__(self, spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits, /) -> Fate:
        """How one task goes."""

    def of_span(
        self, spec: TaskSpec | ArraySpec, start: int, stop: int, attempt: int, where: ExecutorTraits, /
    ) -> Seconds | None:
        """What all elements [start, stop) take together, if all succeed; None: ask for each."""


class Finish(msgspec.Struct, frozen=True, gc=False):
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


class Stage(NamedTuple):
    """An element of a span whose tasks have files begins: its inputs are wanted."""

    executor: ExecutorId
    order: SendSpan
    element: int


_NONE: dict[int, Failure] = {}  # most elements succeed


class SimulatedExecutor:
    """See the module."""

    def __init__(self, id_: int, capacity: Needs, speed: float = 1.0, host: str = "", site: str = "sim") -> None:
        self.id = ExecutorId(id_)
        self.host = host or f"sim{id_}"
        self.traits = ExecutorTraits(self.id, site, self.host, speed, capacity)
        self._speed = speed
        self.busy: Seconds = 0.0  # core-seconds of work done
        self.now: Seconds = 0.0  # set by those that drive it, before they say something
        self.attributes: Attributes = ()  # what it says of itself, for requirements of tasks
        self.availability: Trace | None = None  # how much of its speed there is over time; None: all of it
        self._free = dict(capacity.amounts())
        self._needs, self._wanted = capacity, capacity.amounts()  # of the span that was looked at last
        self._queue: list[SendSpan] = []
        self._running: dict[int, tuple[Seconds, SendSpan]] = {}  # spans: when what runs of each began
        self._spoilt: set[int] = set()  # of those: not all has succeeded so far
        self._stopped: dict[int, set[int]] = {}
        self._elements: dict[int, int] = {}  # of spans whose tasks have files: the element that runs
        self.has_files: Callable[[SendSpan], bool] | None = None  # whether tasks of a span have

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do."""
        return not (self._queue or self._running)

    @property
    def has_room(self) -> bool:
        """Whether a core is free."""
        return self._free.get("cores", 0) > 0

    def hello(self) -> ExecutorJoined:
        """What it says when it joins."""
        traits = self.traits
        return ExecutorJoined(self.id, traits.site, self.host, 0, traits.capacity, attributes=self.attributes)

    def take(self, order: SendSpan, model: Model) -> list[Finish | Stage]:
        """Accept a span; return the ends of what starts now, or what is to be brought for it first."""
        if self._queue or order.behind:
            self._queue.append(order)
            return self._start(model)
        wanted, free = order.spec.needs, self._free
        needs = self._wanted if wanted is self._needs else self._amounts(wanted)
        for name, amount in needs.items():
            if amount > free.get(name, 0):
                self._queue.append(order)
                return []
        return self._begin(order, needs, model)

    def stop(self, order: StopSpan, model: Model) -> tuple[list[News], list[Finish | Stage]]:
        """Report nothing of these elements: what it says all the same, and the ends of what starts in their place.

        A span of one element ends at once, and so does the element of a longer one whose tasks have files. Elements of
        another one still take their time, since others follow them.
        """
        begun = self._running.get(order.span)
        if begun is None:
            return self._stop_queued(order), []
        stopped = self._stopped.setdefault(order.span, set())
        stopped.update(range(order.start, order.stop))
        since, sent = begun
        element = self._elements.get(order.span, -1)
        if element >= 0:
            if element not in stopped:
                return [], []
            self._spoilt.add(order.span)
            if (following := self._following(sent, element)) is not None:
                return [], [following]
        elif sent.stop - sent.start > 1:
            return [], []
        else:
            self.busy += (self.now - since) * sent.spec.needs.cores
        self._leave(sent)
        return self._give_back_after(order.span), self._start(model)

    def _stop_queued(self, order: StopSpan) -> list[News]:
        """What is stopped as a whole before it began is dropped."""
        for sent in self._queue:
            if sent.span == order.span:
                stopped = self._stopped.setdefault(order.span, set())
                stopped.update(range(order.start, order.stop))
                if len(stopped) < sent.stop - sent.start:
                    return []
                del self._stopped[order.span]
                self._queue.remove(sent)
                return self._give_back_after(order.span)
        return []

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

    def lose(self) -> None:
        """It is gone: what ran here was work all the same. What single tasks without files did is counted here."""
        for since, order in self._running.values():
            if order.stop - order.start == 1 and order.span not in self._elements:
                self.busy += (self.now - since) * order.spec.needs.cores

    def has_span(self, span: int) -> bool:
        """Whether a span runs here."""
        return span in self._running

    def has(self, end: Finish) -> bool:
        """Whether the span that is to end then is still here."""
        span = end.order.span
        return span in self._running and (not self._elements or self._elements.get(span, end.start) == end.start)

    def finish(self, end: Finish, model: Model) -> tuple[list[News], list[Finish | Stage]]:
        """Elements of a span have ended: what it reports, and the ends of what starts in their place."""
        order = end.order
        span = order.span
        if span not in self._running:
            return [], []  # it was stopped
        self.busy += end.seconds * order.spec.needs.cores
        news: list[News]
        stopped = self._stopped.get(span) if self._stopped else None
        if stopped or end.failures:
            news = _news(end, stopped)
            self._spoilt.add(span)
        else:  # as nearly all do
            news = [WorkSucceeded(span, end.start, end.stop, end.seconds)]
        if end.stop != order.stop:
            if span not in self._elements:
                return news, []
            if (following := self._following(order, end.start)) is not None:
                return news, [following]
        spoilt = self._leave(order)
        if not self._queue:
            return news, []
        if spoilt:
            news += self._give_back_after(span)
        return news, self._start(model)

    def _following(self, order: SendSpan, element: int) -> Stage | None:
        """The next element of a span whose tasks have files; None: all others are stopped."""
        stopped = self._stopped.get(order.span, ())
        for index in range(element + 1, order.stop):
            if index not in stopped:
                self._elements[order.span] = index
                self._running[order.span] = self.now, order
                return Stage(self.id, order, index)
        return None

    def _leave(self, order: SendSpan) -> bool:
        """A span is here no more; whether not all of it has succeeded."""
        span = order.span
        if self._elements:
            self._elements.pop(span, None)
        if self._stopped:
            self._stopped.pop(span, None)
        del self._running[span]
        free, needs = self._free, order.spec.needs
        for name, amount in (self._wanted if needs is self._needs else self._amounts(needs)).items():
            free[name] += amount
        if self._spoilt and span in self._spoilt:
            self._spoilt.remove(span)
            return True
        return False

    def _amounts(self, needs: Needs) -> dict[str, float]:
        """What a span occupies; most are like the one before."""
        if needs is not self._needs:
            self._needs, self._wanted = needs, {name: amount for name, amount in needs.amounts().items() if amount}
        return self._wanted

    def _give_back_after(self, span: int) -> list[News]:
        """What was to follow on a success goes back, and what was to follow on that."""
        news: list[News] = []
        for order in [order for order in self._queue if order.behind == span]:
            self._queue.remove(order)
            news.append(WorkReturned(order.span, order.start, order.stop))
            news += self._give_back_after(order.span)
        return news

    def _start(self, model: Model) -> list[Finish | Stage]:
        ends: list[Finish | Stage] = []
        if not self._queue:
            return ends
        queue, free, at = self._queue, self._free, 0
        refused: Needs | None = None
        while at < len(queue):
            order = queue[at]
            if order.spec.needs is refused:
                at += 1
                continue
            needs = self._amounts(order.spec.needs)
            if order.behind and (order.behind in self._running or any(one.span == order.behind for one in queue)):
                at += 1
                continue
            if any(amount > free.get(name, 0) for name, amount in needs.items()):
                refused = order.spec.needs
                at += 1
                continue
            del queue[at]
            ends += self._begin(order, needs, model)
        return ends

    def _begin(self, order: SendSpan, needs: dict[str, float], model: Model) -> list[Finish | Stage]:
        """A span starts, for which there is room."""
        free = self._free
        for name, amount in needs.items():
            free[name] -= amount
        self._running[order.span] = self.now, order
        if self.has_files is not None and self.has_files(order):
            return [*self._first_stage(order)]
        start, stop = order.start, order.stop
        if stop - start == 1:
            fate = model(order.spec, start, order.attempt, self.traits)
            seconds = fate.seconds / self._speed
            if self.availability is not None:
                seconds = self.availability.end(self.now, seconds) - self.now
            failure = fate.failure
            if 0 < order.spec.limits.timeout < seconds:
                seconds, failure = over_time(order.spec)
            failures = _NONE if failure is None else {start: failure}
            return [Finish(self.id, order, start, stop, seconds, seconds, failures)]
        return [*self._ends_of(order, model)]

    def seconds_for(self, work: Seconds, start: Seconds) -> Seconds:
        """How long work takes that needs so many seconds at speed 1, if it begins at a time."""
        seconds = work / self._speed
        return seconds if self.availability is None else self.availability.end(start, seconds) - start

    def _first_stage(self, order: SendSpan) -> list[Stage]:
        self._elements[order.span] = order.start - 1
        first = self._following(order, order.start - 1)
        return [first] if first is not None else []

    def _ends_of(self, order: SendSpan, model: Model) -> list[Finish]:
        """When which elements of a span of several will have ended."""
        timeout = order.spec.limits.timeout  # of each element
        of_span = getattr(model, "of_span", None) if not timeout else None
        together = of_span(order.spec, order.start, order.stop, order.attempt, self.traits) if of_span else None
        if together is not None:
            seconds = self.seconds_for(together, self.now)
            return [Finish(self.id, order, order.start, order.stop, seconds, seconds, _NONE)]
        ends: list[Finish] = []
        start, passed, work = order.start, 0.0, 0.0
        failures: dict[int, Failure] = {}
        for index in range(order.start, order.stop):
            fate = model(order.spec, index, order.attempt, self.traits)
            work += fate.seconds
            if fate.failure is not None:
                failures[index] = fate.failure
            if fate.reported_at_once or timeout or index + 1 == order.stop:
                seconds = self.seconds_for(work, self.now + passed)
                if 0 < timeout < seconds:
                    seconds, failures[index] = over_time(order.spec)
                passed += seconds
                ends.append(Finish(self.id, order, start, index + 1, passed, seconds, failures))
                start, work, failures = index + 1, 0.0, {}
        return ends


def over_time(spec: TaskSpec | ArraySpec) -> tuple[Seconds, Failure]:
    """How a task goes that takes longer than it may: when it is ended, and the failure."""
    most = spec.limits.timeout
    return most, Failure(Cause.TIMEOUT, f"ran longer than {most:g} s")


def _ended_early(order: EndSpan, index: int) -> WorkSucceeded | WorkFailed:
    if isinstance(order.verdict, EndWell):
        return WorkSucceeded(order.span, index, index + 1, 0.0)
    restarts = order.verdict.times if isinstance(order.verdict, Restart) else 0
    return WorkFailed(order.span, index, Failure(Cause.MONITOR, order.reason, restarts=restarts))


def _news(end: Finish, stopped: set[int] | None) -> list[News]:
    """Successes in ranges, failures one by one, nothing of what was stopped."""
    span, start = end.order.span, end.start
    stopped = stopped or set()
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
