"""The scheduler: told the time and the news, it returns facts to write and orders to carry out.

`turn` is the only thing that changes the state. What a peer says is filtered (unknown span, element
that is not with it any more, duplicate id); what we decide is asserted. `replay` applies facts of a
journal: no policy is asked and no order is given. Rule: no clock, no dice, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop
from random import Random

import msgspec

from bough.core import checks, deeds, explain, lifecycle, snapshot
from bough.core.apply import APPLY
from bough.core.memo import key_of
from bough.core.placement import Placement
from bough.core.records import RUNNING, WAITING, Record, Success
from bough.core.room import Span
from bough.core.state import State
from bough.core.states import TaskState
from bough.core.verdict import verdict
from bough.model import facts
from bough.model.facts import Fact
from bough.model.ids import RecordId, Seconds
from bough.model.orders import Order, Refuse
from bough.model.outcomes import Cause, Failure
from bough.model.pickles import cut
from bough.model.resources import Needs
from bough.model.tasks import Dep, GroupSpec, On
from bough.policy.api import PlacementPolicy

_PENDING = bytes((0, 1, 2))


class Turn(msgspec.Struct, frozen=True):
    """What one turn brought about. Write the facts before carrying out the orders."""

    number: int
    facts: list[Fact]
    orders: list[Order]
    wake: Seconds | None  # call again at this time at the latest
    complaints: list[str] = []  # for the operator: a policy that raised


class Machine:
    """See the module."""

    def __init__(self, policy: PlacementPolicy, *, seed: int = 0, last_turn: int = 0, last_span: int = 0) -> None:
        self.state = State(policy)
        self.state.turn = last_turn
        self.state.last_span = last_span
        self._placement = Placement(self.state, Random(seed))
        self._facts: list[Fact] = []
        self._hear: dict[type, Callable[..., None]] = {
            facts.SpanEnded: self._on_ended,
            facts.ElementFailed: self._on_failed,
            facts.SpanStarted: self._on_started,
            facts.SpanReturned: self._on_returned,
            facts.Submitted: self._on_submitted,
            facts.PagesAdded: self._on_pages,
            facts.ExecutorLost: self._on_executor_lost,
            facts.ExecutorJoined: self._on_executor_joined,
            facts.ExecutorDrained: self._on_executor_drained,
            facts.Recalled: self._on_recalled,
            facts.GroupClosed: self._on_group_closed,
            facts.Cancelled: self._on_deed,
            facts.Killed: self._on_deed,
            facts.Held: self._on_hold,
            facts.Released: self._on_hold,
            facts.Retried: self._on_deed,
            facts.Prioritised: self._record,
            facts.RunOpened: self._record,
            facts.RunClosed: self._record,
            facts.Stopping: self._record,
        }

    # --- driving ---------------------------------------------------------------------------------

    def turn(self, now: Seconds, events: Iterable[Fact]) -> Turn:
        """Take in what arrived, then let the policy place what can be placed."""
        state = self.state
        state.now = now
        state.turn += 1
        self._facts = []
        hear = self._hear
        for event in events:
            hear[type(event)](event)
            if state.doomed:
                self._abandon()
        self._wake(now)
        if state.due and not state.stopping:
            self._facts += self._placement.ask(now)
            state.due = False
        orders, state.orders = state.orders, []
        if not self._facts:
            state.turn -= 1
        wake = state.timers[0][0] if state.timers else None
        complaints, state.complaints = state.complaints, []
        return Turn(state.turn, self._facts, orders, wake, complaints)

    def replay(self, number: int, now: Seconds, written: Iterable[Fact]) -> None:
        """Apply one turn of a journal."""
        state = self.state
        state.turn, state.now = number, now
        for fact in written:
            APPLY[type(fact)](state, fact)
            state.orders.clear()
            state.doomed.clear()
        while state.timers and state.timers[0][0] <= now:  # what was due then is among the facts
            heappop(state.timers)

    def snapshot(self) -> bytes:
        """The state as bytes, to be taken between two turns."""
        return snapshot.take(self.state)

    @classmethod
    def restore(cls, data: bytes, policy: PlacementPolicy, *, seed: int = 0) -> Machine:
        """A machine in the state of a snapshot."""
        machine = cls(policy, seed=seed)
        snapshot.restore(machine.state, data)
        return machine

    def _record(self, fact: Fact) -> None:
        """Make something a fact: note it and apply it."""
        self._facts.append(fact)
        APPLY[type(fact)](self.state, fact)

    # --- news from executors ---------------------------------------------------------------------

    def _on_ended(self, event: facts.SpanEnded) -> None:
        span = self.state.spans.get(event.span)
        if span is None:
            return
        low, high = span.left[0]  # a span that holds nothing is forgotten, so there is a first
        if low <= event.start < event.stop <= high:
            self._succeed(span, event)
        elif span.start <= event.start and event.stop <= span.stop:
            for start, stop in _parts_with(span, event.start, event.stop):  # the rest was cancelled meanwhile
                self._succeed(span, _part(event, start, stop))

    def _succeed(self, span: Span, event: facts.SpanEnded) -> None:
        """Complete a success by whose it is and under which key it may be found again, and record it."""
        record = span.record
        fact = facts.SpanEnded(
            event.span,
            event.start,
            event.stop,
            event.seconds,
            event.results,
            event.details,
            record.id,  # type: ignore[arg-type]
            span.attempt,
            span.executor.id,
            key_of(self.state, record, event.start) if record.spec.key else record.spec.key,
        )
        self._facts.append(fact)
        lifecycle.span_ended(self.state, fact)

    def _on_failed(self, event: facts.ElementFailed) -> None:
        span = self.state.spans.get(event.span)
        if span is None or not _is_with(span, event.index, event.index + 1):
            return
        self._fail(span, event)

    def _fail(self, span: Span, event: facts.ElementFailed) -> None:
        """Complete a failure by what becomes of the task, and record it."""
        record, before = span.record, self.state.first_failure
        failure, retry_at = verdict(record, event.index, event.failure, self.state.now)
        self._record(
            msgspec.structs.replace(
                event,
                failure=failure,
                retry_at=retry_at,
                record=RecordId(record.id),
                attempt=span.attempt,
                executor=span.executor.id,
            )
        )
        first = self.state.first_failure
        if first is not None:  # with fail-fast: nothing more is started, and this one not again
            self._abandon_pending(first, list(self.state.records.values()) if before is None else [record])

    def _on_started(self, event: facts.SpanStarted) -> None:
        span = self.state.spans.get(event.span)
        if span is None:
            return
        for start, stop in _parts_with(span, event.start, event.stop):
            if span.record.count(RUNNING, start, stop) < stop - start:
                self._record(facts.SpanStarted(event.span, start, stop, RecordId(span.record.id)))

    def _on_returned(self, event: facts.SpanReturned) -> None:
        span = self.state.spans.get(event.span)
        if span is None:
            return
        for start, stop in _parts_with(span, event.start, event.stop):
            self._record(facts.SpanReturned(event.span, start, stop, RecordId(span.record.id)))

    def _on_executor_joined(self, event: facts.ExecutorJoined) -> None:
        if event.executor not in self.state.executors:
            self._record(event)

    def _on_executor_drained(self, event: facts.ExecutorDrained) -> None:
        if event.executor in self.state.executors:
            self._record(event)

    def _on_executor_lost(self, event: facts.ExecutorLost) -> None:
        """What surely or probably ran there has lost an attempt; the rest is given back."""
        executor = self.state.executors.get(event.executor)
        if executor is None:
            return
        fronts = [(span, span.front) for span in executor.spans.values()]  # as it was: later ones move up meanwhile
        for span, front in fronts:
            running = {
                i for lo, hi in span.left for part in span.record.runs(bytes((RUNNING,)), lo, hi) for i in range(*part)
            }
            if front and span.left:
                running.add(span.left[0][0])
            for index in sorted(running):
                failure = Failure(Cause.LOST, f"the executor on {executor.host} was lost: {event.reason}")
                self._fail(span, facts.ElementFailed(span.id, index, failure))
        self._record(event)

    # --- news from clients and the shell ---------------------------------------------------------

    def _on_submitted(self, event: facts.Submitted) -> None:
        problem = checks.check_submission(self.state, event)
        if problem:
            self.state.orders.append(Refuse(event.request, problem))
            return
        self._record(event)
        if self.state.stopping or self.state.first_failure is not None:
            self._refuse_to_start([item.id for item in event.items if not isinstance(item, GroupSpec)])

    def _refuse_to_start(self, new: Iterable[RecordId]) -> None:
        """Once nothing more is started, what still comes in is recorded as not run."""
        failure = self.state.first_failure
        if failure is None and self.state.stopping:
            failure = Failure(Cause.CLOSED, "the session was closing")
        if failure is not None:
            self._abandon_pending(failure, [self.state.records[id_] for id_ in new])

    def _on_pages(self, event: facts.PagesAdded) -> None:
        problem = checks.check_pages(self.state, event)
        if problem:
            self.state.orders.append(Refuse(event.request, problem))
            return
        self._record(event)
        self._refuse_to_start([event.record])

    def _on_group_closed(self, event: facts.GroupClosed) -> None:
        group = self.state.groups.get(event.group)
        if group is not None and not group.closed:
            self._record(event)

    def _on_recalled(self, event: facts.Recalled) -> None:
        record = self.state.records.get(event.record)
        if record is None or not (record.recalling or record.is_array):
            return
        if record.runs(bytes((WAITING,)), event.start, event.stop):
            self._record(event)

    def _on_deed(self, event: facts.Cancelled | facts.Killed | facts.Retried) -> None:
        if deeds.touched(self.state, event) or isinstance(event, facts.Cancelled):
            self._record(event)

    def _on_hold(self, event: facts.Held | facts.Released) -> None:
        if (
            any(True for _ in deeds.targets(self.state, event.target, event.stop))
            or event.target.id in self.state.groups
        ):
            self._record(event)

    # --- consequences ----------------------------------------------------------------------------

    def _abandon(self) -> None:
        """Record, one after the other, what will never run because of what was just applied."""
        state = self.state
        while state.doomed:
            record, start, stop, failure = state.doomed.pop()
            for low, high in record.runs(_PENDING, start, min(stop, record.length)):
                self._record(facts.NotRunnable(RecordId(record.id), low, high, failure))

    def _abandon_pending(self, failure: Failure, records: Iterable[Record]) -> None:
        """What has not started of these will not: the workflow stops at its first failure, or the session closes."""
        for record in records:
            for start, stop in record.runs(_PENDING, 0, record.length):
                self._record(facts.NotRunnable(RecordId(record.id), start, stop, failure))
        self.state.doomed.clear()

    def _wake(self, now: Seconds) -> None:
        timers = self.state.timers
        while timers and timers[0][0] <= now:
            _, record_id, index = heappop(timers)
            record = self.state.records[record_id]
            if record.state_of(index) == WAITING and record.failures_of(index) != (0, 0):
                self._record(facts.RetryDue(RecordId(record_id), index))

    # --- questions -------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether everything submitted has ended."""
        return self.state.unended == 0 and self.state.open_arrays == 0

    def explain(self, record: int, index: int = 0) -> list[str]:
        """Why a task is not running, or how it ended; one line a reason."""
        return explain.explain(self.state, record, index)

    def counts(self) -> dict[str, int]:
        """Tasks by state, over all groups."""
        totals = [sum(column) for column in zip(*(g.counts for g in self.state.groups.values()), strict=True)]
        return {TaskState(number).label: count for number, count in enumerate(totals)}

    def stranded(self) -> dict[Needs, int]:
        """Needs of ready tasks that no executor there is could ever meet, each with the first such record."""
        able = list(self.state.executors.values())
        found: dict[Needs, int] = {}
        for queue in self.state.waiting:
            head = queue.head()
            if able and head is not None and not any(executor.could_fit(queue.needs) for executor in able):
                found[queue.needs] = head[2].id
        return found

    def touched(self, deed: facts.Cancelled | facts.Killed | facts.Held | facts.Released | facts.Retried) -> int:
        """How many tasks a deed would change now."""
        return deeds.touched(self.state, deed)

    def result_turns(self, dep: Dep) -> list[Success]:
        """Where the results lie that a dependency points at: successes in order of their elements."""
        record = self.state.records[dep.id]
        if dep.on is not On.TASK:
            return list(record.successes())
        found = record.success_of(dep.index)
        return [found] if found is not None else []


def _is_with(span: Span, start: int, stop: int) -> bool:
    """Whether all of [start, stop) is still with a span."""
    for low, high in span.left:
        if low <= start and stop <= high:
            return start < stop
    return False


def _parts_with(span: Span, start: int, stop: int) -> list[tuple[int, int]]:
    found = ((max(low, start), min(high, stop)) for low, high in span.left)
    return [(low, high) for low, high in found if low < high]


def _part(event: facts.SpanEnded, start: int, stop: int) -> facts.SpanEnded:
    """The part of a success that concerns the elements [start, stop)."""
    if (start, stop) == (event.start, event.stop):
        return event
    results = event.results
    if isinstance(results, bytes):
        results = cut(results, start - event.start, stop - start)
    seconds = event.seconds * (stop - start) / (event.stop - event.start)
    details = tuple(detail for detail in event.details if start <= detail.index < stop)
    return facts.SpanEnded(event.span, start, stop, seconds, results, details)
