"""Minimum completion time (MCT): tasks in order, each where it would have run first.

Source: Maheswaran et al. 1999, `spec/storage-affinity.md` 3.7.
Needs estimates, which come from history by template and host, and from measured bandwidths: see
`policy.batch_heuristics`.
"""

from __future__ import annotations

from bough.policy.batch_heuristics import Table, TableHeuristic


class MinimumCompletionTime(TableHeuristic, frozen=True):
    """See the module."""

    def choose(self, table: Table) -> tuple[int, int]:
        """The next task."""
        return 0, table.best(0)
