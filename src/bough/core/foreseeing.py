"""How far a change of a description would reach, found on a copy of the workflow as it would be.

Rule: looks and changes nothing; it finds what `amending.amend` finds, because both ask the same `Ripple`.
"""

from __future__ import annotations

from bough.core.amending import runs_again, waits_for_more
from bough.core.difference import Difference, alone, path_of
from bough.core.groups import GroupRecord, Workflow
from bough.core.loose import TaskRecord
from bough.core.records import CANCELLED, FAILED, NOTRUN, WAITING, Record
from bough.core.ripples import STARTED, News, Part, Ripple
from bough.core.state import State
from bough.core.submission import add_group, add_task
from bough.model.tasks import GroupSpec, TaskSpec

_BAD = bytes((FAILED, NOTRUN, CANCELLED))


def run_again(state: State, workflow: Workflow, found: Difference) -> list[str]:
    """The paths of tasks that are not changed themselves, but have started and would be run again."""
    copy = alone(state, workflow)
    fresh: list[Record] = []
    pending: list[Record] = []
    seeds: list[Part] = []
    gates: list[GroupRecord] = []
    for item in found.whole:
        if isinstance(item, GroupSpec):
            group = add_group(copy, item)
            group.closed = True
            there = state.groups.get(item.id)
            if there is None or waits_for_more(there.after, item.after):
                gates.append(group)
            continue
        assert isinstance(item, TaskSpec)
        record, old = add_task(copy, item), state.records.get(item.id)
        if not isinstance(old, TaskRecord):
            fresh.append(record)
            continue
        record.state = WAITING if old.state in _BAD else old.state  # which is tried again before anything is changed
        if runs_again(old, item):
            if record.state in STARTED:
                seeds.append((record, 0, 1))
            else:
                pending.append(record)
    bad = {state.records[id_].group.id for id_ in found.fact.removed if state.records[id_].runs(_BAD, 0, 1)}
    stirred = [copy.groups[id_] for id_ in copy.groups if id_ in bad]
    ripple = Ripple(copy.workflows[workflow.run], seeds, News(fresh, pending, gates, stirred))
    changed = {item.id for item in found.fact.changed if isinstance(item, TaskSpec)}
    return [path_of(record) for record, _, _ in ripple.all_parts() if record.id not in changed]
