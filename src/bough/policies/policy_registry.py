"""Policies by name: our own and those that other packages offer as entry points.

A family of policies is a table of our own ones and an entry point group, `bough.FAMILY`.
Rule: a name is looked up once, when a run is opened; an unknown name is the user's error, and the message lists the
known ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from bough.errors import UnknownName
from bough.policies.placement.fifo import Fifo
from bough.policies.placement.sjf import ShortestFirst
from bough.policy.interface import PlacementPolicy, Policies

PolicyT = TypeVar("PolicyT")

_PLACEMENT: dict[str, type[PlacementPolicy]] = {"fifo": Fifo, "sjf": ShortestFirst}


def load_policies(placement: str) -> Policies:
    """The policies of a run, one a family, by their names."""
    return Policies(placement=_load("placement", _PLACEMENT, placement))


def _load(family: str, own: Mapping[str, Callable[[], PolicyT]], name: str) -> PolicyT:
    """A policy of a family by its name."""
    if name in own:  # looking up entry points costs tens of milliseconds: not for our own
        return own[name]()
    from importlib.metadata import entry_points

    offered = {point.name: point for point in entry_points(group=f"bough.{family}")}
    if name not in offered:
        known = ", ".join(sorted({*own, *offered}))
        raise UnknownName(f"there is no {family} policy {name!r}; known are: {known}")
    policy: PolicyT = offered[name].load()()
    return policy
