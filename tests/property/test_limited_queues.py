"""The best of many queues under nested limits, beside looking at all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bough.core.records.group_record import GroupRecord, Share
from bough.core.records.indexes.ready_queue import Entry, LimitedQueue, LimitTree, Shape, is_valid, occupy_limits
from bough.core.records.queue_record import QueueTable
from bough.model.sites.resources import Needs
from bough.model.tasks import GroupSpec

TREE = [0, 0, 1, 1, 2, 0]  # the parent of each of groups 1 to 6: 0 is the root


class Throttled(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.groups = [GroupRecord(GroupSpec(0, "", 0), None)]  # type: ignore[arg-type]
        for number, parent in enumerate(TREE, 1):
            spec = GroupSpec(number, str(number), parent, limit=1 + number % 3)  # type: ignore[arg-type]
            self.groups.append(GroupRecord(spec, self.groups[parent]))
        named = QueueTable({})[""]
        self.tree = LimitTree(Shape(Needs(), named), Share(self.groups[0].workflow, named, {}), "", lambda tree: None)
        self.queues = [self.tree.queue_under(group.limits) for group in self.groups[1:]]
        self.records: list[Any] = []
        self.taken: list[tuple[int, Entry]] = []
        self.out: list[int] = []

    @rule(queue=st.integers(0, 5), priority=st.integers(-1, 1))
    def something_is_ready(self, queue: int, priority: int) -> None:
        record: Any = SimpleNamespace(
            id=len(self.records), priority=priority, urgent=False, queue_key=(), ready=1, queue=self.queues[queue]
        )
        self.records.append(record)
        record.queue.push(record, 0.0)

    @rule(data=st.data(), priority=st.integers(-1, 1))
    def a_priority_changes(self, data: st.DataObject, priority: int) -> None:
        kept = [record for record in self.records if record.ready and not any(e[4] is record for _, e in self.taken)]
        if kept:
            record = data.draw(st.sampled_from(kept))
            record.priority = priority
            record.queue.push(record, 0.0)

    @rule(data=st.data())
    def one_is_withdrawn(self, data: st.DataObject) -> None:
        if self.records:
            data.draw(st.sampled_from(self.records)).ready = 0

    @rule(placed=st.booleans())
    def the_best_is_taken(self, placed: bool) -> None:
        best = self.tree.best()
        if best is None:
            return
        at = self.queues.index(best)  # type: ignore[arg-type]
        entry = best.take()
        assert entry is not None
        if placed:
            entry[4].ready = 0
            occupy_limits(best.limits, 1)
            self.out.append(at)
        else:
            self.taken.append((at, entry))

    @rule()
    def what_was_taken_comes_back(self) -> None:
        while self.taken:
            at, entry = self.taken.pop()
            self.queues[at].put_back(entry)

    @rule(data=st.data())
    def one_ends(self, data: st.DataObject) -> None:
        if self.out:
            at = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
            occupy_limits(self.queues[at].limits, -1)

    @invariant()
    def the_best_is_the_best_of_all(self) -> None:
        taken = {entry[4].id for _, entry in self.taken}  # a stale entry of theirs may look like a valid one
        heads = [
            head
            for queue in self.queues
            if all(group.busy < group.limit for group in queue.limits)
            and (head := min(filter(is_valid, waiting(queue, taken)), default=None))
        ]
        assert self.tree.head() == min(heads, default=None)
        best = self.tree.best()
        assert (best.head() if best is not None else None) == min(heads, default=None)

    @invariant()
    def queues_that_hold_something_are_known(self) -> None:
        assert {queue for queue in self.queues if queue} <= self.tree.non_empty


def waiting(queue: LimitedQueue, taken: set[int]) -> list[Entry]:
    """What is in a queue and ready, stale entries included."""
    return [entry for entry in queue.entries() if entry[4].ready and entry[4].id not in taken]


TestThrottled = Throttled.TestCase
