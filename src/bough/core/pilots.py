"""Definitions of sites and their pilots: what is decided is applied here.

A site that has a definition is known, whatever else is. What it offers is learnt from the executors that its pilots
bring; after a pilot that failed it rests, twice as long each time. Rule: these functions only apply what is decided;
`intake` filters what is said, `scheduling.provisioning` decides which pilots are asked for.
"""

from __future__ import annotations

from typing import Final

from bough.core.effects import Effects
from bough.core.records.pilot_record import PilotRecord
from bough.core.records.site_record import SiteRecord
from bough.core.sites import forget_if_plain, known_site
from bough.core.state import State, TimerKind
from bough.errors import InvalidTransition
from bough.model.events import facts
from bough.model.ids import Seconds
from bough.model.site_specs import PILOT_EDGES, PilotTrigger

_REST: Final = 5.0  # seconds after a pilot that failed
_LONGEST_REST: Final = 600.0
_MOST_DOUBLED: Final = 10  # times


def site_defined(state: State, effects: Effects | None, fact: facts.SiteDefined) -> None:
    """Pilots can be asked for there; what was learnt under another definition counts no more."""
    site = known_site(state, fact.site)
    site.spec, site.offers, site.failures, site.rests_until, site.trouble = fact.spec, None, 0, 0.0, ""
    state.defined_sites[fact.site] = site
    state.pilots_due = True


def site_removed(state: State, effects: Effects | None, fact: facts.SiteRemoved) -> None:
    """Nothing is asked for there any more, and nothing is known of what was."""
    site = state.defined_sites.pop(fact.site)
    for pilot in site.pilots:
        del state.pilots[pilot]
    site.spec, site.offers, site.failures, site.rests_until, site.trouble = None, None, 0, 0.0, ""
    site.pilots.clear()
    forget_if_plain(state, fact.site)


def pilot_asked(state: State, effects: Effects | None, fact: facts.PilotAsked) -> None:
    """A pilot is wanted."""
    pilot = PilotRecord(fact.pilot, fact.site, state.now)
    state.pilots[fact.pilot] = state.defined_sites[fact.site].pilots[fact.pilot] = pilot
    state.last_pilot = max(state.last_pilot, fact.pilot)


def pilot_queued(state: State, effects: Effects | None, fact: facts.PilotQueued) -> None:
    """Its site has taken it."""
    pilot = state.pilots[fact.pilot]
    _move(pilot, PilotTrigger.TAKE)
    pilot.handle = fact.handle


def pilot_ended(state: State, effects: Effects | None, fact: facts.PilotEnded) -> None:
    """It is gone; if it failed, its site gets a rest."""
    pilot = state.pilots.pop(fact.pilot)
    _move(pilot, PilotTrigger.END)
    site = state.defined_sites[pilot.site]
    del site.pilots[fact.pilot]
    state.pilots_due = True
    if fact.failed:
        site.failures += 1
        site.trouble = fact.reason
        site.rests_until = state.now + rest_after(site.failures)
        state.set_timer(site.rests_until, TimerKind.PILOTS, 0)


def executor_came(state: State, joined: facts.ExecutorJoined) -> None:
    """An executor joined; if a pilot brought it, that one runs, and what its site offers is known."""
    pilot = state.pilots.get(joined.pilot)
    if pilot is None or pilot.site != joined.site:
        return
    _move(pilot, PilotTrigger.JOIN)
    site = state.defined_sites[pilot.site]
    site.offers = joined
    site.failures, site.rests_until, site.trouble = 0, 0.0, ""
    state.pilots_due = True


def rest_after(failures: int) -> Seconds:
    """How long a site rests after so many pilots in a row that failed."""
    return min(_LONGEST_REST, _REST * 2.0 ** min(failures - 1, _MOST_DOUBLED))


def takes_pilots(site: SiteRecord, now: Seconds) -> bool:
    """Whether pilots may be asked for at a site now."""
    return site.spec is not None and not site.away and now >= site.rests_until


def _move(pilot: PilotRecord, trigger: PilotTrigger) -> None:
    new = PILOT_EDGES.get((pilot.state, trigger))
    if new is None:
        raise InvalidTransition(f"pilot {pilot.id} is {pilot.state.value}: {trigger.value} is not for it")
    pilot.state = new
