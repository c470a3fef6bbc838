"""Opportunistic load balancing (OLB): tasks in order, each to the executor that is free first, however slow.

Source: Maheswaran et al. 1999, `spec/storage-affinity.md` 3.7.
Needs estimates, which come from history by template and host: see `policy.batch_heuristics`.
"""

from __future__ import annotations

from bough.policy.batch_heuristics import Table, TableHeuristic


class OpportunisticLoadBalancing(TableHeuristic, frozen=True):
    """See the module."""

    def choose(self, table: Table) -> tuple[int, int]:
        """The next task, and who is free first."""
        return 0, min(range(len(table.executors)), key=table.free_in.__getitem__)
