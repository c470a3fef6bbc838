"""Short successors travel with what they wait for: a chain link by link, of a fan-out the first handful.

They are placed behind it, on the same executor, which starts them there when it has succeeded, without a round trip.
Rule: only short functions that wait for nothing else travel, no more than the executor's backlog takes, and of a
fan-out no more than the share of one core, so that the others can go elsewhere. See decision 9.
"""

from __future__ import annotations

from collections.abc import Callable

from bough.core import lifecycle
from bough.core.groups import GroupRecord, Waiter
from bough.core.loose import TaskRecord, go_together
from bough.core.queue import ReadyQueue
from bough.core.records import WAITING, Record
from bough.core.room import NOTHING, ExecutorRecord
from bough.core.state import State
from bough.core.timing import MAX_BACKLOG, SHORT, TRUST, most_together, span_size
from bough.model import facts
from bough.model.ids import RecordId, SpanId
from bough.model.orders import SendSpan
from bough.model.tasks import Kind

_FUNCTION = Kind.FUNCTION
Note = Callable[[facts.Fact], None]


def tows(state: State, record: TaskRecord, executor: ExecutorRecord) -> bool:
    """Whether something waits for a task that may travel with it there."""
    waiters = record.dependents
    if not waiters or not 0 < record.runtime.mean <= SHORT or executor.until or state.held_groups:
        return False
    # commands cost far more to start than to send
    return record.like.kind is _FUNCTION and _may_travel(waiters[0], record.queue)


def tow(state: State, note: Note, record: TaskRecord, span: SpanId, executor: ExecutorRecord) -> None:
    """Send along what waits for a short task alone, and what waits for that, as far as it is short too."""
    queue, load = record.queue, executor.backlog_limit - executor.load
    most = min(TRUST * record.runtime.seen, MAX_BACKLOG)
    while (waiters := record.dependents) is not None and len(executor.spans) < most:
        if not _may_travel(waiters[0], queue):
            return
        following = waiters[0][0]
        assert isinstance(following, TaskRecord)
        runtime = following.runtime
        mean = runtime.mean
        most = min(most, TRUST * runtime.seen)
        if load < mean or not 0 < mean <= SHORT:
            return
        if len(waiters) > 1:
            share = span_size(runtime, len(waiters), state.cores, state.pickup)
            most = min(share, int(load / mean), most_together(runtime))
            _send(state, note, _alike(waiters, queue, most), span, executor)
            return
        load -= mean
        span = _send(state, note, [following], span, executor)
        record = following


def _send(state: State, note: Note, records: list[TaskRecord], behind: SpanId, executor: ExecutorRecord) -> SpanId:
    """Place tasks behind a span, and send them as one hand-out; the number of its first span."""
    first = SpanId(state.last_span + 1)
    for number, record in enumerate(records, first):
        fact = facts.Placed(SpanId(number), RecordId(record.id), 0, 1, record.attempt + 1, executor.id, True, behind)
        note(fact)
        lifecycle.place_task(state, fact, record, executor)
    state.orders.append(hand_out(executor, first, records, behind))
    return first


def hand_out(executor: ExecutorRecord, first: SpanId, records: list[TaskRecord], behind: SpanId = NOTHING) -> SendSpan:
    """The order that sends placed tasks which go together, under consecutive span numbers."""
    lead = records[0]
    along = tuple([(record.id, record.payload) for record in records[1:]]) if len(records) > 1 else ()
    return SendSpan(
        executor.id,
        first,
        lead.spec,
        0,
        1,
        lead.attempt,
        (),
        lead.runtime.mean,
        behind,
        along,  # type: ignore[arg-type]
    )


def _alike(waiters: list[Waiter], queue: ReadyQueue, most: int) -> list[TaskRecord]:
    """The first of many waiters that may travel in one hand-out."""
    found: list[TaskRecord] = []
    for waiter in waiters:
        record = waiter[0]
        if len(found) >= max(1, most) or not _may_travel(waiter, queue):
            break
        assert isinstance(record, TaskRecord)
        if found and not go_together(found[0], record):
            break
        found.append(record)
    return found


def _may_travel(entry: Waiter, queue: ReadyQueue) -> bool:
    """Whether somebody waits for one task and nothing else, and may go where that goes."""
    waiter: Record | GroupRecord = entry[0]
    if type(waiter) is not TaskRecord or waiter.waits != 1 or waiter.state != WAITING or waiter.queue is not queue:
        return False
    if waiter.generation != entry[2] or waiter.held or waiter.trouble is not None or queue.limits:
        return False
    like = waiter.like
    return like.kind is _FUNCTION and not like.limits.replay and not (waiter.key and queue.workflow.memos)
