"""One emulated executor: it has a queue, takes the time its tasks would take, and reports them; it runs nothing.

It begins tasks in the order in which they came, as many at a time as it has cores. Rule: as with a real one, every
element ends in exactly one of: news of its end, a return, or silence because it was stopped. A span of elements that
take no time costs as much as one element.
"""

from __future__ import annotations

import math
import pickle
from functools import lru_cache

from bough.executor.emulatedtimes import Times
from bough.executor.reports import Reports
from bough.model.facts import SpanEnded, SpanReturned, SpanStarted
from bough.model.ids import Seconds, SpanId
from bough.model.tasks import Kind
from bough.wire.work import Run, Stop, spread

NEVER = math.inf
_LONG = 0.045  # seconds from which on the server is told that an element runs, as by a real executor
_GATHER = 0.05  # seconds that ends of short elements wait for each other
_ROUND = 1e-6  # clocks and sums are inexact


class _Work:
    """A span, or what is left of one."""

    __slots__ = ("begun", "high", "low", "run", "times")

    def __init__(self, run: Run, low: int, high: int, times: Times) -> None:
        self.run = run
        self.low = low  # the first element that has not ended
        self.high = high
        self.times = times  # of all its elements, or of each from the run's first on
        self.begun: Seconds = 0.0  # when the first of them began

    def takes(self) -> Seconds:
        """Seconds of the first element."""
        times = self.times
        return times[self.low - self.run.start] if isinstance(times, list) else times

    def end_by(self, now: Seconds) -> tuple[int, Seconds]:
        """The first element that has not ended by now, and the seconds that those before it took."""
        now += _ROUND
        if isinstance(self.times, list):
            low, took = self.low, 0.0
            base = self.run.start
            while low < self.high and self.begun + took + self.times[low - base] <= now:
                took += self.times[low - base]
                low += 1
            return low, took
        each = self.times
        count = self.high - self.low
        if each > 0:
            count = min(count, int((now - self.begun) / each))
        return self.low + count, count * each

    def wakes(self, now: Seconds) -> Seconds:
        """When to look at it again."""
        takes = self.takes()
        if takes >= _GATHER:
            return self.begun + takes
        if isinstance(self.times, list):
            base = self.run.start
            rest = sum(self.times[self.low - base : self.high - base])
        else:
            rest = takes * (self.high - self.low)
        return min(self.begun + rest, max(self.begun + takes, now + _GATHER))


@lru_cache(maxsize=64)
def _nothings(count: int) -> bytes:
    """The results of so many functions that return None."""
    return pickle.dumps([None] * count, 5)


class Emulated:
    """See the module. Times are the caller's."""

    __slots__ = ("_free", "_last", "_queue", "_running", "reports")

    def __init__(self, cores: float) -> None:
        self._free = cores
        self._running: list[_Work] = []
        self._queue: list[_Work] = []
        self._last = SpanId(0)  # that came last: the one that another may be behind
        self.reports = Reports()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._running and not self._queue

    def spans(self) -> list[SpanId]:
        """All that is here."""
        return list(dict.fromkeys(work.run.span for work in (*self._running, *self._queue)))

    def add(self, run: Run, times: Times) -> None:
        """Queue a span; one that is to follow another comes right behind that one, or goes back."""
        for one in spread(run) if run.along else (run,):
            if one.behind and one.behind != self._last:
                self.refuse(one)
                continue
            self._last = one.span
            self._queue.append(_Work(one, one.start, one.stop, times))

    def refuse(self, run: Run) -> None:
        """Return what came too late."""
        for one in spread(run) if run.along else (run,):
            self.reports.add(SpanReturned(one.span, one.start, one.stop))

    def advance(self, now: Seconds) -> Seconds:
        """End what is over and begin what comes next; when to look again."""
        running = self._running
        if running:
            for work in list(running):
                self._go_on(work, now)
            self._running = running = [work for work in running if not self._is_over(work)]
        queue = self._queue
        if queue:
            begun = 0
            while begun < len(queue):  # it may become shorter behind what begins
                work = queue[begun]
                needed = work.run.needs.cores
                if running and needed > self._free + _ROUND:
                    break
                begun += 1
                work.begun = now
                self._free -= needed
                if work.takes() >= _LONG:
                    self._return_followers(work.run.span)
                    self.reports.add(SpanStarted(work.run.span, work.low, work.low + 1))
                else:
                    self._go_on(work, now)
                if not self._is_over(work):
                    running.append(work)
            del queue[:begun]
        return min([work.wakes(now) for work in running]) if running else NEVER

    def stop(self, order: Stop, now: Seconds) -> None:
        """Forget elements of a span; `advance` comes next."""
        for works in (self._running, self._queue):
            for work in list(works):
                if work.run.span == order.span:
                    if works is self._running:
                        self._go_on(work, now)
                    before = work.low
                    self._cut(work, order, now)
                    if works is self._running and before < work.low < work.high and work.takes() >= _LONG:
                        self.reports.add(SpanStarted(work.run.span, work.low, work.low + 1))
        self._return_followers(order.span)
        self._running = [work for work in self._running if not self._is_over(work)]
        self._queue = [work for work in self._queue if work.low < work.high]

    def give_back(self, *, running: bool) -> None:
        """Return what waits and, if so said, also what has begun."""
        left = [*self._queue, *(self._running if running else ())]
        self._queue = []
        for work in left:
            self.reports.add(SpanReturned(work.run.span, work.low, work.high))
        if running:
            self._free += sum(work.run.needs.cores for work in self._running)
            self._running = []
        self._last = SpanId(0)

    def _is_over(self, work: _Work) -> bool:
        if work.low < work.high:
            return False
        self._free += work.run.needs.cores
        return True

    def _go_on(self, work: _Work, now: Seconds) -> None:
        """Report the elements that have ended, and the next one if it is long."""
        low, took = work.end_by(now)
        if low == work.low:
            return
        run = work.run
        results = _nothings(low - work.low) if run.kind is Kind.FUNCTION else None
        self.reports.add(SpanEnded(run.span, work.low, low, took, results))
        work.low = low
        work.begun += took
        if low < work.high and work.takes() >= _LONG:
            self.reports.add(SpanStarted(run.span, low, low + 1))

    def _cut(self, work: _Work, order: Stop, now: Seconds) -> None:
        """Take the elements [start, stop) out of it; what is left behind them waits."""
        start, stop = max(order.start, work.low), min(order.stop, work.high)
        if start >= stop:
            return
        high, work.high = work.high, start
        if start == work.low:  # the running one, if it runs, and the next begins
            work.low, work.high, work.begun = stop, high, now
        elif stop < high:
            self._queue.insert(0, _Work(work.run, stop, high, work.times))

    def _return_followers(self, span: SpanId) -> None:
        """What was to follow a span that is not run, or that is long, goes back."""
        gone = {span}
        for work in self._queue:
            if work.run.behind in gone and work.run.span != span:
                gone.add(work.run.span)
                self.reports.add(SpanReturned(work.run.span, work.low, work.high))
        if len(gone) > 1:
            self._queue[:] = [work for work in self._queue if work.run.span not in gone or work.run.span == span]
        if self._last in gone:
            self._last = SpanId(0)
