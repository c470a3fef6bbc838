"""Policies by name: our own and those that other packages offer as entry points.

A family of policies is a table of our own ones and an entry point group, such as `bough.placement`.
Rule: a name is looked up once, when a run is opened; an unknown name is the user's error, and the message lists the
known ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TypeVar

from bough.errors import UnknownName, did_you_mean
from bough.policies.placement.fifo import Fifo
from bough.policies.placement.sjf import ShortestFirst
from bough.policies.population.first_answer import FirstAnswer
from bough.policies.population.halving import Halving
from bough.policies.population.median import Median
from bough.policies.provisioning.static import Static
from bough.policy.interface import PlacementPolicy, Policies, PopulationPolicy, ProvisioningPolicy

PolicyT = TypeVar("PolicyT")

_PLACEMENT: dict[str, type[PlacementPolicy]] = {"fifo": Fifo, "sjf": ShortestFirst}


_POPULATION: dict[str, type[PopulationPolicy]] = {"halving": Halving, "median": Median, "first-answer": FirstAnswer}
_PROVISIONING: dict[str, type[ProvisioningPolicy]] = {"static": Static}


def load_policies(placement: str) -> Policies:
    """The policies of a run, one a family, by their names; rules about populations name theirs when they are set."""
    return Policies(
        placement=_load("placement", _PLACEMENT, placement),
        population=find_population_policy,
        provisioning=_load("provisioning", _PROVISIONING, "static"),
    )


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
    if name in own:  # looking up entry points costs tens of milliseconds: not for our own
        return own[name]()
    from importlib.metadata import entry_points

    offered = {point.name: point for point in entry_points(group=f"bough.{family}")}
    if name not in offered:
        known = sorted({*own, *offered})
        meant = did_you_mean(name, known)
        raise UnknownName(f"there is no {family} policy {name!r}; known are: {', '.join(known)}{meant}")
    policy: PolicyT = offered[name].load()()
    return policy
