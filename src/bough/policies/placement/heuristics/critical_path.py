"""Critical path: ready tasks go out by the longest path of tasks behind them.

Source: Hu 1961; the list order of HEFT (Topcuoglu et al. 2002). The path is the sum of expected run times along
dependents, as far as some hundred of them tell; a task of unknown length counts as one second. The list ages, see
`list_scheduling`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import ClassVar

from bough.policy.interface import Place, ReadyWork, View
from bough.policy.list_scheduling import AgeingList, in_order

_LOOK = 8  # ready records that are compared
_IN_TURN = 1 / 8  # of the placements go to what stands first: it may have waited for long, and never have the longest


class CriticalPath(AgeingList, frozen=True):
    """See the module."""

    uses_estimates: ClassVar[bool] = True

    def rank(self, work: ReadyWork, /) -> float:
        """The longest path first."""
        return -work.path_below

    def place(self, view: View, /) -> Iterator[Place]:
        """The longest path of the first few of one workflow, which may have grown meanwhile; then the rest in order."""
        while some := list(islice(view.ready(), _LOOK)):
            alike = [one for one in some if (one.workflow, one.priority) == (some[0].workflow, some[0].priority)]
            best = max(alike, key=lambda work: work.path_below)
            if self.ageing and best is not some[0] and view.random.random() < _IN_TURN:
                best = some[0]
            offer = view.executor_for(best)
            if offer.executor is None:
                break
            yield Place(best.id, offer.executor.id)
        yield from in_order(view)
