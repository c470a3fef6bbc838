"""A platform for the simulator from what a server has measured on the user's own sites.

Hosts are those that are there, or those that were seen last; what they have is what they said, and of attributes those
count that are the same on all hosts of a kind. Speeds come
from tasks that do the same on several hosts: how much quicker one does them than all do in the mean. Links come from
tasks whose inputs all came one way: bytes over seconds, the median of the larger half, since others used the link, too.
How pilots come and go is in the definitions of sites; how files travel is said as it is live.
Rule: what was not measured is not made up; a comment says what each figure rests on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, log
from statistics import fmean, median
from typing import Any

import msgspec

from bough.errors import UserError
from bough.model.sites.queue_specs import QueueSpec
from bough.model.sites.resources import show_bytes
from bough.model.sites.site_specs import SiteSpec
from bough.model.texts.plurals import counted
from bough.sim.platforms.platform_files import toml_key, toml_lines, toml_text, toml_value

Row = Mapping[str, Any]
Ask = Callable[[str], Sequence[Row]]  # a question in SQL to the jobs database

_EXECUTORS = """select site, host, cores, memory, gpus, resources, attributes, "left" from executors
  order by id desc limit 20000"""
_QUEUES = "select queue, limits from queues order by turn"
_TASKS = """select name, command, host, seconds, cores from tasks where state = 'done' and is_array = 0
  and coalesce(reused, 0) = 0 and seconds > 0.05 and host != '' order by id desc limit 20000"""
_SPANS = """select spans.id as id, executors.host as host, spans.seconds / (spans.stop - spans.start) as seconds
  from spans join executors on executors.id = spans.executor where spans.state = 'done'
  and coalesce(spans.reused, 0) = 0 and spans.seconds > 0.05 order by spans.id desc limit 20000"""
_STAGING = """select executors.site as site, staging.stage_in as seconds, staging.cached as cached,
  staging.from_peers as peers, staging.from_origin as origin from staging
  join tasks on tasks.id = staging.id join executors on executors.id = tasks.executor
  where staging.stage_in > 0 limit 20000"""
_FEW = 3  # runs of a template on a host, and transfers, below which nothing is said
_LONGEST = 1e9  # seconds that a platform may say
_BIG = 65_536  # bytes: less tells of latency


class HostSeen(msgspec.Struct, frozen=True):
    """A host of a site."""

    site: str
    host: str
    cores: float
    memory: int
    gpus: float = 0.0
    resources: Mapping[str, float] = {}
    attributes: Mapping[str, Any] = {}  # what it says of itself

    @property
    def kind(self) -> tuple[object, ...]:
        """Hosts of one kind are described together."""
        return self.cores, self.memory, self.gpus, tuple(self.resources.items())


class MeasuredLink(msgspec.Struct, frozen=True):
    """Bytes a second, and how many transfers say so."""

    rate: float
    transfers: int


class MeasuredSites(msgspec.Struct, frozen=True):
    """What is known."""

    hosts: Sequence[HostSeen]
    speeds: Mapping[str, float]  # by host; the mean over all is 1
    from_home: Mapping[str, MeasuredLink]  # by site
    from_peers: Mapping[str, MeasuredLink]
    queues: Mapping[str, QueueSpec] = {}  # named ones


def measured_sites(ask: Ask) -> MeasuredSites:
    """What a jobs database knows of the hosts of sites."""
    hosts = _hosts(ask(_EXECUTORS))
    runs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in ask(_TASKS):
        runs[f"{row['command'] or row['name']}"][str(row["host"])].append(float(row["seconds"]))
    for row in ask(_SPANS):
        runs[f"array {row['id']}"][str(row["host"])].append(float(row["seconds"]))
    home, peers = _links(ask(_STAGING))
    queues = {str(row["queue"]): row["limits"] for row in ask(_QUEUES)}  # the last ones
    limits = {name: msgspec.json.decode(said, type=QueueSpec) for name, said in queues.items() if said}
    return MeasuredSites(hosts, speeds_of(runs, {one.host for one in hosts}), home, peers, limits)


def speeds_of(runs: Mapping[str, Mapping[str, Sequence[float]]], wanted: Iterable[str]) -> dict[str, float]:
    """By host: how much quicker it does a template than the hosts do in the mean, over all templates."""
    names = set(wanted)
    ratios: dict[str, list[float]] = defaultdict(list)
    for by_host in runs.values():
        means = {host: fmean(some) for host, some in by_host.items() if host in names and len(some) >= _FEW}
        if len(means) > 1:
            typical = exp(fmean(log(one) for one in means.values()))
            for host, mean in means.items():
                ratios[host].append(log(typical / mean))
    return {host: exp(fmean(some)) for host, some in sorted(ratios.items())}


def _hosts(rows: Sequence[Row]) -> list[HostSeen]:
    """The hosts of each site that are there, or else those that were; of a host with several executors all cores."""
    there = [row for row in rows if row["left"] is None]
    known = {str(row["site"]) for row in there}
    kept = there + [row for row in rows if str(row["site"]) not in known]
    found: dict[tuple[str, str], HostSeen] = {}
    for row in kept:
        key = str(row["site"] or "local"), str(row["host"] or "")
        cores, memory = float(row["cores"] or 1), int(row["memory"] or 0)
        before = found.get(key)
        if before is None:
            more = _by_name(row["resources"]), _by_name(row["attributes"])
            found[key] = HostSeen(*key, cores, memory, float(row["gpus"] or 0), *more)
        elif row["left"] is None:  # another executor beside it
            gpus = before.gpus + float(row["gpus"] or 0)
            cores, memory = before.cores + cores, max(before.memory, memory)
            found[key] = msgspec.structs.replace(before, cores=cores, memory=memory, gpus=gpus)
    return sorted(found.values(), key=lambda one: (one.site, one.host))


def _by_name(text: str | None) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}


def _links(rows: Sequence[Row]) -> tuple[dict[str, MeasuredLink], dict[str, MeasuredLink]]:
    home: dict[str, list[float]] = defaultdict(list)
    peers: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        near, far, seconds = int(row["peers"] or 0), int(row["origin"] or 0), float(row["seconds"])
        if far >= _BIG and not near:
            home[str(row["site"])].append(far / seconds)
        elif near >= _BIG and not far:
            peers[str(row["site"])].append(near / seconds)
    return _rates(home), _rates(peers)


def _rates(by_site: Mapping[str, Sequence[float]]) -> dict[str, MeasuredLink]:
    return {
        site: MeasuredLink(median(sorted(some)[len(some) // 2 :]), len(some))
        for site, some in sorted(by_site.items())
        if len(some) >= _FEW
    }


def platform_text(
    found: MeasuredSites,
    waits: Mapping[str, Sequence[float]] = {},
    definitions: Mapping[str, SiteSpec] = {},
) -> str:
    """The platform as TOML; `waits`: what pilots of sites waited; `definitions`: of the sites that have pilots."""
    if not found.hosts:
        raise UserError("no executor was seen yet: run something on your sites, then ask again")
    lines = ["# what bough site list --as-platform has measured; times of tasks are those of a host of speed 1"]
    fastest = max((link.rate for link in found.from_home.values()), default=0.0)
    if fastest:
        lines += [
            "",
            "[home]",
            f"bandwidth = {round(fastest)}    # the fastest site gets {show_bytes(round(fastest))}/s",
        ]
    lines += ["", "[transfers]", 'outputs = "home"    # as live: an output is with the server before its task is done']
    if found.from_home or found.from_peers:
        lines += [
            "early = true    # as live: inputs of the next task travel while a host is busy",
            "chains = true    # as live: a host sends on what it is still getting",
        ]
    for name, limits in found.queues.items():
        lines += ["", f"[queue.{toml_key(name)}]", *toml_lines(limits)]
    by_site: dict[str, list[HostSeen]] = defaultdict(list)
    for host in found.hosts:
        by_site[host.site].append(host)
    for site, hosts in by_site.items():
        shapes = Counter(host.kind for host in hosts)
        for number, (kind, count) in enumerate(shapes.most_common()):
            same = [host for host in hosts if host.kind == kind]
            lines += ["", f"[site.{toml_key(site if not number else f'{site}-{number + 1}')}]"]
            lines.append(_hosts_line(count, definitions.get(site) if len(shapes) == 1 else None))
            lines += _host_lines(same)
            lines += _speed_lines([host.host for host in same], found.speeds) + _link_lines(site, found)
            if site in definitions:
                lines += _definition_lines(definitions[site])
            if waits.get(site) or site in definitions:
                lines.append(_queue_line(waits.get(site, ()), definitions.get(site)))
    return "\n".join(lines) + "\n"


def _hosts_line(seen: int, spec: SiteSpec | None) -> str:
    """As many as were seen; of a batch system that has hosts of one kind, as many as it may be asked for."""
    if spec is None or spec.batch == "none" or spec.max_pilots <= seen:
        return f"hosts = {seen}"
    return f"hosts = {spec.max_pilots}    # as many pilots as there may be; {counted(seen, 'host')} seen"


def _host_lines(hosts: Sequence[HostSeen]) -> list[str]:
    """What hosts of one kind have, and say of themselves."""
    one, *others = hosts
    said = {"memory": one.memory, "gpus": one.gpus, "resources": dict(one.resources)}
    said["attributes"] = {
        name: value for name, value in one.attributes.items() if all(x.attributes.get(name) == value for x in others)
    }
    return [f"cores = {one.cores:g}", *(f"{key} = {toml_value(value)}" for key, value in said.items() if value)]


def _speed_lines(hosts: Sequence[str], speeds: Mapping[str, float]) -> list[str]:
    known = [speeds[host] for host in hosts if host in speeds]
    if not known:
        return []
    low, high = round(min(known), 3), round(max(known), 3)
    said = f"speed = {low:g}" if low == high else f"speed = [{low:g}, {high:g}]"
    return [f"{said}    # of {len(known)} of {len(hosts)} hosts, by tasks that ran on several"]


def _definition_lines(spec: SiteSpec) -> list[str]:
    """What the definition of a site says of the caches of its hosts."""
    lines = [f"cache = {spec.cache_size}"] if spec.cache_size else []
    return lines + ([f"eviction = {toml_text(spec.eviction)}"] if spec.eviction else [])


def _queue_line(waits: Sequence[float], spec: SiteSpec | None) -> str:
    """Hosts come by pilots, which wait as those did that were measured, one after the other."""
    said = [f"waits = [{', '.join([f'{max(0.0, wait):.6g}' for wait in waits])}]"] if waits else []
    if spec is not None:
        said += [f"idle = {min(spec.idle, _LONGEST):.9g}", f"walltime = {min(spec.lifetime, _LONGEST):.9g}"]
    rests_on = "no pilot's wait is known"
    if waits:
        many = counted(len(waits), "pilot")
        rests_on = f"the median of {many} is {median(waits):.0f} s, with the start-up of their executors"
    return f"queue = {{{', '.join(said)}}}    # {rests_on}"


def _link_lines(site: str, found: MeasuredSites) -> list[str]:
    lines = []
    for key, links in (("uplink", found.from_home), ("nic", found.from_peers)):
        link = links.get(site)
        if link is not None:
            lines.append(
                f"{key} = {{bandwidth = {round(link.rate)}}}"
                f"    # {show_bytes(round(link.rate))}/s by {link.transfers} transfers"
            )
    return lines
