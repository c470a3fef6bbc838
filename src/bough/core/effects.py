"""What follows from facts that were just applied: orders for the shell, and what the intake must record next.

Applying a fact changes the state and nothing else. Some of what follows is seen best in that moment, because it depends
on the state before the change: it is noted here. Rule: a turn passes an `Effects` to the functions that apply facts; a
replay has none, because what followed is among the facts of the journal.
"""

from __future__ import annotations

import msgspec

from bough.core.records.array_record import Record
from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.group_record import GroupRecord
from bough.core.records.population_record import Occasion
from bough.model.events.orders import Order
from bough.model.outcomes import Failure


class Effects(msgspec.Struct):
    """See the module."""

    orders: list[Order] = []
    skipped: list[tuple[Record, int, int, Failure]] = []  # elements that will never run, and why
    freed: list[tuple[Record, int, int]] = []  # elements that wait for nothing any more
    groups_to_retry: list[GroupRecord] = []  # that failed and are to be tried again as a whole
    populations: list[Occasion] = []  # whose policies are to be asked
    to_suspend: list[ExecutorRecord] = []  # on which too much failed that worked elsewhere
