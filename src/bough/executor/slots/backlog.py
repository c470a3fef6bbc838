"""The executor's queue: spans in order of arrival, and the resources they may use.

Spans with equal needs queue together, so finding the next that fits costs as much as there are different needs. A
batch of like tasks is one span of n elements here, and n spans of one task each to the server.

Rules: what is taken never exceeds what is there, and what is given back is what was taken. Only here is it known that
an element of a batch has a span number of its own: what is said to the server is translated on its way out, what the
server says of one of them on its way in.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from bough.model.events.news import (
    CallsEnded,
    WorkFailed,
    WorkObserved,
    WorkReturned,
    WorkStarted,
    WorkStopped,
    WorkSucceeded,
)
from bough.model.ids import BlobId, RecordId, SpanId
from bough.model.sites.resources import Needs
from bough.wire.executor_messages import EndElements, RunSpan, StopElements, WatchElements
from bough.wire.framing import News

_ROUND = 1e-9  # fractions of cores add up inexactly


class QueuedSpan:
    """A span, or what is left of one, that this executor has."""

    __slots__ = ("batch_end", "deaths", "follower", "late", "next", "number", "order", "run", "stopped", "token")

    def __init__(self, run: RunSpan, order: float, deaths: int = 0) -> None:
        self.run = run
        self.order = order
        self.deaths = deaths  # workers that died with it before they began
        self.number = 0  # of its hand-over
        self.batch_end = 0  # number of the last that was handed over with it
        self.token = False  # it can be taken back while its token can
        self.next = run.start  # first element without news
        self.stopped: list[tuple[int, int]] = []
        self.follower: QueuedSpan | None = None  # to be run right behind it, by the same worker
        self.late: list[tuple[int, int, BlobId]] | None = None  # elements that plans were added for, see `run.watch`

    @property
    def expected(self) -> float:
        """Seconds that it will take, if it is a loose task or several that are alike."""
        return self.run.expected * (1 + len(self.run.batch))

    def chain(self) -> list[QueuedSpan]:
        """Itself and all that is to follow it."""
        found = [self]
        while found[-1].follower is not None:
            found.append(found[-1].follower)
        return found

    def plans(self, index: int) -> list[BlobId]:
        """What watches an element."""
        late = [plan for start, stop, plan in self.late or () if start <= index < stop]
        return list(dict.fromkeys([*self.run.watch, *late]))

    def watch(self, start: int, stop: int, plan: BlobId) -> None:
        """Have elements watched by one more plan."""
        self.late = [*(self.late or ()), (start, stop, plan)]

    def is_stopped(self, index: int) -> bool:
        """Whether an element was stopped: nothing is reported of it."""
        return any(start <= index < stop for start, stop in self.stopped)

    def kept(self, start: int, stop: int) -> list[tuple[int, int]]:
        """What of [start, stop) is not stopped, as ranges."""
        ranges = [(start, stop)] if start < stop else []
        for first, last in self.stopped:
            ranges = [
                piece
                for low, high in ranges
                for piece in ((low, min(high, first)), (max(low, last), high))
                if piece[0] < piece[1]
            ]
        return ranges


class Capacity:
    """What the executor has, and what is free of it."""

    def __init__(self, total: Needs) -> None:
        self.total = total.amounts()
        self.free = dict(self.total)
        self._asked: tuple[Needs, dict[str, float]] = (total, self.total)  # the amounts that were asked for last

    def _amounts(self, needs: Needs) -> dict[str, float]:
        if needs is not self._asked[0]:
            self._asked = (needs, needs.amounts())
        return self._asked[1]

    def fits(self, needs: Needs) -> bool:
        """Whether this could start now."""
        free = self.free
        for name, amount in self._amounts(needs).items():  # noqa: SIM110 -- asked for every task
            if free.get(name, 0) < amount - _ROUND:
                return False
        return True

    def take(self, needs: Needs) -> None:
        """Occupy."""
        for name, amount in self._amounts(needs).items():
            self.free[name] -= amount

    def give(self, needs: Needs) -> None:
        """Give back."""
        for name, amount in self._amounts(needs).items():
            self.free[name] += amount


class Backlog:
    """Spans that wait for their turn."""

    def __init__(self) -> None:
        self._queues: dict[Needs, deque[QueuedSpan]] = {}
        self._order = 0
        self._last: QueuedSpan | None = None  # what was added last
        self.length = 0

    def add(self, run: RunSpan) -> bool:
        """Queue what the server sent; False if it is to follow something that is not waiting here."""
        if run.after_span:
            last = self._last
            if last is None or last.run.last != run.after_span or last.number:
                return False
            last.follower = self._last = QueuedSpan(run, last.order)
            return True
        self._order += 1
        self._last = QueuedSpan(run, self._order)
        self._queues.setdefault(run.needs, deque()).append(self._last)
        self.length += 1
        return True

    def next(self, count: int) -> list[QueuedSpan]:
        """Some spans that begin soon."""
        found: list[QueuedSpan] = []
        for queue in self._queues.values():
            found += itertools.islice(queue, count)
        return sorted(found, key=lambda held: held.order)[:count]

    def put_back(self, helds: list[QueuedSpan]) -> list[QueuedSpan]:
        """Queue again, where they were, what was taken last; what was to follow something else is returned."""
        back = {held.run.last for held in helds if not held.run.after_span}
        lost: list[QueuedSpan] = []
        for held in helds:
            held.number, held.token = 0, False
            if held.run.after_span in back:
                back.add(held.run.last)
            elif held.run.after_span:
                lost.append(held)
        for held in reversed([held for held in helds if not held.run.after_span]):
            self._queues.setdefault(held.run.needs, deque()).appendleft(held)
            self.length += 1
        return lost

    def first(self, capacity: Capacity) -> Needs | None:
        """The needs of the earliest span that fits."""
        best: Needs | None = None
        order = 0.0
        for needs, queue in self._queues.items():
            if (best is None or queue[0].order < order) and capacity.fits(needs):
                best, order = needs, queue[0].order
        return best

    def is_earliest(self, needs: Needs) -> bool:
        """Whether the earliest of all has these needs."""
        queue = self._queues.get(needs)
        return queue is not None and all(queue[0].order <= other[0].order for other in self._queues.values())

    def waiting(self, needs: Needs) -> int:
        """How many spans with these needs wait."""
        queue = self._queues.get(needs)
        return len(queue) if queue else 0

    def peek(self, needs: Needs) -> QueuedSpan:
        """The earliest span with these needs."""
        return self._queues[needs][0]

    def take(self, needs: Needs) -> QueuedSpan:
        """Take out the earliest span with these needs."""
        queue = self._queues[needs]
        held = queue.popleft()
        if not queue:
            del self._queues[needs]
        self.length -= 1
        return held

    def unlink(self, span: SpanId, start: int, stop: int) -> list[QueuedSpan]:
        """Elements of a span are not to be run: what is to be returned because it follows something, or them."""
        for held in (held for queue in self._queues.values() for held in queue):
            chain = held.chain()
            at = next((at for at, one in enumerate(chain) if one.run.span == span), None)
            if at is not None:
                chain[max(at - 1, 0)].follower = None
                if at:  # the others of a batch
                    chain[at].stopped.append((start, stop))
                return chain[max(at, 1) :]
        return []

    def drop(self, span: SpanId, start: int, stop: int) -> list[QueuedSpan]:
        """Drop elements of a span that wait; what is left of it keeps its place, or is returned if it needs them."""
        lost: list[QueuedSpan] = []
        for needs, queue in list(self._queues.items()):
            if not any(held.run.span == span for held in queue):
                continue
            left: deque[QueuedSpan] = deque()
            for held in queue:
                if held.run.span != span:
                    left.append(held)
                    continue
                held.stopped = [(start, stop)]
                for low, high in held.kept(held.run.start, held.run.stop):
                    run = msgspec.structs.replace(held.run, start=low, stop=high)
                    part = QueuedSpan(run, held.order, held.deaths)
                    part.late = held.late
                    (lost if run.chained and low >= stop else left).append(part)
            self.length += len(left) - len(queue)
            if left:
                self._queues[needs] = left
            else:
                del self._queues[needs]
        return lost

    def all(self) -> list[QueuedSpan]:
        """All that waits, in order of arrival within equal needs."""
        return [held for queue in self._queues.values() for first in queue for held in first.chain()]

    def clear(self) -> None:
        """Forget everything."""
        self._queues.clear()
        self.length = 0


def as_span(run: RunSpan) -> RunSpan:
    """A batch of like tasks as one span."""
    return replace(run, stop=1 + len(run.batch)) if run.batch else run


def split_batch(news: News, run: RunSpan) -> Iterator[News]:
    """News of a batch, with the spans that the server knows."""
    match news:
        case WorkReturned() | WorkStarted():
            for index in range(news.start, min(news.stop, 1 + len(run.batch))):
                yield replace(news, span=SpanId(run.span + index), start=0, stop=1)
        case WorkObserved():
            yield replace(news, span=SpanId(run.span + news.index), index=0)
        case WorkFailed():
            detail = replace(news.detail, index=0) if news.detail is not None else None
            yield replace(news, span=SpanId(run.span + news.index), index=0, detail=detail)
        case WorkStopped():
            span, record = SpanId(run.span + news.index), RecordId(records_of(run)[news.index])
            yield replace(news, span=span, record=record, index=0, detail=replace(news.detail, index=0))
        case _:
            yield news


def advance(held: QueuedSpan, news: WorkSucceeded | CallsEnded | WorkFailed | WorkReturned | WorkStopped) -> bool:
    """Whether news are of a span; if so, note how far it has come."""
    at = news.span - held.run.span
    if not 0 <= at <= len(held.run.batch) or held.next >= held.run.stop:
        return False
    if isinstance(news, WorkStopped):
        return True  # it says what an element wrote, not what becomes of it
    if isinstance(news, WorkFailed):
        held.next = at + news.index + 1
    elif isinstance(news, CallsEnded):
        held.next = news.start + len(news.results)
    elif isinstance(news, WorkReturned) and at + news.start > held.next:
        held.run = replace(held.run, stop=at + news.start)  # cut behind the element that runs
    else:
        held.next = at + news.stop
    return True


def spans_of(held: QueuedSpan) -> list[SpanId]:
    """The spans, as the server knows them, of what is left of one."""
    if not held.run.batch:
        return [held.run.span]
    left = range(held.next, held.run.stop)
    return [SpanId(held.run.span + index) for index in left if not held.is_stopped(index)]


_Order = TypeVar("_Order", StopElements, WatchElements, EndElements)


def in_batch(order: _Order, run: RunSpan) -> _Order | None:
    """What an order on elements means for a span; None if it concerns another."""
    at = order.span - run.span
    if not 0 <= at <= len(run.batch):
        return None
    return replace(order, span=run.span, start=at, stop=at + 1) if run.batch else order


def is_asked_for(run: RunSpan, index: int, record: int, wanted: int) -> bool:
    """Whether an element is the task that a client asks about: `wanted` is its index in the record."""
    if not run.batch:
        return run.record == record and index == wanted
    found = run.record if index == 0 else run.batch[index - 1][0] if index <= len(run.batch) else None
    return found == record


def locate(held: QueuedSpan, task: tuple[int, int, int] | None, at: int) -> tuple[SpanId, RecordId, int, int] | None:
    """Span, record, index and attempt of a task by its name, or of the element that is run, `at`; None: not there."""
    run = held.run
    if task is not None:
        record, index, attempt = task
        if attempt != run.attempt or record not in records_of(run):
            return None
        at = records_of(run).index(record) if run.batch else index
    if not run.start <= at < run.stop or held.is_stopped(at):
        return None
    if run.batch:
        return SpanId(run.span + at), RecordId(records_of(run)[at]), 0, run.attempt
    return run.span, run.record, at, run.attempt


def span_and_index(run: RunSpan, at: int) -> tuple[SpanId, int]:
    """The span and index under which news are told of an element of a span, or of a batch."""
    return (SpanId(run.span + at), 0) if run.batch else (run.span, at)


def records_of(run: RunSpan) -> list[int]:
    """The records of a span, or of a batch."""
    return [run.record, *(record for record, _ in run.batch)]
