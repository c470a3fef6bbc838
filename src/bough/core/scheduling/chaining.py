"""Chaining: short successors travel with what they wait for; a chain link by link, of a fan-out the first few.

They are placed after it on the same executor, which starts them there when it has succeeded, without a round trip.
Links that are alike are sent as one batch. See decision 9.
Rule: only short functions that wait for nothing else are chained, no more than the executor's backlog takes, and of a
fan-out no more than the share of one core, so that the others can go elsewhere; none in a workflow that is watched.
"""

from __future__ import annotations

from collections.abc import Callable

from bough.core import lifecycle
from bough.core.pilots.named_queues import capped
from bough.core.records.array_record import WAITING, Record
from bough.core.records.attempts import NOTHING
from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.group_record import GroupRecord, Waiter
from bough.core.records.indexes.ready_queue import ReadyQueue
from bough.core.records.task_record import TaskRecord, can_batch, continues_chain
from bough.core.state import State
from bough.model.arrays.runtimes import MAX_BACKLOG, SHORT, TRUST, most_together, span_size
from bough.model.events import facts
from bough.model.events.orders import SendSpan
from bough.model.ids import RecordId, SpanId
from bough.model.tasks import Kind

_FUNCTION = Kind.FUNCTION
Note = Callable[[facts.Fact], None]
Order = Callable[[SendSpan], None]


def has_chain(state: State, record: TaskRecord, executor: ExecutorRecord) -> bool:
    """Whether something waits for a task that may travel with it to an executor."""
    waiters = record.dependents
    if not waiters or not 0 < record.runtime.slot <= SHORT or executor.until or state.held_groups:
        return False
    if record.queue.workflow.watched:
        return False
    # commands cost far more to start than to send
    return record.shared_spec.kind is _FUNCTION and _may_chain(waiters[0], record.queue)


def send_chain(  # noqa: PLR0917 called for every chain: names would cost
    state: State, note: Note, order: Order, record: TaskRecord, span: SpanId, executor: ExecutorRecord
) -> None:
    """Send a task that was placed, and with it what waits for it alone, and for that, as far as it is short too."""
    queue, load = record.queue, executor.backlog_limit - executor.load
    most = min(TRUST * record.runtime.seen, MAX_BACKLOG)
    links, first, after_span = [record], span, NOTHING  # of the batch that is being put together
    together = most_together(record.runtime)
    fan: list[TaskRecord] = []
    while (waiters := record.dependents) is not None and len(executor.spans) < most:
        if not _may_chain(waiters[0], queue):
            break
        following = waiters[0][0]
        assert isinstance(following, TaskRecord)
        runtime = following.runtime
        each = runtime.slot
        most = min(most, TRUST * runtime.seen)
        if load < each or not 0 < each <= SHORT:
            break
        if len(waiters) > 1:
            share = span_size(runtime, len(waiters), state.cores, state.pickup)
            fan = _alike(waiters, queue, min(share, int(load / each), most_together(runtime)))
            break
        load -= each
        if len(links) >= together or not continues_chain(following, record):
            order(send_order(state, executor, first, links, after_span, chained=True))
            links, first, after_span = [], SpanId(span + 1), span
            together = most_together(runtime)
        links.append(following)
        span = _place(state, note, [following], span, executor)
        record = following
    order(send_order(state, executor, first, links, after_span, chained=True))
    if fan:
        order(send_order(state, executor, _place(state, note, fan, span, executor), fan, span))


def _place(state: State, note: Note, records: list[TaskRecord], after_span: SpanId, executor: ExecutorRecord) -> SpanId:
    """Place tasks that start after a span has succeeded; the number of the first one's span."""
    first = SpanId(state.last_span + 1)
    for number, record in enumerate(records, first):
        fact = facts.Placed(
            SpanId(number), RecordId(record.id), 0, 1, record.attempt + 1, executor.id, True, after_span
        )
        note(fact)
        lifecycle.place_task(state, fact, record, executor)
    return first


def send_order(
    state: State,
    executor: ExecutorRecord,
    first: SpanId,
    records: list[TaskRecord],
    after_span: SpanId = NOTHING,
    *,
    chained: bool = False,
) -> SendSpan:
    """The order that sends placed tasks which go together, under consecutive span numbers."""
    lead = records[0]
    batch = tuple([(record.id, record.payload) for record in records[1:]]) if len(records) > 1 else ()
    return SendSpan(
        executor.id,
        first,
        lead.spec if not lead.queue.needs.queue else capped(lead.spec, lead.queue.named),
        0,
        1,
        lead.attempt,
        (),
        lead.runtime.slot,
        after_span,
        batch,  # type: ignore[arg-type]
        chained and batch != (),
        state.watch.plans_of(lead, 0) if lead.queue.workflow.watched else (),
    )


def can_go_together(state: State, one: TaskRecord, other: TaskRecord) -> bool:
    """Whether two tasks differ in nothing that an executor must be told but their numbers and arguments."""
    if not can_batch(one, other):
        return False
    added = state.watch.added
    return not added or not (one.id in added or other.id in added)


def _alike(waiters: list[Waiter], queue: ReadyQueue, most: int) -> list[TaskRecord]:
    """The first of many waiters that may travel in one batch."""
    found: list[TaskRecord] = []
    for waiter in waiters:
        record = waiter[0]
        if len(found) >= max(1, most) or not _may_chain(waiter, queue):
            break
        assert isinstance(record, TaskRecord)
        if found and not can_batch(found[0], record):
            break
        found.append(record)
    return found


def _may_chain(entry: Waiter, queue: ReadyQueue) -> bool:
    """Whether a waiter waits for one task and nothing else, and may go where that goes."""
    waiter: Record | GroupRecord = entry[0]
    if type(waiter) is not TaskRecord or waiter.waits != 1 or waiter.state != WAITING or waiter.queue is not queue:
        return False
    if waiter.generation != entry[2] or waiter.held or waiter.trouble is not None or queue.limits or queue.needs.queue:
        return False
    like = waiter.shared_spec
    if like.kind is not _FUNCTION or like.limits.resend_after:
        return False
    return not (waiter.key and queue.workflow.memos and queue.workflow.looks_up(always=like.always))
