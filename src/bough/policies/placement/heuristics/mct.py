"""Minimum completion time (MCT): tasks in order, each where it would have run first.

Source: Maheswaran et al. 1999, `spec/storage-affinity.md` 3.7.
Needs estimates, which come from history by template and host, and from measured bandwidths: see
`policy.batch_heuristics`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from bough.policy.batch_heuristics import Table, by_table
from bough.policy.interface import DataNeeds, Place, ReadyWork, View


class MinimumCompletionTime(msgspec.Struct, frozen=True):
    """See the module."""

    window: Annotated[int, Meta(ge=1, le=1000)] = 24  # tasks that are compared

    @property
    def data_needs(self) -> DataNeeds:
        """What the core keeps for it."""
        return DataNeeds()

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """One task at a time."""
        return by_table(view, self.window, _choose)


def _choose(table: Table) -> tuple[int, int]:
    """The next task."""
    return 0, table.best(0)
