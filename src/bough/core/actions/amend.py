"""Applying a changed description to a workflow that goes on: what is gone leaves, what is new comes, the rest stays.

What is changed keeps its number, so that what waits for it, its attempts and its history stay its own. Rule: the
difference is applied whole; whatever built on something that is different now waits again, as after a reset, and what
the difference does not reach is not touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from bough.core import populations
from bough.core.actions import reset, task_actions
from bough.core.effects import Effects
from bough.core.graph import dependencies, readiness
from bough.core.graph.closure import Changes, Closure, Part
from bough.core.graph.submission import add_array, add_group, add_task, place_near
from bough.core.records.array_record import (
    CANCELLED,
    DONE,
    OCCUPYING_STATES,
    OPEN_STATES,
    PENDING_STATES,
    UNSUCCESSFUL_STATES,
    WAITING,
    Record,
)
from bough.core.records.group_record import GroupRecord, Waiter, Workflow
from bough.core.records.indexes.ready_queue import occupy_limits
from bough.core.records.task_record import TaskRecord
from bough.core.state import State, TimerKind
from bough.model.events import facts
from bough.model.ids import GroupId, RecordId
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Kind, TaskSpec

Parts = tuple[tuple[RecordId, int, int], ...]


def why_not(state: State, run: int) -> str | None:
    """Why the description of a workflow cannot be changed now, or None."""
    workflow = state.workflows.get(run)
    if workflow is None or workflow.closed or workflow.group.finished:
        return "the workflow has ended meanwhile; submit it again"
    if state.stopping:
        return "the server is stopping and starts nothing new; submit it again when it is back"
    if not workflow.group.closed:
        return f"more may come into the workflow {workflow.name}; only one that was submitted as a whole is changed"
    if not all(map(_is_command, workflow.group.records())):
        return f"the workflow {workflow.name} holds more than commands: no description made it; choose another name"
    return None


def unsuccessful(state: State, run: int, removed: AbstractSet[int]) -> list[Record]:
    """What of a workflow has ended without success, and stays."""
    records = state.workflows[run].group.records()
    return [
        record for record in records if record.id not in removed and record.runs(UNSUCCESSFUL_STATES, 0, record.length)
    ]


def _is_command(record: Record) -> bool:
    return isinstance(record, TaskRecord) and record.shared_spec.kind is Kind.COMMAND


def amended(state: State, effects: Effects | None, fact: facts.Amended) -> None:
    """As `amend`, when what waits again is not asked for."""
    amend(state, effects, fact)


def amend(state: State, effects: Effects | None, fact: facts.Amended) -> Parts:
    """Apply a difference that is lawful; what had started and waits again."""
    workflow = state.workflows[fact.run]
    workflow.first_failure = None  # a user has looked at it
    state.shared_specs.clear()  # what is alike may not be so any more
    state.due = True
    poorer = _remove(state, effects, fact)
    seeds, pending, gates = _change(state, effects, workflow, fact)
    added = _add(state, workflow, fact, gates)
    _count_occurrences(workflow)
    given = [(state.records[id_], low, high) for id_, low, high in fact.parts]
    news = Changes(added, pending, gates, [group for group, bad in poorer.items() if bad])
    closure = Closure(workflow, given or seeds, news)
    parts = list(closure.all_parts())
    for part in parts:
        reset.forget(state, effects, *part)
    reset.reopen(state, effects, closure)
    _link(state, effects, closure, added, pending)
    state.count_reads_anew(workflow)
    over = {group.id: group for group in (*closure.touched.values(), *poorer, *gates)}
    for group in sorted(over.values(), key=reset.depth, reverse=True):
        if group.id in state.groups:
            dependencies.finish(state, effects, group)
    return tuple((RecordId(record.id), low, high) for record, low, high in parts)


# --- what is gone ---------------------------------------------------------------------------------------


def _remove(state: State, effects: Effects | None, fact: facts.Amended) -> dict[GroupRecord, bool]:
    """Take out what is gone; the groups that lost something, and whether something of it had not succeeded."""
    poorer: dict[GroupRecord, bool] = {}
    gone = set(fact.removed)
    _forget_waiters(state, [state.records[id_] for id_ in gone], [state.groups[id_] for id_ in fact.removed_groups])
    for id_ in fact.removed:
        record = state.records[id_]
        group = record.group
        poorer[group] = poorer.get(group, False) or bool(record.runs(UNSUCCESSFUL_STATES, 0, record.length))
        state.unsaved.take(record, 0, record.length)
        _take_out(state, effects, record)
        state.remakes.forget_record(record.id)
    for group in poorer:
        group.members = [record for record in group.members if record.id not in gone]
    lost: dict[GroupRecord, set[int]] = {}
    for group in sorted((state.groups[id_] for id_ in fact.removed_groups), key=reset.depth, reverse=True):
        assert group.parent is not None
        del state.groups[GroupId(group.id)]
        state.populations.remove(is_group=True, id_=group.id)
        lost.setdefault(group.parent, set()).add(group.id)
        _leave(state, group, group.parent)
        poorer[group.parent] = poorer.get(group.parent, False) or poorer.pop(group, False) or bool(group.failed_by)
    for parent, ids in lost.items():
        parent.children = [child for child in parent.children if child.id not in ids]
        parent.child_names = {child.name for child in parent.children}
    return {group: bad for group, bad in poorer.items() if group.id in state.groups}


def _forget_waiters(state: State, records: list[Record], groups: list[GroupRecord]) -> None:
    """These are not told of an end any more."""
    gone: set[Record | GroupRecord] = {*records, *groups}
    awaited = {dep for one in gone for dep in one.after}
    for dep in awaited:
        if dep.is_group:
            _tell_no_more(state.groups[dep.id], gone)
        else:
            record = state.records[dep.id]
            record.dependents = _others(record.dependents or [], gone) or None
    for above in {record.group for record in records} | {group.parent for group in groups if group.parent is not None}:
        _tell_no_more(above, gone)


def _tell_no_more(group: GroupRecord, gone: AbstractSet[Record | GroupRecord]) -> None:
    group.dependents = _others(group.dependents, gone)
    group.waiting_for_end = _others(group.waiting_for_end, gone)
    group.waiting_for_gate = _others(group.waiting_for_gate, gone)


def _others(waiters: list[Waiter], gone: AbstractSet[Record | GroupRecord]) -> list[Waiter]:
    return [waiter for waiter in waiters if waiter[0] not in gone]


def _take_out(state: State, effects: Effects | None, record: Record) -> None:
    """End what runs of a record, and forget it; the caller removes it from its group."""
    task_actions.stop_spans(state, effects, record, 0, record.length)
    for low, high in record.runs(OPEN_STATES, 0, record.length):
        record.withdraw(low, high)
        state.move(record, low, high, CANCELLED)
    for index in range(record.length):
        record.group.counts[record.state_of(index)] -= 1
    populations.forget_record(state, record)
    del state.records[record.id]
    state.watch.forget_record(record.id)
    state.runtimes.pop(record.id, None)


def _leave(state: State, group: GroupRecord, parent: GroupRecord) -> None:
    state.held_groups -= group.held
    state.timed_groups -= group.timeout > 0
    if not group.finished:
        parent.unfinished -= 1
        parent.released_children -= group.released


# --- what is different ----------------------------------------------------------------------------------


def _change(
    state: State, effects: Effects | None, workflow: Workflow, fact: facts.Amended
) -> tuple[list[Part], list[Record], list[GroupRecord]]:
    """Give what is changed its new extras; what waits again, what has not started, and gates that close again."""
    groups = [spec for spec in fact.changed if isinstance(spec, GroupSpec)]
    gates = [state.groups[spec.id] for spec in groups if closes_again(state.groups[spec.id], spec)]
    limited = any(spec.limit != state.groups[spec.id].limit for spec in groups)
    for spec in groups:
        _change_group(state, state.groups[spec.id], spec)
    if limited:
        _limit_anew(workflow.group)
    seeds: list[Part] = []
    pending: list[Record] = []
    for item in fact.changed:
        if isinstance(item, TaskSpec):
            record = state.records[item.id]
            assert isinstance(record, TaskRecord)
            if runs_again(record, item):
                task_actions.stop_spans(
                    state, effects, record, 0, 1
                )  # while it is what it was: what it occupied is given back
                if record.state in PENDING_STATES:
                    pending.append(record)
                else:
                    seeds.append((record, 0, 1))
            _change_task(state, record, item)
    if limited:
        _queue_anew(state, workflow)
    return seeds, pending, gates


def closes_again(group: GroupRecord, spec: GroupSpec) -> bool:
    """Whether the gate of a group is closed by its new extras, or waits for other things than before."""
    return waits_for_more(group.after, spec.after) or (bool(group.waits) and set(spec.after) != set(group.after))


def waits_for_more(old: Iterable[Dep], new: Iterable[Dep]) -> bool:
    """Whether something is waited for now that was not: to wait for less changes nothing about what has begun."""
    return not set(old).issuperset(new)


def runs_again(record: TaskRecord, spec: TaskSpec) -> bool:
    """Whether a task begins anew by its new extras: not if it has begun, and they change only how it is run."""
    old = record.spec
    if spec.payload != old.payload or spec.extras != old.extras or waits_for_more(old.after, spec.after):
        return True
    if record.state in PENDING_STATES or record.state in UNSUCCESSFUL_STATES:
        return True
    return record.state != DONE and spec.needs != old.needs


def _change_task(state: State, record: TaskRecord, spec: TaskSpec) -> None:
    group = record.group
    spec = group.workflow.files.numbered(spec, group.workflow.group.id)
    if spec.extras.same_host_as:
        state.has_near = True
    queue = state.queue_for(spec.needs, group, place_near(state, spec) or spec.extras.host)
    if record.state in OCCUPYING_STATES and spec.needs == record.needs and spec.extras == record.spec.extras:
        queue = record.queue  # what it occupies is given back to where it was taken
    new = TaskRecord(spec, spec, group, state.runtime_of(spec.template or spec.id), queue)
    record.shared_spec, record.own, record.payload, record.key = new.shared_spec, new.own, new.payload, new.key
    if record.ready:
        record.queue.shape.ready -= 1
        queue.shape.ready += 1
    record.runtime, record.queue = new.runtime, queue
    record.priority = spec.priority
    if spec.extras.watch:
        group.workflow.watched = True
    if record.ready:
        record.queue_key = ()
        state.enqueue(record)


def _change_group(state: State, group: GroupRecord, spec: GroupSpec) -> None:
    group.set_after(spec.after)
    group.limit, group.retries, group.attributes = spec.limit, spec.retries, spec.attributes
    if spec.watch and spec.watch not in group.watch:
        group.watch, group.workflow.watched = (spec.watch, *group.watch), True
    if spec.timeout != group.timeout:
        state.timed_groups += (spec.timeout > 0) - (group.timeout > 0)
        if group.deadline:
            group.deadline = group.deadline - group.timeout + spec.timeout if spec.timeout else 0.0
            state.set_timer(group.deadline, TimerKind.GROUP_LIMIT, group.id)
        group.timeout = spec.timeout


def _limit_anew(group: GroupRecord) -> None:
    """Find anew which groups bound what is in a group and below it."""
    above = group.parent.limits if group.parent is not None else ()
    group.limits = (*above, group) if group.limit else above
    for child in group.children:
        _limit_anew(child)


def _queue_anew(state: State, workflow: Workflow) -> None:
    """Put everything of a workflow into queues that know its limits."""
    state.forget_queues(workflow)
    for group in _groups(workflow.group):
        group.busy = 0
        group.limit_nodes.clear()
    for record in workflow.group.records():
        record.queue = state.queue_for(record.needs, record.group, record.place)
        record.queue_key = ()
        if record.ready:
            state.enqueue(record)
        for span in state.attempts.of(record, 0, record.length):
            span.queue = state.queue_for(span.queue.needs, record.group, record.place)
            occupy_limits(span.queue.limits, span.width)


def _groups(group: GroupRecord) -> Iterable[GroupRecord]:
    yield group
    for child in group.children:
        yield from _groups(child)


# --- what is new ----------------------------------------------------------------------------------------


def _add(state: State, workflow: Workflow, fact: facts.Amended, gates: list[GroupRecord]) -> list[Record]:
    """Make the records of what is new; new groups are closed, and gates like any that waits for something else."""
    added: list[Record] = []
    for item in fact.added:
        if isinstance(item, GroupSpec):
            group = add_group(state, item)
            group.closed = True
            gates.append(group)
        elif isinstance(item, ArraySpec):
            added.append(add_array(state, item))
        else:
            added.append(add_task(state, item))
    return added


def _count_occurrences(workflow: Workflow) -> None:
    """Which of several identical tasks each is, in the order of their numbers."""
    occurrences: dict[bytes, int] = {}
    for record in sorted(workflow.group.records(), key=lambda one: one.id):
        if isinstance(record, TaskRecord) and record.key:
            record.occurrence = occurrences.get(record.key, 0)
            occurrences[record.key] = record.occurrence + 1
    workflow.occurrences = occurrences


def _link(state: State, effects: Effects | None, closure: Closure, added: list[Record], pending: list[Record]) -> None:
    """Let everything wait for what it waits for now; what waits for nothing goes on."""
    new, changed = {record.id for record in added}, {record.id for record in pending}
    records = closure.records | {record.id: record for record in added}
    for id_ in sorted(records):
        record = records[id_]
        again = closure.parts.get(id_, [])
        if id_ in changed and record.state_of(0) == WAITING:
            task_actions.forgive(record, 0, record.length)  # another try that was not due yet is not the same
            again = [[0, record.length]]
        if again or id_ in changed:
            record.awaits_memo = False
        waited = id_ in new or (record.waits and record.state_of(0) == WAITING and not again)
        reset.link_anew(state, effects, record, again)
        if record.waits:
            record.awaits_memo = False  # it is looked up once it waits for nothing
        elif waited:
            readiness.now_free(state, effects, record)
            if effects is not None:
                effects.freed.append((record, 0, record.length))
