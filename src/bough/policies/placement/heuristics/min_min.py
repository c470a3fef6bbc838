"""Min-min: of all tasks the one whose best completion time is the earliest, on that executor; repeat.

Source: Ibarra and Kim 1977, `spec/storage-affinity.md` 3.7.
Needs estimates, which come from history by template and host, and from measured bandwidths: see
`policy.batch_heuristics`.
"""

from __future__ import annotations

from bough.policy.batch_heuristics import AgeingHeuristic, Table


class MinMin(AgeingHeuristic, frozen=True):
    """See the module."""

    def choose(self, table: Table) -> tuple[int, int]:
        """The task that could have run first."""
        best = [table.best(task) for task in range(len(table.tasks))]
        task = min(range(len(best)), key=lambda one: table.completion(one, best[one]) - table.credit(one))
        return task, best[task]
