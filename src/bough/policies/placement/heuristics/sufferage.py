"""Sufferage: the task that would suffer most if it did not get its best executor, on that; repeat.

Source: Maheswaran et al. 1999, `spec/storage-affinity.md` 3.5. Suffering is the difference of the second best and the
best completion time, which counts no transfers: that is what `xsufferage` adds. Needs estimates, which come from
history by template and host: see `policy.batch_heuristics`.
"""

from __future__ import annotations

from typing import ClassVar

from bough.policy.batch_heuristics import AgeingHeuristic, Table


class Sufferage(AgeingHeuristic, frozen=True):
    """See the module."""

    counts_transfers: ClassVar[bool] = False

    def choose(self, table: Table) -> tuple[int, int]:
        """The task with the greatest difference between its two best executors; of equal ones the first."""
        chosen, most = (0, table.best(0)), -1.0
        for task in range(len(table.tasks)):
            times = sorted((table.completion(task, executor), executor) for executor in range(len(table.executors)))
            suffering = table.credit(task) + (times[1][0] - times[0][0] if len(times) > 1 else 0.0)
            if suffering > most:
                chosen, most = (task, times[0][1]), suffering
        return chosen
