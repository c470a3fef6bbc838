"""Platforms: the sites, hosts and links that a simulation runs on, as a TOML file says them.

    [site.lab]
    hosts = 4
    cores = 8
    speed = [0.8, 1.2]      # of each host, drawn evenly from this interval; other ways to say it are in `speeds`
    memory = "64GB"         # not said: it never runs short
    attributes = {os = "linux", cpu = ["avx2"]}         # what tasks may require, besides cores, memory_gb, site, host
    gpus = 2                # and amounts of other resources: resources = {license = 3}
    cache = "50GB"          # what a host keeps of files that tasks read and write; 0: nothing; not said: all
    eviction = "lru"        # what a full cache gives up first: the policies of the live executors
    store = "host"          # each host has its cache; or site: the hosts of the site share one
    disk_read = "400MB/s"   # of that cache; not said: it takes no time
    disk_write = "400MB/s"
    nic = {bandwidth = "1Gbit/s"}                       # of each host
    uplink = {bandwidth = "100Mbit/s", latency = 0.05}  # of the site to all others, and home
    availability = {mean = 0.7, deviation = 0.2}        # of each host over time, see `availability_traces`; also a list
    queue = {wait = 120, deviation = 60, startup = 5, idle = 60}    # hosts come by pilots, when there is work for them
                            # `waits = [90, 240]`: what requests waited, one after the other; `log`: those of a file
    lifetime = 50000        # mean seconds until a host fails
    repair = 3600           # mean seconds until it is back, with an empty cache; 0: it fails for good
    leaves = [3600, 9000]   # when the site leaves with all its hosts; one number, or several
    returns = [7200]        # when it is back, with empty caches; the last time it need not be

    [queue.sweeps]          # a named queue of the server: what `bough queue add` says of one
    max_cores = 8
    share = 2

What a platform says of the link of home, and of transfers, is in `sim.platforms.link_specs`; of a dispatcher that
serves one caller at a time in `dispatcher_spec`. Files that it names are
read by `platform_files`.
Speeds are relative to the machine on which the times of the workload were measured. They are drawn once for each seed,
so that all policies are compared on the same hosts. Rule: an unknown key, or a number out of bounds, is the user's
error, and the message says which key of which site.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from math import inf
from random import Random
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from bough.errors import BadValue, UnknownName, UserError, did_you_mean
from bough.model.bounds import QueueName, SiteName, in_plain_words, shown
from bough.model.ids import Seconds
from bough.model.sites.queue_specs import MOST_QUEUES, QueueSpec, check_queue
from bough.model.sites.requirements import AttributeName, AttributeValue
from bough.model.sites.resources import Needs
from bough.policies.eviction.eviction_names import EVICTION, load_eviction
from bough.sim.platforms.availability_traces import HOST, Trace, TraceSpec
from bough.sim.platforms.dispatcher_spec import DispatcherSpec
from bough.sim.platforms.link_specs import Amount, LinkSpec, TransferRules, read_amount, read_rate
from bough.sim.platforms.network import Network
from bough.sim.platforms.simulated_executor import UNSAID_MEMORY, Node, SimulatedExecutor
from bough.sim.platforms.speeds import Speed, SpeedSpec, draw_speed, wrong_with

Moment = Annotated[float, Meta(ge=0, le=1e12)]
Moments = Moment | Annotated[list[Moment], Meta(max_length=100_000)]
Amounts = Annotated[float, Meta(ge=0, le=1e9)]  # of a resource
Resource = Annotated[str, Meta(min_length=1, max_length=64)]
T = TypeVar("T")
_MOST_HOSTS = 1_000_000


class BatchQueueSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch queue before a site: what a request waits in the mean, or as in a log, and when an idle host leaves."""

    wait: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    deviation: Annotated[float, Meta(ge=0, le=1e9)] = 0.0  # 0: every request waits as long
    startup: Annotated[float, Meta(ge=0, le=1e6)] = 0.0  # from the start of a job to its executor
    idle: Annotated[float, Meta(ge=0, le=1e9)] = 60.0  # after which a host that has nothing to do leaves; 0: it stays
    walltime: Annotated[float, Meta(ge=0, le=1e9)] = 0.0  # after which a host ends; 0: never
    log: Annotated[str, Meta(max_length=4096)] = ""  # a file in the Standard Workload Format: see `platform_files`
    waits: Annotated[list[Annotated[float, Meta(ge=0, le=1e9)]], Meta(max_length=10_000_000)] = []  # those of the log


class SitePlatform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hosts of one site, all alike but for their speeds."""

    hosts: Annotated[int, Meta(ge=1, le=_MOST_HOSTS)] = 1
    cores: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    speed: SpeedSpec = 1.0
    memory: Amount = 0
    cache: Amount | None = None
    eviction: str = EVICTION
    store: Literal["host", "site"] = "host"
    disk_read: Amount = 0.0
    disk_write: Amount = 0.0
    nic: LinkSpec | None = None
    uplink: LinkSpec | None = None
    lifetime: Moment = 0.0  # mean seconds until a host fails; 0: none does
    leaves: Moments = 0.0  # when the site leaves with all its hosts; 0: it stays
    returns: Moments = 0.0  # when it is back, with empty caches; 0: never
    # of its hosts, each with a trace of its own; of several they take one after the other
    availability: TraceSpec | Annotated[list[TraceSpec], Meta(min_length=1, max_length=_MOST_HOSTS)] | None = None
    queue: BatchQueueSpec | None = None  # its hosts come by pilots; None: they are there
    attributes: Annotated[dict[AttributeName, AttributeValue], Meta(max_length=100)] = {}  # for requirements of tasks
    repair: Moment = 0.0  # mean seconds until a host that failed is back; 0: it is not
    speeds: Annotated[list[Speed], Meta(max_length=_MOST_HOSTS)] = []  # of each host, in the place of `speed`
    gpus: Amounts = 0.0
    resources: Annotated[dict[Resource, Amounts], Meta(max_length=100)] = {}  # others of a host, by name

    def host_speeds(self, dice: Random) -> list[float]:
        """The speed of each host."""
        return list(self.speeds) or [draw_speed(self.speed, dice) for _ in range(self.hosts)]

    def trace(self, number: int, dice: Random) -> Trace | None:
        """How much of a host there is over time; they are numbered from 1."""
        said = self.availability
        if isinstance(said, list):
            said = said[(number - 1) % len(said)]
        return said.make(dice) if said is not None else None

    @property
    def capacity(self) -> Needs:
        """What one host has; memory of which nothing is said never runs short."""
        memory = read_amount(self.memory) or UNSAID_MEMORY
        return Needs(self.cores, memory, self.gpus, tuple(sorted(self.resources.items())))

    @property
    def cache_bytes(self) -> float:
        """What one cache holds at most."""
        return inf if self.cache is None else read_amount(self.cache)

    @property
    def absences(self) -> list[tuple[Seconds, Seconds]]:
        """From when to when the site is away, one after the other; infinity: for good."""
        leaves, returns = _moments(self.leaves), _moments(self.returns)
        return [(gone, returns[at] if at < len(returns) else inf) for at, gone in enumerate(leaves)]


class Platform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All sites."""

    site: Annotated[dict[SiteName, SitePlatform], Meta(min_length=1, max_length=10_000)]
    home: LinkSpec | None = None
    transfers: TransferRules = TransferRules()
    queue: Annotated[dict[QueueName, QueueSpec], Meta(max_length=MOST_QUEUES)] = {}  # named queues, as of a server
    dispatcher: DispatcherSpec | None = None  # None: ours, which gives work to whoever has room

    @property
    def cores(self) -> float:
        """Of all hosts."""
        return sum(site.hosts * site.cores for site in self.site.values())

    @property
    def weighs_by_latency(self) -> bool:
        """Whether transfers share links by the latency of their routes, as TCP does; see `link_specs`."""
        if self.transfers.fairness is not None:
            return self.transfers.fairness == "rtt"
        links = [self.home, *(one for site in self.site.values() for one in (site.nic, site.uplink))]
        said = [link.latency for link in links if link is not None]
        return bool(said) and all(said)

    def network(self) -> Network:
        """Where its transfers share links."""
        return Network(weighted=self.weighs_by_latency)

    def scaled(self, *, hosts: float = 1.0, link: float = 1.0) -> Platform:
        """The same with times as many hosts at each site, and links times as fast; disks are as they were.

        Speeds that are said for each host are repeated.
        """

        def faster(spec: LinkSpec | None) -> LinkSpec | None:
            return spec.scaled(link) if spec is not None and link != 1 else spec

        def more(site: SitePlatform) -> SitePlatform:
            many = min(_MOST_HOSTS, max(1, round(site.hosts * hosts)))
            speeds = [site.speeds[at % len(site.speeds)] for at in range(many)] if site.speeds else []
            return msgspec.structs.replace(
                site, hosts=many, speeds=speeds, nic=faster(site.nic), uplink=faster(site.uplink)
            )

        sites = {name: more(site) for name, site in self.site.items()}
        return msgspec.structs.replace(self, site=sites, home=faster(self.home))

    def nodes(self, name: str, seed: int) -> list[Node]:
        """The hosts behind the queue of a site, as they belong to a seed; nothing: they are all of speed 1."""
        site = self.site[name]
        plain = site.speed == 1.0 and not (site.speeds or site.attributes)
        if plain and site.capacity == Needs(site.cores, UNSAID_MEMORY) and site.availability is None:
            return []
        dice, has, attributes = Random(f"nodes {name} {seed}"), site.capacity, tuple(site.attributes.items())
        return [
            Node(speed, has, site.trace(number, Random(f"availability {seed} {name} {number}")), attributes)
            for number, speed in enumerate(site.host_speeds(dice), 1)
        ]

    def executors(self, seed: int) -> Iterator[SimulatedExecutor]:
        """An executor for each host, with the speeds that belong to a seed."""
        dice = Random(f"platform {seed}")
        number = 0
        for name, site in self.site.items():
            if site.queue is not None:
                continue  # its hosts come by pilots
            capacity = site.capacity
            for index, speed in enumerate(site.host_speeds(dice), 1):
                number += 1
                made = SimulatedExecutor(number, capacity, speed, f"{name}{index}", name)
                made.attributes = tuple(site.attributes.items())
                made.availability = site.trace(index, Random(f"availability {seed} {number}"))
                yield made


def read_platform(text: str, where: str = "the platform") -> Platform:
    """The platform that a TOML text describes."""
    try:
        return _platform(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{where}: this is no TOML: {str(error)[:200]}") from None
    except (ValueError, UserError) as error:
        raise UserError(f"{where}: {error}") from None


def one_site(hosts: int = 1, cores: float = 1.0, speed: float | list[float] = 1.0) -> Platform:
    """A platform without a file: one site."""
    return Platform({"site": SitePlatform(hosts, cores, speed)})


def _platform(found: Mapping[str, Any]) -> Platform:
    """Each part by itself, so that what is wrong can be named."""
    for key in found:
        if key not in Platform.__struct_fields__:
            raise ValueError(_unknown_key(key, Platform))
    sites = found.get("site")
    if not isinstance(sites, dict) or not sites:
        raise ValueError("there is no site; a platform has at least one, such as [site.lab]")
    whole: dict[str, Any] = {
        "site": {name: _convert(site, SitePlatform, _called(name)) for name, site in sites.items()}
    }
    single: dict[str, type[msgspec.Struct]] = {
        "home": LinkSpec, "transfers": TransferRules, "dispatcher": DispatcherSpec
    }  # fmt: skip
    whole |= {key: _convert(found[key], kind, key) for key, kind in single.items() if key in found}
    whole["queue"] = _named_queues(found.get("queue", {}))
    try:
        platform = msgspec.convert(whole, Platform)
    except msgspec.ValidationError as error:  # too many sites, or one of a strange name
        raise ValueError(in_plain_words(str(error))) from None
    for name, site in platform.site.items():
        _check(site, _called(name))
    if platform.home is not None:
        _check_link(platform.home, "home")
    if platform.dispatcher is not None and (wrong := platform.dispatcher.problem()):
        raise ValueError(f"dispatcher: {wrong}")
    return platform


def _named_queues(found: object) -> dict[str, QueueSpec]:
    if not isinstance(found, dict):
        raise UserError("queue is a table of named queues, such as [queue.night]; that of a site is queue of the site")
    made = {}
    for name, said in found.items():
        try:
            made[name] = check_queue(_convert(said, QueueSpec, _called(name, "queue")))
        except BadValue as error:
            raise ValueError(f"{_called(name, 'queue')}: {error}") from None
    return made


def _called(name: str, what: str = "site") -> str:
    """A site or a queue as messages name it."""
    return f"{what} {name if name.isprintable() and len(name) <= 80 else shown(name)}"


def _convert(value: object, kind: type[T], what: str) -> T:
    """A part of a platform; ValueError names it, the key and what is expected."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        place = place.rstrip("`").lstrip(".").replace("[...]", "")
        inner, given = _struct_at(kind, value, place)
        if isinstance(given, dict) and inner is not None:
            strange = [key for key in given if key not in inner.__struct_fields__]
            if strange and "unknown field" in reason:
                raise ValueError(f"{what}: {f'{place}: ' if place else ''}{_unknown_key(strange[0], inner)}") from None
        if place == "speed" and isinstance(given, list) and len(given) != 2:
            reason = "it is [low, high]; for one of each host say speeds"
        said = f"{place} = {shown(given)}: " if place else ""
        raise ValueError(f"{what}: {said}{in_plain_words(reason).replace('object', 'a table')}") from None


def _struct_at(kind: type[Any], value: Any, place: str) -> tuple[type[Any] | None, Any]:
    """The struct at a place of a value such as uplink.availability, if one is expected there, and what is given."""
    found: type[Any] | None = kind
    for word in re.sub(r"\[[^]]*\]", "", place).split(".") if place else ():
        value = value.get(word) if isinstance(value, dict) else None
        hints = {field.name: field.type for field in msgspec.structs.fields(found)} if found is not None else {}
        kinds = getattr(hints.get(word), "__args__", (hints.get(word),))
        found = next((one for one in kinds if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)
    return found, value


def _unknown_key(key: str, kind: type[Any]) -> str:
    known = kind.__struct_fields__
    return f"there is no key {shown(key)}{did_you_mean(key, known) or '; there are ' + ', '.join(known)}"


def _moments(said: float | list[float]) -> list[Seconds]:
    return said if isinstance(said, list) else [said] if said else []


def _check(site: SitePlatform, what: str) -> None:
    for key, read in (
        ("memory", read_amount), ("cache", read_amount), ("disk_read", read_rate), ("disk_write", read_rate),
    ):  # fmt: skip
        if (said := getattr(site, key)) is not None:
            try:
                read(said)
            except ValueError as error:
                raise ValueError(f"{what}: {key}: {error}") from None
    if wrong := wrong_with(site.speed):
        raise ValueError(f"{what}: {wrong}")
    if site.speeds and len(site.speeds) != site.hosts:
        raise ValueError(f"{what}: speeds has {len(site.speeds)} numbers, and hosts = {site.hosts}: give one for each")
    if site.speeds and site.speed != 1.0:
        raise ValueError(f"{what}: speed and speeds exclude each other; give one")
    _check_coming(site, what)
    try:
        load_eviction(site.eviction)
    except UnknownName as error:
        raise ValueError(f"{what}: {error}") from None
    for link, key in ((site.nic, "nic"), (site.uplink, "uplink")):
        if link is not None:
            _check_link(link, f"{what}: {key}")
    _check_traces(site, what)


def _check_coming(site: SitePlatform, what: str) -> None:
    """Whether what is said of hosts that come and go fits together."""
    if site.repair and not site.lifetime:
        raise ValueError(f"{what}: repair is of hosts that fail; say lifetime, too")
    if site.repair and site.queue is not None:
        raise ValueError(f"{what}: repair is of hosts that are there from the start; here another pilot is asked for")
    leaves, returns = _moments(site.leaves), _moments(site.returns)
    if not len(leaves) - 1 <= len(returns) <= len(leaves):
        raise ValueError(
            f"{what}: it leaves {len(leaves)} times and returns {len(returns)}; it returns after each but the last"
        )
    before = 0.0
    for gone, back in site.absences:
        if not gone > before or not back > gone:
            raise ValueError(
                f"{what}: leaves = {shown(site.leaves)}, returns = {shown(site.returns)}: say times that grow in turn"
            )
        before = back


def _check_link(link: LinkSpec, what: str) -> None:
    try:
        rate = read_rate(link.bandwidth)
    except ValueError as error:
        raise ValueError(f"{what}: bandwidth: {error}") from None
    if not rate > 0:
        raise ValueError(f"{what}: a bandwidth of {link.bandwidth!r} is none; give a positive one")
    _check_trace(link.availability, what)


def _check_traces(site: SitePlatform, what: str) -> None:
    traces = site.availability if isinstance(site.availability, list) else [site.availability]
    for trace in traces:
        _check_trace(trace, what)
        if site.queue is not None and trace is not None and HOST in trace.file:
            raise ValueError(f"{what}: availability: hosts behind a queue have no names; give a list of traces")


def _check_trace(trace: TraceSpec | None, what: str) -> None:
    if trace is not None and (wrong := trace.problem()):
        raise ValueError(f"{what}: availability: {wrong}")
