"""Dependencies: what waits for what, what happens when something ends, gates of groups.

A record waits for tasks, arrays and groups, and for the gate of its group, which opens when the
group's own dependencies are met. Rule: a waiter is told once; entries of an earlier generation of
it (before it was abandoned or revived) are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bough.core import populations
from bough.core.effects import Effects
from bough.core.graph import readiness
from bough.core.records.array_record import DONE, FAILED, UNSUCCESSFUL_STATES, WAITING, ArrayRecord, Record
from bough.core.records.group_record import GroupRecord, Waiter
from bough.core.records.indexes.ready_queue import HAD_RUN
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.core.storable import shortened
from bough.model.arrays.array_indices import task_label
from bough.model.events.orders import TellGroupFinished
from bough.model.ids import number_of
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import ArraySpec, Dep, On

_TASK = On.TASK


def wait_for(
    state: State,
    effects: Effects | None,
    waiter: TaskRecord | ArrayRecord | GroupRecord,
    index: int,
    deps: Iterable[Dep],
) -> int:
    """Let a waiter (all of it at index -1) wait for what is not done yet; return how many things that is.

    A dependency that has failed already dooms the waiter.
    """
    waits = 0
    entry = (waiter, index, waiter.generation)
    for dep in deps:
        on = dep.on
        if on is not _TASK and dep.is_group:
            waits += _wait_for_group(state, effects, state.groups[dep.id], entry, on)
            continue
        record = state.records[dep.id]
        if on is _TASK:
            reached = record.state if type(record) is TaskRecord else record.state_of(dep.index)
            if reached == DONE or (reached in UNSUCCESSFUL_STATES and is_final(waiter)):
                continue
            if state.remakes.by_record and state.remakes.counts_as_done(dep.id, dep.index):
                continue
            if reached in UNSUCCESSFUL_STATES:
                skip(state, effects, entry, failure_of(record, dep.index))
            waits += 1
            record.wait_for_element(dep.index, entry)
        else:
            waits += _wait_for_array(state, effects, record, entry)
    return waits


def _wait_for_array(state: State, effects: Effects | None, record: Record, entry: Waiter) -> int:
    if is_done(record) or (state.remakes.by_record and _is_only_remade(state, record)):
        return 0
    if (bad := first_failed(record)) >= 0:
        if is_final(entry[0]):
            return 0
        skip(state, effects, entry, failure_of(record, bad))
    if record.dependents is None:
        record.dependents = []
    record.dependents.append(entry)
    return 1


def _is_only_remade(state: State, record: Record) -> bool:
    """Whether all of a record has succeeded, but for what runs again, or did, to make something that was lost."""
    again = state.remakes.by_record.get(record.id)
    if not again or (isinstance(record, ArrayRecord) and record.open):
        return False
    return record.count(DONE, 0, record.length) + sum(record.state_of(i) != DONE for i in again) == record.length


def is_final(waiter: Record | GroupRecord) -> bool:
    """Whether it runs whatever becomes of what it waits for."""
    return type(waiter) is TaskRecord and waiter.own is not None and waiter.own.extras.final


def _wait_for_group(state: State, effects: Effects | None, group: GroupRecord, entry: Waiter, on: On) -> int:
    if group.was_over or (group.finished and (not group.failed_by or is_final(entry[0]))):
        return 0
    if group.released and on is On.GROUP:
        return 0
    if group.finished:
        skip(state, effects, entry, failure_of_group(state, group))
    (group.dependents if on is On.GROUP else group.waiting_for_end).append(entry)
    return 1


def blocking_failure(state: State, deps: Iterable[Dep]) -> Failure | None:
    """Why one of these dependencies will not be met as things stand; None while all may be."""
    for dep in deps:
        if dep.is_group:
            group = state.groups[dep.id]
            if group.was_over:
                continue
            if group.finished and group.failed_by and not (group.released and dep.on is On.GROUP):
                return failure_of_group(state, group)
            continue
        record = state.records[dep.id]
        bad = first_failed(record) if dep.on is On.ARRAY else dep.index
        if bad >= 0 and record.state_of(bad) in UNSUCCESSFUL_STATES:
            return failure_of(record, bad)
    return None


def why_skipped(state: State, record: Record) -> Failure | None:
    """Why what a record as a whole waits for will not come as things stand; None while it may."""
    return blocking_failure(state, record.after) or record.group.skip_reason


def is_done(record: Record) -> bool:
    """Whether all of a record succeeded."""
    if isinstance(record, ArrayRecord):
        return not record.open and record.counts[DONE] == record.length
    return record.state == DONE


def first_failed(record: Record) -> int:
    """The first element that ended without success, or -1."""
    runs = record.runs(UNSUCCESSFUL_STATES, 0, record.length)
    return runs[0][0] if runs else -1


def failure_of(record: Record, index: int) -> Failure:
    """Why dependents of an element that ended without success are not run: the first cause, by name."""
    own = record.failure_of(index)
    if own is not None and own.cause in {Cause.DEPENDENCY, Cause.FAIL_FAST}:
        return own
    what = own.message or own.cause.value if own is not None else "was cancelled"
    message = shortened(f"{name_of(record, index)} did not succeed: {what}")
    return Failure(Cause.DEPENDENCY, message, source=record.id)


def failure_of_group(state: State, group: GroupRecord) -> Failure:
    """Why dependents of a group are not run."""
    record = state.records.get(group.failed_by)
    if record is None:
        return Failure(Cause.DEPENDENCY, shortened(f"group {group.path} did not succeed"), source=0)
    inner = failure_of(record, max(first_failed(record), 0))
    if inner.cause is Cause.FAIL_FAST:
        return inner
    return Failure(Cause.DEPENDENCY, shortened(f"group {group.path}: {inner.message}"), source=inner.source)


def name_of(record: Record, index: int) -> str:
    """A task as people name it: task 12 (plot), task 7.3."""
    number = label_of(record, index)
    return f"task {number} ({record.spec.name})" if record.spec.name else f"task {number}"


def label_of(record: Record, index: int) -> str:
    """A task's id as people write it: 12, or 7.3 of an array."""
    if not record.is_array:
        return str(number_of(record.id))
    spec = record.spec
    return task_label(record.id, index, spec.indices if isinstance(spec, ArraySpec) else "")


def is_stale(entry: Waiter) -> bool:
    """Whether a waiter has been given up since it began to wait."""
    waiter, index, generation = entry
    if waiter.generation != generation:
        return True
    return isinstance(waiter, ArrayRecord) and index >= 0 and waiter.states[index] != WAITING


def skip(state: State, effects: Effects | None, entry: Waiter, failure: Failure) -> None:
    """What waits will never run: a group with all that is in it, or elements of a record."""
    waiter, index, _ = entry
    if isinstance(waiter, GroupRecord):
        if waiter.skip_reason is None:
            waiter.skip_reason = failure
            waiter.waiting_for_gate = _skip_all(state, effects, waiter.waiting_for_gate, failure)
            finish(state, effects, waiter)
    elif isinstance(waiter, TaskRecord):
        if effects is not None:
            effects.skipped.append((waiter, 0, 1, failure))
    elif index >= 0:
        if effects is not None:
            effects.skipped.append((waiter, index, index + 1, failure))
    elif effects is not None:
        effects.skipped.append((waiter, 0, waiter.length, failure))


def _skip_all(state: State, effects: Effects | None, waiters: list[Waiter], failure: Failure) -> list[Waiter]:
    """What these wait for failed; those that are kept, since a retry by hand may still satisfy them."""
    satisfied = [entry for entry in waiters if is_final(entry[0])]
    kept = [entry for entry in waiters if not is_final(entry[0])] if satisfied else waiters
    for entry in kept:
        if not is_stale(entry):
            skip(state, effects, entry, failure)
    satisfy(state, effects, satisfied)
    return kept


def satisfy(state: State, effects: Effects | None, waiters: list[Waiter]) -> None:
    """Something succeeded: what waited for it waits for one thing less."""
    for waiter, index, generation in waiters:
        if waiter.generation != generation:
            continue
        if index >= 0 and isinstance(waiter, ArrayRecord):
            _satisfy_element(state, effects, waiter, index)
            continue
        waits = waiter.waits - 1
        waiter.waits = waits
        if waits:
            continue
        if type(waiter) is TaskRecord and waiter.state != WAITING:
            continue  # it travels with what it waited for
        if isinstance(waiter, GroupRecord):
            open_gate(state, effects, waiter)
        else:
            readiness.now_free(state, effects, waiter)
            if effects is not None:
                effects.freed.append((waiter, 0, waiter.length))


def _satisfy_element(state: State, effects: Effects | None, array: ArrayRecord, index: int) -> None:
    left = array.element_waits.get(index, 0) - 1
    if left > 0:
        array.element_waits[index] = left
        return
    array.element_waits.pop(index, None)
    if array.waits == 0 and array.states[index] == WAITING:
        readiness.elements_free(state, effects, array, index, index + 1)
        if effects is not None:
            effects.freed.append((array, index, index + 1))


def open_gate(state: State, effects: Effects | None, group: GroupRecord) -> None:
    """A group's dependencies are met: what is in it may run."""
    waiting_for_gate, group.waiting_for_gate = group.waiting_for_gate, []
    satisfy(state, effects, waiting_for_gate)
    finish(state, effects, group)  # there may be nothing in it


def ended(state: State, effects: Effects | None, record: Record, start: int, stop: int) -> None:
    """Elements reached an end: tell what waits for them, for the record, and for its group."""
    state.watch.seen.forget(record.id, start, stop)
    if isinstance(record, TaskRecord):
        good = record.state == DONE
        if record.dependents:
            _tell(state, effects, record, 0, record.dependents, good=good)
    else:
        good = record.states[start] == DONE
        awaited = record.element_dependents
        if awaited:
            few = range(start, stop) if stop - start < len(awaited) else list(awaited)
            for index in [index for index in few if index in awaited and start <= index < stop]:
                _tell(state, effects, record, index, awaited[index], good=good)
        if record.dependents and (not good or is_done(record)):
            _tell(state, effects, record, start, record.dependents, good=good)
    remade(state, effects, record, start, stop, good=good)
    populations.ended(state, effects, record, start, stop, good=good)
    group = record.group
    if not good:
        for above in group.chain():
            above.failed_by = above.failed_by or record.id
    if good and record.spec.extras.release and is_done(record):
        release(state, effects, group)
    if group.closed and (group.unfinished == 0 or group.released_children):
        finish(state, effects, group)


def direct(record: Record, index: int) -> Iterator[Dep]:
    """What an element depends on, by itself and with its array."""
    yield from record.after
    if isinstance(record, ArrayRecord):
        yield from record.own_deps.get(index, ())


def remade(state: State, effects: Effects | None, record: Record, start: int, stop: int, *, good: bool) -> None:
    """Elements ended that may have been made again: readers that waited for them go on, or wait for the next."""
    for number, index in state.remakes.end(record.id, start, stop):
        reader = state.records.get(number)
        if reader is None or index >= reader.length or reader.state_of(index) != WAITING or reader.waits:
            continue  # a user has acted on it meanwhile
        awaited = state.remakes.awaited(direct(reader, index))
        if not good and not is_final(reader):
            if effects is not None:
                effects.skipped.append((reader, index, index + 1, failure_of(record, start)))
        elif awaited is not None:
            state.remakes.wait(number, index, awaited)
        else:
            state.free(reader, index, index + 1, first=HAD_RUN)
            if effects is not None:
                effects.freed.append((reader, index, index + 1))


def _tell(
    state: State, effects: Effects | None, record: Record, index: int, waiters: list[Waiter], *, good: bool
) -> None:
    if good:
        satisfy(state, effects, waiters)
        waiters.clear()
        return
    waiters[:] = _skip_all(state, effects, list(waiters), failure_of(record, index))


def release(state: State, effects: Effects | None, group: GroupRecord) -> None:
    """What waits for a group may start before all in it has ended; if that was all, also what waits for its parent."""
    parent = group.parent
    if group.released or group.finished or parent is None:  # nothing can wait for the root
        return
    group.released = True
    waiters, group.dependents = group.dependents, []
    satisfy(state, effects, waiters)
    parent.released_children += 1
    finish(state, effects, parent)


def finish(state: State, effects: Effects | None, group: GroupRecord) -> None:
    """A closed group with nothing unfinished is over: tell its dependents and the group above.

    An empty one is over when its own dependencies are met, so that waiting for it means something.
    """
    if group.finished or not group.closed:
        return
    if group.unfinished:
        if group.released_children == group.unfinished:  # all that has not ended is released
            release(state, effects, group)
        return
    failed_by = group.failed_by or _failed_in(group)
    if group.waits and not failed_by and group.skip_reason is None:
        return
    if group.tried < group.retries and _failed_by_itself(state, failed_by):
        if effects is not None:
            effects.groups_to_retry.append(group)
        return
    group.finished = True
    group.failed_by = failed_by or (group.skip_reason.source if group.skip_reason is not None else 0)
    if effects is not None:
        effects.orders.append(TellGroupFinished(group.id, bool(group.failed_by)))
    if group.failed_by:
        failure = failure_of_group(state, group)
        group.dependents = _skip_all(state, effects, group.dependents, failure)
        group.waiting_for_end = _skip_all(state, effects, group.waiting_for_end, failure)
    else:
        satisfy(state, effects, group.dependents)
        satisfy(state, effects, group.waiting_for_end)
        group.dependents, group.waiting_for_end = [], []
    if group.parent is not None:
        group.parent.unfinished -= 1
        group.parent.released_children -= group.released
        finish(state, effects, group.parent)


def _failed_by_itself(state: State, failed_by: int) -> bool:
    """Whether a record failed, and was not ended by a user."""
    record = state.records.get(failed_by)
    if record is None:
        return False
    failed = record.runs(bytes((FAILED,)), 0, record.length)
    failure = record.failure_of(failed[0][0]) if failed else None
    return failure is not None and failure.cause is not Cause.KILLED


def _failed_in(group: GroupRecord) -> int:
    """A record that did not succeed in a group or below it, or 0."""
    if any(group.counts[bad] for bad in UNSUCCESSFUL_STATES):
        return next(record.id for record in group.members if first_failed(record) >= 0)
    return next((child.failed_by for child in group.children if child.failed_by), 0)


def reopen(group: GroupRecord) -> None:
    """Something in a group is tried again: it has not finished, and what failed in it is found anew when it has."""
    for above in group.chain():
        above.failed_by = 0
        if above.finished:
            above.finished = False
            if above.parent is not None:
                above.parent.unfinished += 1
                above.parent.released_children += above.released


def array_complete(state: State, effects: Effects | None, array: ArrayRecord) -> None:
    """An array will not grow any more: it may be done, and so may its group."""
    if is_done(array) and array.dependents:
        satisfy(state, effects, array.dependents)
        array.dependents.clear()
    finish(state, effects, array.group)
