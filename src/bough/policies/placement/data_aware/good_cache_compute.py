"""Good-cache-compute (GCC): as max-cache-hit while enough executors are busy, as max-compute-util while too few are.

Source: `spec/falkon.md` 3.2 and 3.3, `threshold` being its theta: with 1 it is max-compute-util, with 0 max-cache-hit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

from msgspec import Meta

from bough.policy.data_scheduling import at_data, at_most_data, in_turn, plain_behind
from bough.policy.falkon_dispatch import FalkonOptions, max_cache_hit
from bough.policy.interface import DataView, Place, ReadyWork, View
from bough.policy.list_scheduling import in_order, while_room

_AT_ONCE = 3200  # tasks without data at hand that are given out in one turn because too few executors are busy
_LOOK = 64  # ready records among which is work without inputs that any executor may have


class GoodCacheCompute(FalkonOptions, frozen=True):
    """See the module."""

    threshold: Annotated[float, Meta(ge=0, le=1)] = 0.9

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """Where the data is, or anywhere while too few executors are busy."""
        data = view.data
        return in_order(view) if data is None else self._place(view, data)

    def _place(self, view: View, data: DataView) -> Iterator[Place]:
        yield from in_turn(view, data, data.most_here, waits=True)
        yield from at_most_data(data)
        if view.has_room and view.busy_share() < self.threshold:
            yield from at_data(data)
            for wish in islice(while_room(view), _AT_ONCE):
                if view.busy_share() >= self.threshold:
                    break
                yield wish
        if view.has_room:
            yield from max_cache_hit(view, data, self.patience)
        if view.has_room:
            yield from plain_behind(view, _LOOK)
