"""Good-cache-compute (GCC): as max-cache-hit while enough executors are busy, as max-compute-util while too few are.

Source: `spec/falkon.md` 3.2 and 3.3, `threshold` being its theta: with 1 it is max-compute-util, with 0 max-cache-hit.
`window` bounds how many tasks without data at hand are given out in one turn because too few executors are busy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bough.model.bounds import Duration
from bough.policy.data_scheduling import at_data
from bough.policy.falkon_dispatch import has_most, max_cache_hit
from bough.policy.interface import DataNeeds, DataView, Place, ReadyWork, View
from bough.policy.list_scheduling import in_order, while_room


class GoodCacheCompute(msgspec.Struct, frozen=True):
    """See the module."""

    threshold: Annotated[float, Meta(ge=0, le=1)] = 0.9
    window: Annotated[int, Meta(ge=1, le=1_000_000)] = 3200
    by: Literal["files", "bytes"] = "files"
    patience: Duration = 600.0  # after so many seconds a task goes anywhere; 0: never

    @property
    def data_needs(self) -> DataNeeds:
        """What the core keeps for it."""
        return DataNeeds(self.by)

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """Where the data is, or anywhere while too few executors are busy."""
        data = view.data
        return in_order(view) if data is None else self._place(view, data)

    def _place(self, view: View, data: DataView) -> Iterator[Place]:
        yield from at_data(data, lambda found: has_most(data, found))
        if view.has_room and view.busy_share() < self.threshold:
            yield from at_data(data)
            for wish in islice(while_room(view), self.window):
                if view.busy_share() >= self.threshold:
                    break
                yield wish
        if view.has_room:
            yield from max_cache_hit(view, data, self.patience)
