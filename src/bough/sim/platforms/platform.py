"""Platforms: the sites, hosts and links that a simulation runs on, as a TOML file says them.

    [site.lab]
    hosts = 4
    cores = 8
    speed = [0.8, 1.2]      # of each host, drawn evenly from this interval; or one number
    memory = "64GB"         # not said: it never runs short
    attributes = {os = "linux", cpu = ["avx2"]}         # what tasks may require, besides cores, memory_gb, site, host
    cache = "50GB"          # what a host keeps of files that tasks read and write; 0: nothing; not said: all
    eviction = "lru"        # what a full cache gives up first: the policies of the live executors
    store = "host"          # each host has its cache; or site: the hosts of the site share one
    disk_read = "400MB/s"   # of that cache; not said: it takes no time
    disk_write = "400MB/s"
    nic = {bandwidth = "1Gbit/s"}                       # of each host
    uplink = {bandwidth = "100Mbit/s", latency = 0.05}  # of the site to all others, and home
    availability = {mean = 0.7, deviation = 0.2}        # of each host over time, see `availability_traces`
    queue = {wait = 120, deviation = 60, startup = 5, idle = 60}    # hosts come by pilots, when there is work for them
                            # `waits = [90, 240]`: what requests waited, one after the other; `log`: those of a file

What a platform says of the link of home, and of transfers, is in `sim.platforms.link_specs`.
Speeds are relative to the machine on which the times of the workload were measured. They are drawn once for each seed,
so that all policies are compared on the same hosts. Rule: an unknown key, or a number out of bounds, is the user's
error, and the message says where it stands.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from math import inf
from random import Random
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bough.errors import UnknownName, UserError
from bough.model.bounds import SiteName, in_plain_words
from bough.model.ids import read_bytes
from bough.model.sites.requirements import AttributeName, AttributeValue
from bough.model.sites.resources import Needs
from bough.policies.eviction.eviction_names import EVICTION, load_eviction
from bough.sim.platforms.availability_traces import TraceSpec
from bough.sim.platforms.link_specs import Amount, LinkSpec, TransferRules, read_rate
from bough.sim.platforms.simulated_executor import UNSAID_MEMORY, Node, SimulatedExecutor

Speed = Annotated[float, Meta(gt=0, le=1e6)]
SpeedRange = Annotated[list[Speed], Meta(min_length=2, max_length=2)]  # a tuple of two in a union ends msgspec 0.22
_MOST_HOSTS = 1_000_000


class QueueSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch queue before a site: what a request waits in the mean, or as in a log, and when an idle host leaves."""

    wait: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    deviation: Annotated[float, Meta(ge=0, le=1e9)] = 0.0  # 0: every request waits as long
    startup: Annotated[float, Meta(ge=0, le=1e6)] = 0.0  # from the start of a job to its executor
    idle: Annotated[float, Meta(gt=0, le=1e9)] = 60.0
    walltime: Annotated[float, Meta(ge=0, le=1e9)] = 0.0  # after which a host ends; 0: never
    log: Annotated[str, Meta(max_length=4096)] = (
        ""  # a file in the Standard Workload Format: see `batch_waits.with_logs`
    )
    waits: Annotated[list[Annotated[float, Meta(ge=0, le=1e9)]], Meta(max_length=10_000_000)] = []  # those of the log


class SitePlatform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hosts of one site, all alike but for their speeds."""

    hosts: Annotated[int, Meta(ge=1, le=_MOST_HOSTS)] = 1
    cores: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    speed: Speed | SpeedRange = 1.0
    memory: str | Annotated[int, Meta(ge=0, le=1 << 62)] = 0
    cache: Amount | None = None
    eviction: str = EVICTION
    store: Literal["host", "site"] = "host"
    disk_read: Amount = 0.0
    disk_write: Amount = 0.0
    nic: LinkSpec | None = None
    uplink: LinkSpec | None = None
    lifetime: Annotated[float, Meta(ge=0, le=1e12)] = 0.0  # mean seconds until a host fails for good; 0: none does
    leaves: Annotated[float, Meta(ge=0, le=1e12)] = 0.0  # when the site leaves with all its hosts; 0: it stays
    returns: Annotated[float, Meta(ge=0, le=1e12)] = 0.0  # when it is back, with empty caches; 0: never
    availability: TraceSpec | None = None  # of its hosts, each with a trace of its own
    queue: QueueSpec | None = None  # its hosts come by pilots; None: they are there
    attributes: Annotated[dict[AttributeName, AttributeValue], Meta(max_length=100)] = {}  # for requirements of tasks

    def draw_speed(self, dice: Random) -> float:
        """The speed of one host."""
        return dice.uniform(*self.speed) if isinstance(self.speed, list) else self.speed

    @property
    def memory_bytes(self) -> int:
        """What one host has; 0: not said."""
        return read_bytes(self.memory)

    @property
    def cache_bytes(self) -> float:
        """What one cache holds at most."""
        return inf if self.cache is None else read_bytes(self.cache)


class Platform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All sites."""

    site: Annotated[dict[SiteName, SitePlatform], Meta(min_length=1, max_length=10_000)]
    home: LinkSpec | None = None
    transfers: TransferRules = TransferRules()

    @property
    def cores(self) -> float:
        """Of all hosts."""
        return sum(site.hosts * site.cores for site in self.site.values())

    def scaled(self, *, hosts: float = 1.0, link: float = 1.0) -> Platform:
        """The same with times as many hosts at each site, and links times as fast; disks are as they were."""

        def faster(spec: LinkSpec | None) -> LinkSpec | None:
            return spec.scaled(link) if spec is not None and link != 1 else spec

        sites = {
            name: msgspec.structs.replace(
                site,
                hosts=min(_MOST_HOSTS, max(1, round(site.hosts * hosts))),
                nic=faster(site.nic),
                uplink=faster(site.uplink),
            )
            for name, site in self.site.items()
        }
        return msgspec.structs.replace(self, site=sites, home=faster(self.home))

    def nodes(self, name: str, seed: int) -> list[Node]:
        """The hosts behind the queue of a site, as they belong to a seed; nothing: they are all of speed 1."""
        site = self.site[name]
        if site.speed == 1.0 and not (site.memory_bytes or site.attributes) and site.availability is None:
            return []
        dice, traces = Random(f"nodes {name} {seed}"), site.availability
        return [
            Node(
                site.draw_speed(dice),
                site.memory_bytes,
                traces.make(Random(f"availability {seed} {name} {number}")) if traces is not None else None,
                tuple(site.attributes.items()),
            )
            for number in range(1, site.hosts + 1)
        ]

    def executors(self, seed: int) -> Iterator[SimulatedExecutor]:
        """An executor for each host, with the speeds that belong to a seed."""
        dice = Random(f"platform {seed}")
        number = 0
        for name, site in self.site.items():
            if site.queue is not None:
                continue  # its hosts come by pilots
            capacity = Needs(cores=site.cores, memory=site.memory_bytes or UNSAID_MEMORY)
            for index in range(1, site.hosts + 1):
                number += 1
                made = SimulatedExecutor(number, capacity, site.draw_speed(dice), f"{name}{index}", name)
                made.attributes = tuple(site.attributes.items())
                if site.availability is not None:
                    made.availability = site.availability.make(Random(f"availability {seed} {number}"))
                yield made


def read_platform(text: str, where: str = "the platform") -> Platform:
    """The platform that a TOML text describes."""
    try:
        platform = msgspec.convert(tomllib.loads(text), Platform)
        for name, site in platform.site.items():
            _check(site, name)
        if platform.home is not None:
            _check_link(platform.home, "home")
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{where}: this is no TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {in_plain_words(str(error))}") from None
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    return platform


def one_site(hosts: int = 1, cores: float = 1.0, speed: float | list[float] = 1.0) -> Platform:
    """A platform without a file: one site."""
    return Platform({"site": SitePlatform(hosts, cores, speed)})


def _check(site: SitePlatform, name: str) -> None:
    if not 0 <= site.memory_bytes < 1 << 62:
        raise ValueError(f"site {name}: memory {site.memory!r} is out of bounds")
    if isinstance(site.speed, list) and site.speed[0] > site.speed[1]:
        raise ValueError(f"site {name}: speed = [low, high], and {site.speed[0]:g} is above {site.speed[1]:g}")
    if not 0 <= site.cache_bytes < 1 << 62 and site.cache is not None:
        raise ValueError(f"site {name}: a cache of {site.cache!r} is out of bounds")
    _check_coming(site, name)
    try:
        load_eviction(site.eviction)
    except UnknownName as error:
        raise ValueError(f"site {name}: {error}") from None
    for rate in (site.disk_read, site.disk_write):
        read_rate(rate)
    for link, what in ((site.nic, "nic"), (site.uplink, "uplink")):
        if link is not None:
            _check_link(link, f"site {name}: {what}")


def _check_coming(site: SitePlatform, name: str) -> None:
    """Whether what is said of hosts that come and go fits together."""
    if site.queue is not None and (site.lifetime or site.leaves):
        raise ValueError(
            f"site {name}: lifetime and leaves are of hosts that are there from the start; this one has a queue"
        )
    if site.returns and not 0 < site.leaves < site.returns:
        raise ValueError(f"site {name}: returns = {site.returns:g} is not after leaves = {site.leaves:g}")


def _check_link(link: LinkSpec, what: str) -> None:
    if not read_rate(link.bandwidth) > 0:
        raise ValueError(f"{what}: a bandwidth of {link.bandwidth!r} is none; give a positive one")
