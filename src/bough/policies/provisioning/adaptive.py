"""Adaptive, the default: asks for what the work that is ready is worth, in time for what follows, and lets go at once.

It goes by three measures of the core: the queue of work in core-seconds, how long pilots have waited lately at each
site, and what the graph says comes next. Rules:

- A site is not asked if the work that is ready would be over before a pilot could start there.
- A pilot that waits `w` seconds shall have work for `w` seconds: no more are asked for than the work pays for.
- What is lacking is spread over the sites, more to those where pilots start sooner.
- If tasks follow on what runs, pilots for them are asked for `w` seconds ahead, so that they come when they are needed.
- A pilot that is idle is let go at once if nothing is known to come for it that a new one could not be had for in time;
  where nothing is known, it is kept for one and a half times as long as a new one would take: so executors that are
  done wait for those that came one wait later, and an idle one costs little more than a new one would.
- Pilots that wait are withdrawn when nothing is ready, nothing follows, and that has been so for as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bough.model.ids import Seconds
from bough.model.sites.resources import Needs
from bough.model.texts.plurals import counted
from bough.policy.interface import AskAgain, AskFor, PilotSite, ProvisioningView, ProvisioningWish, Refrain, Release
from bough.policy.shortage import LEAST

_SHORTEST_HOLD: Seconds = 5.0  # an idle pilot of which nothing is known is kept for so long, however short waits are
_HOLD = 1.5  # times the wait for a new one
_MARGIN: Seconds = 1.0  # pilots are asked for this much earlier than the last ones took
_EVEN: Seconds = 5.0  # added to waits when sites are compared: shorter differences say nothing


class _Work(NamedTuple):
    """Tasks with the same needs."""

    needs: Needs
    tasks: int
    expected: Seconds  # run time of one, 0: unknown
    after: Seconds  # until they are ready, 0: they are

    @property
    def each(self) -> float:
        """Cores of one."""
        return max(self.needs.cores, LEAST)


class Adaptive:
    """See the module."""

    def provision(self, view: ProvisioningView, /) -> Iterator[ProvisioningWish]:
        """Ask, then let go."""
        sites = list(view.sites())
        ready = [_Work(one.needs, one.ready, one.expected, 0.0) for one in view.demand()]
        follows = [_Work(*one) for one in view.coming()] if sites else []
        plan = _Plan(view, sites)
        for work in sorted(ready, key=lambda one: -one.each):
            yield from plan.ask_now(work)
        for work in follows:
            yield from plan.ask_ahead(work, also=bool(ready))
        yield from plan.let_go(ready, follows)


class _Plan:
    """One look at the sites; `starting` and `asked` are cores that are not spoken for yet."""

    def __init__(self, view: ProvisioningView, sites: Sequence[PilotSite]) -> None:
        self._view = view
        self._sites = sites
        self._starting = {site.name: site.starting * site.cores for site in sites}
        self._room = {site.name: site.room for site in sites}
        self._remaining = view.remaining() if sites else ()

    # --- asking ------------------------------------------------------------------------------------

    def ask_now(self, work: _Work) -> Iterator[ProvisioningWish]:
        """For tasks that are ready and have no place."""
        able = [site for site in self._sites if site.could_fit(work.needs)]
        cores = work.tasks * work.each
        cores -= self._take_starting(able, cores)
        if cores <= 0:
            return
        quick: list[PilotSite] = []
        for site in able:
            if self._room[site.name] <= 0:
                continue
            wait = site.wait or 0.0
            if self._begun(work, wait) >= work.tasks:
                yield Refrain(
                    site.name, f"what is ready will have begun elsewhere before a pilot starts, in about {wait:.0f} s"
                )
            else:
                quick.append(site)
        if not quick:
            return
        cores = min(cores, self._worth(work, min(site.wait or 0.0 for site in quick)))
        what = counted(work.tasks, "task is", "tasks are")
        length = f" of about {work.expected:.3g} s" if work.expected else ""
        yield from self._spread(quick, cores, f"{what} ready{length}, of {work.needs}")

    def ask_ahead(self, work: _Work, *, also: bool) -> Iterator[ProvisioningWish]:
        """For tasks that follow on what runs; `also`: others are ready, which executors go to first."""
        if not work.after:
            return
        able = [site for site in self._sites if site.could_fit(work.needs)]
        cores = work.tasks * work.each - (0.0 if also else self._view.cores)
        cores -= self._take_starting(able, cores)
        soon = [site for site in able if self._room[site.name] > 0 and site.wait is not None]
        if cores <= 0 or not soon:
            return
        lead = max(site.wait or 0.0 for site in soon) + _MARGIN
        if work.after > lead:
            yield AskAgain(self._view.now + work.after - lead)
            return
        cores = min(cores, self._worth(work, lead))
        what = counted(work.tasks, "task follows", "tasks follow")
        yield from self._spread(soon, cores, f"{what} in about {work.after:.0f} s, of {work.needs}")

    def _begun(self, work: _Work, wait: Seconds) -> float:
        """How many of its tasks the executors that are there will have begun after some seconds."""
        if not work.expected or not self._view.cores or not self._remaining:
            return 0.0
        turns = [math.ceil((wait - left) / work.expected) if left < wait else 0 for left in self._remaining]
        return self._view.cores / work.each * sum(turns) / len(turns)

    def _worth(self, work: _Work, wait: Seconds) -> float:
        """The cores that the rest of it pays for, when those that are there have done their part meanwhile."""
        if not work.expected:
            return work.tasks * work.each
        begun = self._begun(work, wait) if not work.after else 0.0
        rest = max(1, work.tasks - math.floor(begun))
        return max(work.each, rest * work.each * min(1.0, work.expected / wait if wait else 1.0))

    def _take_starting(self, able: Sequence[PilotSite], cores: float) -> float:
        """The cores of pilots that are starting which this takes."""
        taken = 0.0
        for site in able:
            some = min(self._starting[site.name], max(0.0, cores - taken))
            self._starting[site.name] -= some
            taken += some
        return taken

    def _spread(self, sites: Sequence[PilotSite], cores: float, reason: str) -> Iterator[AskFor]:
        """Ask for so many cores, more of them where pilots start sooner; the fastest take what is left over."""
        by_wait = sorted(sites, key=lambda site: site.wait or 0.0)
        speeds = {site.name: 1.0 / ((site.wait or 0.0) + _EVEN) for site in by_wait}
        total, asked = sum(speeds.values()), dict.fromkeys(speeds, 0)
        left = cores
        for site in by_wait:
            if not site.cores:  # how big it is, is learnt from the first
                asked[site.name] = min(self._room[site.name], int(not site.starting))
                left = 0.0 if asked[site.name] else left
                continue
            share = min(left, cores * speeds[site.name] / total)
            asked[site.name] = min(self._room[site.name], math.ceil(share / site.cores)) if share > 0 else 0
            left -= asked[site.name] * site.cores
        for site in by_wait:
            if left > 0 and site.cores:
                more = min(self._room[site.name] - asked[site.name], math.ceil(left / site.cores))
                asked[site.name] += more
                left -= more * site.cores
        for site in by_wait:
            if asked[site.name]:
                self._room[site.name] -= asked[site.name]
                yield AskFor(site.name, asked[site.name], reason)

    # --- letting go --------------------------------------------------------------------------------

    def let_go(self, ready: Sequence[_Work], follows: Sequence[_Work]) -> Iterator[ProvisioningWish]:
        """Pilots that are idle, and those that wait for nothing, where nothing is ready that could run."""
        for site in self._sites:
            if any(site.could_fit(work.needs) for work in ready):
                continue
            idle = site.idle()
            wait = site.wait
            hold = max(_HOLD * (wait or 0.0) + _MARGIN, _SHORTEST_HOLD)
            mine = [work for work in follows if work.after and site.could_fit(work.needs)]
            soon = sum(work.tasks * work.each for work in mine if wait is None or not self._is_far(work, wait))
            busy = self._view.cores - len(idle) * site.cores
            keep = math.ceil(max(0.0, soon - busy) / site.cores) if site.cores and soon else 0
            in_time = bool(mine) and wait is not None and all(work.after + work.expected > wait for work in mine)
            for pilot in idle[keep:] if mine else idle:
                if in_time:
                    yield Release(pilot.id, "what follows needs fewer, or others in time")
                elif self._view.now >= pilot.idle_since + hold:
                    yield Release(pilot.id, f"it had nothing to do for {hold:.0f} s")
                else:
                    yield AskAgain(pilot.idle_since + hold)
                    break
            if not follows and self._view.cores:
                yield from self._withdraw(site, hold)

    def _is_far(self, work: _Work, wait: Seconds) -> bool:
        """Whether a new pilot could be had for it well before it is ready."""
        return work.after > 2 * wait + _SHORTEST_HOLD

    def _withdraw(self, site: PilotSite, hold: Seconds) -> Iterator[ProvisioningWish]:
        for pilot in site.waiting():
            due = max(pilot.asked, self._view.demanded) + hold
            if self._view.now < due:
                yield AskAgain(due)
                return
            yield Release(pilot.id, "what it was asked for has been done by others")
