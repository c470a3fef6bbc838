"""Shortest first: ready tasks go out by their expected run time, unknown ones first.

Tasks of unknown length go first because running one is the way to know. Source: the classic rule;
optimal for the mean waiting time on one machine (W. E. Smith, 1956). The list ages, see `list_scheduling`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from bough.policy.interface import Place, ReadyWork, View
from bough.policy.list_scheduling import AgeingList, in_order


class ShortestFirst(AgeingList, frozen=True):
    """See the module."""

    uses_estimates: ClassVar[bool] = True

    def rank(self, work: ReadyWork, /) -> float:
        """The expected run time, as known when the task becomes ready."""
        return work.expected

    def place(self, view: View, /) -> Iterable[Place]:
        """Give each ready task to the executor that has been open the longest."""
        return in_order(view)
