"""Asking the policy, and carrying out its wishes: what turns ready tasks into placed ones.

Wishes are enacted as they are yielded, so that a policy sees the world after each. Rule: an unlawful
wish is passed over; a policy that raises is replaced, for that turn, by placing in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import cast

from bough.core import lifecycle
from bough.core.groups import GroupRecord
from bough.core.queue import ReadyQueue
from bough.core.records import WAITING, ArrayRecord, Record, TaskRecord
from bough.core.room import ExecutorRecord
from bough.core.state import State
from bough.core.timing import MAX_BACKLOG, SHORT, TRUST, span_size
from bough.core.view import StateView
from bough.core.wide import WideExecutor
from bough.errors import BoughError
from bough.model import facts
from bough.model.facts import Fact
from bough.model.ids import RecordId, Seconds, SpanId
from bough.model.orders import SendSpan
from bough.model.tasks import Kind
from bough.policy.api import Place
from bough.policy.greedy import in_order

_FUNCTION = Kind.FUNCTION
_PATIENCE = 1000  # unlawful wishes in a row before a policy is not asked further in a turn


class Placement:
    """See the module."""

    def __init__(self, state: State, random: Random) -> None:
        self.state = state
        self._random = random
        self._facts: list[Fact] = []

    def ask(self, now: Seconds) -> list[Fact]:
        """Place what the policy wants placed, as far as it is lawful; return the facts."""
        state = self.state
        self._facts = []
        if state.waiting and state.roomy:
            self._ask(now)
        return self._facts

    def _ask(self, now: Seconds) -> None:
        state = self.state
        view = StateView(state, now, self._random)
        try:
            self.follow(view, state.policy.place(view))
        except BoughError:
            raise  # our own bug, found while carrying out a wish
        except Exception as error:  # noqa: BLE001 a policy is anybody's code: it must not stop the machine
            state.complaints.append(f"the policy failed and was replaced for this turn: {error!r}")
            view.give_back()
            self.follow(view, in_order(view))
        finally:
            view.give_back()

    def follow(self, view: StateView, wishes: Iterable[Place]) -> None:
        """Carry out the lawful ones of a policy's wishes."""
        refused = 0
        for wish in wishes:
            record, executor, fits = view.take_offer()
            if executor is None or record.id != wish.record or executor.id != wish.executor:
                lawful = self._lawful(wish)
                if lawful is None:
                    refused += 1
                    if refused > _PATIENCE:
                        break
                    continue
                record, executor, fits = lawful
            refused = 0
            if type(record) is TaskRecord:
                self._place_tasks([record], executor, fits=fits)
                if not fits and not wish.count:  # short tasks like it, next in the queue, travel with it
                    along = view.take_like(record, _hand_out(record, executor, self.state))
                    self._place_tasks(along, executor, fits=False)
            else:
                self._place_elements(record, executor, wish.count, fits=fits)  # type: ignore[arg-type]
            if not executor.has_room():
                self.state.roomy.pop(executor.id, None)

    def _lawful(self, wish: Place) -> tuple[Record, ExecutorRecord, bool] | None:
        """What a wish names, if something of it is ready and there is room for it."""
        record = self.state.records.get(wish.record)
        executor = self.state.executors.get(wish.executor)
        if record is None or executor is None or not record.ready or executor.draining or executor.suspended:
            return None
        if executor.until or record.avoid:
            state = self.state
            if not executor.ends_before(record, state.now) or executor.id in state.shunned_by(record):
                return None
        fits = executor.fits(record)
        return (record, executor, fits) if fits or executor.takes_backlog(record) else None

    def _place_elements(self, record: ArrayRecord, executor: ExecutorRecord, count: int, *, fits: bool) -> None:
        state, runtime = self.state, record.runtime
        if executor.wide:
            limit = cast("WideExecutor", executor).hand_out(record, state.cores, state.pickup, queued=not fits)
        else:
            limit = span_size(runtime, record.ready, state.cores, state.pickup)
        start, stop, attempt = record.next_range(min(limit, count) if count > 0 else limit)
        span = SpanId(state.last_span + 1)
        fact = facts.Placed(span, RecordId(record.id), start, stop, attempt, executor.id, not fits)
        self._facts.append(fact)
        lifecycle.place_elements(state, fact, record, executor)
        pages = record.pages(start, stop)
        state.orders.append(SendSpan(executor.id, span, record.spec, start, stop, attempt, pages, runtime.mean))

    def _place_tasks(self, records: list[TaskRecord], executor: ExecutorRecord, *, fits: bool) -> None:
        state, taker, queued = self.state, executor.id, not fits
        note, order = self._facts.append, state.orders.append
        for record in records:
            span = state.last_span + 1
            attempt = record.attempt + 1
            fact = facts.Placed(span, record.id, 0, 1, attempt, taker, queued)  # type: ignore[arg-type]
            note(fact)
            lifecycle.place_task(state, fact, record, executor)
            order(SendSpan(taker, span, record.spec, 0, 1, attempt, (), record.runtime.mean))  # type: ignore[arg-type]
            if record.dependents:
                self._tow(record, SpanId(span), executor)

    def _tow(self, record: TaskRecord, span: SpanId, executor: ExecutorRecord) -> None:
        """Send along what waits for a short task alone, and what waits for that, as far as it is short too."""
        state, runtime, queue = self.state, record.runtime, record.queue
        if not 0 < runtime.mean <= SHORT or executor.until or state.held_groups or record.spec.kind is not _FUNCTION:
            return  # commands cost far more to start than to send
        spans, load = executor.spans, executor.backlog_limit - executor.load
        most = min(TRUST * runtime.seen, MAX_BACKLOG)
        while (waiters := record.dependents) is not None and len(waiters) == 1 and len(spans) < most:
            following, _, generation = waiters[0]
            if not _may_travel(following, generation, queue):
                return
            assert isinstance(following, TaskRecord)
            if following.runtime is not runtime:
                runtime = following.runtime
                most = min(most, TRUST * runtime.seen)
            mean = runtime.mean
            load -= mean
            if load < 0 or not 0 < mean <= SHORT:
                return
            number, attempt = SpanId(state.last_span + 1), following.attempt + 1
            fact = facts.Placed(number, following.id, 0, 1, attempt, executor.id, True, span)  # type: ignore[arg-type]
            self._facts.append(fact)
            lifecycle.place_task(state, fact, following, executor)
            state.orders.append(SendSpan(executor.id, number, following.spec, 0, 1, attempt, (), mean, span))
            record, span = following, number


def _may_travel(waiter: Record | GroupRecord, generation: int, queue: ReadyQueue) -> bool:
    """Whether somebody waits for one task and nothing else, and may go where that goes."""
    if type(waiter) is not TaskRecord or waiter.waits != 1 or waiter.state != WAITING or waiter.queue is not queue:
        return False
    if waiter.generation != generation or waiter.held or waiter.avoid:
        return False
    spec = waiter.spec
    return spec.kind is _FUNCTION and not spec.limits.replay and not (spec.key and queue.workflow.memos)


def _hand_out(record: TaskRecord, executor: ExecutorRecord, state: State) -> int:
    """How many tasks like one that waits in a backlog may go with it: one hand-out, as far as the backlog takes it."""
    runtime = record.runtime
    by_load = int((executor.backlog_limit - executor.load) / runtime.mean)
    by_count = min(TRUST * runtime.seen, MAX_BACKLOG) - len(executor.spans)
    return min(span_size(runtime, len(record.queue), state.cores, state.pickup) - 1, by_load, by_count)
