"""Hosts that fail and are repaired, and sites that leave and return, as a platform says it.

A host that is there from the start fails after a time of its own, and is back when it is repaired; a site leaves with
all its hosts, and they are back when it returns. Who is back is another executor, with an empty cache. A site whose
hosts come by pilots leaves as live: the core is told, and cancels its pilots; hosts of pilots fail by themselves
(`simulated_site`).
Rules: dice come with a seed. A host comes back only while there is something to do, so that a run has an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from random import Random

from bough.model.events.facts import ExecutorLost, SiteLeft, SiteReturned
from bough.model.ids import Seconds
from bough.sim.platforms.batch_waits import failures
from bough.sim.platforms.platform import Platform, SitePlatform
from bough.sim.platforms.simulated_executor import SimulatedExecutor
from bough.sim.simulation import Simulation

_EVER: Seconds = 1e12


class Departures:
    """See the module. `executors` are those of the platform; those that come back are added to them."""

    def __init__(
        self, simulation: Simulation, platform: Platform, executors: list[SimulatedExecutor], seed: int
    ) -> None:
        self._simulation = simulation
        self._executors = executors
        self._seed = seed
        self._hosts: dict[int, tuple[SitePlatform, str, int]] = {}  # by executor: its host, and which time it is there
        for name, site in platform.site.items():
            if site.queue is None:
                own = [one for one in executors if one.traits.site == name]
                self._watch_hosts(name, site, own)
                continue
            for gone, back in site.absences:
                simulation.at(gone, SiteLeft(name, f"site {name} left"))
                if back < inf:
                    simulation.at(back, SiteReturned(name))
        if self._hosts:
            simulation.when_lost = self._lost

    def _watch_hosts(self, name: str, site: SitePlatform, own: Sequence[SimulatedExecutor]) -> None:
        """Let those that are there from the start fail, or leave with their site."""
        if not (site.lifetime or site.absences):
            return
        fails = {}
        if site.lifetime:
            drawn = failures([one.id for one in own], site.lifetime, _EVER, f"{name} {self._seed}")
            fails = {lost.executor: when for when, lost in drawn}
        for one in own:
            self._hosts[one.id] = site, one.host, 1
            self._end(one, fails.get(one.id, inf), 0.0)

    def _end(self, executor: SimulatedExecutor, fails: Seconds, since: Seconds) -> None:
        """Put down how an executor ends that is there since a time."""
        site, *_ = self._hosts[executor.id]
        leaves = next((gone for gone, _ in site.absences if gone >= since), inf)
        when = min(fails, leaves)
        if when < inf:
            reason = "its host failed" if fails < leaves else f"site {executor.traits.site} left"
            self._simulation.at(when, ExecutorLost(executor.id, reason))

    def _lost(self, now: Seconds, executor: int) -> None:
        """An executor is lost: its host may be back later."""
        if executor not in self._hosts or self._simulation.machine.is_idle:
            return
        site, host, times = self._hosts.pop(executor)
        away = next((until for since, until in site.absences if since == now), None)
        dice = Random(f"repairs {self._seed} {host} {times}")
        if away is not None:
            when = away
        elif site.repair:
            when = now + dice.expovariate(1 / site.repair)
            when = next((until for since, until in site.absences if since <= when < until), when)
        else:
            return
        if when >= _EVER:
            return
        gone = self._executors[executor - 1]  # they are numbered from 1, as they come
        traits = gone.traits
        back = SimulatedExecutor(
            len(self._executors) + 1, traits.capacity, traits.speed, _name(host, times), traits.site
        )
        back.availability, back.attributes = gone.availability, gone.attributes
        self._executors.append(back)
        self._hosts[back.id] = site, host, times + 1
        self._simulation.join(when, back)
        self._end(back, when + dice.expovariate(1 / site.lifetime) if site.lifetime else inf, when)


def _name(host: str, times: int) -> str:
    """Of a host that is back: another one, since what it held is gone."""
    return f"{host}-again" if times == 1 else f"{host}-again{times}"
