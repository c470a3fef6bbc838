"""Recalling a backlog: short tasks that wait behind surprisingly long ones go to executors that have nothing to do.

A backlog is short work (see `executor_record`), so its oldest span ends soon. If that span is still there at the next
look, something long is in front of it, or it is long itself; if another executor has room for what waits, the core has
the first one give back what it has not begun, and that is placed anew. Rules: an executor is asked for nothing that it
has begun, and gets no new backlog until the old one has moved; a look costs some executors that were given a backlog
lately and some that are open, twice a second at most, and nothing where there is one executor. Nothing of this is a
fact: what comes back is. A relay has moved as soon as a task of its oldest span has ended.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from bough.core.records.attempts import Span
from bough.core.records.executor_record import ExecutorRecord
from bough.core.state import State
from bough.model.events.orders import Order, RecallBacklog
from bough.model.ids import Seconds

LOOK: Final[Seconds] = 0.5  # seconds between two looks
_MOST: Final = 256  # executors with a backlog that are looked at
_MOST_OPEN: Final = 1024  # executors that may have room
_SEVERAL: Final = 2
_ROUND: Final = 1e-9


def next_look(state: State) -> list[Seconds]:
    """When to look if nothing happens until then; nothing: there is no need."""
    return [state.recall_at] if state.recall_at and state.spans else []


def recall(state: State, orders: list[Order]) -> None:
    """If it is time to look: recall backlogs that have not moved since the last look."""
    if not state.spans:
        state.crowded.clear()
        state.recall_at = 0.0
        return
    if len(state.executors) < _SEVERAL:
        state.recall_at = 0.0
        return
    if state.now < state.recall_at:
        return
    is_first, state.recall_at = not state.recall_at, state.now + LOOK
    if is_first:
        return
    free: list[ExecutorRecord] | None = None
    for executor in list(islice(state.crowded.values(), _MOST)):
        del state.crowded[executor.id]
        oldest = next((span for span in executor.spans.values() if span.queued), None)
        if executor.id not in state.executors or oldest is None:
            executor.oldest, executor.stuck = None, False
            continue
        state.crowded[executor.id] = executor  # behind those that were not looked at
        head = (oldest.id, oldest.many)
        if executor.oldest != head or executor.cores_free >= -_ROUND:
            executor.oldest, executor.stuck = head, False
            continue
        if free is None:
            free = [one for one in islice(state.open_executors.values(), _MOST_OPEN) if one.cores_free > _ROUND]
        if any(_could_take(state, one, executor) for one in free):
            executor.stuck = True
            orders.append(RecallBacklog(executor.id))


def _could_take(state: State, free: ExecutorRecord, executor: ExecutorRecord) -> bool:
    """Whether an executor with room could begin the last that waits at another."""
    last: Span = next(reversed(executor.spans.values()))
    record = last.record
    return (
        free is not executor
        and (free.bound is None or free.bound.room() > 0 or free.bound is executor.bound)
        and last.queued
        and free.fits(record)
        and free.ends_before(record, state.now)
        and free.id not in record.avoid
        and record.place in {"", free.host}
    )
