"""Policies by name: our own and those that other packages offer as entry points.

A family of policies is a table of our own ones and an entry point group, such as `bough.placement`.
Rule: a name is looked up once, when a run is opened; an unknown name is the user's error, and the message lists the
known ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from bough.errors import UnknownName, UserError, did_you_mean
from bough.model.bounds import IN_SECONDS, Duration, Factor, in_plain_words, within
from bough.model.ids import read_seconds
from bough.policies.placement.fifo import Fifo
from bough.policies.placement.sjf import ShortestFirst
from bough.policies.population.first_answer import FirstAnswer
from bough.policies.population.halving import Halving
from bough.policies.population.median import Median
from bough.policies.provisioning.adaptive import Adaptive
from bough.policies.provisioning.additive import Additive
from bough.policies.provisioning.all_at_once import AllAtOnce
from bough.policies.provisioning.available import Available
from bough.policies.provisioning.exponential import Exponential
from bough.policies.provisioning.one_at_a_time import OneAtATime
from bough.policies.provisioning.release_by_queue import ReleaseByQueue
from bough.policies.provisioning.release_grouped import ReleaseGrouped
from bough.policies.provisioning.static import Static
from bough.policies.replication.affinity_replication import AffinityReplication
from bough.policies.replication.careful_tail import CarefulTail
from bough.policies.replication.tail import Tail
from bough.policies.replication.wqr import Wqr
from bough.policy.interface import (
    MOST_REPLICAS,
    PlacementPolicy,
    Policies,
    PopulationPolicy,
    ProvisioningPolicy,
    ReplicationPolicy,
)
from bough.policy.shortage import Acquisition, Provisioner, ReleasePolicy

PolicyT = TypeVar("PolicyT")

_PLACEMENT: dict[str, type[PlacementPolicy]] = {"fifo": Fifo, "sjf": ShortestFirst}
# the others by module and class: most runs load none of them
_MORE_PLACEMENT: Final[dict[str, tuple[str, str]]] = {
    "first-available": ("data_aware.first_available", "FirstAvailable"),
    "first-cache-available": ("data_aware.first_cache_available", "FirstCacheAvailable"),
    "max-cache-hit": ("data_aware.max_cache_hit", "MaxCacheHit"),
    "max-compute-util": ("data_aware.max_compute_util", "MaxComputeUtil"),
    "bough": ("data_aware.bough", "Bough"),
    "data-conscious": ("data_aware.data_conscious", "DataConscious"),
    "storage-affinity": ("data_aware.storage_affinity", "StorageAffinity"),
    "critical-path": ("heuristics.critical_path", "CriticalPath"),
    "data-only": ("heuristics.data_only", "DataOnly"),
    "fpltf": ("heuristics.fpltf", "FastestProcessorLargestTaskFirst"),
    "heft": ("heuristics.heft", "Heft"),
    "ljf": ("heuristics.ljf", "LongestFirst"),
    "max-min": ("heuristics.max_min", "MaxMin"),
    "mct": ("heuristics.mct", "MinimumCompletionTime"),
    "min-min": ("heuristics.min_min", "MinMin"),
    "olb": ("heuristics.olb", "OpportunisticLoadBalancing"),
    "random": ("heuristics.random_placement", "RandomPlacement"),
    "sufferage": ("heuristics.sufferage", "Sufferage"),
    "workqueue": ("heuristics.workqueue", "Workqueue"),
    "wqr": ("heuristics.replicated_workqueue", "ReplicatedWorkqueue"),
    "xsufferage": ("heuristics.xsufferage", "XSufferage"),
    "good-cache-compute": ("data_aware.good_cache_compute", "GoodCacheCompute"),
}


_POPULATION: dict[str, type[PopulationPolicy]] = {"halving": Halving, "median": Median, "first-answer": FirstAnswer}
_ACQUISITION: dict[str, Callable[[], Acquisition]] = {
    "all-at-once": AllAtOnce,
    "one-at-a-time": OneAtATime,
    "additive": Additive,
    "exponential": Exponential,
    "available": Available,
}
_PROVISIONING: dict[str, Callable[[], ProvisioningPolicy]] = {
    "adaptive": Adaptive,
    "static": Static,
    **{name: lambda make=make: Provisioner(make()) for name, make in _ACQUISITION.items()},  # type: ignore[misc]
}
_REPLICATION: dict[str, Callable[..., ReplicationPolicy]] = {
    "wqr": Wqr,
    "storage-affinity": AffinityReplication,
    "tail": Tail,
    "careful-tail": CarefulTail,
}
NO_REPLICATION: Final = "none"
USUAL: Final = ""  # the replication that the placement policy comes with: of most policies none
_Replicas = Annotated[int, Meta(ge=1, le=MOST_REPLICAS)]
_YES_OR_NO: Final = {"yes": True, "no": False}
_REPLICATION_OPTIONS: Final = "cap=N, age=TIME, of tails factor=X, and of wqr reuse=yes|no, as in wqr:cap=2,age=30s"
PROVISIONING: Final = "adaptive"  # unless another one is named
PLACEMENT: Final = "bough"  # of a service, unless another one is named; without declared files it is the same as `fifo`
_OPTIONS: Final = "release=idle, release=queue[,q=N] or release=grouped[,idle=TIME]"


def load_policies(
    placement: str,
    provisioning: str = PROVISIONING,
    max_pilots: int = 0,
    max_tasks: int = 0,
    replication: str = USUAL,
) -> Policies:
    """The policies of a run, one a family, by their names; rules about populations name theirs when they are set."""
    placing = load_placement(placement)
    return Policies(
        placement=placing,
        population=find_population_policy,
        provisioning=load_provisioning(provisioning),
        max_pilots=max_pilots,
        max_tasks=max_tasks,
        provisioning_named=find_provisioning,
        replication=load_replication(replication or _own_replication(placing)),
    )


def replication_of(placement: str, replication: str = USUAL) -> str:
    """The name of the replication policy that a run has: the one that was named, or that of its placement policy."""
    return replication or _own_replication(load_placement(placement))


def _own_replication(placement: PlacementPolicy) -> str:
    return str(getattr(placement, "own_replication", NO_REPLICATION))


@functools.cache
def find_provisioning(text: str) -> ProvisioningPolicy | None:
    """The provisioning policy that a site names; None: there is no such one."""
    try:
        return load_provisioning(text)
    except UserError:
        return None


def load_replication(text: str) -> ReplicationPolicy | None:
    """A replication policy by its name and options: wqr:cap=2,age=30s; None: no task runs twice at the same time."""
    if text == NO_REPLICATION:
        return None
    name, colon, rest = text.partition(":")
    own = _REPLICATION.get(name)
    if own is None and colon:
        raise UserError(f"the replication policy {text!r} has no options; those that have: {', '.join(_REPLICATION)}")
    if own is None:
        return _load("replication", {**_REPLICATION, NO_REPLICATION: Wqr}, name)  # the latter is only named
    options = _split_options(text, rest) if colon else {}
    read: dict[str, Any] = {}
    try:
        if "cap" in options:
            read["cap"] = within("cap", int(options.pop("cap")), _Replicas)
        if "age" in options:
            read["age"] = within("age", read_seconds(options.pop("age")), Duration)
        if "factor" in options and own in {Tail, CarefulTail}:
            read["factor"] = within("factor", float(options.pop("factor")), Factor)
        if options.get("reuse") in _YES_OR_NO and own is Wqr:
            read["reuse"] = _YES_OR_NO[options.pop("reuse")]
    except (ValueError, UserError):
        raise UserError(f"the replication policy {text!r} is not understood; say {_REPLICATION_OPTIONS}") from None
    if options:
        raise UserError(f"the replication policy {text!r} is not understood; say {_REPLICATION_OPTIONS}")
    return own(**read)


def load_placement(text: str) -> PlacementPolicy:
    """A placement policy by its name; some have options: good-cache-compute:threshold=0.8,by=bytes."""
    name, colon, rest = text.partition(":")
    kind = _placement_class(name)
    if kind is None:
        policy: PlacementPolicy = _load("placement", _placement_table(), name)
        if colon:
            raise UserError(f"the placement policy {name} has no options")
        return policy
    fields = getattr(kind, "__struct_fields__", ())
    options = _split_options(text, rest) if colon else {}
    unknown = [option for option in options if option not in fields]
    if unknown:
        known = f"its options are: {', '.join(fields)}" if fields else "it has none"
        raise UserError(f"the placement policy {name} has no option {unknown[0]!r}; {known}")
    hints = get_type_hints(kind, include_extras=True) if options else {}
    return kind(**{option: _read_option(text, option, said, hints[option]) for option, said in options.items()})


def _split_options(text: str, rest: str) -> dict[str, str]:
    """What a policy's options are said to be, by name."""
    options: dict[str, str] = {}
    for one in rest.split(","):
        option, _, said = one.partition("=")
        if option in options:
            raise UserError(f"the policy {text!r} has the option {option!r} twice")
        options[option] = said
    return options


def _read_option(text: str, option: str, said: str, hint: Any) -> object:
    """The value of an option of a placement policy: a time, one of some words, or a number."""
    where = f"the placement policy {text!r}: {option}"
    if get_origin(hint) is Literal:
        words = get_args(hint)
        for word in (said, said.replace("_", "-")):  # the papers' names have underscores
            if word in words:
                return word
        raise UserError(f"{where} is {said!r}; it must be {', '.join(words[:-1])} or {words[-1]}")
    is_time = hint == Duration or IN_SECONDS in getattr(hint, "__metadata__", ())
    try:
        return msgspec.convert(read_seconds(said) if is_time else said, hint, strict=False)
    except msgspec.ValidationError as error:
        raise UserError(f"{where} is {said!r}; {in_plain_words(str(error)).removesuffix(', got str')}") from None
    except ValueError:
        raise UserError(f"{where} is {said!r}; it must be a time, as 30s or 5m") from None


def is_same_placement(one: str, other: str) -> bool:
    """Whether two texts name the same placement policy, also if they write its options in other ways.

    UnknownName if there is none by the first name. No code of other packages is loaded to find that out.
    """
    if one == other:
        return True
    if one.partition(":")[0] != other.partition(":")[0]:
        _find("placement", _placement_table(), one.partition(":")[0])
        return False
    return load_placement(one) == load_placement(other)


def replication_names() -> list[str]:
    """The names of our own replication policies."""
    return sorted(_REPLICATION)


def placement_names() -> list[str]:
    """The names of our own placement policies."""
    return sorted([*_PLACEMENT, *_MORE_PLACEMENT])


def _placement_table() -> dict[str, Callable[[], PlacementPolicy]]:
    """Our own by name, for messages; those of `_MORE_PLACEMENT` are only named."""
    return {**_PLACEMENT, **dict.fromkeys(_MORE_PLACEMENT, Fifo)}


def _placement_class(name: str) -> type[PlacementPolicy] | None:
    if name in _MORE_PLACEMENT:
        module, kind = _MORE_PLACEMENT[name]
        found: type[PlacementPolicy] = getattr(import_module(f"bough.policies.placement.{module}"), kind)
        return found
    return _PLACEMENT.get(name)


def load_provisioning(text: str) -> ProvisioningPolicy:
    """A provisioning policy by its name; Falkon's have options: additive:release=queue,q=4."""
    name, colon, rest = text.partition(":")
    if not colon:
        return _load("provisioning", _PROVISIONING, name)
    if name not in _ACQUISITION:
        _load("provisioning", _PROVISIONING, name)
        raise UserError(f"the provisioning policy {name} has no options; those of Falkon have: {_OPTIONS}")
    options = _split_options(text, rest)
    return Provisioner(_ACQUISITION[name](), _read_release(text, options))


def _read_release(text: str, options: dict[str, str]) -> ReleasePolicy | None:
    release = options.pop("release", "")
    try:
        if release == "queue":
            made: ReleasePolicy | None = ReleaseByQueue(max(1, int(options.pop("q", "1"))))
        elif release == "grouped":
            made = ReleaseGrouped(read_seconds(options.pop("idle", "60s")))
        elif release == "idle":
            made = None
        else:
            raise ValueError
    except ValueError:
        raise UserError(f"the provisioning policy {text!r} is not understood; say {_OPTIONS}") from None
    if options:
        raise UserError(f"the provisioning policy {text!r} has options that mean nothing there; say {_OPTIONS}")
    return made


@functools.cache
def find_population_policy(name: str) -> PopulationPolicy | None:
    """The policy of a rule about a population; None: there is no such one."""
    try:
        return _load("population", _POPULATION, name)
    except UnknownName:
        return None


def check_population_policy(name: str) -> None:
    """Raise `UnknownName` with the known names, if there is no such policy."""
    _load("population", _POPULATION, name)


def _load(family: str, own: Mapping[str, Callable[[], PolicyT]], name: str) -> PolicyT:
    """A policy of a family by its name."""
    return _find(family, own, name)()


def _find(family: str, own: Mapping[str, Callable[[], PolicyT]], name: str) -> Callable[[], PolicyT]:
    """What makes a policy of a family, by its name."""
    if name in own:  # looking up entry points costs tens of milliseconds: not for our own
        return own[name]
    from importlib.metadata import entry_points

    offered = {point.name: point for point in entry_points(group=f"bough.{family}")}
    if name not in offered:
        known = sorted({*own, *offered})
        meant = did_you_mean(name, known)
        raise UnknownName(f"there is no {family} policy {name!r}; known are: {', '.join(known)}{meant}")

    def make() -> PolicyT:
        policy: PolicyT = offered[name].load()()
        return policy

    return make
