"""What an action or a changed description would do: how many tasks it changes, what it does not change and why.

How far a changed description would reach is found on a copy of the workflow as it would be, by the same `Closure` that
`amend` asks. Rule: it looks and changes nothing; a caller that asks and then acts must do both within one turn.
"""

from __future__ import annotations

from bough.core import populations
from bough.core.actions import reset, task_actions, watching
from bough.core.actions.amend import runs_again, waits_for_more
from bough.core.actions.difference import Difference, alone, path_of
from bough.core.graph.closure import STARTED, Changes, Closure, Part
from bough.core.graph.submission import add_group, add_task
from bough.core.records.array_record import OCCUPYING_STATES, UNSUCCESSFUL_STATES, WAITING, Record
from bough.core.records.group_record import GroupRecord, Workflow
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.model.arrays import ranges
from bough.model.events import news
from bough.model.events.news import Action
from bough.model.tasks import GroupSpec, TaskSpec


def survey(state: State, action: Action) -> tuple[int, list[str]]:
    """How many tasks it changes, and what it leaves out."""
    match action:
        case news.Reset():
            parts, left = reset.reach(state, action)
            return sum(stop - start for _, start, stop in parts), left
        case news.DeclareDone():
            declared, left = task_actions.reach(state, action)
            return sum(stop - start for _, start, stop in declared), left
        case news.AddMonitors() | news.EndEarly():
            return watching.reach(state, action)
        case news.SetRule():
            return populations.count_members(state, action), []
        case news.Prioritise():
            return sum(stop - start for _, start, stop in task_actions.targets(state, action.target, 0)), []
    return task_actions.touched(state, action), _left(state, action)


def _left(state: State, action: Action) -> list[str]:
    group = state.groups.get(action.target.id) if action.target.is_group else None
    if group is None:
        return []
    name = f"group {group.path}" if group.path else "the workflow"
    if isinstance(action, news.Hold) and action.disabled:
        found = task_actions.targets(state, action.target, action.stop)
        busy = sum(ranges.size(record.runs(OCCUPYING_STATES, start, stop)) for record, start, stop in found)
        if not busy:
            return []
        what = f"{busy} running task{'s' if busy > 1 else ''} of {name}"
        return [f"{what}; to end what runs as well: bough stop --disable {group.path or 'all'}"]
    if isinstance(action, news.Release) and action.enabled:
        if not group.disabled:
            return [f"{name}: is not disabled"]
        above = next((one for one in group.chain() if one is not group and one.disabled), None)
        if above is not None:
            return [f"{name}: the group {above.path or 'of all'} above it is disabled"]
    return []


def run_again(state: State, workflow: Workflow, found: Difference) -> list[str]:
    """The paths of tasks that are not changed themselves, but have started and would be run again."""
    copy = alone(state, workflow)
    added: list[Record] = []
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
            added.append(record)
            continue
        record.state = (
            WAITING if old.state in UNSUCCESSFUL_STATES else old.state
        )  # which is tried again before anything is changed
        if runs_again(old, item):
            if record.state in STARTED:
                seeds.append((record, 0, 1))
            else:
                pending.append(record)
    bad = {
        state.records[id_].group.id for id_ in found.news.removed if state.records[id_].runs(UNSUCCESSFUL_STATES, 0, 1)
    }
    lost_members = [copy.groups[id_] for id_ in copy.groups if id_ in bad]
    closure = Closure(copy.workflows[workflow.run], seeds, Changes(added, pending, gates, lost_members))
    changed = {item.id for item in found.news.changed if isinstance(item, TaskSpec)}
    return [path_of(record) for record, _, _ in closure.all_parts() if record.id not in changed]
