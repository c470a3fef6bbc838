"""Which plans watch which tasks, beyond what their specs say; which running ones are to be ended; what was seen.

A task is watched by the plan of its own, by those of the groups around it, and by those that were added to it or to one
of these groups, where they are kept. Rule: a workflow in which nothing is watched costs a hand-out one look at a flag
(`Workflow.watched`); nothing is kept here for a task to which nobody added a
plan, whose end nobody asked for and of which nothing was seen; what is kept of a span goes with it.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter

import msgspec

from bough.core.records.array_record import Record
from bough.core.records.task_record import TaskRecord
from bough.core.records.task_series import SeenTasks
from bough.model.arrays import ranges
from bough.model.arrays.ranges import Ranges
from bough.model.ids import BlobId
from bough.model.monitoring.monitors import MOST_PLANS, Fail, Finish, Restart

Verdict = Finish | Fail | Restart

AddedPlans = dict[BlobId, Ranges]  # in the order they came, and which elements each watches

_low = itemgetter(0)


class Ending(msgspec.Struct, frozen=True, array_like=True):
    """Elements of a span that are to be ended by a verdict."""

    start: int
    stop: int
    verdict: Verdict
    monitor: str
    reason: str


class WatchIndex:
    """See the module."""

    __slots__ = ("added", "endings", "seen")

    def __init__(self) -> None:
        self.added: dict[int, AddedPlans] = {}  # by record
        self.endings: dict[int, list[Ending]] = {}  # by span
        self.seen = SeenTasks()

    def add(self, record: int, start: int, stop: int, plan: BlobId) -> None:
        """Elements of a record are watched by one more plan; nothing when they have too many."""
        plans = self.added.setdefault(record, {})
        if plan not in plans and len(plans) >= MOST_PLANS:
            return
        elements = plans.setdefault(plan, [])
        ranges.take(elements, start, stop)
        ranges.add(elements, start, stop)

    def plans_of(self, record: Record, index: int) -> tuple[BlobId, ...]:
        """The plans that watch an element when it is handed out; its own first, then those of the groups around it."""
        if isinstance(record, TaskRecord):
            own = record.own.extras.watch if record.own is not None else b""
        else:
            own = record.spec.extras.watch
        found = {BlobId(own): None} if own else {}
        for group in record.group.chain():
            found.update(dict.fromkeys(group.watch))
        found.update(dict.fromkeys(self.added_to(record.id, index)))
        return tuple(found)[:MOST_PLANS]

    def added_to(self, record: int, index: int) -> list[BlobId]:
        """The plans that were added to an element."""
        return [plan for plan, elements in self.added.get(record, {}).items() if _reach(elements, index)[0]]

    def alike(self, record: int, start: int, stop: int) -> int:
        """Up to where the elements from `start` on are watched by the same plans that were added."""
        for elements in self.added[record].values():
            stop = min(stop, _reach(elements, start)[1])
        return stop

    def parts(self, record: int, start: int, stop: int) -> list[tuple[int, int, BlobId]]:
        """The parts of [start, stop) to which plans were added."""
        return [
            (max(low, start), min(high, stop), plan)
            for plan, elements in self.added.get(record, {}).items()
            for low, high in elements
            if low < stop and start < high
        ]

    def end(self, span: int, ending: Ending) -> None:
        """Elements of a span are to be ended."""
        known = self.endings.get(span, ())
        others = [one for one in known if not ending.start <= one.start < one.stop <= ending.stop]
        self.endings[span] = [*others, ending]

    def forget_record(self, record: int) -> None:
        """A record is gone."""
        self.added.pop(record, None)
        self.seen.by_record.pop(record, None)


def _reach(elements: Ranges, index: int) -> tuple[bool, int]:
    """Whether an index is among these, and from which one on that is different."""
    at = bisect_right(elements, index, key=_low)
    if at and index < elements[at - 1][1]:
        return True, elements[at - 1][1]
    return False, elements[at][0] if at < len(elements) else 1 << 62
