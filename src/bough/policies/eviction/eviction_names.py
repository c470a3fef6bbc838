"""The policies of eviction by name, for executors: nothing else of the policies is loaded on a node.

Rule: an unknown name is the user's error, and the message lists the known ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from bough.errors import UnknownName, did_you_mean
from bough.policies.eviction.fifo_eviction import FifoEviction
from bough.policies.eviction.lfu_eviction import LfuEviction
from bough.policies.eviction.lru_eviction import LruEviction
from bough.policies.eviction.needed_last import NeededLast
from bough.policies.eviction.random_eviction import RandomEviction

if TYPE_CHECKING:
    from bough.policy.interface import EvictionPolicy

EVICTION: Final = "needed-last"  # unless another one is named
_EVICTION: Final[dict[str, Callable[[], EvictionPolicy]]] = {
    "needed-last": NeededLast,
    "lru": LruEviction,
    "lfu": LfuEviction,
    "fifo": FifoEviction,
    "random": RandomEviction,
}


def load_eviction(name: str = EVICTION) -> EvictionPolicy:
    """A policy by its name."""
    if name not in _EVICTION:
        known = ", ".join(_EVICTION)
        raise UnknownName(
            f"there is no eviction policy {name!r}; known are: {known}{did_you_mean(name, list(_EVICTION))}"
        )
    return _EVICTION[name]()
