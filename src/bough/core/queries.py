"""How workflows and groups stand: what of them has ended, goes on, or can go on no more without somebody's help.

Rule: read from the counts that groups keep, never from tasks one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bough.core.records.array_record import CANCELLED, DONE, FAILED, HELD, PLACED, READY, RUNNING, SKIPPED, WAITING
from bough.core.records.group_record import GroupRecord, Workflow
from bough.core.state import State, TimerKind
from bough.model.ids import ROOT
from bough.model.states import TaskState

_OPEN = (WAITING, HELD, READY, PLACED, RUNNING)
_ENDED = (DONE, FAILED, SKIPPED, CANCELLED)


class TaskCounts:
    """The tasks of some groups, by state."""

    def __init__(self, groups: Iterable[GroupRecord]) -> None:
        self.counts = [0] * len(TaskState)
        for group in groups:
            for state, count in enumerate(group.counts):
                if count:
                    self.counts[state] += count

    @property
    def unended(self) -> int:
        """Tasks that have not ended."""
        return sum(self.counts[state] for state in _OPEN)

    @property
    def out(self) -> int:
        """Tasks that are with executors."""
        return self.counts[PLACED] + self.counts[RUNNING]

    @property
    def ready(self) -> int:
        """Tasks that could run now."""
        return self.counts[READY]

    def __str__(self) -> str:
        """Read as in "12 done, 1 failed"."""
        shown = (*_ENDED, *_OPEN)
        words = [f"{self.counts[state]} {TaskState(state).label}" for state in shown if self.counts[state]]
        return ", ".join(words) or "no tasks"


def below(group: GroupRecord) -> Iterator[GroupRecord]:
    """A group and all groups in it."""
    stack = [group]
    while stack:
        one = stack.pop()
        yield one
        stack += one.children


def workflows_of(state: State) -> list[Workflow]:
    """The workflows that a service holds."""
    return [workflow for workflow in state.workflows.values() if workflow.group.id != ROOT]


def awaits_retry(state: State, workflow: Workflow) -> bool:
    """Whether a task of a workflow failed and is tried again in a while."""
    records = (state.records.get(record) for _, kind, record, _ in state.timers if kind == TimerKind.RETRY)
    return any(record is not None and record.group.workflow is workflow for record in records)


def may_be_stuck(state: State, workflow: Workflow) -> bool:
    """Whether a workflow does nothing, as far as a quick look shows."""
    if workflow.closed or workflow.cores:
        return False
    able = [executor for executor in state.executors.values() if not executor.draining]
    waiting = [queue.needs for queue in state.waiting if queue.workflow is workflow and queue.head() is not None]
    return not waiting or not any(executor.could_fit(needs) for executor in able for needs in waiting)


def why_stuck(state: State, workflow: Workflow) -> str:
    """Why a workflow can go on no more before somebody acts; empty when it can, or when it is over.

    Memos that are being looked up are not thought of: ask when nothing waits for a turn.
    """
    if not may_be_stuck(state, workflow):
        return ""
    standing = TaskCounts(below(workflow.group))
    if not standing.unended or standing.out or awaits_retry(state, workflow):
        return ""
    if standing.counts[HELD]:
        return f"{standing.counts[HELD]} of its tasks are held; let them go with bough release"
    if standing.ready:
        if all(executor.draining for executor in state.executors.values()):
            return f"{standing.ready} of its tasks are ready and there is no executor"
        return f"{standing.ready} of its tasks are ready and no executor has what they need; see bough explain"
    return f"{standing.counts[WAITING]} of its tasks wait for something that nothing runs; see bough explain"
