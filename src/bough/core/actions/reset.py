"""Resetting tasks to not started: what was done is forgotten, and all that built on it waits again.

Rule: a target is reset as a whole or not at all: not while something of it is out, and not if something that has
started depends on it, unless that is to be reset, too. What waits again is recorded, so that a replay decides nothing.
"""

from __future__ import annotations

from bough.core.actions import task_actions
from bough.core.effects import Effects
from bough.core.graph import dependencies
from bough.core.graph.closure import Closure, Part, has_released
from bough.core.records.array_record import ENDED_STATES, HELD, OCCUPYING_STATES, READY, WAITING, ArrayRecord, Record
from bough.core.records.group_record import GroupRecord
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.model.arrays import ranges
from bough.model.events import facts, news
from bough.model.ids import RecordId
from bough.model.outcomes import Success

_NAMED = 3  # tasks in a message


def reach(state: State, action: news.Reset) -> tuple[tuple[tuple[RecordId, int, int], ...], list[str]]:
    """What a reset brings back to waiting, and why it may not be made (then nothing is)."""
    if state.stopping:
        return (), ["the session is closing and starts nothing new"]
    found = list(task_actions.targets(state, action.target, action.stop))
    wanted = [(record, low, high) for record, a, b in found for low, high in record.runs(ENDED_STATES, a, b)]
    busy = [(record, low, high) for record, a, b in found for low, high in record.runs(OCCUPYING_STATES, a, b)]
    if busy:
        return (), [f"{_names(busy)}: not reset while it runs; end it first: bough kill"]
    if not wanted:
        return (), []
    closure = Closure(wanted[0][0].group.workflow, wanted)
    if closure.started and not action.cascade:
        return (), [f"{_names(closure.started)}: has started and depends on it; reset it too: --cascade"]
    parts = tuple((RecordId(record.id), low, high) for record, low, high in closure.all_parts())
    for id_ in closure.parts:
        record = closure.records[id_]
        if isinstance(record, ArrayRecord) and record.spec.fed:
            return (), [f"array {id_}: a generator feeds it, and what it has done was discarded; submit it again"]
    for record in closure.records.values():
        if record.awaits_memo:
            return (), [f"{dependencies.name_of(record, 0)}: being looked up among finished tasks; ask again"]
    return parts, []


def _names(parts: list[Part]) -> str:
    shown = ", ".join(dependencies.name_of(record, low) for record, low, _ in parts[:_NAMED])
    count = sum(high - low for _, low, high in parts)
    return f"{shown} and {count - _NAMED} more" if count > _NAMED else shown


def reset(state: State, effects: Effects | None, fact: facts.WasReset) -> None:
    """Bring the parts back to waiting, and let all that depends on them wait again."""
    parts = [(state.records[id_], low, high) for id_, low, high in fact.parts]
    workflow = parts[0][0].group.workflow
    workflow.first_failure = None  # a user has looked at it
    closure = Closure(workflow, parts)
    for record, low, high in parts:
        forget(state, effects, record, low, high)
    reopen(state, effects, closure)
    for id_ in sorted(closure.records):
        link_anew(state, effects, closure.records[id_], closure.parts.get(id_, []))


def reopen(state: State, effects: Effects | None, closure: Closure) -> None:
    """Groups in which something waits again are not over, and gates are closed again."""
    for group in closure.touched.values():
        group.was_over = False
        if group.finished:  # it begins anew
            group.tried, group.deadline = 0, 0.0
    for group in closure.touched.values():
        dependencies.reopen(group)
    for group in sorted(closure.touched.values(), key=depth, reverse=True):
        _release_anew(group)
    for group in sorted(closure.gates.values(), key=depth):
        _close_gate(state, effects, group)


def forget(state: State, effects: Effects | None, record: Record, low: int, high: int) -> None:
    """These elements have not run; attempt numbers go on."""
    attempts = {}
    if isinstance(record, ArrayRecord):
        for success in record.successes():
            if success.source == record.id:
                attempts.update(dict.fromkeys(range(max(low, success.start), min(high, success.stop)), success.attempt))
    task_actions.stop_spans(state, effects, record, low, high)
    if state.unsaved:
        state.unsaved.take(record, low, high)
    state.move(record, low, high, WAITING)
    state.remakes.forget(record.id, low, high)
    record.set_failure(low, high, None)
    task_actions.forgive(record, low, high)
    if isinstance(record, TaskRecord):
        record.turn, record.original, record.awaits_memo = 0, None, False
        return
    for index, attempt in attempts.items():
        record.attempts[index] = max(attempt, record.attempts.get(index, 0))  # a replica may have had a later one
    kept = []
    for success in record.successes():
        left = [[success.start, success.stop]]
        ranges.take(left, low, high)
        kept += [_cut(success, start, stop) for start, stop in left]
    record.found = kept


def _cut(success: Success, start: int, stop: int) -> Success:
    at = success.source_start + start - success.start
    return Success(start, stop, success.turn, success.source, at, success.attempt)


def depth(group: GroupRecord) -> int:
    """How far below the root it is."""
    return sum(1 for _ in group.chain())


def _release_anew(group: GroupRecord) -> None:
    """Find anew whether what waits for a group may start before its end."""
    parent = group.parent
    if parent is None:
        return
    inside = group.closed and group.unfinished > 0 and group.released_children == group.unfinished
    released = inside or any(map(has_released, group.members))
    parent.released_children += released - group.released
    group.released = released


def _close_gate(state: State, effects: Effects | None, group: GroupRecord) -> None:
    """A group waits again for what it depends on."""
    above = group.parent
    group.generation += 1
    group.waiting_for_gate.clear()
    group.skip_reason = (above.skip_reason if above is not None else None) or dependencies.blocking_failure(
        state, group.after
    )
    group.waits = dependencies.wait_for(state, effects, group, -1, group.after)
    if above is not None and above.waits:
        group.waits += 1
        above.waiting_for_gate.append((group, -1, group.generation))


def link_anew(state: State, effects: Effects | None, record: Record, again: ranges.Ranges) -> None:
    """Count anew what a record waits for; of what is reset, `again`, that goes on which is free."""
    record.generation += 1
    record.waits = dependencies.wait_for(state, effects, record, -1, record.spec.after)
    group = record.group
    if group.waits and not (group.skip_reason is not None and dependencies.is_final(record)):
        entry = (record, -1, record.generation)
        record.waits += 1
        group.waiting_for_gate.append(entry)
        if group.skip_reason is not None:
            dependencies.skip(state, effects, entry, group.skip_reason)
    blocked = _blocked_elements(state, effects, record)
    if record.waits:
        blocked = [[0, record.length]]
    for start, stop in blocked:
        _hold_back(state, record, start, stop)
    free = [list(part) for part in again]
    for start, stop in blocked:
        ranges.take(free, start, stop)
    for start, stop in free:
        state.free(record, start, stop)
        if effects is not None:
            effects.freed.append((record, start, stop))


def _blocked_elements(state: State, effects: Effects | None, record: Record) -> ranges.Ranges:
    """Count anew what elements wait for by themselves; those that do."""
    blocked: ranges.Ranges = []
    if isinstance(record, ArrayRecord):
        record.element_waits = {}
        for index, deps in record.spec.element_after:
            waits = (
                0
                if record.state_of(index) in ENDED_STATES
                else dependencies.wait_for(state, effects, record, index, deps)
            )
            if waits:
                record.element_waits[index] = waits
                ranges.add(blocked, index, index + 1)
    return blocked


def _hold_back(state: State, record: Record, start: int, stop: int) -> None:
    """What could have run has something to wait for; a retry that was not due yet, too."""
    for low, high in record.runs(bytes((READY, HELD)), start, stop):
        record.withdraw(low, high)
        state.move(record, low, high, WAITING)
    for low, high in record.runs(bytes((WAITING,)), start, stop):
        task_actions.forgive(record, low, high)
