"""The work of one emulated executor: a queue, and the time that its tasks would take; it runs nothing.

It begins tasks in the order in which they came, as many at a time as it has cores. A command `sleep X` takes X
seconds, anything else what was said at the start.

Rules: as with a real one, every element ends in exactly one of: news of its end, a return, or silence because it was
stopped. It watches nothing, since nothing is written. A span of elements that take no time costs as much as one
element. What is alike is looked at once: a template whose text begins with a whole `sleep X`, or with something else
than `sleep`, is never filled in, however many elements a span has.
"""

from __future__ import annotations

import math
import pickle
import re
from functools import lru_cache

from bough.executor.reports import Reports
from bough.executor.worker.serialisation import Blobs
from bough.model.commands.command import CommandCall, CommandTemplate, decode_call
from bough.model.commands.rendering import render_call, render_row
from bough.model.events.news import WorkFailed, WorkObserved, WorkReturned, WorkStarted, WorkSucceeded
from bough.model.ids import BlobId, Seconds, SpanId
from bough.model.monitoring.monitors import Finish, Restart
from bough.model.monitoring.observations import Fired
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import Kind
from bough.wire.executor_messages import EndElements, RunSpan, StopElements, spread

Times = Seconds | list[Seconds]  # of every element, or of each

NEVER = math.inf
_LONG = 0.045  # seconds from which on the server is told that an element runs, as by a real executor
_GATHER = 0.05  # seconds that ends of short elements wait for each other
_ROUND = 1e-6  # clocks and sums are inexact
_KEPT = 4096  # payloads that are remembered, the shorter ones
_SHORT = 256  # bytes
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = r"(?:\d+\.?\d*|\.\d+)[smhd]?"
_BEFORE = re.compile(r"(?:\s*(?:export\s+)?[A-Za-z_]\w*=[^\s;&|'\"`$(]*(?:\s*;|\s+))*")  # variables that are set first
_SLOT = "\0"  # in the place of a value
_SLEEP = re.compile(rf"\s*(?:[^\s'\"]*/)?sleep((?:\s+{_AMOUNT})+)\s*(?=$|[;&|#\n])")
_OTHER = re.compile(r"\s*(?!\S*sleep)\S+\s")  # a whole first word that is another program


def read_sleep(text: str) -> Seconds | None:
    """The seconds of a command that begins with `sleep X`; None if it does not."""
    found = _SLEEP.match(text, _start(text))
    if found is None:
        return None
    return sum(float(word.rstrip("smhd")) * _UNITS.get(word[-1], 1.0) for word in found[1].split())


def _start(text: str) -> int:
    """Where a command begins, behind the variables that are set for it: `bough submit --array` sets one."""
    before = _BEFORE.match(text)
    return before.end() if before is not None else 0


class RunTimes:
    """How long tasks take. `other`: what everything but `sleep` takes; `blobs`: those that came, by any connection."""

    def __init__(self, other: Seconds) -> None:
        self._other = other
        self.blobs: dict[BlobId, bytes] = {}
        self._made = Blobs(self.blobs)
        self._alike: dict[BlobId, Seconds | None] = {}  # of templates: None when rows differ
        self._calls: dict[bytes, Seconds] = {}

    def of(self, run: RunSpan) -> Times:
        """What the elements of a span take."""
        if run.kind is not Kind.COMMAND:
            return self._other
        if not run.is_array:
            return self._of_call(run)
        found = self._alike.get(run.body, -1.0)
        if found == -1.0:
            found = self._alike[run.body] = self._of_template(run.body)
        return self._of_rows(run) if found is None else found

    def _of_call(self, run: RunSpan) -> Seconds:
        payload = run.payload
        if b"sleep" not in payload:  # nor is one that lies in a file, which is far too long for that
            return self._other
        found = self._calls.get(payload)
        if found is None:
            found = self._of_words(decode_call(payload), run)
            if len(payload) <= _SHORT:
                if len(self._calls) >= _KEPT:
                    self._calls.clear()
                self._calls[payload] = found
        return found

    def _of_template(self, body: BlobId) -> Seconds | None:
        parts = self._made.template(body).parts
        text = "".join(part if isinstance(part, str) else _SLOT for part in parts)
        start = _start(text)
        word = _OTHER.match(text, start)
        if word is not None and _SLOT not in word[0]:
            return self._other
        return read_sleep(text)  # None: a slot stands in it

    def _of_rows(self, run: RunSpan) -> Times:
        template: CommandTemplate = self._made.template(run.body)
        try:
            return [self._of_words(render_row(template, row), run) for row in self._made.items(run)]
        except Exception:  # noqa: BLE001 -- values of rows are the user's objects, which need not exist here
            return self._other

    def _of_words(self, call: CommandCall, run: RunSpan) -> Seconds:
        words = render_call(call, call.writes, run.needs.cores, run.attempt)
        found = read_sleep(words[-1] if call.settings.shell else " ".join(words))
        return self._other if found is None else found


class _Work:
    """A span, or what is left of one."""

    __slots__ = ("begun", "high", "low", "run", "times")

    def __init__(self, run: RunSpan, low: int, high: int, times: Times) -> None:
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


class EmulatedExecutor:
    """One emulated executor. Times are the caller's."""

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

    def add(self, run: RunSpan, times: Times) -> None:
        """Queue a span; one that is to follow another comes right behind that one, or goes back."""
        for one in spread(run) if run.batch else (run,):
            if one.after_span and one.after_span != self._last:
                self.refuse(one)
                continue
            self._last = one.span
            self._queue.append(_Work(one, one.start, one.stop, times))

    def refuse(self, run: RunSpan) -> None:
        """Return what came too late."""
        for one in spread(run) if run.batch else (run,):
            self.reports.add(WorkReturned(one.span, one.start, one.stop))

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
                    self.reports.add(WorkStarted(work.run.span, work.low, work.low + 1))
                else:
                    self._go_on(work, now)
                if not self._is_over(work):
                    running.append(work)
            del queue[:begun]
        return min([work.wakes(now) for work in running]) if running else NEVER

    def interrupt(self, order: StopElements | EndElements, now: Seconds) -> None:
        """Stop elements of a span, or end those that run with a verdict; `advance` comes next."""
        if isinstance(order, StopElements):
            self.stop(order, now)
        else:
            self.end(order, now)

    def stop(self, order: StopElements, now: Seconds) -> None:
        """Forget elements of a span; `advance` comes next."""
        for works in (self._running, self._queue):
            for work in list(works):
                if work.run.span == order.span:
                    if works is self._running:
                        self._go_on(work, now)
                    before = work.low
                    self._cut(work, order, now)
                    if works is self._running and before < work.low < work.high and work.takes() >= _LONG:
                        self.reports.add(WorkStarted(work.run.span, work.low, work.low + 1))
        self._return_followers(order.span)
        self._running = [work for work in self._running if not self._is_over(work)]
        self._queue = [work for work in self._queue if work.low < work.high]

    def end(self, order: EndElements, now: Seconds) -> None:
        """End elements of a span that run with a verdict; `advance` comes next."""
        for work in list(self._running):
            if work.run.span == order.span:
                self._go_on(work, now)
                if work.low < work.high and order.start <= work.low < order.stop:
                    self._end_early(work, order, now)
        self._running = [work for work in self._running if not self._is_over(work)]

    def _end_early(self, work: _Work, order: EndElements, now: Seconds) -> None:
        span, index, verdict = work.run.span, work.low, order.verdict
        self.reports.add(WorkObserved(span, index, [Fired(now, order.monitor, reason=order.reason[:2000])]))
        if isinstance(verdict, Finish):
            results = _nothings(1) if work.run.kind is Kind.FUNCTION else None
            self.reports.add(WorkSucceeded(span, index, index + 1, now - work.begun, results))
        else:
            restarts = verdict.times if isinstance(verdict, Restart) else 0
            self.reports.add(WorkFailed(span, index, Failure(Cause.MONITOR, order.reason, restarts=restarts)))
            self._return_followers(span)
        work.low, work.begun = index + 1, now
        if work.low < work.high and work.takes() >= _LONG:
            self.reports.add(WorkStarted(span, work.low, work.low + 1))

    def give_back(self, *, running: bool) -> None:
        """Return what waits and, if so said, also what has begun."""
        left = [*self._queue, *(self._running if running else ())]
        self._queue = []
        for work in left:
            self.reports.add(WorkReturned(work.run.span, work.low, work.high))
        if running:
            self._free += sum(work.run.needs.cores for work in self._running)
            self._running = []
        self._last = SpanId(0)

    def clear(self, reason: str) -> None:
        """Give back all: what waits as unstarted, what runs as ended because its site left."""
        failure = Failure(Cause.GIVEN_BACK, reason)
        for work in self._running:
            self.reports.add(WorkFailed(work.run.span, work.low, failure))
            work.low += 1
        self._running, over = [work for work in self._running if work.low < work.high], self._running
        self._free += sum(work.run.needs.cores for work in over if work.low >= work.high)
        self.give_back(running=True)

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
        self.reports.add(WorkSucceeded(run.span, work.low, low, took, results))
        work.low = low
        work.begun += took
        if low < work.high and work.takes() >= _LONG:
            self.reports.add(WorkStarted(run.span, low, low + 1))

    def _cut(self, work: _Work, order: StopElements, now: Seconds) -> None:
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
        returned = {span}
        for work in self._queue:
            if work.run.after_span in returned and work.run.span != span:
                returned.add(work.run.span)
                self.reports.add(WorkReturned(work.run.span, work.low, work.high))
        if len(returned) > 1:
            self._queue[:] = [work for work in self._queue if work.run.span not in returned or work.run.span == span]
        if self._last in returned:
            self._last = SpanId(0)
