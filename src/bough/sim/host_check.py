"""Whether every task of a workload could run on some host of a platform, if it had that host for itself.

Rule: a task that no host could ever take is the user's error, said before anything runs, with its name and what it
needs; in the simulation it would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bough.errors import UserError
from bough.model.sites.requirements import Known, as_known, meets, read_requirement
from bough.model.sites.resources import Needs, describe
from bough.sim.platforms.platform import Platform, SitePlatform
from bough.sim.platforms.simulated_executor import UNSAID_MEMORY
from bough.sim.workload import Workload


def check_hosts(workload: Workload, platform: Platform) -> None:
    """Refuse a workload with a task that no host of a platform could take."""
    seen: set[Needs] = set()
    for task in workload.tasks:
        needs = task.needs
        if needs not in seen:
            seen.add(needs)
            if why := _why_never(needs, platform):
                raise UserError(f"{workload.name}: task {task.name} {why}")


def _why_never(needs: Needs, platform: Platform) -> str:
    """Why no host could ever take a task; empty: one could."""
    sites: Mapping[str, SitePlatform] = platform.site
    if needs.sites:
        sites = {name: site for name, site in sites.items() if name in needs.sites}
        if not sites:
            only, known = " or ".join(needs.sites), ", ".join(platform.site)
            return f"may run only at {only}, and the sites of the platform are {known}; give it a site of that name"
    if needs.requires:
        able = {
            name: site for name, site in sites.items() if any(meets(needs.requires, one) for one in _hosts(name, site))
        }
        if not able:
            name, site = next(iter(sites.items()))
            lacks = "; ".join(
                f"{part}: {name} has {has}"
                for part, has in read_requirement(needs.requires).unmet(next(_hosts(name, site)))
            )
            return f"requires {needs.requires}, and no host meets that ({lacks}); say the attributes of a site"
        sites = able
    capacities = [_capacity(site) for site in sites.values()]
    if any(not needs.beyond(one) for one in capacities):
        return ""
    most = {name: max(one.amounts().get(name, 0.0) for one in capacities) for name in needs.amounts()}
    short = {name: most[name] for name, amount in needs.amounts().items() if amount > most[name]}
    there = f"no host has more than {describe(short)}" if short else "no host has all of that"
    return f"needs {needs}, and {there}"


def _capacity(site: SitePlatform) -> Needs:
    return Needs(cores=site.cores, memory=site.memory_bytes or UNSAID_MEMORY)


def _hosts(name: str, site: SitePlatform) -> Iterator[Known]:
    """What the hosts of a site say of themselves; those behind a queue are named when they come."""
    capacity = _capacity(site)
    known = as_known(tuple(site.attributes.items())) | {
        "cores": capacity.cores,
        "memory_gb": capacity.memory / 1e9,
        "gpus": capacity.gpus,
        "site": name,
    }
    if site.queue is not None:
        yield known
        return
    for number in range(1, site.hosts + 1):
        yield known | {"host": f"{name}{number}"}
