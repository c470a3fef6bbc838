"""Executors as the core knows them: what they have, what is free, and the spans they hold.

What does not fit at once may still go to an executor if it is short: it waits there behind others, so that an executor
with short tasks never idles for a round trip. Rule: a span that was placed to start at once fits, together with
all that the executor already held; what waits behind is short, and never behind long tasks alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bough.core import ranges
from bough.core.ranges import Ranges
from bough.core.throttled import occupy_limits
from bough.core.timing import BACKLOG, MAX_BACKLOG, SHORT, TRUST
from bough.model.facts import ExecutorJoined
from bough.model.ids import Seconds, SpanId
from bough.model.resources import Needs

if TYPE_CHECKING:
    from bough.core.records import Record

NOTHING = SpanId(0)
WHOLE: Ranges = [[0, 1]]  # what a loose task's span holds; shared, so never changed


class Span:
    """A slice of a record that an executor has."""

    __slots__ = (
        "attempt",
        "behind",
        "executor",
        "heard",
        "id",
        "left",
        "load",
        "many",
        "queued",
        "record",
        "start",
        "stop",
        "width",
    )

    def __init__(  # noqa: PLR0917 made for every hand-out: names would cost
        self,
        number: SpanId,
        record: Record,
        start: int,
        stop: int,
        attempt: int,
        executor: ExecutorRecord,
        left: Ranges,
        queued: bool,
        load: Seconds = 0.0,
        behind: SpanId = NOTHING,
    ) -> None:
        self.id = number
        self.record = record
        self.start = start
        self.stop = stop
        self.attempt = attempt
        self.executor = executor
        self.left = left  # elements of which nothing final was heard
        self.queued = queued  # it was placed to wait behind others
        self.behind = behind  # the span that must succeed first, 0: none
        self.load = load  # expected seconds of work when it was placed, if its tasks are short
        self.heard: Seconds = (
            0.0  # when something was last said of it; kept for tasks that are sent again after silence
        )
        self.width = 1  # how many of its elements run at once; more only on a wide executor
        self.many = 1  # elements that are left, as last counted there

    def take(self, start: int, stop: int) -> Ranges:
        """Let go of [start, stop); return the parts of it that were there."""
        if self.left is WHOLE:
            if start <= 0 < stop:
                self.left = []
                return [[0, 1]]
            return []
        return ranges.take(self.left, start, stop)


class ExecutorRecord:
    """An executor; a policy sees it as a `Room`."""

    wide = False  # whether spans are cut up there, see `wide.py`
    members = 1  # executors that it speaks for

    __slots__ = (
        "_others",
        "backlog_limit",
        "capacity",
        "cores_free",
        "draining",
        "host",
        "id",
        "load",
        "long_cores",
        "pid",
        "site",
        "spans",
        "suspended",
        "suspensions",
        "trouble",
        "until",
    )

    def __init__(self, joined: ExecutorJoined) -> None:
        capacity = joined.capacity
        self.id = joined.executor
        self.site = joined.site
        self.host = joined.host
        self.pid = joined.pid
        self.capacity = capacity
        self.until = joined.until
        self.cores_free = capacity.cores  # below 0 when something waits behind others
        self._others = {name: amount for name, amount in capacity.amounts().items() if name != "cores"}
        self.spans: dict[int, Span] = {}
        self.backlog_limit = BACKLOG * capacity.cores
        self.load: Seconds = 0.0  # expected seconds of short work that it has
        self.long_cores = 0.0  # that tasks hold which are not known to be short
        self.draining = False
        self.suspended: Seconds = 0.0  # until when it gets nothing, because too much went wrong there
        self.suspensions = 0
        self.trouble = 0  # tasks in a row that failed here and worked elsewhere

    @property
    def joined(self) -> ExecutorJoined:
        """The fact that would bring it here as it is now."""
        return ExecutorJoined(self.id, self.site, self.host, self.pid, self.capacity, self.until)

    def free(self, resource: str) -> float:
        """How much of a resource is free now."""
        return self.cores_free if resource == "cores" else self._others.get(resource, 0)

    def fits(self, work: Record) -> bool:
        """Whether a task of this work could start now."""
        queue = work.queue
        if queue.cores > self.cores_free:
            return False
        return queue.plain or all(amount <= self._others.get(name, 0) for name, amount in others_of(work.needs))

    def could_fit(self, needs: Needs) -> bool:
        """Whether a task with these needs could start if nothing else ran."""
        has = self.capacity.amounts()
        return all(amount <= has.get(name, 0) for name, amount in needs.amounts().items())

    def takes_backlog(self, work: Record) -> bool:
        """Whether a short task may wait here although the cores are busy, and not with long tasks alone."""
        runtime = work.runtime
        return (
            0 < runtime.mean <= SHORT
            and self.load < self.backlog_limit
            and len(self.spans) < min(TRUST * runtime.seen, MAX_BACKLOG)
            and work.queue.cores <= self.capacity.cores - self.long_cores
            and (work.queue.plain or self.could_fit(work.needs))
        )

    def has_room(self) -> bool:
        """Whether it may take anything at all."""
        if self.cores_free > 0 or (self.load < self.backlog_limit and len(self.spans) < MAX_BACKLOG):
            return not (self.draining or self.suspended)
        return False

    def ends_before(self, work: Record, now: Seconds) -> bool:
        """Whether a task of this work, if it started now, would end before the executor leaves."""
        return not self.until or now + work.expected <= self.until

    def add(self, span: Span) -> None:
        """Take a span."""
        queue = span.record.queue
        cores = queue.cores
        self.spans[span.id] = span
        self.cores_free -= cores
        queue.workflow.cores += cores
        if queue.limits:
            occupy_limits(queue.limits, 1)
        if span.load:
            self.load += span.load
        else:
            self.long_cores += cores
        if not queue.plain:
            self._occupy(queue.needs, -1)

    def drop(self, span: Span) -> None:
        """Let go of a span."""
        queue = span.record.queue
        cores = queue.cores
        del self.spans[span.id]
        self.cores_free += cores
        queue.workflow.cores -= cores
        if queue.limits:
            occupy_limits(queue.limits, -1)
        if span.load:
            self.load -= span.load
        else:
            self.long_cores -= cores
        if not queue.plain:
            self._occupy(queue.needs, 1)

    def _occupy(self, needs: Needs, sign: int) -> None:
        for name, amount in others_of(needs):
            self._others[name] = self._others.get(name, 0) + sign * amount

    def front(self) -> list[Span]:
        """The spans that run, or start next: those that fit together, in the order they came."""
        free = self.capacity.amounts()
        found: list[Span] = []
        for span in self.spans.values():
            needs = span.record.needs.amounts()
            if any(amount > free.get(name, 0) for name, amount in needs.items()):
                break
            for name, amount in needs.items():
                free[name] = free.get(name, 0) - amount
            found.append(span)
        return found


def others_of(needs: Needs) -> tuple[tuple[str, float], ...]:
    """The amounts besides cores."""
    return (("memory", needs.memory), ("gpus", needs.gpus), *needs.named)
