"""What people do to tasks, arrays and groups: cancel, kill, hold, release, retry, change priority, declare done.

Tasks are declared done when what they would have computed is there, or is not needed: commands, and functions whose
value no other task takes, unless they are with an executor. A function whose value is taken by a task that is not
declared with it is not changed, because there is no value. Rule: an action applies to the largest lawful part of its
target and leaves the rest alone; it is recorded once, for the target, and what it means for each element follows from
the state.
"""

from __future__ import annotations

from collections.abc import Iterator

from bough.core import lifecycle
from bough.core.effects import Effects
from bough.core.graph import dependencies
from bough.core.records.array_record import (
    DONE,
    FAILED,
    HELD,
    OCCUPYING_STATES,
    OPEN_STATES,
    PENDING_STATES,
    READY,
    SKIPPED,
    UNSUCCESSFUL_STATES,
    WAITING,
    ArrayRecord,
    Record,
)
from bough.core.records.group_record import GroupRecord, Workflow
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.model.arrays import ranges
from bough.model.arrays.ranges import Ranges
from bough.model.arrays.result_lists import nones
from bough.model.events import facts, news
from bough.model.outcomes import Cause, Detail, Failure
from bough.model.tasks import Dep, Kind, On

_DECLARABLE = PENDING_STATES + UNSUCCESSFUL_STATES
_NAMED = 3  # tasks in a message

Target = tuple[Record, int, int]


def targets(state: State, dep: Dep, stop: int) -> Iterator[Target]:
    """The records, and which of their elements, that a target names."""
    if dep.is_group:
        group = state.groups.get(dep.id)
        for inside in group.records() if group is not None else ():
            yield inside, 0, inside.length
        return
    record = state.records.get(dep.id)
    if record is None:
        return
    if dep.on is On.ARRAY:
        yield record, 0, record.length
    elif 0 <= dep.index < record.length:
        yield record, dep.index, min(max(stop, dep.index + 1), record.length)


def touched(state: State, action: news.Cancel | news.Kill | news.Hold | news.Release | news.Retry) -> int:
    """How many tasks an action would change now."""
    if isinstance(action, news.Release) and not is_lawful(state, action):
        return 0
    wanted = {
        news.Cancel: OPEN_STATES,
        news.Kill: OCCUPYING_STATES,
        news.Hold: bytes((WAITING, READY)),
        news.Release: bytes((HELD,)),
        news.Retry: UNSUCCESSFUL_STATES,
    }[type(action)]
    found = list(targets(state, action.target, action.stop))
    count = sum(ranges.size(record.runs(wanted, start, stop)) for record, start, stop in found)
    if isinstance(action, news.Release):
        count += sum(_held_in_advance(record, start, stop, action.target.is_group) for record, start, stop in found)
    return count


def _held_in_advance(record: Record, start: int, stop: int, with_group: bool) -> int:
    """How many elements wait for others, and would be held after that; `with_group`: because of their group, too."""
    waiting = record.runs(bytes((WAITING,)), start, stop)
    if record.held or (with_group and record.group.is_held()):
        return ranges.size(waiting)
    held = record.held_ranges if isinstance(record, ArrayRecord) else ()
    return sum(max(0, min(high, last) - max(low, first)) for low, high in waiting for first, last in held)


def is_lawful(state: State, action: news.Hold | news.Release) -> bool:
    """Whether a hold or a release names something; a group can be enabled only if it is disabled."""
    if action.target.is_group:
        group = state.groups.get(action.target.id)
        return group is not None and (group.disabled or not (isinstance(action, news.Release) and action.enabled))
    return any(True for _ in targets(state, action.target, action.stop))


def cancelled(state: State, effects: Effects | None, fact: facts.Cancelled) -> None:
    """Final at once; what runs is ended."""
    for record, start, stop in list(targets(state, fact.target, fact.stop)):
        for low, high in record.runs(OPEN_STATES, start, stop):
            stop_spans(state, effects, record, low, high)
            lifecycle.cancel(state, effects, record, low, high)
        if isinstance(record, ArrayRecord) and record.open and fact.target.on is not On.TASK:
            record.open = False
            state.open_arrays -= 1
            record.group.unfinished -= 1
            dependencies.array_complete(state, effects, record)
    _let_others_be_seen(state)


def _let_others_be_seen(state: State) -> None:
    """What is ready no more made room in the window of a policy that has one."""
    if state.affinity is not None and state.affinity.withdrawn():
        state.due = True


def stop_spans(state: State, effects: Effects | None, record: Record, start: int, stop: int) -> None:
    """End what executors have of a range; if it is tried again, attempt numbers go on."""
    for span, low, high in lifecycle.end_attempts(state, effects, record, start, stop):
        if isinstance(record, ArrayRecord):
            for index in range(low, high):
                record.attempts[index] = max(span.attempt, record.attempts.get(index, 0))


def held(state: State, effects: Effects | None, fact: facts.Held) -> None:
    """What has not started shall not."""
    for record, start, stop in _hold_flags(state, fact, on=True):
        for low, high in record.runs(bytes((READY,)), start, stop):
            record.unready(low, high)
            state.move(record, low, high, HELD)
    _let_others_be_seen(state)


def released(state: State, effects: Effects | None, fact: facts.Released) -> None:
    """What was held may start."""
    for record, start, stop in _hold_flags(state, fact, on=False):
        if record.held or record.group.is_held():
            continue
        for low, high in record.runs(bytes((HELD,)), start, stop):
            state.move(record, low, high, READY)
            record.make_ready(low, high)
            if state.affinity is not None and state.asks_policy and record.has_inputs:
                state.affinity.became_ready(record, low, high, state.now)
            if effects is not None:
                effects.freed.append((record, low, high))
        if record.ready:
            state.enqueue(record)


def _hold_flags(state: State, fact: facts.Held | facts.Released, *, on: bool) -> list[Target]:
    """Set or clear the flags that keep tasks held also when they become free later.

    Holding a group flags the group; releasing it releases everything inside, however it was held.
    """
    found = list(targets(state, fact.target, fact.stop))
    group = state.groups.get(fact.target.id) if fact.target.is_group else None
    if group is not None:
        _flag_group(state, group, on=on)
        if on:
            group.disabled = group.disabled or (isinstance(fact, facts.Held) and fact.disabled)
            return found
    for record, start, stop in found:
        if not isinstance(record, ArrayRecord) or (start == 0 and stop == record.length):
            record.held = on
            if isinstance(record, ArrayRecord):
                record.held_ranges.clear()
        else:
            if record.held and not on:  # all of it was held: the rest of it stays so
                record.held, record.held_ranges = False, [[0, record.length]]
            ranges.take(record.held_ranges, start, stop)
            if on:
                ranges.add(record.held_ranges, start, stop)
    return found


def _flag_group(state: State, group: GroupRecord, *, on: bool) -> None:
    if group.held != on:
        group.held = on
        state.held_groups += 1 if on else -1
    if not on:
        group.disabled = False
        for child in group.children:
            _flag_group(state, child, on=False)


def prioritised(state: State, effects: Effects | None, fact: facts.Prioritised) -> None:
    """A new priority."""
    for record, _, _ in targets(state, fact.target, 0):
        record.priority = fact.priority
        if record.ready:
            state.enqueue(record)


def retried(state: State, effects: Effects | None, fact: facts.Retried) -> None:
    """What ended without success is tried again, and so is what was not run because of it."""
    if fact.automatic:
        state.groups[fact.target.id].tried += 1
    todo = [t for t in targets(state, fact.target, fact.stop) if t[0].runs(UNSUCCESSFUL_STATES, t[1], t[2])]
    for record, _, _ in todo:
        record.group.workflow.first_failure = None  # a user has looked at it
    revived: list[Target] = []
    seen: set[int] = set()
    while todo:
        record, start, stop = todo.pop()
        for low, high in record.runs(UNSUCCESSFUL_STATES, start, stop):
            revived.append((record, low, high))
            state.move(record, low, high, WAITING)
            record.set_failure(low, high, None)
            forgive(record, low, high)
            dependencies.reopen(record.group)
            if state.remakes.by_record:
                state.remakes.revive(record.id, low, high)
        if record.id not in seen:
            seen.add(record.id)
            todo += _not_run_because_of(state, record)
    for record, low, high in sorted(revived, key=lambda target: target[0].id):
        _wait_again(state, effects, record, low, high)


def forgive(record: Record, start: int, stop: int) -> None:
    """Failures so far do not count against the new tries; attempt numbers go on."""
    if isinstance(record, ArrayRecord):
        for index in [i for i in record.trouble if start <= i < stop]:
            del record.trouble[index]
        if not record.counts[SKIPPED]:  # otherwise it is still the reason of others
            record.skip_reason = None
    else:
        record.blame(0, 0, 0)


def _reconsider(state: State, group: GroupRecord) -> None:
    """Find anew whether the gate of a group, and of those below it, can still open."""
    above = group.parent.skip_reason if group.parent is not None else None
    group.skip_reason = above or dependencies.blocking_failure(state, group.after)
    for child in group.children:
        _reconsider(state, child)


def _not_run_because_of(state: State, record: Record) -> list[Target]:
    waiters = list(record.dependents or [])
    if isinstance(record, ArrayRecord):
        for entries in record.element_dependents.values():
            waiters += entries
    for group in record.group.chain():
        waiters += group.dependents
        waiters += group.waiting_for_end
    found: list[Target] = []
    for waiter, index, _ in waiters:
        if isinstance(waiter, GroupRecord):
            _reconsider(state, waiter)
            found += [(r, 0, r.length) for r in waiter.records() if r.runs(bytes((SKIPPED,)), 0, r.length)]
        elif isinstance(waiter, TaskRecord) or index < 0:
            found.append((waiter, 0, waiter.length))
        else:
            found.append((waiter, index, index + 1))
    return [(r, low, high) for r, start, stop in found for low, high in r.runs(bytes((SKIPPED,)), start, stop)]


def _wait_again(state: State, effects: Effects | None, record: Record, start: int, stop: int) -> None:
    """Count anew what revived elements wait for."""
    if isinstance(record, ArrayRecord):
        _elements_wait_again(state, effects, record, start, stop)
        return
    record.generation += 1
    record.waits = dependencies.wait_for(state, effects, record, -1, record.after)
    group = record.group
    if group.waits and not (group.skip_reason is not None and dependencies.is_final(record)):
        record.waits += 1
        entry = (record, -1, record.generation)
        group.waiting_for_gate.append(entry)
        if group.skip_reason is not None:
            dependencies.skip(state, effects, entry, group.skip_reason)
    if record.waits == 0:
        state.free(record, 0, 1)
        if effects is not None:
            effects.freed.append((record, 0, 1))


def _elements_wait_again(state: State, effects: Effects | None, array: ArrayRecord, start: int, stop: int) -> None:
    """As `_wait_again`, for elements: what they waited for still counts, unless it was met meanwhile."""
    if array.waits and (failure := dependencies.why_skipped(state, array)) is not None:
        if effects is not None:
            effects.skipped.append((array, start, stop, failure))
        return
    free = [[start, stop]]
    own = dict(array.spec.element_after) if array.element_waits else {}
    for index in [i for i in array.element_waits if start <= i < stop]:
        ranges.take(free, index, index + 1)
        if (failure := dependencies.blocking_failure(state, own[index])) is not None and effects is not None:
            effects.skipped.append((array, index, index + 1, failure))
    if array.waits == 0:
        for low, high in free:
            state.free(array, low, high)
            if effects is not None:
                effects.freed.append((array, low, high))


def killed(state: State, effects: Effects | None, fact: facts.Killed) -> None:
    """What runs is ended and has failed, without a retry."""
    failure = Failure(Cause.KILLED, fact.message)
    for record, start, stop in list(targets(state, fact.target, fact.stop)):
        for low, high in record.runs(OCCUPYING_STATES, start, stop):
            stop_spans(state, effects, record, low, high)
            state.move(record, low, high, FAILED)
            for index in range(low, high):
                record.set_failure(index, index + 1, failure)
            dependencies.ended(state, effects, record, low, high)


def reach(state: State, action: news.DeclareDone) -> tuple[list[Target], list[str]]:
    """The parts of a target that may be declared done, and what is left out and why."""
    wanted: dict[int, Ranges] = {}
    busy: list[str] = []
    taken: list[str] = []
    for record, start, stop in targets(state, action.target, action.stop):
        busy += [dependencies.name_of(record, low) for low, _ in record.runs(OCCUPYING_STATES, start, stop)]
        if found := record.runs(_DECLARABLE, start, stop):
            wanted[record.id] = found
    if wanted:
        workflow = state.records[next(iter(wanted))].group.workflow
        taken = _leave_values(state, workflow, wanted)
    left = [f"{_some(busy)}: running; end it first: bough kill"] if busy else []
    if taken:
        left.append(f"{_some(taken)}: a task takes its value, and there is none")
    return [(state.records[id_], low, high) for id_ in sorted(wanted) for low, high in wanted[id_]], left


def _leave_values(state: State, workflow: Workflow, wanted: dict[int, Ranges]) -> list[str]:
    """Take out functions whose value is taken by something that is neither done nor declared with them."""
    takers: dict[int, list[tuple[TaskRecord, Dep]]] = {}
    for record in workflow.group.records():
        if isinstance(record, TaskRecord) and record.own is not None and record.state != DONE:
            for dep in record.own.inputs:
                takers.setdefault(dep.id, []).append((record, dep))
    left: list[str] = []
    while True:
        fresh = [name for id_ in list(wanted) for name in _untaken(state.records[id_], takers.get(id_, []), wanted)]
        if not fresh:
            return left
        left += fresh


def _untaken(record: Record, takers: list[tuple[TaskRecord, Dep]], wanted: dict[int, Ranges]) -> list[str]:
    """Take the elements of a function out of `wanted` that others need; their names."""
    if not takers or kind_of(record) is not Kind.FUNCTION:
        return []
    found: list[str] = []
    for taker, dep in takers:
        if taker.id not in wanted:
            place = (0, record.length) if dep.on is On.ARRAY else (dep.index, dep.index + 1)
            found += [dependencies.name_of(record, low) for low, _ in ranges.take(wanted[record.id], *place)]
    if not wanted[record.id]:
        del wanted[record.id]
    return found


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


def kind_of(record: Record) -> Kind:
    """How executors would run it, without putting its spec together."""
    return record.shared_spec.kind if isinstance(record, TaskRecord) else record.spec.kind


def success(record: Record, start: int, stop: int) -> facts.SpanEnded:
    """The fact that elements are done although no executor ran them: without a span, an executor and a time."""
    about: dict[str, object] = {}  # of commands of an array there is nothing to say one by one: there may be millions
    if kind_of(record) is Kind.FUNCTION:
        about = {"results": nones(stop - start)}
    elif not record.is_array:
        about = {"details": (Detail(0),)}
    attempt = record.attempt if isinstance(record, TaskRecord) else 0
    return facts.SpanEnded(0, start, stop, 0.0, record=record.id, attempt=attempt, **about)  # type: ignore[arg-type]
