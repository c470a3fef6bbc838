"""Data-only: each idle executor gets the task with the most bytes at its host, and nothing is replicated.

An ablation of storage affinity, `spec/storage-affinity.md` 3.7: data reuse without the second phase. No estimates.
A task that is overtaken by one that became ready `patience` seconds later has a turn for that; 0: none has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from bough.model.bounds import Duration
from bough.policy.data_scheduling import at_data, in_turn
from bough.policy.interface import DataNeeds, DataView, Place, ReadyWork, View
from bough.policy.list_scheduling import in_order, while_room


class DataOnly(msgspec.Struct, frozen=True):
    """See the module."""

    place_of_data: Literal["host", "site"] = "site"
    patience: Duration = 600.0

    @property
    def data_needs(self) -> DataNeeds:
        """What the core keeps for it."""
        return DataNeeds(place=self.place_of_data, patience=self.patience)

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """Where the data is, or anywhere."""
        data = view.data
        return in_order(view) if data is None else _place(view, data)


def _place(view: View, data: DataView) -> Iterator[Place]:
    yield from in_turn(view, data, data.best_here, waits=False)
    yield from at_data(data)
    yield from while_room(view)
