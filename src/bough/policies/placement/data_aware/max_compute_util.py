"""Max-compute-util (MCU): a free executor never waits; it gets the task that has the most of its data there.

Source: `spec/falkon.md` 3.2. It keeps executors busy, and moves the most data.
"""

from __future__ import annotations

from collections.abc import Iterable

from bough.policy.falkon_dispatch import FalkonOptions, max_compute_util
from bough.policy.interface import Place, ReadyWork, View
from bough.policy.list_scheduling import in_order


class MaxComputeUtil(FalkonOptions, frozen=True):
    """See the module."""

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """Where the data is, or anywhere."""
        data = view.data
        return in_order(view) if data is None else max_compute_util(view, data)
