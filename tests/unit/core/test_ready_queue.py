"""The ready queue: order, stale entries, and being looked at without losing anything."""

from __future__ import annotations

from core_bench import Bench

from bough.core.graph.submission import add_task
from bough.core.queries.facade import Queries
from bough.core.records.array_record import HELD, READY
from bough.core.records.indexes.ready_queue import DemandIndex, Entry, ReadyQueue, Shape
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.model.events.news import Cancel
from bough.model.ids import ROOT
from bough.model.sites.resources import ONE_CORE
from bough.model.tasks import Dep, On
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies
from bough.testing.builders import array, executor, needs, task

STATE = State(Policies(Fifo()))  # where the records live; each test takes new ones


def ready_records(count: int) -> list[TaskRecord]:
    records = [add_task(STATE, task(id_)) for id_ in range(1, count + 1)]
    for record in records:
        STATE.move(record, 0, 1, READY)
    return records


def hold(record: TaskRecord) -> None:
    """It is not ready any more."""
    STATE.move(record, 0, 1, HELD)


def release(record: TaskRecord) -> None:
    """It is ready again."""
    STATE.move(record, 0, 1, READY)


def put(queue: ReadyQueue, record: TaskRecord, rank: float) -> None:
    """Queue a record there."""
    record.queue = queue
    queue.push(record, rank)


def drain(queue: ReadyQueue) -> list[int]:
    ids = []
    while (entry := queue.head()) is not None:
        queue.take()
        ids.append(entry[4].id)
    return ids


def test_the_lowest_key_comes_first() -> None:
    queue = ReadyQueue(Shape(ONE_CORE, STATE.named_queues[""]), STATE.share_of(STATE.groups[ROOT].workflow))
    records = ready_records(4)
    for record, key in zip(records, [2.0, 1.0, 3.0, 0.0], strict=True):
        put(queue, record, key)
    assert drain(queue) == [4, 2, 1, 3]


def test_a_record_that_moves_to_another_key_is_found_once() -> None:
    queue = ReadyQueue(Shape(ONE_CORE, STATE.named_queues[""]), STATE.share_of(STATE.groups[ROOT].workflow))
    first, second = ready_records(2)
    put(queue, first, 1.0)
    put(queue, second, 2.0)
    put(queue, first, 3.0)
    assert drain(queue) == [2, 1]


def test_pushing_the_same_key_again_adds_nothing() -> None:
    queue = ReadyQueue(Shape(ONE_CORE, STATE.named_queues[""]), STATE.share_of(STATE.groups[ROOT].workflow))
    (record,) = ready_records(1)
    put(queue, record, 1.0)
    put(queue, record, 1.0)
    assert len(queue) == 1


def test_a_record_that_is_not_ready_any_more_is_dropped_when_it_surfaces() -> None:
    queue = ReadyQueue(Shape(ONE_CORE, STATE.named_queues[""]), STATE.share_of(STATE.groups[ROOT].workflow))
    first, second = ready_records(2)
    put(queue, first, 1.0)
    put(queue, second, 2.0)
    hold(first)
    head = queue.head()
    assert head is not None
    assert head[4] is second
    assert len(queue) == 1


def test_a_dropped_record_can_come_back_under_its_old_key() -> None:
    queue = ReadyQueue(Shape(ONE_CORE, STATE.named_queues[""]), STATE.share_of(STATE.groups[ROOT].workflow))
    (record,) = ready_records(1)
    put(queue, record, 1.0)
    hold(record)
    assert queue.head() is None
    release(record)
    put(queue, record, 1.0)
    assert drain(queue) == [1]


def pop(queue: ReadyQueue) -> Entry:
    entry = queue.head()
    assert entry is not None
    queue.take()
    return entry


def test_what_was_looked_at_is_put_back_in_its_place() -> None:
    queue = ReadyQueue(Shape(ONE_CORE, STATE.named_queues[""]), STATE.share_of(STATE.groups[ROOT].workflow))
    for record in ready_records(3):
        put(queue, record, float(record.id))
    looked_at = [pop(queue), pop(queue)]
    for entry in looked_at:
        queue.put_back(entry)
    assert drain(queue) == [1, 2, 3]


def test_what_was_placed_meanwhile_is_not_put_back() -> None:
    queue = ReadyQueue(Shape(ONE_CORE, STATE.named_queues[""]), STATE.share_of(STATE.groups[ROOT].workflow))
    (record,) = ready_records(1)
    put(queue, record, 1.0)
    entry = pop(queue)
    hold(record)
    queue.put_back(entry)
    assert len(queue) == 0
    release(record)
    put(queue, record, 1.0)
    assert drain(queue) == [1]


def test_an_entry_of_an_older_key_is_not_put_back() -> None:
    queue = ReadyQueue(Shape(ONE_CORE, STATE.named_queues[""]), STATE.share_of(STATE.groups[ROOT].workflow))
    (record,) = ready_records(1)
    put(queue, record, 1.0)
    entry = pop(queue)
    put(queue, record, 5.0)
    queue.put_back(entry)
    assert len(queue) == 1
    assert drain(queue) == [1]


def test_one_whose_priority_changes_and_changes_back_keeps_its_place_and_is_found_once() -> None:
    queue = ReadyQueue(Shape(ONE_CORE, STATE.named_queues[""]), STATE.share_of(STATE.groups[ROOT].workflow))
    first, second, third = ready_records(3)
    for record in (first, second, third):
        put(queue, record, 0.0)
    for priority in (1, 0):
        second.priority = priority
        put(queue, second, 0.0)
    assert drain(queue) == [first.id, second.id, third.id]


def test_what_was_taken_and_is_not_ready_any_more_can_come_again() -> None:
    queue = ReadyQueue(Shape(ONE_CORE, STATE.named_queues[""]), STATE.share_of(STATE.groups[ROOT].workflow))
    (record,) = ready_records(1)
    put(queue, record, 0.0)
    entry = queue.take()
    assert entry is not None
    hold(record)
    queue.put_back(entry)
    release(record)
    put(queue, record, 0.0)
    assert drain(queue) == [record.id]


def test_demand_follows_what_becomes_ready_and_what_goes_out() -> None:
    bench = Bench(2)
    assert Queries(bench.machine).demand() == {}
    bench.submit(task(1), task(2), task(3, 1), array(4, 10, needs=needs(2)), task(5, needs=needs(9)))
    assert Queries(bench.machine).demand() == {
        needs(2): 10,
        needs(9): 1,
    }  # both tasks of one core are out, the third waits
    bench.end(1)
    assert Queries(bench.machine).demand() == {needs(2): 10, needs(9): 1}  # the third is out too
    bench.tell(executor(2, 2))
    assert sum(Queries(bench.machine).demand().values()) < 11
    bench.tell(Cancel(Dep(On.TASK, 5)))
    assert needs(9) not in Queries(bench.machine).demand()


def test_needs_that_no_executor_can_meet_are_named_with_the_task_that_goes_next() -> None:
    bench = Bench(0)
    bench.submit(
        task(1, needs=needs(8)), task(2, needs=needs(8), priority=1), array(3, 5, needs=needs(1, gpus=1)), task(4)
    )
    assert Queries(bench.machine).unplaceable() == {}  # no executor is there yet: nothing can be said
    bench.tell(executor(1, 2))
    assert Queries(bench.machine).unplaceable() == {needs(8): 2, needs(1, gpus=1): 3}
    bench.tell(executor(2, 8))
    assert Queries(bench.machine).unplaceable() == {needs(1, gpus=1): 3}


def test_shapes_that_nothing_uses_any_more_are_forgotten() -> None:
    index = DemandIndex(STATE.named_queues)
    share = STATE.share_of(STATE.groups[ROOT].workflow)
    one, other = (ReadyQueue(index.shape_of(needs(3)), share) for _ in range(2))
    shape = one.shape
    assert shape is other.shape
    shape.queues = {one: None, other: None}
    index.forget(one)
    assert index.shape_of(needs(3)) is shape
    shape.ready = 1  # a workflow gets new queues while something of it is ready
    index.forget(other)
    assert [*index] == [shape]
    shape.ready = 0
    index.forget(other)
    assert index.shape_of(needs(3)) is not shape
