"""First-cache-available (FCA): the next task goes to the first free executor, which fetches from peers and caches.

Source: `spec/falkon.md` 3.2: the cache index is on, and the scheduler does not look at it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import msgspec

from bough.policy.interface import Place, ReadyWork, View
from bough.policy.list_scheduling import in_order


class FirstCacheAvailable(msgspec.Struct, frozen=True):
    """See the module."""

    uses_caches: ClassVar[bool] = True

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """In order."""
        return in_order(view)
