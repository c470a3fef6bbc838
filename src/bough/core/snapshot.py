"""The state as bytes and back, so that a restart replays only what came after.

What can be derived is not stored: who waits for whom, queues and counts are built again from the
specs and the states. Rule: a restored machine and the one it was taken from give the same answers.
"""

from __future__ import annotations

import msgspec

from bough.core import graph
from bough.core.ranges import Ranges
from bough.core.records import READY, WAITING, ArrayRecord, GroupRecord, Record, Success, TaskRecord
from bough.core.room import ExecutorRecord, Span
from bough.core.state import State
from bough.core.states import ENDED, TaskState
from bough.core.submission import add_array, add_group, add_task
from bough.core.timing import RunTime
from bough.model.facts import ExecutorJoined
from bough.model.ids import ROOT, Seconds, SpanId
from bough.model.outcomes import Failure
from bough.model.tasks import ArraySpec, GroupSpec, Page, TaskSpec

VERSION = 1
_DONE = int(TaskState.DONE)


class _Task(msgspec.Struct, array_like=True):
    spec: TaskSpec
    state: int
    attempt: int
    failures: int
    losses: int
    held: bool
    priority: int
    recalling: bool
    urgent: bool
    turn: int
    original: tuple[int, int, int] | None
    failure: Failure | None


class _Array(msgspec.Struct, array_like=True):
    spec: ArraySpec
    states: bytes
    held: bool
    held_ranges: Ranges
    priority: int
    recalling: bool
    urgent: bool
    open: bool
    attempts: dict[int, int]
    trouble: dict[int, tuple[int, int]]
    failures: dict[int, Failure]
    doomed: Failure | None
    found: list[Success]
    paged: list[Page]
    ready: list[list[int]]


class _Group(msgspec.Struct, array_like=True):
    spec: GroupSpec
    closed: bool
    settled: bool
    held: bool
    failed_by: int
    doomed: Failure | None


class _Span(msgspec.Struct, array_like=True):
    id: int
    record: int
    start: int
    stop: int
    attempt: int
    executor: int
    left: Ranges
    front: bool
    load: Seconds


class _Snapshot(msgspec.Struct):
    version: int
    turn: int
    now: Seconds
    run: int
    name: str
    fail_fast: bool
    memos: bool
    stopping: bool
    last_span: int
    root_held: bool
    root_failed_by: int
    first_failure: Failure | None
    groups: list[_Group]
    tasks: list[_Task]
    arrays: list[_Array]
    executors: list[tuple[ExecutorJoined, bool]]
    spans: list[_Span]
    timers: list[tuple[Seconds, int, int]]
    runtimes: list[tuple[str | int, Seconds, int]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Snapshot).decode


def take(state: State) -> bytes:
    """The state as it is, between two turns."""
    tasks = [_task(record) for record in state.records.values() if isinstance(record, TaskRecord)]
    arrays = [_array(record) for record in state.records.values() if isinstance(record, ArrayRecord)]
    return _encode(
        _Snapshot(
            VERSION,
            state.turn,
            state.now,
            state.run,
            state.name,
            state.fail_fast,
            state.memos,
            state.stopping,
            state.last_span,
            state.groups[ROOT].held,
            state.groups[ROOT].failed_by,
            state.first_failure,
            [_group(group) for group in state.groups.values() if group.parent is not None],
            tasks,
            arrays,
            [(_joined(executor), executor.draining) for executor in state.executors.values()],
            [_span(span) for span in state.spans.values()],
            list(state.timers),
            [(template, runtime.mean, runtime.seen) for template, runtime in state.runtimes.items()],
        )
    )


def restore(state: State, data: bytes) -> None:
    """Fill an empty state from a snapshot."""
    kept = _decode(data)
    state.turn, state.now, state.last_span = kept.turn, kept.now, kept.last_span
    state.run, state.name = kept.run, kept.name
    state.fail_fast, state.memos, state.stopping = kept.fail_fast, kept.memos, kept.stopping
    state.runtimes = {template: RunTime(mean, seen) for template, mean, seen in kept.runtimes}
    state.first_failure = kept.first_failure
    root = state.groups[ROOT]
    root.held, root.failed_by = kept.root_held, kept.root_failed_by
    state.held_groups = int(root.held)
    for group in kept.groups:
        _restore_group(state, group)
    items: list[_Task | _Array] = [*kept.tasks, *kept.arrays]
    for item in sorted(items, key=lambda one: one.spec.id):
        if isinstance(item, _Task):
            _restore_task(state, item)
        else:
            _restore_array(state, item)
    _settle_groups(state, kept)
    _link(state)
    for joined, draining in kept.executors:
        executor = ExecutorRecord(joined)
        executor.draining = draining
        state.executors[executor.id] = executor
        state.cores += executor.capacity.cores
    for one in kept.spans:
        record, executor = state.records[one.record], state.executors[one.executor]
        span = Span(SpanId(one.id), record, one.start, one.stop, one.attempt, executor, one.left, one.front, one.load)
        state.spans[span.id] = span
        executor.add(span)
    for executor in state.executors.values():
        state.note_room(executor)
    state.timers = sorted(kept.timers)
    state.orders.clear()
    state.doomed.clear()


def _task(record: TaskRecord) -> _Task:
    spec = record.spec
    if record.state == _DONE and spec.payload:  # a finished task is never sent again
        spec = msgspec.structs.replace(spec, payload=b"")
    return _Task(
        spec,
        record.state,
        record.attempt,
        record.failures,
        record.losses,
        record.held,
        record.priority,
        record.recalling,
        record.urgent,
        record.turn,
        record.original,
        record.failure,
    )


def _array(record: ArrayRecord) -> _Array:
    spec = msgspec.structs.replace(record.spec, pages=())
    return _Array(
        spec,
        bytes(record.states),
        record.held,
        record.held_ranges,
        record.priority,
        record.recalling,
        record.urgent,
        record.open,
        record.attempts,
        record.trouble,
        record.failures,
        record.doomed,
        record.successes(),
        record.paged,
        list(record.ready_ranges),
    )


def _group(group: GroupRecord) -> _Group:
    assert group.parent is not None
    spec = GroupSpec(group.id, group.name, group.parent.id, group.after)
    return _Group(spec, group.closed, group.settled, group.held, group.failed_by, group.doomed)


def _joined(executor: ExecutorRecord) -> ExecutorJoined:
    return ExecutorJoined(executor.id, executor.site, executor.host, executor.pid, executor.capacity, executor.until)


def _span(span: Span) -> _Span:
    return _Span(
        span.id,
        span.record.id,
        span.start,
        span.stop,
        span.attempt,
        span.executor.id,
        span.left,
        span.front,
        span.load,
    )


def _restore_group(state: State, kept: _Group) -> None:
    group = add_group(state, kept.spec)
    group.closed, group.held = kept.closed, kept.held
    group.failed_by, group.doomed = kept.failed_by, kept.doomed
    state.held_groups += kept.held


def _settle_groups(state: State, kept: _Snapshot) -> None:
    for one in kept.groups:
        group = state.groups[one.spec.id]
        if one.settled:
            group.settled = True
            assert group.parent is not None
            group.parent.unfinished -= 1


def _restore_task(state: State, kept: _Task) -> None:
    record = add_task(state, kept.spec)
    _count(state, record, kept.state, 1)
    record.state = kept.state
    record.ready = int(kept.state == READY)
    record.attempt, record.failures, record.losses = kept.attempt, kept.failures, kept.losses
    record.held, record.priority, record.recalling, record.urgent = (
        kept.held,
        kept.priority,
        kept.recalling,
        kept.urgent,
    )
    record.turn, record.original, record.failure = kept.turn, kept.original, kept.failure
    if record.ready:
        state.enqueue(record)


def _restore_array(state: State, kept: _Array) -> None:
    length = len(kept.states)
    record = add_array(state, msgspec.structs.replace(kept.spec, length=length, open=kept.open))
    record.spec = kept.spec
    record.paged = kept.paged
    for number in set(kept.states):
        count = kept.states.count(number)
        _count(state, record, number, count)
        record.counts[WAITING] -= count
        record.counts[number] += count
    record.states = bytearray(kept.states)
    record.held, record.held_ranges, record.priority = kept.held, kept.held_ranges, kept.priority
    record.recalling, record.urgent = kept.recalling, kept.urgent
    record.attempts, record.trouble, record.failures = kept.attempts, kept.trouble, kept.failures
    record.doomed, record.found = kept.doomed, kept.found
    record.ready_ranges.extend(kept.ready)
    record.ready = record.counts[READY]
    if record.ready:
        state.enqueue(record)


def _count(state: State, record: Record, number: int, count: int) -> None:
    """Move elements from waiting, where adding put them, to the state they had."""
    counts = record.group.counts
    counts[WAITING] -= count
    counts[number] += count
    if TaskState(number) in ENDED:
        state.unended -= count
        record.group.unfinished -= count


def _link(state: State) -> None:
    """Find again who waits for whom; ended ones too, since a retry by hand may wake them."""
    for group in state.groups.values():
        if group.parent is not None:
            group.waits = graph.wait_for(state, group, -1, group.after)
    for group in state.groups.values():
        if group.parent is not None and group.parent.waits:
            group.waits += 1
            group.parent.gated.append((group, -1, group.generation))
    for record in state.records.values():
        if not (isinstance(record, TaskRecord) and record.state == _DONE):
            _link_record(state, record)


def _link_record(state: State, record: Record) -> None:
    record.waits = graph.wait_for(state, record, -1, record.spec.after)
    if record.group.waits:
        record.waits += 1
        record.group.gated.append((record, -1, record.generation))
    if isinstance(record, ArrayRecord):
        for index, deps in record.spec.element_after:
            if record.states[index] != _DONE and (waits := graph.wait_for(state, record, index, deps)):
                record.element_waits[index] = waits
