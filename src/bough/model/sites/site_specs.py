"""Where executors come from: the definition of a site, and the states of a pilot with their edges.

A site needs no definition if people start its executors themselves. Rule: bounds are in the types, so that a definition
from a file, a command or a journal is held against the same ones.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Final, NewType

import msgspec
from msgspec import Meta

from bough.model.bounds import NO_NUL, Count, Duration
from bough.model.ids import Seconds
from bough.model.texts.plurals import counted

PilotId = NewType("PilotId", Count)
# what ssh takes as a destination: no option, no space
Destination = Annotated[str, Meta(max_length=512, pattern=r"^(?!-)[^\s\0]*\Z")]
Setup = Annotated[str, Meta(max_length=65_536, pattern=NO_NUL)]
Place = Annotated[str, Meta(max_length=4096, pattern=r"^[^\0\n]*\Z")]
Handle = Annotated[str, Meta(max_length=4096, pattern=NO_NUL)]
DefinedName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]  # it becomes part of paths
# where a relay listens: HOST or HOST:PORT
ListenAddress = Annotated[str, Meta(max_length=256, pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]*)(:\d{1,5})?\Z")]
MostPilots = Annotated[int, Meta(ge=1, le=100_000)]
FewestPilots = Annotated[int, Meta(ge=0, le=100_000)]
CoreHours = Annotated[float, Meta(ge=0, le=1e12)]
Cores = Annotated[float, Meta(ge=0, le=1e6)]
# what becomes a directive of a batch system: no quote, no space, nothing that a shell reads
Directive = Annotated[str, Meta(max_length=256, pattern=r"^[A-Za-z0-9_@%+=:,./-]*\Z")]
OptionName = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}\Z")]
BatchOptions = Annotated[dict[OptionName, Directive], Meta(max_length=64)]
Patience = Annotated[float, Meta(ge=0.1, le=3600)]
SubmitRate = Annotated[float, Meta(gt=0, le=1e6)]
MostOut = Annotated[int, Meta(ge=0, le=1_000_000_000)]
MostTransfers = Annotated[int, Meta(ge=0, le=10_000)]
ExecutorsPerHost = Annotated[int, Meta(ge=1, le=1024)]
# a policy with its options: additive:release=queue,q=4
PolicyText = Annotated[str, Meta(max_length=200, pattern=r"^[A-Za-z0-9_.:=,-]*\Z")]
CachePolicy = Annotated[str, Meta(max_length=64, pattern=r"^[a-z-]*\Z")]
KindName = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z][a-z0-9_-]*\Z")]

IDLE: Final = 60.0  # seconds after which an executor of a pilot that has nothing to do leaves
_MARGIN: Final = 60.0
WALLTIME: Final = 3600.0  # seconds of a batch job
RESOURCE: Final = "site:"  # every executor of a pilot offers this with the name of its site behind it
PLENTY: Final = 1_000_000  # of it
BY_SSH: Final = "ssh"  # as the address of an executor for others: the one at which SSH reached its host


class SiteSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How pilots are started at a site, and how many there may be."""

    kind: KindName = "ssh"  # local: the server's own machine
    ssh: Destination = ""  # user@host, or a name of the user's SSH configuration
    batch: KindName = "none"
    cores_per_pilot: Cores = 0.0  # 0: all that the host has
    max_pilots: MostPilots = 1
    setup: Setup = ""  # shell text that runs there before the executor
    python: Place = ""  # there; empty: python3
    shared_dir: Place = ""  # a folder there, which its hosts share: executors work in it, and keep inputs for all
    idle: Duration = IDLE
    address: Destination = ""  # of a cluster of another engine, as that one writes it: tcp://127.0.0.1:8786
    container_command: Setup = ""  # how containers are run there, see `model.commands.containers`; empty: the usual way
    min_pilots: FewestPilots = 0  # that are kept, also while there is nothing to do
    budget: CoreHours = 0.0  # core-hours that its pilots may use in all; 0: no bound
    relay_address: ListenAddress = ""  # of the relay for compute nodes; empty: all addresses of the head node
    partition: Directive = ""  # of the batch system, which others call queue; empty: its default
    account: Directive = ""  # that pays
    walltime: Duration = 0.0  # that a pilot is asked for with, 0: `WALLTIME`
    batch_options: BatchOptions = {}  # other directives of the batch system by their long names
    patience: Patience = 30.0  # seconds that a command of the batch system may take
    submit_rate: SubmitRate = 5.0  # pilots that are submitted in a second at most
    cache_dir: Place = ""  # on each of its hosts: where the cache of its executors lies; empty: the usual place
    cache_size: Count = 0  # bytes of that cache; 0: the usual bound
    eviction: CachePolicy = ""  # what a full cache gives up first; empty: the usual policy
    peers: bool = True  # its executors serve cached files to others
    shared_size: Count = 0  # bytes of the inputs kept in `shared_dir`; 0: the usual bound
    poll: Duration = 0.0  # seconds between two looks at pilots that have brought no executor, 0: as its kind is
    max_tasks: MostOut = 0  # that its executors have at once, begun or not; 0: no bound
    executors_per_host: ExecutorsPerHost = 1  # that a pilot starts; they share its cores
    provisioning: PolicyText = ""  # the policy that says how many pilots there are; empty: the server's
    max_transfers: MostTransfers = 0  # contents that go at a time between it and another site; 0: the usual bound
    resubmit: bool = False  # a pilot whose time ends has its successor in the queue before, while there is work

    @property
    def lifetime(self) -> Seconds:
        """Seconds that a pilot has; 0: no end."""
        return 0.0 if self.batch == "none" else self.walltime or WALLTIME

    @property
    def where(self) -> str:
        """The place, for people."""
        return self.ssh or "this machine"


class PilotState(enum.StrEnum):
    """Where a pilot is in its life."""

    ASKED = "asked"  # decided, and perhaps not known to the site
    QUEUED = "queued"  # the site has taken it; no executor of it has joined
    RUNNING = "running"  # an executor of it has joined
    ENDED = "ended"


class PilotTrigger(enum.StrEnum):
    """What moves a pilot from one state to another."""

    TAKE = "take"
    JOIN = "join"
    END = "end"


_S, _T = PilotState, PilotTrigger

PILOT_EDGES: Final[Mapping[tuple[PilotState, PilotTrigger], PilotState]] = {
    (_S.ASKED, _T.TAKE): _S.QUEUED,  # the site said its handle
    (_S.ASKED, _T.JOIN): _S.RUNNING,  # its executor was faster than that answer
    (_S.ASKED, _T.END): _S.ENDED,  # refused, or cancelled before
    (_S.QUEUED, _T.JOIN): _S.RUNNING,
    (_S.QUEUED, _T.END): _S.ENDED,  # cancelled, or it failed to start
    (_S.RUNNING, _T.TAKE): _S.RUNNING,  # that answer, later
    (_S.RUNNING, _T.JOIN): _S.RUNNING,  # another executor of it
    (_S.RUNNING, _T.END): _S.ENDED,
}


def pilot_cores(spec: SiteSpec, of_one: float) -> float:
    """The cores of a pilot, if each of its executors has so many; 0: not known."""
    if spec.executors_per_host > 1:
        return spec.cores_per_pilot or of_one * spec.executors_per_host
    return of_one or spec.cores_per_pilot


def drains_before(lifetime: Seconds) -> Seconds:
    """Seconds before its end in which an executor begins nothing more, if it has so many in all."""
    return min(_MARGIN, 0.1 * lifetime)


def cache_words(spec: SiteSpec) -> list[str]:
    """What the executors of a site are told of their hosts' caches, as words of their command line."""
    words = ["--cache-dir", spec.cache_dir] if spec.cache_dir else []
    words += ["--cache-size", str(spec.cache_size)] if spec.cache_size else []
    words += ["--eviction", spec.eviction] if spec.eviction else []
    words += ["--shared-dir", spec.shared_dir] if spec.shared_dir else []
    words += ["--shared-size", str(spec.shared_size)] if spec.shared_dir and spec.shared_size else []
    return words + ([] if spec.peers else ["--peers", "no"])


def least_pilots(spec: SiteSpec) -> int:
    """How many pilots are kept at a site: never more than there may be."""
    return min(spec.min_pilots, spec.max_pilots)


def describe_spec(spec: SiteSpec) -> str:
    """A definition as people read it: ssh user@host, up to 2 pilots of 4 cores."""
    pilots = "1 pilot" if spec.max_pilots == 1 else f"up to {spec.max_pilots} pilots"
    cores = counted(spec.cores_per_pilot, "core") if spec.cores_per_pilot else "all cores"
    budget = f", {spec.budget:g} core-hours in all" if spec.budget else ""
    if spec.batch == "none":
        return f"{spec.kind} {spec.ssh or spec.address}".rstrip() + f", {pilots} of {cores}{budget}"
    place = f"{spec.batch} on {spec.where}" + (f", partition {spec.partition}" if spec.partition else "")
    return f"{place}, {pilots} of {cores if spec.cores_per_pilot else 'a whole node'} for {spec.lifetime:g} s{budget}"
