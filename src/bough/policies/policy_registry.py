"""Policies by name: our own and those that other packages offer as entry points.

Rule: a name is looked up once, when a run is opened; an unknown one is the user's error and lists the known ones.
"""

from __future__ import annotations

from bough.errors import UnknownName
from bough.policies.placement.fifo import Fifo
from bough.policies.placement.sjf import ShortestFirst
from bough.policy.interface import PlacementPolicy

GROUP = "bough.placement"
_OWN: dict[str, type[PlacementPolicy]] = {"fifo": Fifo, "sjf": ShortestFirst}


def load_placement(name: str) -> PlacementPolicy:
    """A placement policy by its name."""
    own = _OWN.get(name)
    if own is not None:  # looking up entry points costs tens of milliseconds: not for our own
        return own()
    from importlib.metadata import entry_points

    offered = {point.name: point for point in entry_points(group=GROUP)}
    if name not in offered:
        known = ", ".join(sorted({*_OWN, *offered}))
        raise UnknownName(f"there is no placement policy {name!r}; known are: {known}")
    policy: PlacementPolicy = offered[name].load()()
    return policy
