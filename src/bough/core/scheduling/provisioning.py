"""Asking the provisioning policy: pilots that it wishes for are asked for or released, as far as that is lawful.

The policy is asked at once when something changed at a site, and at most once a period because of what is ready, so
that a server with short tasks does not ask it with every turn; the first that is ready does not wait for that. It may
say when it wants to be asked in any case.
Rules: a site gets no more pilots than its definition and the bounds of all sites allow, none while it is away, rests
after a failure or has used its budget, and keeps its minimum; a pilot that has something to do is not released. What a
policy wishes beyond that has no effect, and one that raises is passed over for that turn. A site may name a policy of
its own: each is asked about its own sites, one after the other, and what pilots that others have asked for will take is
not shown to it. Without definitions nothing here is called.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from bough.core.lifecycle import executor_drained
from bough.core.pilots import pilots
from bough.core.records.pilot_record import PilotRecord
from bough.core.records.site_record import SiteRecord
from bough.core.scheduling import successors
from bough.core.scheduling.coming import coming, remaining
from bough.core.state import State
from bough.model.events import facts
from bough.model.events.facts import Fact
from bough.model.events.orders import AskForPilot, CancelPilot, Order
from bough.model.ids import Seconds
from bough.model.sites.resources import Needs
from bough.model.sites.site_specs import PilotId, least_pilots, pilot_cores
from bough.policy.interface import AskAgain, AskFor, Coming, Demand, ProvisioningPolicy, Refrain, Release
from bough.policy.shortage import LEAST

PERIOD: Final = 1.0  # seconds between two times that the policy is asked because of what is ready
_LONGEST: Final = 1000  # characters of a reason
_MOST_IDLE: Final = 1000  # wishes in a row that change nothing, besides some for each site and pilot
_HOUR: Final = 3600.0
_ROUND: Final = 1e-9


class SiteChoice:
    """A site as the policy sees it, see `policy.interface.PilotSite`."""

    __slots__ = ("_site", "_state", "cores", "idle_limit", "max_pilots", "min_pilots", "name")

    def __init__(self, state: State, site: SiteRecord) -> None:
        assert site.spec is not None
        self._state = state
        self._site = site
        self.name = site.name
        self.min_pilots = least_pilots(site.spec)
        self.max_pilots = site.spec.max_pilots
        self.idle_limit = site.spec.idle
        known = pilots.like_those_of(site)
        self.cores = pilot_cores(site.spec, known.capacity.cores if known is not None else 0.0)

    @property
    def pilots(self) -> int:
        """How many there are; one that is to end and its successor share a place."""
        return self._site.places

    @property
    def starting(self) -> int:
        """How many of them have brought no executor yet."""
        return len(self._site.starting)

    @property
    def room(self) -> int:
        """How many more may be asked for now."""
        return pilots.room_at(self._state, self._site)

    @property
    def available(self) -> int | None:
        """How many could start at once, as the site says."""
        return self._site.room

    @property
    def live_cores(self) -> float:
        """What its pilots have brought."""
        return self._site.usage.live_cores

    @property
    def wait(self) -> Seconds | None:
        """The middle one of the last waits, or as long as one waits already that is not over."""
        recent = sorted(self._site.waits)
        usual = recent[len(recent) // 2] if recent else None
        oldest = next(iter(self._site.starting.values()), None)
        if oldest is None:
            return usual
        so_far = self._state.now - oldest.asked
        return max(usual, so_far) if usual is not None else None

    def could_fit(self, needs: Needs) -> bool:
        """Whether an executor there could run a task with these needs; while nothing is known: perhaps."""
        return pilots.could_fit(self._state, self._site, needs)

    def idle(self) -> Sequence[PilotRecord]:
        """The pilots that have nothing to do, the longest first."""
        return idle_pilots(self._site)

    def waiting(self) -> Iterator[PilotRecord]:
        """The pilots that are starting, the oldest first."""
        return iter(list(self._site.starting.values()))

    def allocation_size(self, allocation: int) -> int:
        """How many pilots of an allocation have not ended."""
        return self._site.allocations.get(allocation, 0)


def idle_pilots(site: SiteRecord) -> list[PilotRecord]:
    """The pilots of a site that have nothing to do, the longest first.

    Those that have something are forgotten until they fall idle again, so that looking costs what changed.
    """
    busy = [number for number, pilot in site.idle.items() if not pilot.is_idle]
    for number in busy:
        del site.idle[number]
    return sorted(site.idle.values(), key=lambda pilot: (pilot.idle_since, pilot.id))


class _Part(NamedTuple):
    """What of a shape its queue lets out, or pilots of other sites will not take."""

    shape: Demand
    ready: int

    @property
    def needs(self) -> Needs:
        """What one task of it occupies."""
        return self.shape.needs

    @property
    def expected(self) -> Seconds:
        """The mean expected run time of one of them, 0: unknown."""
        return self.shape.expected


class _View:
    """See `policy.interface.ProvisioningView`; `own`: the sites whose policy is asked, None: all."""

    def __init__(self, state: State, own: Collection[str] | None = None) -> None:
        self._state = state
        self._own = own
        self._others = [
            SiteChoice(state, site)
            for site in (state.defined_sites.values() if own is not None else ())
            if own is not None and site.name not in own and site.starting
        ]
        self._starting = {site.name: site.starting * site.cores for site in self._others}  # cores nobody has taken
        self._demand: list[Demand] | None = None
        self.now = state.now
        self.cores = state.cores
        self.unfinished = state.unfinished
        self.demanded = state.demanded

    def sites(self) -> list[SiteChoice]:
        own, sites = self._own, self._state.defined_sites.values()
        return [SiteChoice(self._state, site) for site in sites if not site.away and (own is None or site.name in own)]

    def demand(self) -> Iterator[Demand]:
        if self._own is None:
            return self._let_out()
        if self._demand is None:
            self._demand = list(self._not_taken(self._let_out()))
        return iter(self._demand)

    def _not_taken(self, wanted: Iterable[Demand]) -> Iterator[Demand]:
        """What pilots that start at sites of other policies will take is not wanted here."""
        for one in wanted:
            ready = self._left(one.needs, one.ready)
            if ready:
                yield _Part(one, ready) if ready < one.ready else one

    def _left(self, needs: Needs, tasks: int) -> int:
        """How many tasks are left when pilots at sites of other policies have taken some; those take no others."""
        cores = max(needs.cores, LEAST)
        left = tasks * cores
        for site in self._others:
            if left > 0 and self._starting[site.name] > 0 and site.could_fit(needs):
                taken = min(left, self._starting[site.name])
                self._starting[site.name] -= taken
                left -= taken
        return math.ceil(left / cores - _ROUND)

    def _let_out(self) -> Iterator[Demand]:
        taken: dict[str, float] = {}  # cores by queue: of several shapes no more than their queue lets out together
        for shape in self._state.demand:
            named, cores = shape.named, shape.needs.cores
            most = named.room(cores, taken.get(named.name))  # more pilots would not bring out more of its queue
            if named.spec.max_cores:
                taken[named.name] = taken.get(named.name, named.cores) + min(most, shape.ready) * cores
            if most >= shape.ready:
                yield shape
            elif most:
                yield _Part(shape, most)

    def remaining(self) -> list[Seconds]:
        return remaining(self._state)

    def coming(self) -> list[Coming]:
        found = coming(self._state)
        if self._own is None:
            return found
        self.demand()  # what is ready is taken first
        left = ((one, self._left(one.needs, one.tasks)) for one in found)
        return [one._replace(tasks=tasks) for one, tasks in left if tasks]


def is_due(state: State) -> bool:
    """Whether the policy is to be asked in this turn."""
    again = state.provision_again
    return (
        state.pilots_due
        or (state.demand_due and (state.now >= state.provision_at or (not state.is_demanded and _is_demanded(state))))
        or (again is not None and state.now >= again)
    )


def _is_demanded(state: State) -> bool:
    """Whether something is ready that its queue lets out."""
    return any(shape.named.room(shape.needs.cores) for shape in state.demand)


def next_provision(state: State) -> Seconds | None:
    """When it is to be asked if nothing happens until then."""
    again = state.provision_again
    if not state.demand_due:
        return again
    return state.provision_at if again is None else min(again, state.provision_at)


def provision(state: State, orders: list[Order]) -> list[Fact]:
    """Do what the policy wishes, and what the definitions of sites want; the facts, already applied."""
    state.is_demanded = _is_demanded(state)
    if state.is_demanded:
        state.demanded = state.now
    if state.demand_due:
        state.provision_at = state.now + PERIOD
    state.pilots_due = state.demand_due = False
    state.provision_again = None
    desk = _Desk(state, orders)
    for site in state.defined_sites.values():
        site.refrained = ""
    for name, own in _by_policy(state).items():
        desk.ask_policy(_policy_named(state, name), own)
    desk.see_to_bounds()
    state.pilots_due = False  # what was done here is no news
    return desk.written


def _by_policy(state: State) -> dict[str, set[str] | None]:
    """The names of policies, each with its sites; None: all of them."""
    found: dict[str, set[str]] = {}
    for site in state.defined_sites.values():
        assert site.spec is not None
        found.setdefault(site.spec.provisioning, set()).add(site.name)
    return dict.fromkeys(found, None) if len(found) == 1 else dict(sorted(found.items()))


def _policy_named(state: State, name: str) -> ProvisioningPolicy:
    """The policy of a name; the server's for none, and for one that is not known any more."""
    policy = state.policies.provisioning_named(name) if name else None
    if name and policy is None:
        state.complaints.append(f"there is no provisioning policy {name!r} any more; the server's is used")
    return policy or state.policies.provisioning


class _Desk:
    """Where wishes are held against the law."""

    def __init__(self, state: State, orders: list[Order]) -> None:
        self._state = state
        self._orders = orders
        self.written: list[Fact] = []

    def ask_policy(self, policy: ProvisioningPolicy, own: Collection[str] | None) -> None:
        """Do what a policy wishes for its own sites; None: for all."""
        try:
            idle, most = 0, _MOST_IDLE + 2 * len(self._state.defined_sites) + len(self._state.pilots)
            for wish in policy.provision(_View(self._state, own)):
                done = len(self.written)
                self._carry_out(wish, own)
                idle = 0 if len(self.written) > done else idle + 1
                if idle > most:
                    self._state.complaints.append(
                        f"the provisioning policy was not asked further in this turn: none of {most} wishes in a row"
                        " brought or ended a pilot"
                    )
                    break
        except Exception as error:  # noqa: BLE001 a policy is anybody's code: it must not stop the machine
            text = f"the provisioning policy failed and was passed over for this turn: {error!r}"
            self._state.complaints.append(text)

    def _carry_out(self, wish: object, own: Collection[str] | None) -> None:
        state = self._state
        if isinstance(wish, AskFor | Refrain):
            site = state.defined_sites.get(wish.site) if own is None or wish.site in own else None
            if site is not None and isinstance(wish, AskFor):
                self._ask(site, wish.count, wish.reason)
            elif site is not None:
                site.refrained = _plain(wish.reason)
        elif isinstance(wish, Release):
            pilot = state.pilots.get(wish.pilot)
            if pilot is not None and (own is None or pilot.site in own) and self._may_go(pilot):
                self._release(pilot, wish.reason)
        elif isinstance(wish, AskAgain) and math.isfinite(wish.when):
            self._again(max(wish.when, state.now + PERIOD / 10))

    def _again(self, when: Seconds) -> None:
        known = self._state.provision_again
        self._state.provision_again = when if known is None else min(known, when)

    def _ask(self, site: SiteRecord, count: int, reason: str) -> None:
        state = self._state
        known = pilots.like_those_of(site)
        assert site.spec is not None
        cores = pilot_cores(site.spec, known.capacity.cores if known is not None else 0.0)
        first = PilotId(state.last_pilot + 1)
        for _ in range(min(count, pilots.room_at(state, site))):
            self._ask_one(facts.PilotAsked(PilotId(state.last_pilot + 1), site.name, _plain(reason), first, cores))

    def _ask_one(self, fact: facts.PilotAsked) -> None:
        pilots.pilot_asked(self._state, None, fact)
        self.written.append(fact)
        self._orders.append(AskForPilot(fact.pilot, fact.site, fact.allocation))

    def _may_go(self, pilot: PilotRecord) -> bool:
        site = self._state.defined_sites[pilot.site]
        assert site.spec is not None
        wanted = len(site.pilots) - len(site.leaving)
        return not pilot.released and (pilot.starting or pilot.is_idle) and wanted > least_pilots(site.spec)

    def _release(self, pilot: PilotRecord, reason: str) -> None:
        self._drain(pilot)
        fact = facts.PilotReleased(pilot.id, _plain(reason))
        pilots.pilot_released(self._state, None, fact)
        self.written.append(fact)
        self._orders.append(CancelPilot(pilot.id, pilot.site))

    def _drain(self, pilot: PilotRecord) -> None:
        for executor in pilot.executors.values():
            if not executor.draining:
                drained = facts.ExecutorDrained(executor.id)
                executor_drained(self._state, None, drained)
                self.written.append(drained)

    # --- what holds whatever the policy wishes -----------------------------------------------------

    def see_to_bounds(self) -> None:
        """Budgets end pilots, minima keep them, and pilots that will end have successors where that is wanted."""
        for site in self._state.defined_sites.values():
            spec = site.spec
            assert spec is not None
            if spec.budget and site.pilots:
                self._see_to_budget(site, spec.budget)
            if spec.min_pilots and not site.away:
                self._see_to_minimum(site, least_pilots(spec), spec.idle)
            if spec.resubmit and (site.ends or site.starting):
                self._see_to_successors(site)

    def _see_to_successors(self, site: SiteRecord) -> None:
        """Ask for the successors of pilots that will end before one could come, as many as there is work for.

        Those that wait when there is nothing left to do are withdrawn.
        """
        state = self._state
        if not state.unfinished:
            for pilot in [pilot for pilot in site.starting.values() if pilot.succeeds and self._may_go(pilot)]:
                self._release(pilot, "there is nothing left to do")
            return
        due, later = successors.due(state, site)
        if later is not None:
            self._again(max(later, state.now + PERIOD / 10))
        due = [pilot for pilot in due if pilots.may_have_successor(state, site, pilot)]
        if not due:
            return
        view, choice = _View(state), SiteChoice(state, site)
        for pilot in successors.worthwhile(view, choice, due):
            number = PilotId(state.last_pilot + 1)
            reason = successors.why(pilot, state.now)
            self._ask_one(facts.PilotAsked(number, site.name, reason, number, choice.cores, PilotId(pilot.id)))

    def _see_to_budget(self, site: SiteRecord, budget: float) -> None:
        """Once it is used up, executors get nothing new, and pilots end that have nothing to do."""
        state = self._state
        if not pilots.is_spent(site, state.now):
            if site.usage.live_cores > 0:
                left = (budget - site.usage.core_hours(state.now)) * _HOUR
                self._again(state.now + max(PERIOD, left / site.usage.live_cores))
            return
        reason = f"the budget of {budget:g} core-hours is used up"
        for pilot in list(site.pilots.values()):
            if not pilot.released:
                if pilot.starting or pilot.is_idle:
                    self._release(pilot, reason)
                else:
                    self._drain(pilot)

    def _see_to_minimum(self, site: SiteRecord, least: int, idle: Seconds) -> None:
        """Ask for what is lacking; executors there do not leave by themselves, so those beyond it are let go here."""
        state = self._state
        lacking = least - (len(site.pilots) - len(site.leaving))
        if lacking > 0:
            self._ask(site, lacking, f"the site keeps at least {least}")
        spare = max(0, -lacking)
        for pilot in islice(idle_pilots(site), spare) if idle else ():
            if state.now >= pilot.idle_since + idle:
                self._release(pilot, f"it had nothing to do for {idle:g} s")
            else:
                self._again(pilot.idle_since + idle)
                break


def _plain(reason: str) -> str:
    """A policy's words as they can be kept."""
    return reason[:_LONGEST].encode("utf-8", "replace").decode().replace("\0", " ")
