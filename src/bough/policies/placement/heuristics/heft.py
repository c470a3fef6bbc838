"""HEFT: the task with the longest path of tasks behind it first, where it would have run first.

Source: Topcuoglu et al. 2002. The path is the sum of expected run times along dependents, as far as some hundred of
them tell. Needs estimates, which come from history by template and host: see `policy.batch_heuristics`.
"""

from __future__ import annotations

from bough.policy.batch_heuristics import RankedHeuristic, Table
from bough.policy.interface import ReadyWork


class Heft(RankedHeuristic, frozen=True):
    """See the module."""

    def rank(self, work: ReadyWork, /) -> float:
        """The longest path first."""
        return -work.path_below

    def choose(self, table: Table) -> tuple[int, int]:
        """The task with the longest path behind it."""
        task = max(range(len(table.tasks)), key=lambda one: table.tasks[one].work.path_below + table.credit(one))
        return task, table.best(task)
