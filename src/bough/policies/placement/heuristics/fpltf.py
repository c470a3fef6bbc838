"""Dynamic FPLTF: the longest task first, where it would have run first; anew at each completion.

Source: Menasce et al. 1995, `spec/storage-affinity.md` 3.7.
Needs estimates, which come from history by template and host, and from measured bandwidths: see
`policy.batch_heuristics`.
"""

from __future__ import annotations

from bough.policy.batch_heuristics import RankedHeuristic, Table
from bough.policy.interface import ReadyWork


class FastestProcessorLargestTaskFirst(RankedHeuristic, frozen=True):
    """See the module."""

    def rank(self, work: ReadyWork, /) -> float:
        """The longest first, so that they are among those that are compared."""
        return -work.expected

    def choose(self, table: Table) -> tuple[int, int]:
        """The longest task."""
        task = max(range(len(table.tasks)), key=lambda one: table.run_time(one) + table.credit(one))
        return task, table.best(task)
