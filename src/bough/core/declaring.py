"""Declaring tasks done by hand: what they would have computed is there, or is not needed.

Rule: commands and functions whose value nobody takes may be declared, unless they are out; a function whose value is
taken by a task that is not declared with it is left out, because there is no value.
"""

from __future__ import annotations

from bough.core import deeds, graph, ranges
from bough.core.groups import Workflow
from bough.core.loose import TaskRecord
from bough.core.ranges import Ranges
from bough.core.records import CANCELLED, DONE, FAILED, HELD, NOTRUN, READY, WAITING, Record
from bough.core.state import State
from bough.model import facts
from bough.model.outcomes import Detail
from bough.model.pickles import nones
from bough.model.tasks import Dep, Kind, On

PENDING = bytes((WAITING, HELD, READY))
DECLARABLE = bytes((WAITING, HELD, READY, FAILED, NOTRUN, CANCELLED))
_NAMED = 3  # tasks in a message


def reach(state: State, fact: facts.Declared) -> tuple[list[deeds.Target], list[str]]:
    """The parts of a target that may be declared done, and what is left out and why."""
    wanted: dict[int, Ranges] = {}
    busy: list[str] = []
    taken: list[str] = []
    for record, start, stop in deeds.targets(state, fact.target, fact.stop):
        busy += [graph.name_of(record, low) for low, _ in record.runs(deeds.BUSY, start, stop)]
        if found := record.runs(DECLARABLE, start, stop):
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
            found += [graph.name_of(record, low) for low, _ in ranges.take(wanted[record.id], *place)]
    if not wanted[record.id]:
        del wanted[record.id]
    return found


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


def kind_of(record: Record) -> Kind:
    """How executors would run it, without putting its spec together."""
    return record.like.kind if isinstance(record, TaskRecord) else record.spec.kind


def success(record: Record, start: int, stop: int) -> facts.SpanEnded:
    """The fact that elements are done, by nobody: without a span, an executor and a time."""
    about: dict[str, object] = {}  # of commands of an array there is nothing to say one by one: there may be millions
    if kind_of(record) is Kind.FUNCTION:
        about = {"results": nones(stop - start)}
    elif not record.is_array:
        about = {"details": (Detail(0),)}
    attempt = record.attempt if isinstance(record, TaskRecord) else 0
    return facts.SpanEnded(0, start, stop, 0.0, record=record.id, attempt=attempt, **about)  # type: ignore[arg-type]
