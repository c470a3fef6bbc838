"""Longest job first (LJF): ready tasks go out by their expected run time, the longest first.

Source: Graham 1969: a list in this order ends within 4/3 of the best. Expected run times come from the history of the
template, or from the user; tasks of unknown length go last. The list ages, see `list_scheduling`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from bough.policy.interface import Place, ReadyWork, View
from bough.policy.list_scheduling import AgeingList, in_order


class LongestFirst(AgeingList, frozen=True):
    """See the module."""

    uses_estimates: ClassVar[bool] = True

    def rank(self, work: ReadyWork, /) -> float:
        """The expected run time, as known when the task becomes ready."""
        return -work.expected

    def place(self, view: View, /) -> Iterable[Place]:
        """In that order, to the executor that has been open the longest."""
        return in_order(view)
