"""Critical path: ready tasks go out by the longest path of tasks behind them.

Source: Hu 1961; the list order of HEFT (Topcuoglu et al. 2002). The path is the sum of expected run times along
dependents, as far as some hundred of them tell; a task of unknown length counts as one second.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import ClassVar

import msgspec

from bough.policy.interface import Place, ReadyWork, View
from bough.policy.list_scheduling import in_order

_LOOK = 8  # ready records that are compared


class CriticalPath(msgspec.Struct, frozen=True):
    """See the module."""

    uses_estimates: ClassVar[bool] = True

    def rank(self, work: ReadyWork, /) -> float:
        """The longest path first."""
        return -work.path_below

    def place(self, view: View, /) -> Iterator[Place]:
        """The longest path of the first few, which may have grown since they became ready; then the rest in order."""
        while some := list(islice(view.ready(), _LOOK)):
            best = max(some, key=lambda work: (work.priority, work.path_below))
            offer = view.executor_for(best)
            if offer.executor is None:
                break
            yield Place(best.id, offer.executor.id)
        yield from in_order(view)
