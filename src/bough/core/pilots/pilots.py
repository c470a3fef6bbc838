"""Definitions of sites and their pilots: what is decided is applied here.

A site that has a definition is known, whatever else is. What it offers is learnt from the executors that its pilots
bring, how long they wait from those that came; after a pilot that failed it rests, twice as long each time. What its
executors did is added up in core-seconds. Rule: these functions only apply what is decided; `intake` filters what is
said, `scheduling.provisioning` decides which pilots are asked for and which are released.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce
from heapq import heappush
from typing import Final

from bough.core.effects import Effects
from bough.core.pilots.sites import forget_if_plain, known_site
from bough.core.records.executor_record import ExecutorRecord, RelayExecutorRecord, is_manual
from bough.core.records.pilot_record import PilotRecord, Usage, added
from bough.core.records.site_record import SiteRecord, SiteUsage, usage_of
from bough.core.records.task_bound import TaskBound
from bough.core.state import State, TimerKind
from bough.errors import InvalidTransition
from bough.model.events import facts
from bough.model.ids import Seconds
from bough.model.sites.requirements import holds
from bough.model.sites.resources import Needs
from bough.model.sites.site_specs import PILOT_EDGES, RESOURCE, PilotTrigger

_REST: Final = 5.0  # seconds after a pilot that failed
_LONGEST_REST: Final = 600.0
_MOST_DOUBLED: Final = 10  # times
_MOST: Final = 1e18  # core-seconds that a fact can hold


def site_defined(state: State, effects: Effects | None, fact: facts.SiteDefined) -> None:
    """Pilots can be asked for there; what was learnt under another definition counts no more, but what was used."""
    site = known_site(state, fact.site)
    _forget_what_was_learnt(site)
    site.spec = fact.spec
    site.ends.clear()
    for pilot in site.pilots.values():
        _note_end(site, pilot)
    state.defined_sites[fact.site] = site
    state.pilots_due = True
    _set_bound(state, site)


def site_removed(state: State, effects: Effects | None, fact: facts.SiteRemoved) -> None:
    """Nothing is asked for there any more, and nothing is known of what was."""
    site = state.defined_sites.pop(fact.site)
    for pilot in site.pilots:
        del state.pilots[pilot]
    _forget_what_was_learnt(site)
    site.spec = None
    _set_bound(state, site)
    _begin_accounts_anew(state, site)
    for index in (site.pilots, site.starting, site.idle, site.leaving):
        index.clear()
    site.allocations.clear()
    site.succeeded.clear()
    site.ends.clear()
    forget_if_plain(state, fact.site)


def bound_of(state: State, site: SiteRecord) -> TaskBound | None:
    """The bound on tasks that a site's definition wants; None: it wants none of its own."""
    most = site.spec.max_tasks if site.spec is not None else 0
    return TaskBound(site.name, most, state.task_bound) if most else None


def _set_bound(state: State, site: SiteRecord) -> None:
    """Let the bound of a site's definition hold; what is out already counts."""
    before, site.bound = site.bound, bound_of(state, site)
    if before is None and site.bound is None:
        return
    for executor in site.executors.values():
        if not is_manual(executor):
            state.set_bound(executor, site.bound or state.task_bound)
            state.update_open(executor)


def _begin_accounts_anew(state: State, site: SiteRecord) -> None:
    """What was used is forgotten; executors of pilots that are forgotten, too, count no more."""
    for executor in site.executors.values():
        if executor.accounted:
            site.usage.settle(executor, state.now)
    site.usage = SiteUsage()
    for executor in site.executors.values():
        if state.accounts and not (executor.pilot or is_manual(executor)):
            site.usage.come(executor, state.now)


def _forget_what_was_learnt(site: SiteRecord) -> None:
    site.offers, site.known, site.room, site.refrained = None, None, None, ""
    site.failures, site.rests_until, site.trouble = 0, 0.0, ""
    site.waits.clear()


def pilot_asked(state: State, effects: Effects | None, fact: facts.PilotAsked) -> None:
    """A pilot is wanted."""
    pilot, site = PilotRecord(fact, state.now), state.defined_sites[fact.site]
    add_pilot(state, site, pilot)
    site.starting[fact.pilot] = pilot
    state.last_pilot = max(state.last_pilot, fact.pilot)
    if site.room:
        site.room -= 1


def add_pilot(state: State, site: SiteRecord, pilot: PilotRecord) -> None:
    """A pilot belongs to its site."""
    state.pilots[pilot.id] = site.pilots[pilot.id] = pilot
    if pilot.succeeds in site.pilots:
        site.succeeded[pilot.succeeds] = pilot.id
    site.allocations[pilot.allocation] = site.allocations.get(pilot.allocation, 0) + 1


def pilot_queued(state: State, effects: Effects | None, fact: facts.PilotQueued) -> None:
    """Its site has taken it."""
    pilot = state.pilots[fact.pilot]
    _move(pilot, PilotTrigger.TAKE)
    pilot.handle, pilot.queued = fact.handle, state.now


def pilot_released(state: State, effects: Effects | None, fact: facts.PilotReleased) -> None:
    """It is not wanted any more: it counts for nothing that is to come, and its executors get nothing new."""
    pilot = state.pilots[fact.pilot]
    pilot.released = fact.reason or "not needed"
    site = state.defined_sites[pilot.site]
    site.leaving[fact.pilot] = pilot
    site.starting.pop(fact.pilot, None)
    site.idle.pop(fact.pilot, None)
    state.pilots_due = True


def pilot_ended(state: State, effects: Effects | None, fact: facts.PilotEnded) -> None:
    """It is gone; if it failed, its site gets a rest."""
    pilot = state.pilots.pop(fact.pilot)
    _move(pilot, PilotTrigger.END)
    site = state.defined_sites[pilot.site]
    del site.pilots[fact.pilot]
    for index in (site.starting, site.idle, site.leaving):
        index.pop(fact.pilot, None)
    site.allocations[pilot.allocation] -= 1
    if not site.allocations[pilot.allocation]:
        del site.allocations[pilot.allocation]
    site.succeeded.pop(fact.pilot, None)
    before = site.pilots.get(pilot.succeeds)
    if before is not None and site.succeeded.get(before.id) == fact.pilot:
        del site.succeeded[before.id]
        _note_end(site, before)  # it may have another one
    for executor in pilot.executors.values():  # they may not know it yet
        if executor.accounted:
            pilot.add_usage(site.usage.settle(executor, state.now))
    pilot.executors.clear()
    if not site.pilots:
        site.room = None  # nobody asks it any more: what it said last would hold for ever
    state.pilots_due = True
    if fact.failed:
        site.trouble = fact.reason
        if state.now >= site.rests_until:  # those that were asked for with it fail for the same reason
            site.failures += 1
            site.rests_until = state.now + rest_after(site.failures)
            state.set_timer(site.rests_until, TimerKind.PILOTS, 0)


def site_had_room(state: State, effects: Effects | None, fact: facts.SiteHadRoom) -> None:
    """So many pilots could start there at once."""
    state.defined_sites[fact.site].room = fact.pilots
    state.pilots_due = True


def executor_came(state: State, joined: facts.ExecutorJoined) -> None:
    """An executor joined; if a pilot brought it, that one runs, and what its site offers is known."""
    pilot = state.pilots.get(joined.pilot)
    if pilot is None or pilot.site != joined.site:
        return
    site = state.defined_sites[pilot.site]
    if pilot.starting:
        pilot.started = state.now
        site.waits.append(max(0.0, state.now - pilot.asked))
    _move(pilot, PilotTrigger.JOIN)
    site.starting.pop(pilot.id, None)
    if not _is_bigger(site, joined):
        site.offers, site.known = joined, None
    site.failures, site.rests_until, site.trouble = 0, 0.0, ""
    executor = state.executors[joined.executor]
    executor.idle_since = state.now
    add_executor(state, executor)
    pilot.has_left = False
    _note_end(site, pilot)
    if not executor.accounted:
        site.usage.come(executor, state.now)
    if pilot.is_idle and not pilot.released:
        site.idle[pilot.id] = pilot
    state.pilots_due = True


def _is_bigger(site: SiteRecord, joined: facts.ExecutorJoined) -> bool:
    """Whether what a site offers is known from a bigger executor of the same pilot: cores may be shared unevenly."""
    known = site.offers
    return known is not None and known.pilot == joined.pilot and known.capacity.cores > joined.capacity.cores


def add_executor(state: State, executor: ExecutorRecord) -> PilotRecord | None:
    """An executor belongs to the pilot that brought it, if that is known."""
    pilot = state.pilots.get(executor.pilot)
    if pilot is None or pilot.site != executor.site:
        return None
    pilot.executors[executor.id] = executor
    return pilot


def pilot_restored(site: SiteRecord, pilot: PilotRecord, has_left: bool) -> None:
    """A pilot was there before a restart."""
    pilot.has_left = has_left
    _note_end(site, pilot)


def executor_restored(state: State, executor: ExecutorRecord) -> None:
    """An executor that was there before a restart belongs to its pilot again, if one brought it."""
    pilot = add_executor(state, executor)
    if pilot is not None:
        site = state.defined_sites[pilot.site]
        if not executor.accounted:
            site.usage.count(executor)
        _note_end(site, pilot)
        if not pilot.released:
            site.idle[pilot.id] = pilot  # perhaps: that is looked at when it matters


def executor_left(state: State, executor: ExecutorRecord) -> None:
    """An executor that a pilot brought is gone: what it did is added up."""
    pilot = state.pilots.get(executor.pilot)
    if pilot is not None and pilot.executors.pop(executor.id, None) is not None:
        site = state.defined_sites[pilot.site]
        if executor.accounted:
            pilot.add_usage(site.usage.settle(executor, state.now))
        if executor.draining and not pilot.executors:  # one that was lost may come back
            pilot.has_left = True
            _note_end(site, pilot)
        state.pilots_due = True


def _note_end(site: SiteRecord, pilot: PilotRecord) -> None:
    """Remember when a pilot ends, if it is to have a successor then."""
    if site.spec is not None and site.spec.resubmit and pilot.ends is not None:
        heappush(site.ends, (pilot.ends, pilot.id))


def used_by(pilot: PilotRecord, now: Seconds) -> Usage:
    """What a pilot has used so far, in core-seconds."""
    alive, startup, used, wasted = reduce(
        added, (usage_of(executor, now) for executor in pilot.executors.values()), pilot.usage
    )
    return min(alive, _MOST), min(startup, _MOST), min(used, _MOST), min(wasted, _MOST)


def executor_has_other_cores(state: State, executor: ExecutorRecord, resize: facts.ExecutorResized) -> None:
    """What a relay did so far is added up with the cores that it had."""
    if executor.accounted:
        usage, pilot = state.sites[executor.site].usage, state.pilots.get(executor.pilot)
        done = usage.settle(executor, state.now)
        if pilot is not None and executor.id in pilot.executors:
            pilot.add_usage(done)
        executor.begun = executor.begun and state.now
        executor.capacity, before = resize.capacity, executor.capacity
        usage.come(executor, state.now)
        executor.capacity = before  # its own `resize` follows


def rest_after(failures: int) -> Seconds:
    """How long a site rests after so many pilots in a row that failed."""
    return min(_LONGEST_REST, _REST * 2.0 ** min(failures - 1, _MOST_DOUBLED))


def is_spent(site: SiteRecord, now: Seconds) -> bool:
    """Whether the core-hours that a site may use are used."""
    return site.spec is not None and bool(site.spec.budget) and site.usage.core_hours(now) >= site.spec.budget


def room_at(state: State, site: SiteRecord) -> int:
    """How many pilots more may be asked for at a site now."""
    if site.spec is None or site.away or state.now < site.rests_until or is_spent(site, state.now):
        return 0
    if _reached(state, site) is not None:
        return 0
    room = site.spec.max_pilots - site.places
    if state.policies.max_pilots:
        room = min(room, state.policies.max_pilots - all_places(state))
    return max(0, room)


def all_places(state: State) -> int:
    """How many pilots there are at all sites; one that is to end and its successor share a place."""
    return sum(site.places for site in state.defined_sites.values())


def may_have_successor(state: State, site: SiteRecord, pilot: PilotRecord) -> bool:
    """Whether a successor of a pilot, which takes its place, would be within all bounds."""
    spec, most = site.spec, state.policies.max_pilots
    if spec is None or site.away or state.now < site.rests_until or is_spent(site, state.now):
        return False
    if pilot.released or pilot.id in site.succeeded or pilot.succeeds in site.pilots:  # no more than two at a place
        return False
    return site.places <= spec.max_pilots and (not most or all_places(state) <= most)


def _reached(state: State, site: SiteRecord) -> TaskBound | None:
    """The bound on tasks that is reached at a site."""
    bound = site.bound or state.task_bound
    return bound.reached() if bound is not None else None


def why_no_room(state: State, site: SiteRecord) -> str:
    """Why no pilot may be asked for at a site now; empty: one may."""
    spec, now, most = site.spec, state.now, state.policies.max_pilots
    assert spec is not None
    if site.away:
        return "it is away" + (f": {site.reason}" if site.reason else "")
    if now < site.rests_until:
        return f"it rests for {site.rests_until - now:.0f} s, because the last one failed: {site.trouble}"
    if is_spent(site, now):
        return f"its budget of {spec.budget:g} core-hours is used up"
    bound = _reached(state, site)
    if bound is not None:
        return str(bound)
    if site.places >= spec.max_pilots:
        return f"it is at its maximum of {spec.max_pilots}"
    if most and all_places(state) >= most:
        return f"all sites together are at their maximum of {most}"
    return ""


def like_those_of(site: SiteRecord) -> ExecutorRecord | None:
    """An executor like those that a site's pilots bring; None: none has come."""
    if site.known is None and site.offers is not None:
        site.known = (RelayExecutorRecord if site.offers.each is not None else ExecutorRecord)(site.offers)
    return site.known


def could_fit(state: State, site: SiteRecord, needs: Needs) -> bool:
    """Whether an executor of a site could run a task with these needs; while nothing is known: perhaps.

    A pilot has its time: tasks that are all expected to run longer than that are not for it. Nor are those of a queue
    that does not run its tasks there.
    """
    assert site.spec is not None
    if needs.queue and not state.named_queues[needs.queue].admits(site.name):
        return False
    if site.spec.lifetime and not state.demand.could_end_within(needs, site.spec.lifetime):
        return False
    known = like_those_of(site)
    if known is not None:
        return known.could_fit(needs)
    if needs.sites and site.name not in needs.sites:
        return False
    if needs.requires and holds(needs.requires, {"site": site.name}) is False:
        return False
    others = any(name.startswith(RESOURCE) and name != RESOURCE + site.name for name, _ in needs.named)
    most, parts = site.spec.cores_per_pilot, site.spec.executors_per_host
    return not others and (not most or needs.cores <= (math.ceil(most / parts) if parts > 1 else most))


def why_none(state: State, site: SiteRecord, wanted: Iterable[Needs] | None = None) -> str:
    """Why no pilot is asked for at a site, in a few words; empty: nothing keeps one from being asked for.

    `wanted`: what would run there; otherwise all that is ready.
    """
    if wanted is None:
        ready = list(state.demand)
        needs = [shape.needs for shape in ready if shape.named.room(shape.needs.cores)]
        if ready and not needs:
            return "the queues of all that is ready hold as many cores as they may"
    else:
        needs = list(wanted)
    if needs and not any(could_fit(state, site, one) for one in needs):
        return "nothing that is ready could run there"
    return why_no_room(state, site) or (site.refrained if needs else "nothing is ready that has no place")


def _move(pilot: PilotRecord, trigger: PilotTrigger) -> None:
    new = PILOT_EDGES.get((pilot.state, trigger))
    if new is None:
        raise InvalidTransition(f"pilot {pilot.id} is {pilot.state.value}: {trigger.value} is not for it")
    pilot.state = new
