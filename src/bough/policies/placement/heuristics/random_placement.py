"""Random: any of the first ready tasks goes to any executor that takes it. An ablation: what knowing nothing costs.

Source: `spec/storage-affinity.md` 3.7.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bough.policy.interface import Place, ReadyWork, View
from bough.policy.random_order import at_random


class RandomPlacement(msgspec.Struct, frozen=True):
    """See the module."""

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """Any task to any executor."""
        return at_random(view)
