"""A site: the executors that have its name, its rule, whether it is away, and its definition and pilots if it has one.

Rule: a record changes only through `core.pilots.sites` and `core.pilots.pilots`.
"""

from __future__ import annotations

from collections import deque
from functools import reduce
from typing import Final

from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.pilot_record import PilotRecord, Usage, added
from bough.core.records.task_bound import TaskBound
from bough.model.events.facts import ExecutorJoined
from bough.model.ids import Seconds
from bough.model.sites.availability import ALWAYS
from bough.model.sites.site_specs import SiteSpec

RECENT: Final = 16  # pilots whose waits are remembered
_HOUR: Final = 3600.0
_MOST: Final = 1e15  # core-seconds of one executor


class SiteUsage:
    """What the executors of a site did, in core-seconds; those that are there are settled when they leave.

    Executors that pilots brought are counted, and others if the state accounts for them, see `State.accounts`.
    """

    __slots__ = ("alive", "live_cores", "live_since", "startup", "used", "wasted")

    def __init__(self, alive: float = 0.0, startup: float = 0.0, used: float = 0.0, wasted: float = 0.0) -> None:
        self.alive = alive  # all of it
        self.startup = startup  # until they got their first task
        self.used = used  # by attempts that succeeded
        self.wasted = wasted  # by attempts that did not
        self.live_cores = 0.0  # of executors that are there
        self.live_since = 0.0  # the sum of their cores times when they came

    def totals(self) -> Usage:
        """What is settled, as it is kept."""
        return self.alive, self.startup, self.used, self.wasted

    def come(self, executor: ExecutorRecord, now: Seconds) -> None:
        """An executor is there from now on."""
        executor.came = now
        self.count(executor)

    def count(self, executor: ExecutorRecord) -> None:
        """Add an executor that is there."""
        executor.accounted = True
        self.live_cores += executor.capacity.cores
        self.live_since += executor.capacity.cores * executor.came

    def settle(self, executor: ExecutorRecord, now: Seconds) -> Usage:
        """An executor is gone, or has other cores from now on: what it did."""
        alive, startup, used, wasted = usage_of(executor, now)
        self.alive += alive
        self.startup += startup
        self.used += used
        self.wasted += wasted
        self.live_cores -= executor.capacity.cores
        self.live_since -= executor.capacity.cores * executor.came
        executor.used = executor.wasted = 0.0
        executor.accounted = False
        return alive, startup, used, wasted

    def core_hours(self, now: Seconds) -> float:
        """All that was used so far, whatever for."""
        return (self.alive + max(0.0, self.live_cores * now - self.live_since)) / _HOUR


def usage_of(executor: ExecutorRecord, now: Seconds) -> Usage:
    """Core-seconds of an executor that is there: alive, until its first task, used, wasted.

    What it says of its tasks is believed as far as it was there: no more than all is used or wasted.
    """
    cores = executor.capacity.cores
    alive = min(_MOST, cores * max(0.0, now - executor.came))
    startup = min(alive, cores * max(0.0, (executor.begun or now) - executor.came))
    used = min(alive, max(0.0, executor.used))
    return alive, startup, used, min(alive - used, max(0.0, executor.wasted))


def usage_at(site: SiteRecord, now: Seconds) -> Usage:
    """Core-seconds of a site so far, of executors that are there, too; the cost is one look at each of these."""
    there = (usage_of(executor, now) for executor in site.executors.values() if executor.accounted)
    return reduce(added, there, site.usage.totals())


class SiteRecord:
    """See the module."""

    __slots__ = (
        "allocations",
        "away",
        "bound",
        "by_hand",
        "deadline",
        "ends",
        "executors",
        "failures",
        "idle",
        "known",
        "leaving",
        "name",
        "offers",
        "pilots",
        "reason",
        "refrained",
        "rests_until",
        "room",
        "rule",
        "since",
        "spec",
        "starting",
        "succeeded",
        "trouble",
        "usage",
        "waits",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.rule = ALWAYS
        self.away = False
        self.reason = ""  # why it is away
        self.by_hand = False  # a user said so
        self.since: Seconds = 0.0  # when it left, or came back; 0: it was always there
        self.deadline: Seconds = 0.0  # when what runs there must have ended
        self.executors: dict[int, ExecutorRecord] = {}
        self.spec: SiteSpec | None = None  # how pilots are started there
        self.pilots: dict[int, PilotRecord] = {}
        self.offers: ExecutorJoined | None = None  # the last executor that a pilot brought: others will be like it
        self.failures = 0  # pilots in a row that failed
        self.rests_until: Seconds = 0.0  # because of these
        self.trouble = ""  # what the last one said
        self.known: ExecutorRecord | None = None  # an executor as in `offers`
        self.allocations: dict[int, int] = {}  # how many pilots of each have not ended
        self.leaving: dict[int, PilotRecord] = {}  # pilots that are not wanted any more, and have not ended
        self.starting: dict[int, PilotRecord] = {}  # pilots that are wanted and have not brought an executor
        self.idle: dict[int, PilotRecord] = {}  # pilots that may be idle: those that are not go when that is looked at
        self.succeeded: dict[int, int] = {}  # pilots that have a successor: which
        # when pilots end that are to have one, a heap; those that are gone or have one go when that is looked at
        self.ends: list[tuple[Seconds, int]] = []
        self.waits: deque[Seconds] = deque(
            maxlen=RECENT
        )  # from asking for a pilot to its first executor, the last ones
        self.room: int | None = None  # pilots that could start at once, as the site said; None: it has not
        self.usage = SiteUsage()
        self.bound: TaskBound | None = None  # on tasks that its executors have
        self.refrained = ""  # why the policy asked for nothing when it was asked last; not kept

    @property
    def places(self) -> int:
        """How many pilots there are; one that is to end and its successor share a place."""
        return len(self.pilots) - len(self.succeeded)
