"""What an action or a changed description would do; changes nothing.

What a deed would do if it were done now: how many tasks it changes, and what it leaves out and why.

Rule: looks and changes nothing; who asks and then acts must do so within one turn.

How far a change of a description would reach, found on a copy of the workflow as it would be.

Rule: looks and changes nothing; it finds what `amending.amend` finds, because both ask the same `Closure`.
"""

from __future__ import annotations

from bough.core.actions import reset, task_actions
from bough.core.actions.amend import runs_again, waits_for_more
from bough.core.actions.difference import Difference, alone, path_of
from bough.core.graph.closure import STARTED, Changes, Closure, Part
from bough.core.graph.submission import add_group, add_task
from bough.core.records.array_record import CANCELLED, FAILED, SKIPPED, WAITING, Record
from bough.core.records.group_record import GroupRecord, Workflow
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.model import ranges
from bough.model.events import facts
from bough.model.tasks import GroupSpec, TaskSpec

Deed = (
    facts.Cancelled
    | facts.Killed
    | facts.Held
    | facts.Released
    | facts.Reset
    | facts.DeclaredDone
    | facts.Retried
    | facts.Prioritised
)


def survey(state: State, deed: Deed) -> tuple[int, list[str]]:
    """How many tasks it changes, and what it leaves out."""
    match deed:
        case facts.Reset():
            parts, left = reset.reach(state, deed)
            return sum(stop - start for _, start, stop in parts), left
        case facts.DeclaredDone():
            declared, left = task_actions.reach(state, deed)
            return sum(stop - start for _, start, stop in declared), left
        case facts.Prioritised():
            return sum(stop - start for _, start, stop in task_actions.targets(state, deed.target, 0)), []
    return task_actions.touched(state, deed), _left(state, deed)


def _left(state: State, deed: Deed) -> list[str]:
    group = state.groups.get(deed.target.id) if deed.target.is_group else None
    if group is None:
        return []
    name = f"group {group.path}" if group.path else "the workflow"
    if isinstance(deed, facts.Held) and deed.disabled:
        found = task_actions.targets(state, deed.target, deed.stop)
        busy = sum(ranges.size(record.runs(task_actions.BUSY, start, stop)) for record, start, stop in found)
        return [f"{busy} of {name} run on; end them: bough stop --disable"] if busy else []
    if isinstance(deed, facts.Released) and deed.enabled:
        if not group.disabled:
            return [f"{name}: is not disabled"]
        above = next((one for one in group.chain() if one is not group and one.disabled), None)
        if above is not None:
            return [f"{name}: the group {above.path or 'of all'} above it is disabled"]
    return []


_BAD = bytes((FAILED, SKIPPED, CANCELLED))


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
    ripple = Closure(copy.workflows[workflow.run], seeds, Changes(fresh, pending, gates, stirred))
    changed = {item.id for item in found.fact.changed if isinstance(item, TaskSpec)}
    return [path_of(record) for record, _, _ in ripple.all_parts() if record.id not in changed]
