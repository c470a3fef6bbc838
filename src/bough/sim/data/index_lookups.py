"""What it costs to find out who has a file: the look-ups of a central or a distributed index.

A central index is a table at the dispatcher, which answers one look-up after the other, so many a second. In a
distributed one each host has a part, and a look-up takes longer the more hosts there are (`sim.models.index_model`).
Rule: each file that is fetched is looked up once, before its first byte; what is in the own cache is not.
"""

from __future__ import annotations

from collections.abc import Callable

from bough.model.ids import Seconds
from bough.sim.models.index_model import CENTRAL_RATE, lookup_seconds
from bough.sim.platforms.platform import Platform

Lookups = Callable[[Seconds], Seconds]  # how long a look-up takes that is asked for at a time


def index_of(platform: Platform) -> Lookups:
    """The look-ups of a platform."""
    rules = platform.transfers
    if rules.index == "central":
        return CentralIndex(rules.lookups or CENTRAL_RATE)
    seconds = 0.0
    if rules.index == "distributed":
        seconds = lookup_seconds(sum(site.hosts for site in platform.site.values()))
    return lambda now: seconds


class CentralIndex:
    """One table; who asks while it is busy waits."""

    def __init__(self, rate: float) -> None:
        self._each = 1.0 / rate
        self._free: Seconds = 0.0

    def __call__(self, now: Seconds) -> Seconds:
        """How long a look-up takes."""
        self._free = max(now, self._free) + self._each
        return self._free - now
