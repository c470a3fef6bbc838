"""Workflows that have finished leave the core, and come back when a person acts on them.

What leaves is kept as bytes: pieces of a snapshot that hold one workflow, each compressed by itself so that a big
workflow can be kept in slices. Rule: a workflow that left and came back is as it was; no other workflow is changed by
it, because dependencies never cross them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from bough.core import populations
from bough.core.effects import Effects
from bough.core.lifecycle import end_attempts
from bough.core.records.array_record import Record
from bough.core.records.group_record import GroupRecord, Workflow
from bough.core.records.indexes.watch_index import AddedPlans
from bough.core.records.population_record import KeptPopulation, Population
from bough.core.records.task_record import TaskRecord
from bough.core.snapshot import (
    KeptArray,
    KeptGroup,
    KeptTask,
    KeptWorkflow,
    add_kept,
    add_plans,
    kept_array,
    kept_group,
    kept_task,
    kept_workflow,
)
from bough.core.state import State
from bough.model.events import facts
from bough.model.ids import ROOT, GroupId

VERSION = 1
PIECE = 500  # records in one piece: some milliseconds
MOST_RUNTIMES = 10_000  # templates whose run times are remembered, as far as no record uses them
_LEVEL = 1  # of compression: fast


class Piece(msgspec.Struct, array_like=True):
    """A part of a workflow; the first one has its groups, those above before those below."""

    workflows: list[KeptWorkflow]
    groups: list[KeptGroup]
    tasks: list[KeptTask]
    arrays: list[KeptArray]
    added: list[tuple[int, AddedPlans]] = []  # by record: plans that watch it, added after it was submitted
    populations: list[KeptPopulation] = []  # in the first one


_encode = msgspec.msgpack.Encoder().encode
_decode_piece = msgspec.msgpack.Decoder(Piece).decode
_decode_all = msgspec.msgpack.Decoder(tuple[int, list[bytes]]).decode


# --- keeping ---------------------------------------------------------------------------------------------


def may_retire(state: State, run: int) -> bool:
    """Whether a workflow is over, so that it can leave."""
    workflow = state.workflows.get(run)
    return workflow is not None and workflow.group.id != ROOT and workflow.closed and workflow.group.finished


def pieces(state: State, run: int) -> Iterator[bytes]:
    """A workflow that is over, piece by piece; it must not change until the last one is there."""
    workflow, added = state.workflows[run], state.watch.added
    records = workflow.group.records()
    groups = [kept_group(group) for group in _below(workflow.group)]
    kept = [one.kept() for one in state.populations.all() if _is_of(state, one, workflow)]
    yield _piece([kept_workflow(workflow)], groups, islice(records, PIECE), added, kept)
    while some := list(islice(records, PIECE)):
        yield _piece([], [], some, added, [])


def _is_of(state: State, population: Population, workflow: Workflow) -> bool:
    group = state.groups[GroupId(population.id)] if population.is_group else state.records[population.id].group
    return group.workflow is workflow


def _piece(
    workflows: list[KeptWorkflow],
    groups: list[KeptGroup],
    records: Iterable[Record],
    added: dict[int, AddedPlans],
    populations: list[KeptPopulation],
) -> bytes:
    tasks: list[KeptTask] = []
    arrays: list[KeptArray] = []
    plans: list[tuple[int, AddedPlans]] = []
    for record in records:
        if record.id in added:
            plans.append((record.id, added[record.id]))
        if isinstance(record, TaskRecord):
            tasks.append(kept_task(record))
        else:
            arrays.append(kept_array(record))
    return zlib.compress(_encode(Piece(workflows, groups, tasks, arrays, plans, populations)), _LEVEL)


def pack(kept: list[bytes]) -> bytes:
    """The pieces of a workflow as one."""
    return _encode((VERSION, kept))


def unpack(data: bytes) -> list[Piece]:
    """The pieces again; ValueError when they cannot be read."""
    try:
        version, kept = _decode_all(data)
        if version != VERSION:
            raise ValueError(f"it was kept by another version of bough: {version}, not {VERSION}")
        return [_decode_piece(zlib.decompress(piece)) for piece in kept]
    except (zlib.error, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from error


def aside(like: State, data: bytes) -> State:
    """A state that holds nothing but a retired workflow, to be looked at; ValueError when it cannot be read."""
    made = State(like.policies)
    _put_back(made, unpack(data))
    return made


def _below(group: GroupRecord) -> Iterator[GroupRecord]:
    """A group and all groups in it, those above first."""
    stack = [group]
    while stack:
        one = stack.pop()
        yield one
        stack += reversed(one.children)


# --- how the facts change the state ----------------------------------------------------------------------


def run_removed(state: State, effects: Effects | None, fact: facts.RunRemoved) -> None:
    """A workflow that is over is forgotten, if it was not retired before."""
    if fact.run in state.workflows:
        _forget(state, effects, state.workflows[fact.run])


def run_retired(state: State, effects: Effects | None, fact: facts.RunRetired) -> None:
    """A workflow that is over leaves."""
    _forget(state, effects, state.workflows[fact.run])


def run_revived(state: State, effects: Effects | None, fact: facts.RunRevived) -> None:
    """A workflow that had left is here again."""
    _put_back(state, unpack(fact.kept))


def _put_back(state: State, kept: list[Piece]) -> None:
    workflows = [one for piece in kept for one in piece.workflows]
    groups = [one for piece in kept for one in piece.groups]
    names, own = state.groups[ROOT].child_names, {one.group: one for one in workflows}
    for group in groups:
        workflow = own.get(group.spec.id)
        if workflow is not None and group.spec.name in names:  # another one has its name now
            group.spec = msgspec.structs.replace(group.spec, name=f"{workflow.name}#{workflow.run}")
    items = [one for piece in kept for some in (piece.tasks, piece.arrays) for one in some]
    add_kept(state, workflows, groups, items)
    add_plans(state, [one for piece in kept for one in piece.added])
    for population in (one for piece in kept for one in piece.populations):
        state.populations.put(Population.restored(population))


def _forget(state: State, effects: Effects | None, workflow: Workflow) -> None:
    root, group = state.groups[ROOT], workflow.group
    del state.workflows[workflow.run]
    state.data.forget_run(workflow.run)
    templates: dict[str, None] = {}
    for record in list(group.records()):
        end_attempts(state, effects, record, 0, record.length)
        populations.forget_record(state, record)
        del state.records[record.id]
        state.watch.forget_record(record.id)
        state.checkpoints.pop(record.id, None)
        state.remakes.forget_record(record.id)
        state.unsaved.take(record, 0, record.length)
        like = record.shared_spec if isinstance(record, TaskRecord) else record.spec
        if like.template:
            templates[like.template] = None
        else:
            state.runtimes.pop(record.id, None)
        known = state.shared_specs.get(like.body)
        if known is not None and known[1].workflow is workflow:
            del state.shared_specs[like.body]
    inside: list[GroupRecord] = []
    for one in _below(group):
        del state.groups[GroupId(one.id)]
        state.populations.remove(is_group=True, id_=one.id)
        state.held_groups -= one.held
        state.timed_groups -= one.timeout > 0
        inside.append(one)
    root.children.remove(group)
    root.unfinished -= not group.finished  # of a journal whose facts about it were removed, its end among them
    root.child_names.discard(group.name)
    state.forget_queues(workflow)
    workflow.shares.clear()  # they know it: without this only the garbage collector would free it
    for template in templates:  # those that were used last are the last to be forgotten
        if template in state.runtimes:
            state.runtimes[template] = state.runtimes.pop(template)
    _forget_runtimes(state)
    _untie(inside, root)


def _untie(groups: list[GroupRecord], root: GroupRecord) -> None:
    """Undo the circles among what is forgotten, so that its memory is free at once, without the garbage collector."""
    for group in groups:
        for entries in (
            group.members,
            group.children,
            group.dependents,
            group.waiting_for_end,
            group.waiting_for_gate,
            group.limit_nodes,
        ):
            entries.clear()
        group.limits = ()
        group.workflow.group = root


def _forget_runtimes(state: State) -> None:
    """Of run times that no record uses only the last are kept. All records are looked at, but only once in a while."""
    if len(state.runtimes) <= max(MOST_RUNTIMES, 2 * state.used_runtimes):
        return
    used = {id(record.runtime) for record in state.records.values()}
    state.used_runtimes = len(used)
    unused = [template for template, runtime in state.runtimes.items() if id(runtime) not in used]
    for template in unused[: len(unused) - MOST_RUNTIMES // 2]:
        del state.runtimes[template]
