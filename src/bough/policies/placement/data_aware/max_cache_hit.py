"""Max-cache-hit (MCH): a task goes to the place that holds most of its data, and waits while that is busy.

Source: `spec/falkon.md` 3.2. It moves the least data, and leaves executors idle when loads are uneven.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bough.policy.falkon_dispatch import FalkonOptions, before_plain, max_cache_hit
from bough.policy.interface import DataView, Place, ReadyWork, View
from bough.policy.list_scheduling import in_order


class MaxCacheHit(FalkonOptions, frozen=True):
    """See the module."""

    def rank(self, work: ReadyWork, /) -> float:
        """Work without inputs stands first: it waits for no place."""
        return 1.0 if work.has_inputs else 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """Where the data is, or not yet."""
        data = view.data
        return in_order(view) if data is None else self._place(view, data)

    def _place(self, view: View, data: DataView) -> Iterator[Place]:
        yield from before_plain(view, data, self.patience)
        yield from max_cache_hit(view, data, self.patience)
