"""Tasks that people take, run and report themselves.

The core knows a person who has a task as an executor of the site "manual" without a process. It joins for one command
that was ready, gets it in the same turn, and is drained at once. Rule: such an executor gets the command that was taken
for it and nothing else, so no policy ever sees it.
"""

from __future__ import annotations

from typing import Final

from bough.core.actions import task_actions
from bough.core.records.array_record import ArrayRecord, Record
from bough.core.records.executor_record import MANUAL_SITE
from bough.core.records.group_record import GroupRecord
from bough.core.records.indexes.ready_queue import Entry, ReadyQueue
from bough.core.state import State
from bough.model.events import facts
from bough.model.events.facts import Fact
from bough.model.events.news import TakeTask
from bough.model.events.orders import AnswerTake
from bough.model.ids import GroupId, RecordId, SpanId
from bough.model.tasks import Kind

_DEEPEST: Final = 100_000  # entries of one queue that are looked at


def take(state: State, news: TakeTask) -> tuple[list[Fact], AnswerTake]:
    """The facts that give a person the next command, and the order with the answer.

    Nothing to take: no facts, and the order says whether a command could be taken elsewhere in the same workflows.
    """
    groups = [state.groups[group] for group in news.groups if group in state.groups]
    record = _choose(state, groups, news.host) if not state.stopping else None
    if record is None:
        whole = [group.workflow.group for group in groups]
        elsewhere = whole != groups and _choose(state, whole, "") is not None
        return [], AnswerTake(news.request, elsewhere=elsewhere)
    if isinstance(record, ArrayRecord):
        start, stop, attempt = record.next_range(1)
    else:
        start, stop, attempt = 0, 1, record.attempt + 1
    number, span = RecordId(record.id), SpanId(state.last_span + 1)
    taken: list[Fact] = [
        facts.ExecutorJoined(news.executor, MANUAL_SITE, news.name, 0, record.needs),
        facts.Placed(span, number, start, stop, attempt, news.executor),
        facts.ExecutorDrained(news.executor),
        facts.SpanStarted(span, start, stop, number),
    ]
    return taken, AnswerTake(news.request, span)


def _choose(state: State, groups: list[GroupRecord], host: str) -> Record | None:
    """The command in some groups that goes next: of the workflow that holds the fewest cores, in the policy's order.

    Commands with affinity to `host` go first, and those with affinity to where another person took their predecessor
    go last: that person may come back for them. A command that belongs to the host of an executor is left to it.
    """
    wanted = {group.id for group in groups}
    workflows = {group.workflow for group in groups}
    best: tuple[int, float, Entry] | None = None
    roots = [root for workflow in workflows for root in state.roots_of(workflow)]
    for queue in [leaf for root in roots for leaf in root.leaves()]:
        if queue.place in state.hosts or ((queue.limits or queue.named.bounded) and queue.spare <= 0):
            continue
        entry = _first(state, queue, wanted)
        near = 1 if not queue.place else 0 if queue.place.rpartition("@")[2] == host else 2
        if entry is not None and (best is None or (near, queue.workflow.cores, entry) < best):
            best = near, queue.workflow.cores, entry
    return state.records[best[2][4].id] if best is not None else None


def _first(state: State, queue: ReadyQueue, groups: set[GroupId]) -> Entry | None:
    """The best command of a queue that is in one of the groups."""
    taken: list[Entry] = []
    found = None
    while len(taken) < _DEEPEST and (entry := queue.take()) is not None:
        taken.append(entry)
        record = state.records[entry[4].id]
        if task_actions.kind_of(record) is Kind.COMMAND and any(group.id in groups for group in record.group.chain()):
            found = entry
            break
    for entry in reversed(taken):
        queue.put_back(entry)
    return found
