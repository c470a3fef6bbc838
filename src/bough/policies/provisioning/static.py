"""Static provisioning: as many pilots as what is ready needs, site by site, up to each site's maximum.

After the all-at-once acquisition of Falkon's provisioner (Raicu 2009, 3.8), with its distributed release: executors
that are idle leave by themselves. Rule: what pilots that are starting will take is not asked for twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from bough.model.resources import Needs
from bough.policy.interface import AskFor, ProvisioningView

_LEAST = 0.01  # cores that a task counts for at the least


class Static:
    """See the module. A site whose size is not known yet gets one pilot, from which that is learnt."""

    def provision(self, view: ProvisioningView, /) -> Iterator[AskFor]:
        """One wish a site."""
        wanted = {demand.needs: demand.ready * max(demand.needs.cores, _LEAST) for demand in view.demand()}
        if not wanted:
            return
        sites = list(view.sites())
        for site in sites:
            _take(wanted, [needs for needs in wanted if site.could_fit(needs)], site.starting * site.cores)
        for site in sites:
            fitting = [needs for needs in wanted if site.could_fit(needs)]
            cores = sum(wanted[needs] for needs in fitting)
            room = site.max_pilots - site.pilots
            if cores <= 0 or room <= 0:
                continue
            enough = math.ceil(cores / site.cores) if site.cores else int(not site.starting)
            count = min(room, enough)
            if count:
                yield AskFor(site.name, count)
                _take(wanted, fitting, count * site.cores)


def _take(wanted: dict[Needs, float], fitting: list[Needs], cores: float) -> None:
    """What these cores will take is not wanted of others."""
    for needs in fitting:
        taken = min(wanted[needs], cores)
        wanted[needs] -= taken
        cores -= taken
