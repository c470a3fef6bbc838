"""An executor: what it has, what is free, and the spans it holds; and a relay, which stands for many executors.

What does not fit at once may still go to an executor if it is short: it waits there behind others, so that an executor
with short tasks never idles for a round trip. A relay cuts up the spans that it is given, so a span occupies as many
cores there as elements of it can run at once, its *width*, and gives them back one by one as elements end. Rule: a span
that was placed to start at once fits, together with all that the executor already held; what waits behind is short,
and never behind long tasks alone; a task for a relay must fit one of the executors behind it; a function that says its
Python goes only to an executor with that minor version, and a task that names sites or a requirement only where they
are. An answer about a requirement is kept: an executor's attributes never change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from bough.core.records.attempts import Span
from bough.core.records.indexes.ready_queue import occupy_limits
from bough.model.arrays import ranges
from bough.model.arrays.runtimes import BACKLOG, MAX_BACKLOG, SHORT, TRUST, span_size
from bough.model.events.facts import ExecutorJoined, ExecutorResized
from bough.model.ids import Seconds
from bough.model.sites.requirements import as_known, compact, meets
from bough.model.sites.resources import Needs

if TYPE_CHECKING:
    from bough.core.records.array_record import ArrayRecord, Record
    from bough.core.records.task_bound import TaskBound


MANUAL_SITE = "manual"
_MANUAL_SITES = frozenset({MANUAL_SITE, "hand"})  # the latter in older stores
_MOST_KEPT = 1000  # answers about requirements that an executor keeps


class ExecutorRecord:
    """An executor; a policy sees it as a `Room`."""

    wide = False  # whether spans are cut up there, see `wide.py`
    members = 1  # executors that it speaks for

    __slots__ = (
        "_meets",
        "_others",
        "accounted",
        "attributes",
        "away",
        "backlog_limit",
        "begun",
        "bound",
        "came",
        "capacity",
        "cores_free",
        "counted",
        "draining",
        "host",
        "id",
        "idle_since",
        "load",
        "long_cores",
        "oldest",
        "parked",
        "pid",
        "pilot",
        "python",
        "site",
        "spans",
        "stuck",
        "suspended",
        "suspensions",
        "trouble",
        "until",
        "used",
        "wasted",
    )

    def __init__(self, joined: ExecutorJoined) -> None:
        capacity = joined.capacity
        self.id = joined.executor
        self.site = joined.site
        self.host = joined.host
        self.pid = joined.pid
        self.pilot = joined.pilot
        self.capacity = capacity
        self.until = joined.until
        self.python = joined.python  # empty: not known
        self.attributes = compact(joined.attributes)  # as it said them, see `known`
        self._meets: dict[str, bool] = {}  # by requirement
        self.cores_free = capacity.cores  # below 0 when something waits behind others
        self._others = {name: amount for name, amount in capacity.amounts().items() if name != "cores"}
        self.spans: dict[int, Span] = {}
        self.backlog_limit = BACKLOG * capacity.cores
        self.load: Seconds = 0.0  # expected seconds of short work that it has
        self.long_cores = 0.0  # that tasks hold which are not known to be short
        # the head of its backlog at the last look, and how much was left of it, see `scheduling.recall`
        self.oldest: tuple[int, int] | None = None
        self.stuck = False  # its backlog was recalled, and has not moved since
        self.draining = False
        self.counted = 0.0  # cores that queues count with, see `QueueTable`
        self.away = False  # its site is, see `core.pilots.sites`
        self.suspended: Seconds = 0.0  # until when it gets nothing, because too much went wrong there
        self.suspensions = 0
        self.trouble = 0  # tasks in a row that failed here and worked elsewhere
        self.bound: TaskBound | None = None  # on the tasks of its site, or of all
        self.parked = False  # that bound was reached when it was looked at
        self.accounted = False  # its site adds up what it does, see `SiteUsage`
        # of one that is accounted: when it came, got its first task (0: not yet), and had nothing to do last
        self.came: Seconds = 0.0
        self.begun: Seconds = 0.0
        self.idle_since: Seconds = 0.0
        self.used = self.wasted = 0.0  # core-seconds of attempts that succeeded, and that did not

    @property
    def joined(self) -> ExecutorJoined:
        """The fact that would bring it here as it is now."""
        return ExecutorJoined(
            self.id,
            self.site,
            self.host,
            self.pid,
            self.capacity,
            self.until,
            python=self.python,
            pilot=self.pilot,
            attributes=self.attributes,
        )

    def known(self) -> dict[str, float | str | frozenset[str]]:
        """All that a requirement can ask for: what the executor said of itself, and what is known of every one."""
        has = self._each()
        return as_known(self.attributes) | {
            "cores": has.cores,
            "memory_gb": has.memory / 1e9,
            "gpus": has.gpus,
            "site": self.site,
            "host": self.host,
            **({"python": self.python} if self.python else {}),
        }

    def _each(self) -> Needs:
        """What one executor has."""
        return self.capacity

    def admits(self, needs: Needs) -> bool:
        """Whether tasks with these needs may run here, whatever amounts there are."""
        if needs.python and not self.runs(needs.python):
            return False
        if needs.sites and self.site not in needs.sites:
            return False
        return not needs.requires or self.meets(needs.requires)

    def meets(self, requires: str) -> bool:
        """Whether its attributes meet a requirement."""
        found = self._meets.get(requires)
        if found is None:
            if len(self._meets) >= _MOST_KEPT:
                self._meets.clear()
            found = self._meets[requires] = meets(requires, self.known())
        return found

    def free(self, resource: str) -> float:
        """How much of a resource is free now."""
        return self.cores_free if resource == "cores" else self._others.get(resource, 0)

    def fits(self, work: Record) -> bool:
        """Whether a task of this work could start now."""
        queue = work.queue
        if queue.cores > self.cores_free or (queue.picky and not self.admits(queue.needs)):
            return False
        if queue.plain:
            return True
        fitting = all(amount <= self._others.get(name, 0) for name, amount in others_of(work.needs))
        return fitting and queue.named.admits(self.site)

    def runs(self, python: str) -> bool:
        """Whether functions of this Python can run here; of none: whether commands can."""
        return not python or python == self.python or not self.python

    def could_fit(self, needs: Needs) -> bool:
        """Whether a task with these needs could start if nothing else ran."""
        return self.admits(needs) and needs.within(self.capacity)

    def takes_backlog(self, work: Record) -> bool:
        """Whether a short task may wait here although the cores are busy, and not with long tasks alone."""
        runtime = work.runtime
        return (
            0 < runtime.slot <= SHORT
            and self.load < self.backlog_limit
            and not self.stuck
            and len(self.spans) < min(TRUST * runtime.seen, MAX_BACKLOG)
            and work.queue.cores <= self.capacity.cores - self.long_cores
            and (
                (work.queue.plain and not work.queue.picky)
                or (self.could_fit(work.needs) and work.queue.named.admits(self.site))
            )
        )

    def is_open(self) -> bool:
        """Whether it may take anything at all."""
        if self.cores_free > 0 or (self.load < self.backlog_limit and len(self.spans) < MAX_BACKLOG):
            return not (self.draining or self.suspended or self.away or self.parked)
        return False

    def ends_before(self, work: Record, now: Seconds) -> bool:
        """Whether a task of this work, if it started now, would end before the executor leaves."""
        return not self.until or now + work.expected <= self.until

    def add(self, span: Span) -> None:
        """Take a span."""
        queue = span.queue
        cores = queue.cores
        self.spans[span.id] = span
        self.cores_free -= cores
        share = queue.share
        share.cores += cores
        share.named.cores += cores
        share.served = span.id
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
        queue = span.queue
        cores = queue.cores
        del self.spans[span.id]
        self.cores_free += cores
        share = queue.share
        share.cores -= cores
        share.named.cores -= cores
        if share.offered:
            share.mark()
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
            needs = span.queue.needs.amounts()
            if any(amount > free.get(name, 0) for name, amount in needs.items()):
                break
            for name, amount in needs.items():
                free[name] = free.get(name, 0) - amount
            found.append(span)
        return found


def is_manual(executor: ExecutorRecord) -> bool:
    """Whether an executor stands for a person."""
    return not executor.pid and executor.site in _MANUAL_SITES


def others_of(needs: Needs) -> tuple[tuple[str, float], ...]:
    """The amounts besides cores."""
    return (("memory", needs.memory), ("gpus", needs.gpus), *needs.named)


_MAX_WIDE = 50_000  # elements in one span: bounds what one lost relay repeats and one journal row holds


class RelayExecutorRecord(ExecutorRecord):
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
        return replace(super().joined, members=self.members, each=self.each)

    def _each(self) -> Needs:
        """What the biggest executor behind it has."""
        return self.each

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
        self._meets.clear()

    def fits(self, work: Record) -> bool:
        """Whether a task of this work could start now."""
        return (
            work.queue.cores <= self.each.cores
            and super().fits(work)
            and (work.queue.plain or self.could_fit(work.needs))
        )

    def could_fit(self, needs: Needs) -> bool:
        """Whether a task with these needs could start on one of them if nothing else ran."""
        return self.members > 0 and self.admits(needs) and needs.within(self.each)

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
        if work.queue.limits or work.queue.named.bounded:
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
        queue = span.queue
        cores = tasks * queue.cores
        self.cores_free -= cores
        share = queue.share
        share.cores += cores
        share.named.cores += cores
        if tasks > 0:
            share.served = span.id
        elif share.offered:
            share.mark()
        if queue.limits:
            occupy_limits(queue.limits, tasks)
        if not span.load:
            self.long_cores += cores
        if not queue.plain:
            self._occupy(queue.needs, -tasks)

    def front(self) -> list[Span]:
        """The spans that run, or start next."""
        return [span for span in self.spans.values() if not span.queued]


def _others(needs: Needs) -> dict[str, float]:
    """The amounts besides cores."""
    return {name: amount for name, amount in needs.amounts().items() if name != "cores"}
