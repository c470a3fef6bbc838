"""Critical path: ready tasks go out by the longest path of tasks behind them.

Source: Hu 1961; the list order of HEFT (Topcuoglu et al. 2002). The path is the sum of expected run times along
dependents, as far as some hundred of them tell; a task of unknown length counts as one second.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bough.policy.interface import Place, ReadyWork, View
from bough.policy.list_scheduling import in_order


class CriticalPath(msgspec.Struct, frozen=True):
    """See the module."""

    def rank(self, work: ReadyWork, /) -> float:
        """The longest path first."""
        return -work.path_below

    def place(self, view: View, /) -> Iterable[Place]:
        """In that order, to the executor that has been open the longest."""
        return in_order(view)
