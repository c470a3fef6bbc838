"""First come, first served: ready tasks go out in the order of their submission.

Source: Falkon's default dispatch, "next-available" (Raicu et al., SC 2007).
"""

from __future__ import annotations

from collections.abc import Iterable

from bough.policy.interface import Place, ReadyWork, View
from bough.policy.list_scheduling import in_order


class Fifo:
    """See the module."""

    def rank(self, work: ReadyWork, /) -> float:
        """All alike: the order of submission decides."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """Give each ready task to the executor that has been open the longest."""
        return in_order(view)
