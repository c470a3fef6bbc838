"""What is lacking: how many pilots at which site would take what is ready, and the shape of Falkon's provisioners.

Falkon's loop (Raicu 2009, 3.2.1 and 5.2.1) wants as many resources as the queue needs, less those that it has asked
for, within the bounds of the site. How many requests that becomes is the acquisition strategy; when resources are
given back is the release policy. Rule: what pilots that are starting will take is not asked for twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from bough.model.sites.resources import Needs
from bough.model.texts.plurals import counted
from bough.policy.interface import AskAgain, AskFor, PilotSite, ProvisioningView, ProvisioningWish, Refrain, Release

LEAST = 0.01  # cores that a task counts for at the least


class Shortage(NamedTuple):
    """So many pilots are lacking at a site, for so many cores of work."""

    site: PilotSite
    pilots: int
    cores: float


class Acquisition(Protocol):
    """Into which requests a number of pilots is split."""

    def requests(self, pilots: int, site: PilotSite, /) -> Iterator[int]:
        """The sizes of the requests, in order."""


class ReleasePolicy(Protocol):
    """Which pilots are given back."""

    def release(self, view: ProvisioningView, sites: Sequence[PilotSite], /) -> Iterator[Release | AskAgain]:
        """Yield wishes."""


class Provisioner:
    """An acquisition strategy and a release policy together; without one executors leave when they are idle."""

    def __init__(self, acquisition: Acquisition, release: ReleasePolicy | None = None) -> None:
        self._acquisition = acquisition
        self._release = release

    def provision(self, view: ProvisioningView, /) -> Iterator[ProvisioningWish]:
        """Ask for what is lacking, and give back what is too much."""
        sites = list(view.sites())
        for site, pilots, cores in shortages(view, sites):
            reason = f"tasks are ready that need {cores:g} cores"
            sizes = list(self._acquisition.requests(pilots, site))
            for number, size in enumerate(sizes, 1):
                which = f", request {number} of {len(sizes)}" if len(sizes) > 1 else ""
                yield AskFor(site.name, size, reason + which)
            if not sizes:
                yield Refrain(site.name, f"it says that it has no room for {counted(pilots, 'pilot')}")
        if self._release is not None:
            yield from self._release.release(view, sites)


def shortages(view: ProvisioningView, sites: Sequence[PilotSite]) -> Iterator[Shortage]:
    """What is lacking, site by site; a site whose size is not known yet gets one pilot, from which that is learnt."""
    wanted = {demand.needs: demand.ready * max(demand.needs.cores, LEAST) for demand in view.demand()}
    if not wanted:
        return
    for site in sites:
        take(wanted, fitting(wanted, site), site.starting * site.cores)
    for site in sites:
        those = fitting(wanted, site)
        cores = sum(wanted[needs] for needs in those)
        room = site.room
        if cores <= 0 or room <= 0:
            continue
        enough = math.ceil(cores / site.cores) if site.cores else int(not site.starting)
        count = min(room, enough)
        if count:
            yield Shortage(site, count, cores)
            take(wanted, those, count * site.cores)


def fitting(wanted: dict[Needs, float], site: PilotSite) -> list[Needs]:
    """What a site could run."""
    return [needs for needs in wanted if site.could_fit(needs)]


def take(wanted: dict[Needs, float], those: list[Needs], cores: float) -> None:
    """What these cores will take is not wanted of others."""
    for needs in those:
        taken = min(wanted[needs], cores)
        wanted[needs] -= taken
        cores -= taken
