"""HEFT: the task with the longest path of tasks behind it first, where it would have run first.

Source: Topcuoglu et al. 2002. The path is the sum of expected run times along dependents, as far as some hundred of
them tell. Needs estimates, which come from history by template and host: see `policy.batch_heuristics`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from bough.policy.batch_heuristics import Table, by_table
from bough.policy.interface import DataNeeds, Place, ReadyWork, View


class Heft(msgspec.Struct, frozen=True):
    """See the module."""

    window: Annotated[int, Meta(ge=1, le=1000)] = 24  # tasks that are compared

    @property
    def data_needs(self) -> DataNeeds:
        """What the core keeps for it."""
        return DataNeeds()

    def rank(self, work: ReadyWork, /) -> float:
        """The longest path first."""
        return -work.path_below

    def place(self, view: View, /) -> Iterable[Place]:
        """One task at a time."""
        return by_table(view, self.window, _choose)


def _choose(table: Table) -> tuple[int, int]:
    """The task with the longest path behind it."""
    task = max(range(len(table.tasks)), key=lambda one: table.tasks[one].work.path_below)
    return task, table.best(task)
