"""A pilot: what was asked of a site, and how far that has come.

Rule: a record changes only through `core.pilots.pilots`, along the edges of `model.sites.site_specs`; one that ended is
forgotten.
"""

from __future__ import annotations

from bough.core.records.executor_record import ExecutorRecord
from bough.model.events.facts import PilotAsked
from bough.model.ids import Seconds
from bough.model.sites.site_specs import PilotState

Usage = tuple[float, float, float, float]  # core-seconds in all, until the first task, used, wasted


def added(one: Usage, other: Usage) -> Usage:
    """What two have used."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


class PilotRecord:
    """See the module; a policy sees it as a `PilotView`."""

    __slots__ = (
        *("allocation", "asked", "cores", "executors", "handle", "has_left", "id"),
        *("queued", "reason", "released", "site", "started", "state", "succeeds", "usage"),
    )

    def __init__(self, fact: PilotAsked, asked: Seconds) -> None:
        self.id = fact.pilot
        self.site = fact.site
        self.reason = fact.reason  # why it was asked for
        self.allocation = fact.allocation or fact.pilot  # the first of those that were asked for together
        self.cores = fact.cores  # that it was to bring, 0: not known then
        self.succeeds = fact.succeeds  # the pilot whose place it is to take
        self.asked = asked  # when
        self.has_left = False  # its last executor left in good order, and its site has not said that it ended
        self.queued: Seconds = 0.0  # when its site took it; 0: it has not
        self.started: Seconds = 0.0  # when its first executor joined
        self.state = PilotState.ASKED
        self.handle = ""  # what the site calls it
        self.released = ""  # why it is not wanted any more; empty: it is
        self.executors: dict[int, ExecutorRecord] = {}  # that it has brought and that are there
        self.usage: Usage = (0.0, 0.0, 0.0, 0.0)  # of those that are gone, see `SiteUsage.totals`

    def add_usage(self, more: Usage) -> None:
        """An executor of it is gone."""
        self.usage = added(self.usage, more)

    @property
    def starting(self) -> bool:
        """Whether it may still bring executors that are not there yet."""
        return self.state is not PilotState.RUNNING

    @property
    def fact(self) -> PilotAsked:
        """By which it was asked for."""
        return PilotAsked(self.id, self.site, self.reason, self.allocation, self.cores, self.succeeds)

    @property
    def ends(self) -> Seconds | None:
        """When its time is over, 0: its executors have left; None: that is not known, or far from being so."""
        if self.has_left:
            return 0.0
        return max((executor.until for executor in self.executors.values()), default=0.0) or None

    @property
    def is_idle(self) -> bool:
        """Whether it has executors, and none of them has anything to do."""
        return bool(self.executors) and not any(executor.spans for executor in self.executors.values())

    @property
    def idle_since(self) -> Seconds:
        """Since when the last of its executors has had nothing to do; only asked if it is idle."""
        return max(executor.idle_since for executor in self.executors.values())
