"""Dynamic FPLTF: the longest task first, where it would have run first; anew at each completion.

Source: Menasce et al. 1995, `spec/storage-affinity.md` 3.7.
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


class FastestProcessorLargestTaskFirst(msgspec.Struct, frozen=True):
    """See the module."""

    window: Annotated[int, Meta(ge=1, le=1000)] = 24  # tasks that are compared

    @property
    def data_needs(self) -> DataNeeds:
        """What the core keeps for it."""
        return DataNeeds()

    def rank(self, work: ReadyWork, /) -> float:
        """The longest first, so that they are among those that are compared."""
        return -work.expected

    def place(self, view: View, /) -> Iterable[Place]:
        """One task at a time."""
        return by_table(view, self.window, _choose)


def _choose(table: Table) -> tuple[int, int]:
    """The longest task."""
    task = max(range(len(table.tasks)), key=table.run_time)
    return task, table.best(task)
