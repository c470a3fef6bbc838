"""WQR: Workqueue, and when nothing waits any more, idle executors run what others run.

Source: `spec/storage-affinity.md` 3.4. Placement is that of `workqueue`; the second phase is the replication policy
`wqr`, which this policy brings along without a cap, as the printed algorithm. `reuse=no` has all of its input sent to
every attempt, also where that is already, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bough.model.bounds import Duration
from bough.policy.interface import MOST_REPLICAS, Place, ReadyWork, View
from bough.policy.list_scheduling import in_order
from bough.policy.random_order import at_random


class ReplicatedWorkqueue(msgspec.Struct, frozen=True):
    """See the module."""

    order: Literal["index", "random"] = "index"
    reuse: Literal["yes", "no"] = "yes"
    cap: Annotated[int, Meta(ge=1, le=MOST_REPLICAS)] = MOST_REPLICAS  # replicas of a task
    age: Duration = 0.0  # that a task must have before it is replicated

    @property
    def own_replication(self) -> str:
        """The second phase."""
        age = f",age={self.age:.12g}s" if self.age else ""
        return f"wqr:cap={self.cap}{age}{'' if self.uses_caches else ',reuse=no'}"

    @property
    def uses_caches(self) -> bool:
        """Whether executors use what they hold; also if the second phase is switched off."""
        return self.reuse == "yes"

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """Any task to any executor."""
        return in_order(view) if self.order == "index" else at_random(view)
