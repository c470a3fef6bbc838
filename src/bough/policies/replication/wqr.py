"""Workqueue with replication: an idle executor runs what others run, the least replicated task first.

It uses no information at all, neither of tasks nor of executors. Source: D. Paranhos, W. Cirne and F. Brasileiro,
"Trading cycles for information", Euro-Par 2003; Santos Neto 2004, 3.4 of the specification of Storage Affinity. The
printed algorithm has no cap; the paper on WQR studies caps of 2 to 4 copies. There each copy of a task has all of its
input sent, also where that is already: `reuse=no` does the same, for comparisons; by default hosts use what they hold.
"""

from __future__ import annotations

from collections.abc import Iterable

from bough.model.ids import Seconds
from bough.policy.interface import Replicate, ReplicationView

_MOST_LOOKED_AT = 1000  # tasks that fit nowhere, in one turn


class Wqr:
    """See the module."""

    def __init__(self, cap: int = 1, age: Seconds = 0.0, *, reuse: bool = True) -> None:
        self.cap = cap
        self.age = age
        self.uses_caches = reuse

    def replicate(self, view: ReplicationView, /) -> Iterable[Replicate]:
        """Give each running task that may have one more attempt to the executor that has been open the longest."""
        missed = 0
        for work in view.running():
            executor = view.executor_for(work)
            if executor is not None:
                yield Replicate(work.id, work.index, executor.id, "executors had nothing else to do")
            else:
                missed += 1
            if missed >= _MOST_LOOKED_AT or not view.executors():
                return
