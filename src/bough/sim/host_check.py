"""Whether every task of a workload could run on some host of a platform, if it had that host for itself.

Rule: a task that no host could ever take is the user's error, said before anything runs, with its name and what it
needs; in the simulation it would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bough.errors import UserError, did_you_mean
from bough.model.sites.requirements import Known, as_known, meets, read_requirement
from bough.model.sites.resources import Needs, describe
from bough.sim.platforms.platform import Platform, SitePlatform
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
    if needs.queue:
        if why := _why_not_let_out(needs, platform):
            return why
        wanted = platform.queue[needs.queue].sites
        sites = {name: site for name, site in sites.items() if not wanted or name in wanted}
    if needs.sites:
        known, only = ", ".join(sites), " or ".join(needs.sites)
        sites = {name: site for name, site in sites.items() if name in needs.sites}
        if not sites:
            where = f"those of queue {needs.queue}" if needs.queue else "the sites of the platform"
            return f"may run only at {only}, and {where} are {known}; give it a site of that name"
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
    capacities = [site.capacity for site in sites.values()]
    if any(not needs.beyond(one) for one in capacities):
        return ""
    most = {name: max(one.amounts().get(name, 0.0) for one in capacities) for name in needs.amounts()}
    short = {name: most[name] for name, amount in needs.amounts().items() if amount > most[name]}
    there = f"no host has more than {describe(short)}" if short else "no host has all of that"
    return f"needs {needs}, and {there}"


def _why_not_let_out(needs: Needs, platform: Platform) -> str:
    """Why the named queue of a task would never let it out; empty: it would."""
    name = needs.queue
    if name not in platform.queue:
        hint = did_you_mean(name, platform.queue)
        return f"goes through queue {name}, which the platform lacks{hint}; give it [queue.{name}]"
    queue = platform.queue[name]
    if queue.max_cores and needs.cores > queue.max_cores:
        return f"needs {needs}, and no more than {describe({'cores': queue.max_cores})} are let out by that queue"
    if queue.sites and not any(one in platform.site for one in queue.sites):
        return f"goes through queue {name}, whose sites ({', '.join(queue.sites)}) the platform lacks"
    return ""


def _hosts(name: str, site: SitePlatform) -> Iterator[Known]:
    """What the hosts of a site say of themselves; those behind a queue are named when they come."""
    capacity = site.capacity
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
