"""Making and linking the records of what clients submit: groups, tasks and arrays; runs opened and closed.

Rule: these functions apply what `validation` found lawful; records are made first and linked afterwards, because items
of a submission may name later ones.
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from bough.core.data.declared_files import Numbering
from bough.core.effects import Effects
from bough.core.graph import dependencies, readiness
from bough.core.records.array_record import WAITING, ArrayRecord, Record
from bough.core.records.group_record import STATES, GroupRecord, Workflow
from bough.core.records.task_record import TaskRecord, share_spec
from bough.core.state import State
from bough.model.events import facts, news
from bough.model.ids import ROOT
from bough.model.states import StateWindow
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Item, On, TaskSpec


def declare(state: State, fact: facts.Submitted) -> facts.Submitted:
    """A lawful submission with numbers for the paths that its tasks declare."""
    for item in fact.items:
        if _declares(item):
            break
    else:
        return fact
    above = {item.id: item.parent for item in fact.items if isinstance(item, GroupSpec)}
    numberings: dict[int, Numbering] = {}  # by the group of the workflow
    items: list[Item] = []
    for item in fact.items:
        if not _declares(item) or isinstance(item, GroupSpec):
            items.append(item)
            continue
        group = item.group
        while group not in state.groups:  # it comes with this submission
            group = above[group]
        workflow = state.groups[group].workflow
        numbering = numberings.get(workflow.group.id)
        if numbering is None:
            numbering = numberings[workflow.group.id] = Numbering(workflow.files, workflow.group.id)
        items.append(numbering.number(item) if isinstance(item, TaskSpec) else numbering.number_array(item))
    files = [file for numbering in numberings.values() for file in numbering.declared.values()]
    return replace(fact, items=items, files=tuple(files))


def _declares(item: Item) -> bool:
    """Whether an item names files."""
    if type(item) is TaskSpec:
        return bool(item.writes or item.reads)
    return type(item) is ArraySpec and item.reads is not None


def submitted(state: State, effects: Effects | None, fact: facts.Submitted) -> None:
    """Make the records first and link them afterwards, because items of a batch may name later ones."""
    for file in fact.files:
        if file.group in state.groups:
            state.groups[file.group].workflow.files.put(file)
    records: list[Record] = []
    groups: list[GroupRecord] = []
    for item in fact.items:
        if type(item) is TaskSpec:
            records.append(add_task(state, item))
        elif isinstance(item, ArraySpec):
            records.append(add_array(state, item))
        else:
            assert isinstance(item, GroupSpec)
            groups.append(add_group(state, item))
    for group in groups:
        _link_group(state, effects, group)
    for record in records:
        _link_record(state, effects, record)


def add_task(state: State, spec: TaskSpec) -> TaskRecord:
    """Make the record of a loose task, waiting and linked to nothing."""
    if spec.writes or spec.reads:
        workflow = state.groups[spec.group].workflow
        spec = workflow.files.numbered(spec, workflow.group.id)
    known = state.shared_specs.get(spec.body)
    if known is None or not share_spec(spec, known[0]):
        group = state.groups[spec.group]
        queue = state.queue_for(spec.needs, group, spec.extras.host)
        known = state.shared_specs[spec.body] = (spec, group, state.runtime_of(spec.template or spec.id), queue)
    group = known[1]
    record = TaskRecord(spec, *known)
    if spec.key:
        occurrences = group.workflow.occurrences
        record.occurrence = occurrences.get(spec.key, 0)
        occurrences[spec.key] = record.occurrence + 1
    if record.own is not None:
        if spec.extras.same_host_as:
            state.has_near = True
            if place := place_near(state, spec):
                record.queue = state.queue_for(spec.needs, group, place)
        if spec.extras.watch:
            group.workflow.watched = True
        if spec.reads:
            group.workflow.lives.wanted(record.own.reads)  # type: ignore[arg-type] # they are numbered
    if spec.limits.keep is not True:
        group.workflow.lives.note_keep(spec.limits.keep)
    state.records[spec.id] = record
    group.members.append(record)
    group.counts[WAITING] += 1
    group.unfinished += 1
    state.unfinished += 1
    return record


def place_near(state: State, spec: TaskSpec) -> str:
    """The host where the one before a task ran which wants to run there too, if that has ended; empty: it has not."""
    before = state.records.get(spec.extras.same_host_as)
    if isinstance(before, TaskRecord) and Dep(On.TASK, before.id) in spec.after:
        return before.ran_at
    return ""


def add_array(state: State, spec: ArraySpec) -> ArrayRecord:
    """Make the record of an array, its elements waiting and linked to nothing."""
    group = state.groups[spec.group]
    if spec.reads is not None:
        spec = group.workflow.files.numbered_array(spec, group.workflow.group.id)
    count = spec.length
    counts = [0] * STATES
    counts[WAITING] = count
    runtime = state.runtime_of(spec.template or spec.id)
    queue = state.queue_for(spec.needs, group, spec.extras.host)
    record = ArrayRecord(
        spec.id,
        spec,
        group,
        spec.priority,
        runtime,
        queue,
        count,
        StateWindow(0, None, bytes(count)) if spec.fed else bytearray(count),
        counts,
        deque(),
        deque(),
    )
    record.add_pages(spec.pages)
    record.own_deps = dict(spec.element_after)
    record.open = spec.open
    if spec.extras.watch:
        group.workflow.watched = True
    if spec.reads is not None:
        for index in range(count):
            group.workflow.lives.wanted(record.files_of(index))
    if spec.limits.keep is not True:
        group.workflow.lives.note_keep(spec.limits.keep)
    state.open_arrays += spec.open
    state.records[spec.id] = record
    group.members.append(record)
    group.counts[WAITING] += count
    group.unfinished += count + spec.open  # an open array keeps its group from ending
    state.unfinished += count
    return record


def grow(state: State, array: ArrayRecord, count: int) -> None:
    """So many elements more, all waiting; the caller has given them their states."""
    if array.declares_reads:
        for index in range(array.length, array.length + count):
            array.group.workflow.lives.wanted(array.files_of(index))
    array.length += count
    array.counts[WAITING] += count
    array.group.counts[WAITING] += count
    array.group.unfinished += count
    state.unfinished += count


def add_group(state: State, spec: GroupSpec) -> GroupRecord:
    """Make the record of a group, linked to nothing but the group above."""
    parent = state.groups[spec.parent]
    group = GroupRecord(spec, parent)
    state.timed_groups += spec.timeout > 0
    if spec.watch:
        group.workflow.watched = True
    state.groups[spec.id] = group
    parent.children.append(group)
    parent.child_names.add(spec.name)
    parent.unfinished += 1
    return group


def _link_group(state: State, effects: Effects | None, group: GroupRecord) -> None:
    group.waits += dependencies.wait_for(state, effects, group, -1, group.after)
    parent = group.parent
    if parent is not None and parent.waits:
        group.waits += 1
        parent.waiting_for_gate.append((group, -1, group.generation))
    if parent is not None and parent.skip_reason is not None:
        group.skip_reason = parent.skip_reason


def _link_record(state: State, effects: Effects | None, record: Record) -> None:
    group = record.group
    after = record.after
    if after:
        record.waits += dependencies.wait_for(state, effects, record, -1, after)
    if (group.waits or group.skip_reason is not None) and not (
        group.skip_reason is not None and dependencies.is_final(record)
    ):
        record.waits += 1
        entry = (record, -1, record.generation)
        group.waiting_for_gate.append(entry)
        if group.skip_reason is not None:
            dependencies.skip(state, effects, entry, group.skip_reason)
    if isinstance(record, ArrayRecord):
        for index, deps in record.spec.element_after:
            waits = dependencies.wait_for(state, effects, record, index, deps)
            if waits:
                record.element_waits[index] = waits
        if record.length == 0 and not record.open:
            dependencies.finish(state, effects, group)
    if record.waits == 0:
        readiness.now_free(state, effects, record)
        if effects is not None and (after or group.gated):
            effects.freed.append((record, 0, record.length))


def run_opened(state: State, effects: Effects | None, fact: facts.RunOpened) -> None:
    """A workflow begins: the root's own, or one in a group of its own below the root."""
    root = state.groups[ROOT]
    if fact.group == ROOT:
        state.run = fact.run
        workflow = root.workflow
    else:
        name = fact.name if fact.name not in root.child_names else f"{fact.name}#{fact.run}"
        group = add_group(state, GroupSpec(fact.group, name))
        workflow = group.workflow = Workflow(group)
    workflow.run, workflow.name, workflow.user = fact.run, fact.name, fact.user
    workflow.fail_fast, workflow.memos = fact.fail_fast, fact.memos
    workflow.directory, workflow.token, workflow.reuse = fact.directory, fact.token, fact.reuse
    workflow.base = fact.base
    state.workflows[fact.run] = workflow


def run_closed(state: State, effects: Effects | None, fact: facts.RunClosed) -> None:
    """The end of a workflow is recorded; that of the session's or service's own run ends all."""
    if fact.run == state.run:
        state.stopping = True
    workflow = state.workflows.get(fact.run)
    if workflow is not None:
        workflow.closed = True


def group_released(state: State, effects: Effects | None, fact: facts.GroupReleased) -> None:
    """A task in a group lets those start that wait for it."""
    dependencies.release(state, effects, state.groups[fact.group])


def group_closed(state: State, effects: Effects | None, fact: news.GroupClosed) -> None:
    """Nothing more comes into a group."""
    group = state.groups[fact.group]
    group.closed = True
    dependencies.finish(state, effects, group)
