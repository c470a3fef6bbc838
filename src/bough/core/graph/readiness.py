"""What happens when a record has nothing left to wait for: look for its result in earlier runs, or become ready.

The memo key of a task is completed here: its content, which of several identical submissions it is, and the successes
it builds on. Lookups that a dead server left open are found from the state. Rule: a task with a key is looked up before
it runs if earlier runs left memos; what is found is done without running.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bough.core.effects import Effects
from bough.core.records.array_record import READY, WAITING, ArrayRecord, Record
from bough.core.records.group_record import GroupRecord
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.model.arrays import ranges
from bough.model.events.facts import Freed
from bough.model.events.orders import LookUpMemo
from bough.model.ids import MemoKey, RecordId
from bough.model.memo_keys import array_mark, full_key, success_mark
from bough.model.reuse_scope import ReuseScope
from bough.model.tasks import Dep, On, Reuse


def now_free(state: State, effects: Effects | None, record: Record) -> None:
    """All that a record as a whole waited for is there."""
    if isinstance(record, TaskRecord):
        workflow = record.group.workflow
        if workflow.memos and record.key and record.trouble is None and workflow.looks_up(always=_is_always(record)):
            record.awaits_memo = True
            if effects is not None:
                effects.orders.append(_look_up(state, record))
        else:
            state.task_free(record)
        return
    for start, stop in _without_own_waits(record, record.runs(bytes((WAITING,)), 0, record.length)):
        elements_free(state, effects, record, start, stop)


def still_ready(freed: Iterable[tuple[Record, int, int]]) -> Iterator[Freed]:
    """Of what became free in a turn, what no executor has got: at most one fact."""
    loose: list[int] = []
    parts: list[tuple[RecordId, int, int]] = []
    for record, start, stop in freed:
        if isinstance(record, TaskRecord):
            if record.state == READY:
                loose.append(record.id)
        else:
            parts += ((RecordId(record.id), low, high) for low, high in record.runs(bytes((READY,)), start, stop))
    if not loose and not parts:
        return
    rows: list[tuple[RecordId, RecordId]] = []
    for number in sorted(loose):
        first, last = rows[-1] if rows else (number, number)
        if number <= last + 1 and rows:
            rows[-1] = (RecordId(first), RecordId(number))
        else:
            rows.append((RecordId(number), RecordId(number)))
    yield Freed(tuple(rows), tuple(parts))


def elements_free(
    state: State,
    effects: Effects | None,
    array: ArrayRecord,
    start: int,
    stop: int,
    *,
    candidates: Sequence[Reuse] | None = None,
) -> None:
    """Elements of an array wait for nothing any more; candidates for reuse are the spec's, or came with its pages."""
    if candidates is None:
        candidates = array.spec.reuse
    if not (array.group.workflow.memos and array.spec.key and candidates):
        state.free(array, start, stop)
        return
    for low, high in _of_one_key(array, start, stop):
        wanted = tuple(reuse for reuse in candidates if reuse.start < high and low < reuse.stop)
        if wanted:
            array.awaits_memo = True
            if effects is not None:
                effects.orders.append(_look_up(state, array, low, high, wanted))
        else:
            state.free(array, low, high)


def _look_up(state: State, record: Record, start: int = 0, stop: int = 1, wanted: tuple[Reuse, ...] = ()) -> LookUpMemo:
    always = _is_always(record) or record.group.workflow.reuse is ReuseScope.ALL
    return LookUpMemo(RecordId(record.id), start, stop, key_of(state, record, start), wanted, always)


def _is_always(record: Record) -> bool:
    return record.shared_spec.always if isinstance(record, TaskRecord) else record.spec.always


def _of_one_key(array: ArrayRecord, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Cut a range so that elements with dependencies of their own are alone."""
    own = array.own_deps
    if own:
        for index in range(start, stop):
            if index in own:
                if start < index:
                    yield start, index
                yield index, index + 1
                start = index + 1
    if start < stop:
        yield start, stop


def _without_own_waits(array: ArrayRecord, found: ranges.Ranges) -> ranges.Ranges:
    """Leave out elements that wait for something of their own, and retries that are not due."""
    if not array.element_waits and not array.trouble:
        return found
    left = [list(part) for part in found]
    for index in array.element_waits:
        ranges.take(left, index, index + 1)
    return left


def key_of(state: State, record: Record, index: int = 0) -> MemoKey:
    """The full key of a task; of an array's elements without their arguments, which the store compares."""
    if isinstance(record, TaskRecord):
        key, own = record.key, record.own
        marks = [mark(state, dep) for dep in own.after] if own is not None else []
        return full_key(key, record.occurrence, marks) if key else key
    if not record.spec.key:
        return MemoKey(b"")
    marks = [mark(state, dep) for dep in record.after]
    marks += [mark(state, dep) for dep in record.own_deps.get(index, ())]
    return full_key(record.spec.key, 0, marks)


def mark(state: State, dep: Dep) -> bytes:
    """The identity of the success that a dependency points at."""
    if dep.is_group:
        return _group_mark(state.groups[dep.id])
    record = state.records[dep.id]
    if dep.on is On.ARRAY:
        return _record_mark(record)
    success = record.success_of(dep.index)
    if success is None:
        remake = state.remakes.find(dep.id, dep.index)  # a reader may end while what it has read is made again
        return success_mark(dep.id, dep.index, remake.attempt) if remake is not None and remake.attempt else b""
    return success_mark(success.source, success.source_start + dep.index - success.start, success.attempt)


def _record_mark(record: Record) -> bytes:
    return array_mark([(s.source, s.source_start, s.stop - s.start, s.attempt) for s in record.successes()])


def _group_mark(group: GroupRecord) -> bytes:
    return full_key(b"group", 0, [*map(_record_mark, group.members), *map(_group_mark, group.children)])


_WAITING = bytes((WAITING,))


def unanswered(state: State) -> Iterator[LookUpMemo]:
    """Lookups that tasks wait for."""
    for record in state.records.values():
        if not record.awaits_memo or record.waits:
            continue
        if isinstance(record, TaskRecord):
            if record.state == WAITING:
                yield _look_up(state, record)
        elif isinstance(record, ArrayRecord):
            for low, high in _lookups(record):
                wanted = tuple(reuse for reuse in record.spec.reuse if reuse.start < high and low < reuse.stop)
                if record.spec.fed:  # what came with its pages is not known any more: nothing will be found
                    wanted = (Reuse(low, high, RecordId(0), low),)
                if wanted:
                    yield _look_up(state, record, low, high, wanted)


def _lookups(array: ArrayRecord) -> Iterator[tuple[int, int]]:
    """Waiting elements, those with dependencies of their own alone and only when they are met."""
    for start, stop in array.runs(_WAITING, 0, array.length):
        first = start
        for index in sorted(i for i in array.trouble if start <= i < stop) if array.spec.fed else ():
            if first < index:
                yield first, index
            first = index + 1  # it waits for its next try
        for index in range(start, stop) if array.own_deps else ():
            if index in array.own_deps:
                if first < index:
                    yield first, index
                if index not in array.element_waits:
                    yield index, index + 1
                first = index + 1
        if first < stop:
            yield first, stop
