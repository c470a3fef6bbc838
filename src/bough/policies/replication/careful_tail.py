"""Careful tail: as tail, for users who did not ask for it; it comes with the placement policy `bough`.

A task is late when it has run for `factor` times the mean of its template, of which at least three tasks have been
measured: of one about which nothing is known no replica is made. That it is worth a second attempt, which nobody asked
for, is certain only if it is old as well, so `age` is half a minute: longer than it takes to begin elsewhere, with
inputs to bring. The core keeps the other half of the care, see `is_unasked` in `core.scheduling.replication`.
"""

from __future__ import annotations

from bough.model.ids import Seconds
from bough.policies.replication.tail import Tail

_MEASURED = 3  # tasks, of which one that was slow itself does not make the mean
_OLD: Seconds = 30.0
_LATE = 2.0  # times the mean: run times vary, and by 1.5 times too many are late that are well


class CarefulTail(Tail):
    """See the module."""

    is_unasked = True

    def __init__(self, cap: int = 1, age: Seconds = _OLD, factor: float = _LATE) -> None:
        super().__init__(cap, age, factor, measured=_MEASURED)
