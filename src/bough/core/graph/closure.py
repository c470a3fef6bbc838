"""How far a reset, or a change of the description, reaches: what depends, directly or not, on what is to wait again.

Found from the specs, because a waiter that was satisfied once is not listed any more. Rule: looks and changes nothing;
linear in the workflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bough.core.graph import dependencies
from bough.core.records.array_record import DONE, FAILED, OCCUPYING_STATES, SKIPPED, ArrayRecord, Record
from bough.core.records.group_record import GroupRecord, Workflow
from bough.core.records.task_record import TaskRecord
from bough.model.arrays import ranges
from bough.model.arrays.ranges import Ranges
from bough.model.tasks import Dep, On

STARTED = OCCUPYING_STATES + bytes((DONE, FAILED))
_GIVEN_UP = bytes((SKIPPED,))

Part = tuple[Record, int, int]
Waiting = tuple["Record | GroupRecord", int, Dep]  # the waiter, which element (-1: all), and for what


class Changes(NamedTuple):
    """What else may have become different about a workflow, besides parts of it that wait again."""

    added: Sequence[Record]  # that were not there before
    records: Sequence[Record]  # that wait for other things than before
    gates: Sequence[GroupRecord]  # that are new, or wait for other things than before
    lost_members: Sequence[GroupRecord]  # that lost something that had not succeeded


class Closure:
    """What waits again when some parts of a workflow do."""

    def __init__(self, workflow: Workflow, parts: list[Part], changes: Changes | None = None) -> None:
        self.parts: dict[int, Ranges] = {}  # by record: all elements that wait again
        self.started: list[Part] = []  # those of them that had started, besides what was asked for
        self.records: dict[int, Record] = {}  # all that must look anew at what it waits for
        self.gates: dict[int, GroupRecord] = {}  # groups that must
        self.touched: dict[int, GroupRecord] = {}  # groups that are not over, because something in them is not
        self._of_record: dict[int, list[Waiting]] = {}
        self._of_group: dict[int, list[Waiting]] = {}
        self._todo: list[Part] = []
        self._stirred: dict[int, GroupRecord] = {}  # groups whose waiters must be looked at
        self._fresh = {record.id for record in changes.added} if changes is not None else set()
        self._lost = {group.id for group in changes.lost_members} if changes is not None else set()
        self._index(workflow.group)
        for record, start, stop in parts:
            self._add(record, start, stop)
        if changes is not None:
            self._start_from(changes)
        self._spread()

    def _start_from(self, changes: Changes) -> None:
        for record in changes.added:
            self._stir(record.group)
        for group in changes.lost_members:
            self._stir(group)
        for group in changes.gates:
            self._close(group)
        for record in changes.records:
            self._hit_record(record, 0, record.length)

    def all_parts(self) -> Iterator[Part]:
        """What waits again, in the order of the records."""
        for id_ in sorted(self.parts):
            for start, stop in self.parts[id_]:
                yield self.records[id_], start, stop

    def _index(self, group: GroupRecord) -> None:
        """Note what waits for what in a group and below."""
        self._note(group, -1, group.after)
        for record in group.members:
            if isinstance(record, TaskRecord):
                if record.own is not None:
                    self._note(record, -1, record.own.after)
                continue
            self._note(record, -1, record.spec.after)
            for index, deps in record.spec.element_after:
                self._note(record, index, deps)
        for child in group.children:
            self._index(child)

    def _note(self, waiter: Record | GroupRecord, index: int, deps: tuple[Dep, ...]) -> None:
        for dep in deps:
            (self._of_group if dep.is_group else self._of_record).setdefault(dep.id, []).append((waiter, index, dep))

    def _spread(self) -> None:
        while self._todo or self._stirred:
            while self._todo:
                record, start, stop = self._todo.pop()
                for waiter, index, dep in self._of_record.get(record.id, ()):
                    if dep.on is On.ARRAY or start <= dep.index < stop:
                        self._hit(waiter, index)
            if self._stirred:
                self._tell(self._stirred.popitem()[1])

    def _tell(self, group: GroupRecord) -> None:
        """A group is not what it was: what waits for it, and was not told so yet, waits again."""
        waiting = self._of_group.get(group.id)
        if not waiting:
            return
        stays = self._stays_released(group)
        kept = [entry for entry in waiting if stays and entry[2].on is On.GROUP]
        self._of_group[group.id] = kept
        for waiter, index, dep in waiting:
            if not stays or dep.on is On.END:
                self._hit(waiter, index)

    def _stir(self, group: GroupRecord) -> None:
        for above in group.chain():
            self.touched[above.id] = above
            if above.id in self._of_group:
                self._stirred[above.id] = above

    def _add(self, record: Record, start: int, stop: int) -> None:
        known = self.parts.setdefault(record.id, [])
        fresh = [[start, stop]]
        for low, high in known:
            ranges.take(fresh, low, high)
        for low, high in fresh:
            ranges.add(known, low, high)
            self._todo.append((record, low, high))
        self.records[record.id] = record
        if fresh:
            self._stir(record.group)

    def _hit(self, waiter: Record | GroupRecord, index: int) -> None:
        if isinstance(waiter, GroupRecord):
            self._close(waiter)
        elif isinstance(waiter, ArrayRecord) and index >= 0:
            self._hit_record(waiter, index, index + 1)
        else:
            self._hit_record(waiter, 0, waiter.length)

    def _close(self, group: GroupRecord) -> None:
        """The gate of a group is closed again, and with it those below."""
        if group.id in self.gates:
            return
        self.gates[group.id] = group
        self._stir(group)
        for record in group.members:
            self._hit_record(record, 0, record.length)
        for child in group.children:
            self._close(child)

    def _hit_record(self, record: Record, start: int, stop: int) -> None:
        self.records[record.id] = record
        mine = self.parts.get(record.id, ())
        for low, high in record.runs(STARTED, start, stop):
            fresh = [[low, high]]
            for known in mine:
                ranges.take(fresh, *known)
            self.started += [(record, begin, end) for begin, end in fresh]
        for low, high in record.runs(STARTED + _GIVEN_UP, start, stop):
            self._add(record, low, high)

    def _stays_released(self, group: GroupRecord) -> bool:
        """Whether what waits for a group, and not for its end, need not wait again."""
        if any(has_released(record) and record.id not in self.parts for record in group.members):
            return True
        if group.id in self.gates or group.id in self._lost or not group.closed:
            return False
        if any(map(self._is_open, group.members)):
            return False
        return all(child.id not in self.touched or self._stays_released(child) for child in group.children)

    def _is_open(self, record: Record) -> bool:
        return record.id in self.parts or record.id in self._fresh


def has_released(record: Record) -> bool:
    """Whether it is a task that releases its group, and has succeeded."""
    if isinstance(record, TaskRecord) and record.own is None:
        return False
    return record.spec.extras.release and dependencies.is_done(record)
