"""Sufferage: the task that would suffer most if it did not get its best executor, on that; repeat.

Source: Maheswaran et al. 1999, `spec/storage-affinity.md` 3.5. Suffering is the difference of the second best and the
best completion time. Needs estimates, which come from history by template and host: see `policy.batch_heuristics`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from bough.policy.batch_heuristics import Table, by_table
from bough.policy.interface import DataNeeds, Place, ReadyWork, View


class Sufferage(msgspec.Struct, frozen=True):
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
    """The task with the greatest difference between its two best executors; of equal ones the first."""
    chosen, most = (0, table.best(0)), -1.0
    for task in range(len(table.tasks)):
        times = sorted((table.completion(task, executor), executor) for executor in range(len(table.executors)))
        suffering = times[1][0] - times[0][0] if len(times) > 1 else 0.0
        if suffering > most:
            chosen, most = (task, times[0][1]), suffering
    return chosen
