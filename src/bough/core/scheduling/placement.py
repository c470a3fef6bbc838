"""Asking the placement policy and carrying out its wishes: ready tasks become placed ones.

A wish is carried out as soon as the policy yields it, so the policy sees the world after each. Loose tasks that are
alike and follow each other in the queue are sent as one batch.
A policy that does not look at data hears of no more work of one kind once nobody has room: it is asked anew when
somebody has.
Rule: an unlawful wish is passed over, and the operator is told of one that names what does not exist; a policy that
raises is replaced, for that turn, by placing in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import cast

from bough.core import lifecycle
from bough.core.pilots.named_queues import capped
from bough.core.records.array_record import ArrayRecord
from bough.core.records.attempts import Span
from bough.core.records.executor_record import ExecutorRecord, RelayExecutorRecord
from bough.core.records.indexes.affinity_index import AffinityIndex
from bough.core.records.indexes.room_index import has_room
from bough.core.records.indexes.waiting_units import key_of
from bough.core.records.task_record import TaskRecord
from bough.core.scheduling.chaining import can_go_together, has_chain, send_chain, send_order
from bough.core.scheduling.view import StateView, find_offer
from bough.core.state import State
from bough.errors import BoughError
from bough.model.arrays.runtimes import MAX_BACKLOG, TRUST, most_together, span_size
from bough.model.events import facts
from bough.model.events.facts import Fact
from bough.model.events.orders import Order, SendSpan
from bough.model.ids import BlobId, RecordId, Seconds, SpanId, number_of
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policy.interface import Place
from bough.policy.list_scheduling import in_order

_MOST_REFUSED = 1000  # unlawful wishes in a row before a policy is not asked further in a turn


class Placement:
    """See the module."""

    def __init__(self, state: State, random: Random) -> None:
        self.state = state
        self._random = random
        self._facts: list[Fact] = []
        self._orders: list[Order] = []

    def ask(self, now: Seconds, orders: list[Order]) -> list[Fact]:
        """Place what the policy wants placed, as far as it is lawful; return the facts, and note the orders."""
        state = self.state
        self._facts, self._orders = [], orders
        if state.affinity is not None:
            state.affinity.take_up()
        if state.waiting and state.open_executors:
            self._ask(now)
            while state.affinity is not None and state.affinity.has_slid and state.waiting and state.open_executors:
                state.affinity.has_slid = False
                self._ask(now)
        return self._facts

    def _ask(self, now: Seconds) -> None:
        state = self.state
        view = StateView(state, now, self._random)
        try:
            self.follow(view, state.policies.placement.place(view))
        except BoughError:
            raise  # our own bug, found while carrying out a wish
        except Exception as error:  # noqa: BLE001 a policy is anybody's code: it must not stop the machine
            state.complaints.append(f"the policy failed and was replaced for this turn: {error!r}")
            view.give_back()
            self.follow(view, in_order(view))
        finally:
            view.give_back()

    def follow(self, view: StateView, wishes: Iterable[Place]) -> None:  # noqa: C901 called for every task
        """Carry out the lawful ones of a policy's wishes."""
        refused, impossible, affinity = 0, False, self.state.affinity
        records, executors = self.state.records, self.state.executors
        for wish in wishes:
            offer, view.offer = view.offer, None
            if (
                offer is None
                or offer.work.id != wish.record
                or offer.executor.id != wish.executor  # type: ignore[union-attr]
                or view.offered_element != wish.start
            ):
                wanted, there = records.get(wish.record), executors.get(wish.executor)
                known = wanted is not None and there is not None
                offer = find_offer(self.state, wanted, there, wish.start) if known else None  # type: ignore[arg-type]
                if offer is None:
                    refused += 1
                    if not known and not impossible:
                        impossible = True
                        self.state.complaints.append(
                            f"the policy wished the impossible: task {number_of(wish.record)} on executor"
                            f" {wish.executor}, and one of them does not exist"
                        )
                    if refused > _MOST_REFUSED:
                        self.state.complaints.append(
                            f"the policy was not asked further in this turn: none of {_MOST_REFUSED} wishes in a row"
                            " could be carried out"
                        )
                        break
                    continue
            executor: ExecutorRecord = offer.executor  # type: ignore[assignment] # what a policy sees as one is a record
            record, fits, free = offer.work, offer.fits_now, executor.cores_free
            refused = 0
            if self.state.named_queues.several:
                self.state.named_queues.charge(record.queue.named, record.queue.cores)  # type: ignore[attr-defined]
            if type(record) is TaskRecord:
                together = [record]
                if not fits and not wish.count:  # short tasks like it, next in the queue, travel with it
                    together += view.take_like(record, _batch_size(record, executor, self.state))
                self._place_tasks(together, executor, fits=fits)
            else:
                self._place_elements(record, executor, wish.count, wish.start, fits=fits)  # type: ignore[arg-type]
            if affinity is not None and affinity.is_used:
                if affinity.follows_arrivals:
                    affinity.arrivals.took(executor.id, self.state.now)
                affinity.announcements.served(executor.id, self.state.now)
                if not has_room(executor):  # it stands last when it has room again
                    affinity.roomy.pop(executor.id)
            self._update_open(executor, fits=fits)
            if view.free_cores is not None:
                view.took(executor, free)
            if affinity is None and self._is_full():
                break

    def _is_full(self) -> bool:
        """Whether nobody has room for the one kind of work that waits: no look at more of it would find somebody."""
        state = self.state
        waiting, open_ = state.waiting, state.open_executors
        if len(waiting) != 1 or state.vacant.first(open_) is not None or state.room.first(open_) is not None:
            return False
        (only,) = waiting
        return only.needs.cores > 0

    def _update_open(self, executor: ExecutorRecord, *, fits: bool) -> None:
        """An executor was given something: it may take nothing more, or be the last to be looked at."""
        state = self.state
        if executor.bound is not None and (reached := executor.bound.reached()) is not None:
            state.park(executor, reached)
        if not executor.is_open():
            state.open_executors.pop(executor.id, None)
        elif not fits and len(state.open_executors) > 1:  # others shall have their share of what waits
            state.open_executors[executor.id] = state.open_executors.pop(executor.id)
            state.vacant.opened(executor.id)
            state.room.opened(executor.id)

    def _place_elements(
        self, record: ArrayRecord, executor: ExecutorRecord, count: int, first: int, *, fits: bool
    ) -> None:
        state, runtime = self.state, record.runtime
        if executor.wide:
            limit = cast("RelayExecutorRecord", executor).hand_out(record, state.cores, state.pickup, queued=not fits)
        else:
            limit = span_size(runtime, record.ready, state.cores, state.pickup)
        limit = min(limit, count) if count > 0 else limit
        if executor.bound is not None:
            limit = min(limit, executor.bound.room())
        start, stop, attempt = record.next_range(limit) if first < 0 else record.range_at(first, limit)
        watch: tuple[BlobId, ...] = ()
        if record.queue.workflow.watched:
            if record.id in state.watch.added:
                stop = state.watch.alike(record.id, start, stop)
            watch = state.watch.plans_of(record, start)
        span = SpanId(state.last_span + 1)
        fact = facts.Placed(span, RecordId(record.id), start, stop, attempt, executor.id, not fits)
        self._facts.append(fact)
        lifecycle.place_elements(state, fact, record, executor)
        if state.affinity is not None and record.has_inputs:
            note_data(state.affinity, state.spans[span])
        pages = record.pages(start, stop)
        spec: ArraySpec | TaskSpec = record.spec_for_executors
        if record.queue.needs.queue:
            spec = capped(spec, record.queue.named)
        self._orders.append(SendSpan(executor.id, span, spec, start, stop, attempt, pages, runtime.slot, watch=watch))

    def _place_tasks(self, records: list[TaskRecord], executor: ExecutorRecord, *, fits: bool) -> None:
        """Place loose tasks; those that are alike and follow each other are sent as one batch."""
        state, taker, queued = self.state, executor.id, not fits
        note, order, affinity = self._facts.append, self._orders.append, state.affinity
        first, together = SpanId(0), records[:0]
        most = most_together(records[0].runtime) if len(records) > 1 else 1
        for record in records:
            span = SpanId(state.last_span + 1)
            fact = facts.Placed(span, record.id, 0, 1, record.attempt + 1, taker, queued)  # type: ignore[arg-type]
            note(fact)
            lifecycle.place_task(state, fact, record, executor)
            if affinity is not None and record.own is not None and record.own.reads:
                note_data(affinity, state.spans[span])
            chain = record.dependents is not None and executor.bound is None and has_chain(state, record, executor)
            if together and (chain or len(together) >= most or not can_go_together(state, together[0], record)):
                order(send_order(state, executor, first, together))
                together = []
            if chain:
                send_chain(state, note, order, record, span, executor)
                continue
            if not together:
                first = span
            together.append(record)
        if together:
            order(send_order(state, executor, first, together))


def _batch_size(record: TaskRecord, executor: ExecutorRecord, state: State) -> int:
    """How many tasks like one that waits in a backlog may go with it: a span's worth, if the backlog takes it."""
    runtime = record.runtime
    by_load = int((executor.backlog_limit - executor.load) / runtime.slot)
    by_count = min(TRUST * runtime.seen, MAX_BACKLOG) - len(executor.spans)
    if record.queue.limits or record.queue.named.bounded:
        by_count = min(by_count, record.queue.spare - 1)
    if executor.bound is not None:
        by_count = min(by_count, executor.bound.room() - 1)
    return min(span_size(runtime, len(record.queue), state.cores, state.pickup) - 1, by_load, by_count)


def note_data(affinity: AffinityIndex, span: Span) -> None:
    """Tasks with declared inputs were placed: they wait no more; how much of their data was there is remembered."""
    record, executor = span.record, span.executor
    units, announcements = affinity.units, affinity.announcements
    for element in range(span.start, span.stop):
        key = key_of(record, element)
        unit = units.pop(key, None)
        announcements.placed(key, executor.id)
        if unit is None:
            continue
        if affinity.patience:
            affinity.took_turn(unit)
        if (place := affinity.place_of(executor)) is not None:
            affinity.placed.note(affinity, unit, key, place, executor)
        affinity.left(unit)
