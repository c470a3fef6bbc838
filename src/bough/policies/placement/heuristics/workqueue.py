"""Workqueue: the next waiting task goes to any idle executor; nothing is known and nothing is asked.

Source: `spec/storage-affinity.md` 3.4. `order=index` takes tasks in order, as the printed algorithm; `order=random`
takes one of the first few at random, as its text says. With replicas it is WQR: the family `replication`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from bough.policy.interface import Place, ReadyWork, View
from bough.policy.list_scheduling import in_order
from bough.policy.random_order import at_random


class Workqueue(msgspec.Struct, frozen=True):
    """See the module."""

    order: Literal["index", "random"] = "index"

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """Any task to any executor."""
        return in_order(view) if self.order == "index" else at_random(view)
