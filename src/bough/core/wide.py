"""Wide executors: relays that share out work among the executors behind them.

A span given to one is cut up there, so it occupies as many cores as elements of it can run at once, its *width*, and
gives them back one by one as elements end. Rule: one task must fit one of the executors behind it; all that was placed
to start at once fits all of them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bough.core import ranges
from bough.core.room import ExecutorRecord, Span, others_of
from bough.core.throttled import occupy_limits
from bough.core.timing import BACKLOG, span_size
from bough.model.facts import ExecutorJoined, ExecutorResized
from bough.model.resources import Needs

if TYPE_CHECKING:
    from bough.core.records import ArrayRecord, Record

_MAX_WIDE = 50_000  # elements in one span: bounds what one lost relay repeats and one journal row holds


class WideExecutor(ExecutorRecord):
    """See the module."""

    __slots__ = ("each", "members")

    wide = True

    def __init__(self, joined: ExecutorJoined) -> None:
        super().__init__(joined)
        assert joined.each is not None
        self.each: Needs = joined.each
        self.members = joined.members

    @property
    def joined(self) -> ExecutorJoined:
        """The fact that would bring it here as it is now."""
        return ExecutorJoined(
            self.id, self.site, self.host, self.pid, self.capacity, self.until, self.members, self.each
        )

    def resize(self, fact: ExecutorResized) -> None:
        """There are more executors behind it, or fewer."""
        old = self.capacity
        self.cores_free += fact.capacity.cores - old.cores
        for name, amount in _others(fact.capacity).items():
            self._others[name] = self._others.get(name, 0) + amount
        for name, amount in _others(old).items():
            self._others[name] -= amount
        self.capacity, self.each, self.members, self.until = fact.capacity, fact.each, fact.members, fact.until
        self.backlog_limit = BACKLOG * fact.capacity.cores

    def fits(self, work: Record) -> bool:
        """Whether a task of this work could start now."""
        return (
            work.queue.cores <= self.each.cores
            and super().fits(work)
            and (work.queue.plain or self.could_fit(work.needs))
        )

    def could_fit(self, needs: Needs) -> bool:
        """Whether a task with these needs could start on one of them if nothing else ran."""
        has = self.each.amounts()
        return self.members > 0 and all(amount <= has.get(name, 0) for name, amount in needs.amounts().items())

    def takes_backlog(self, work: Record) -> bool:
        """As for any executor, as long as one of those behind it could ever run it."""
        return super().takes_backlog(work) and self.could_fit(work.needs)

    def slots(self, work: Record, *, queued: bool) -> int:
        """How many tasks of this work could run at once: with what is free, or with all there is if they wait."""
        if queued:
            return max(1, int(self.capacity.cores // work.queue.cores) if work.queue.cores else self.members)
        slots = int(self.cores_free // work.queue.cores) if work.queue.cores else self.members
        if not work.queue.plain:
            free = self._others
            slots = min(
                [slots, *(int(free.get(name, 0) // amount) for name, amount in others_of(work.needs) if amount)]
            )
        if work.queue.limits:
            slots = min(slots, work.queue.spare)
        return max(1, slots)

    def hand_out(self, work: ArrayRecord, cores: float, most: int, *, queued: bool) -> int:
        """How many elements to give at once: what one core would get, for each core."""
        each = span_size(work.runtime, work.ready, cores, most)
        return min(each * self.slots(work, queued=queued), _MAX_WIDE)

    def widen(self, span: Span) -> None:
        """Note, before it is added, how wide a new span is."""
        count = span.stop - span.start
        span.width = min(count, self.slots(span.record, queued=span.queued))

    def narrow(self, span: Span) -> None:
        """Elements of a span ended: what is left of it may occupy less."""
        left = ranges.size(span.left)
        if span.load:
            mean = span.load / span.many
            self.load -= span.load - mean * left
            span.load = mean * left
        span.many = left
        if left < span.width:
            self._take(span, left - span.width)
            span.width = left

    def add(self, span: Span) -> None:
        """Take a span."""
        self.spans[span.id] = span
        span.many = ranges.size(span.left)
        self.load += span.load
        self._take(span, span.width)

    def drop(self, span: Span) -> None:
        """Let go of a span."""
        del self.spans[span.id]
        self.load -= span.load
        self._take(span, -span.width)

    def _take(self, span: Span, tasks: int) -> None:
        """Occupy what so many tasks of a span need, or give it back."""
        record = span.record
        cores = tasks * record.queue.cores
        self.cores_free -= cores
        record.queue.workflow.cores += cores
        if record.queue.limits:
            occupy_limits(record.queue.limits, tasks)
        if not span.load:
            self.long_cores += cores
        if not record.queue.plain:
            self._occupy(record.needs, -tasks)

    def front(self) -> list[Span]:
        """The spans that run, or start next."""
        return [span for span in self.spans.values() if not span.queued]


def _others(needs: Needs) -> dict[str, float]:
    """The amounts besides cores."""
    return {name: amount for name, amount in needs.amounts().items() if name != "cores"}
