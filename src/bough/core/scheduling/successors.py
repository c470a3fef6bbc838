"""Successors: which pilots will end soon, and which of them are worth another one, which is in the queue before.

This is the placeholder of Trellis that submits itself again (Pinchak 2002; spec/trellisdag F37), decided where the work
is known: a successor is asked for so early that it runs when the pilot before it begins nothing more, by the last waits
of the site. A pilot and its successor share a place within the bounds of the site. Rules: no successor without work for
it, so the chain ends with the work; what is looked at are the pilots that end next, not all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from bough.core.records.pilot_record import PilotRecord
from bough.core.records.site_record import SiteRecord
from bough.core.state import State
from bough.model.ids import Seconds
from bough.model.sites.site_specs import drains_before
from bough.policy.interface import PilotSite, ProvisioningView
from bough.policy.shortage import LEAST


def due(state: State, site: SiteRecord) -> tuple[list[PilotRecord], Seconds | None]:
    """The pilots of a site that need a successor now if they are to have one, and when the next one will."""
    wait = _usual_wait(site)
    limit = state.now + drains_before(float("inf")) + wait  # nobody is due who ends later
    kept: list[tuple[Seconds, int]] = []
    found: dict[int, PilotRecord] = {}
    later = float("inf")
    while site.ends and site.ends[0][0] <= limit:
        entry = heappop(site.ends)
        pilot = site.pilots.get(entry[1])
        if pilot is None or pilot.released or pilot.id in site.succeeded or pilot.ends != entry[0]:
            continue
        kept.append(entry)
        when = entry[0] - _lead(pilot, wait)
        if when <= state.now:
            found[pilot.id] = pilot
        else:
            later = min(later, when)
    if site.ends:
        later = min(later, site.ends[0][0] - (limit - state.now))
    for entry in kept:
        heappush(site.ends, entry)
    return list(found.values()), later if later < float("inf") else None


def worthwhile(view: ProvisioningView, site: PilotSite, pilots: Sequence[PilotRecord]) -> Iterator[PilotRecord]:
    """Those of them for whose successors there will be work: ready or to come, and not done before they end."""
    ready = [one for one in view.demand() if site.could_fit(one.needs)]
    wanted = sum(one.ready * max(one.needs.cores, LEAST) for one in ready)
    wanted += sum(one.tasks * max(one.needs.cores, LEAST) for one in view.coming() if site.could_fit(one.needs))
    wanted -= site.starting * site.cores
    known = all(one.expected for one in ready) and not view.coming()
    seconds = sum(one.ready * one.needs.cores * one.expected for one in ready)
    for pilot in pilots:
        if wanted <= 0:
            return
        ends = pilot.ends or view.now
        left = max(0.0, ends - drains_before(ends - pilot.started) - view.now)
        if known and seconds <= site.live_cores * left:
            continue
        yield pilot
        wanted -= site.cores or wanted


def why(pilot: PilotRecord, now: Seconds) -> str:
    """Why there is a successor."""
    if pilot.has_left:
        return f"successor of pilot {pilot.id}, which has left while there is work"
    return f"successor of pilot {pilot.id}, whose time ends in {max(0.0, (pilot.ends or now) - now):.0f} s"


def _usual_wait(site: SiteRecord) -> Seconds:
    recent = sorted(site.waits)
    return recent[len(recent) // 2] if recent else 0.0


def _lead(pilot: PilotRecord, wait: Seconds) -> Seconds:
    """How long before its end a pilot's successor is asked for: at most half of its time."""
    if pilot.has_left:
        return 0.0
    life = max(0.0, (pilot.ends or 0.0) - pilot.started)
    return min(life / 2, drains_before(life) + wait)
