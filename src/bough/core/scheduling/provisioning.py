"""Asking the provisioning policy: pilots that it wishes for are asked for, as far as that is lawful.

Rule: a site gets no more pilots than its definition allows, and none while it is away or rests after a failure; a
policy that raises is passed over for that turn. Without definitions nothing here is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bough.core import pilots
from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.queue_record import QueueTable
from bough.core.records.site_record import SiteRecord
from bough.core.state import State
from bough.model.events import facts
from bough.model.events.facts import Fact
from bough.model.events.orders import AskForPilot, Order
from bough.model.resources import Needs
from bough.model.site_specs import RESOURCE, PilotId
from bough.policy.interface import Demand


class SiteChoice:
    """A site as the policy sees it, see `policy.interface.PilotSite`."""

    __slots__ = ("_known", "_named", "_site", "cores", "max_pilots", "name", "pilots", "starting")

    def __init__(self, site: SiteRecord, named: QueueTable) -> None:
        assert site.spec is not None
        self._named = named
        self._site = site
        self._known = ExecutorRecord(site.offers) if site.offers is not None else None
        self.name = site.name
        self.max_pilots = site.spec.max_pilots
        self.pilots = len(site.pilots)
        self.starting = sum(pilot.starting for pilot in site.pilots.values())
        self.cores = self._known.capacity.cores if self._known is not None else site.spec.cores_per_pilot

    def could_fit(self, needs: Needs) -> bool:
        """Whether an executor there could run a task with these needs; while nothing is known: perhaps."""
        if needs.queue and not self._named[needs.queue].admits(self.name):
            return False
        if self._known is not None:
            return self._known.could_fit(needs)
        others = any(name.startswith(RESOURCE) and name != RESOURCE + self.name for name, _ in needs.named)
        return not others and (not self.cores or needs.cores <= self.cores)


class _Part(NamedTuple):
    """What of a shape its queue lets out."""

    needs: Needs
    ready: int


class _View:
    """See `policy.interface.ProvisioningView`."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.now = state.now

    def sites(self) -> list[SiteChoice]:
        named = self._state.named_queues
        return [
            SiteChoice(site, named)
            for site in self._state.defined_sites.values()
            if pilots.takes_pilots(site, self.now)
        ]

    def demand(self) -> Iterator[Demand]:
        for shape in self._state.demand:
            most = shape.named.room(shape.needs.cores)  # more pilots would not bring out more of its queue
            if most >= shape.ready:
                yield shape
            elif most:
                yield _Part(shape.needs, most)


def provision(state: State, orders: list[Order]) -> list[Fact]:
    """Ask for the pilots that the policy wishes for; the facts, already applied."""
    written: list[Fact] = []
    try:
        wishes = list(state.policies.provisioning.provision(_View(state)))
    except Exception as error:  # noqa: BLE001 a policy is anybody's code: it must not stop the machine
        state.complaints.append(f"the provisioning policy failed and was passed over for this turn: {error!r}")
        return written
    for wish in wishes:
        site = state.defined_sites.get(wish.site)
        if site is None or site.spec is None or not pilots.takes_pilots(site, state.now):
            continue
        for _ in range(min(wish.count, site.spec.max_pilots - len(site.pilots))):
            fact = facts.PilotAsked(PilotId(state.last_pilot + 1), site.name)
            pilots.pilot_asked(state, None, fact)
            written.append(fact)
            orders.append(AskForPilot(fact.pilot, fact.site))
    return written
