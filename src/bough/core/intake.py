"""What arrives is filtered, completed by a decision (retry or not, and when) and recorded.

What follows from a fact that was just applied: others that will never run, groups that are tried again.

Rule: what follows is recorded as facts of its own, so that a replay needs no decision.

What becomes of a task whose attempt failed: another attempt, and when, or the end.

Rule: failures of its own count against the retries the user allowed; a failure of the place counts for nothing as long
as there is another place; executors and workers that die under it count against a limit of their own, so that a
poisonous task stops, and bad luck does not.

What is heard, and what of it becomes a fact: stale and duplicate answers are passed over, decisions are added.

Rule: what a peer says is filtered (unknown span, element that is not with it any more, duplicate id); what follows from
a fact is recorded right after it, so that a replay of the facts needs no decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import islice

import msgspec

from bough.core import lifecycle, locks, retirement
from bough.core.actions import amend, manual, reset, task_actions
from bough.core.apply import APPLY
from bough.core.graph import dependencies, validation
from bough.core.graph.readiness import key_of
from bough.core.records.array_record import RUNNING, WAITING, Record
from bough.core.records.attempts import Span
from bough.core.records.group_record import GroupRecord
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.core.storable import DECODED, latest, shortened, unstorable
from bough.model.events import facts
from bough.model.events.facts import Fact, News
from bough.model.events.orders import Refuse, StopSpan
from bough.model.ids import ROOT, ExecutorId, RecordId, Seconds, SpanId
from bough.model.outcomes import Cause, Failure
from bough.model.refs import cut
from bough.model.tasks import Dep, GroupSpec, Kind, On

_PENDING = bytes((0, 1, 2))
_REST: Seconds = 60.0  # of an executor that is suspended for the first time
_LONGEST_REST: Seconds = 3600.0
_DOUBLED = 6  # times, after which it is the longest


class Consequences:
    """Records facts, and what follows from them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._facts: list[Fact] = []

    def _record(self, fact: Fact) -> None:
        """Make something a fact: note it and apply it."""
        self._facts.append(fact)
        APPLY[type(fact)](self._state, fact)

    def _abandon(self) -> None:
        """Record, one after the other, what will never run because of what was just applied."""
        state = self._state
        while state.doomed:
            record, start, stop, failure = state.doomed.pop()
            for low, high in record.runs(_PENDING, start, min(stop, record.length)):
                self._record(facts.Skipped(RecordId(record.id), low, high, failure))

    def _abandon_pending(self, failure: Failure, records: Iterable[Record]) -> None:
        """What has not started of these will not: the workflow stops at its first failure, or the session closes."""
        for record in records:
            if dependencies.is_final(record):
                continue  # what it waits for has ended, or will
            for start, stop in record.runs(_PENDING, 0, record.length):
                self._record(facts.Skipped(RecordId(record.id), start, stop, failure))
        self._state.doomed.clear()

    def _on_hold(self, event: facts.Held | facts.Released) -> None:
        if task_actions.is_lawful(self._state, event):
            self._record(event)

    def _on_reset(self, event: facts.Reset) -> None:
        parts, _ = reset.reach(self._state, event)
        if parts:
            self._record(msgspec.structs.replace(event, parts=parts))

    def _on_amended(self, event: facts.Amended) -> None:
        """What stays and had not succeeded is tried again, as if all were submitted anew; then comes the difference."""
        if amend.why_not(self._state, event.run) is not None:
            return
        for record in amend.unsuccessful(self._state, event.run, set(event.removed)):
            if record.runs(task_actions.REVIVABLE, 0, record.length):
                self._record(facts.Retried(Dep(On.TASK, record.id)))
        self._abandon()
        if event.added or event.changed or event.removed or event.removed_groups:
            parts = amend.amend(self._state, event)
            self._facts.append(msgspec.structs.replace(event, parts=parts))

    def _on_declared(self, event: facts.DeclaredDone) -> None:
        """What ended without success is revived first, and with it what was not run because of it."""
        parts, _ = task_actions.reach(self._state, event)
        for record, start, stop in parts:
            if record.runs(task_actions.REVIVABLE, start, stop):
                self._record(facts.Retried(Dep(On.TASK, record.id, start), stop))
        for record, start, stop in parts:
            for low, high in record.runs(task_actions.PENDING, start, stop):
                done = task_actions.success(record, low, high)
                key = key_of(self._state, record, low) if task_actions.kind_of(record) is Kind.COMMAND else done.key
                self._record(msgspec.structs.replace(done, key=key))

    def _try_again(self, group: GroupRecord) -> None:
        """A whole group is tried again, because the user allowed so many retries of it."""
        if not group.settled and not group.unfinished:
            self._record(facts.Retried(Dep(On.GROUP, group.id), automatic=True))

    def _expire(self, group: GroupRecord) -> None:
        """The time limit of a group is over: what runs in it is ended, the rest is not started."""
        if group.settled or not group.deadline or self._state.now < group.deadline:
            return
        message = shortened(f"the time limit of group {group.path}, {group.timeout:g} s, is over")
        self._record(facts.Killed(Dep(On.GROUP, group.id), message=message))
        failure = Failure(Cause.KILLED, message)
        self._state.doomed += [
            (one, 0, one.length, failure) for one in group.records() if not dependencies.is_final(one)
        ]
        self._abandon()

    def _suspend(self) -> None:
        """Give a rest to executors on which much failed that worked elsewhere; a longer one each time."""
        state = self._state
        troubled, state.troubled = state.troubled, []
        for executor in troubled:
            if executor.id in state.executors and not executor.suspended:
                until = state.now + min(_REST * 2 ** min(executor.suspensions, _DOUBLED), _LONGEST_REST)
                reason = f"{executor.trouble} tasks in a row failed there and worked elsewhere"
                self._record(facts.ExecutorSuspended(executor.id, until, reason))


NEVER = -1.0
_MOST_DOUBLED = 60  # times that a wait is doubled: a float holds no more than 1,023


def verdict(state: State, span: Span, index: int, failure: Failure) -> tuple[Failure, Seconds]:
    """The failure as it shall be recorded, and when the next attempt may start (`NEVER`: not at all)."""
    record, now = span.record, state.now
    failures, losses = record.failures_of(index)
    limits = record.spec.limits
    if failure.site:
        if _can_go_elsewhere(state, span, index):
            return failure, now
        failure = msgspec.structs.replace(failure, site=False)  # wherever it could go it failed: it is the task's fault
    if failure.cause is Cause.LOST:
        if losses + 1 < limits.losses:
            return failure, now
        message = shortened(f"{losses + 1} executors or workers died while running it: {failure.message}")
        return msgspec.structs.replace(failure, message=message), NEVER
    if failures >= limits.retries or failure.cause in {Cause.KILLED, Cause.CANCELLED}:
        return failure, NEVER
    return failure, latest(now + limits.backoff * 2 ** min(failures, _MOST_DOUBLED))


def _can_go_elsewhere(state: State, span: Span, index: int) -> bool:
    """Whether there is an executor that could run it and on which it has not failed yet."""
    record = span.record
    tried = {span.executor.id, *(record.avoid if isinstance(record, TaskRecord) else record.shunned.get(index, ()))}
    others = (executor for executor in state.executors.values() if executor.id not in tried and not executor.draining)
    return any(executor.could_fit(record.needs) for executor in others)


class Intake(Consequences):
    """See the module."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._hear: dict[type, Callable[..., None]] = {
            facts.SpanEnded: self._on_ended,
            facts.CallsEnded: self._on_calls_ended,
            facts.ElementFailed: self._on_failed,
            facts.SpanStarted: self._on_started,
            facts.SpanReturned: self._on_returned,
            facts.Submitted: self._on_submitted,
            facts.PagesAdded: self._on_pages,
            facts.ExecutorLost: self._on_executor_lost,
            facts.ExecutorJoined: self._on_executor_joined,
            facts.ExecutorDrained: self._on_executor_known,
            facts.ExecutorResized: self._on_resized,
            facts.MemoLookedUp: self._on_recalled,
            facts.GroupClosed: self._on_group_closed,
            facts.Cancelled: self._on_deed,
            facts.Killed: self._on_deed,
            facts.Held: self._on_hold,
            facts.Released: self._on_hold,
            facts.Retried: self._on_deed,
            facts.Reset: self._on_reset,
            facts.Amended: self._on_amended,
            facts.DeclaredDone: self._on_declared,
            facts.TakeTask: self._on_take,
            facts.Prioritised: self._record,
            facts.RunOpened: self._record,
            facts.RunClosed: self._record,
            facts.RunRemoved: self._on_removed,
            facts.RunRetired: self._on_retired,
            facts.RunRevived: self._on_revived,
            facts.ExecutorSuspended: self._on_executor_known,
            facts.ExecutorResumed: self._on_executor_known,
            facts.Stopping: self._record,
            facts.LockTaken: self._on_lock,
            facts.LockFreed: self._on_lock,
            facts.GroupReleased: self._on_group_released,
            facts.SpanAlive: self._on_heard,
        }

    def hear(self, events: Iterable[News]) -> list[Fact]:
        """Take in what arrived, and what is due by now; the facts that came of it, already applied."""
        state = self._state
        self._facts = []
        handlers = self._hear
        for event in events:
            kind = type(event)
            if kind not in DECODED and (problem := unstorable(event)):
                self._refuse(event, problem)
                continue
            handlers[kind](event)
            if state.doomed:
                self._abandon()
            while state.again:
                self._try_again(state.again.pop())
        self._wake(state.now)
        if state.troubled:
            self._suspend()
        return self._facts

    def _refuse(self, event: News, problem: str) -> None:
        """Who asked for it is told; otherwise it is for the operator to know."""
        text = f"{type(event).__name__} cannot be stored: {problem}"
        request = getattr(event, "request", 0)
        if request:
            self._state.orders.append(Refuse(request, text))
        else:
            self._state.complaints.append(f"refused, {text}")

    # --- news from executors ---------------------------------------------------------------------

    def _on_ended(self, event: facts.SpanEnded) -> None:
        state = self._state
        span = state.spans.get(event.span)
        if span is None:
            if event.span in state.ghosts:
                self._succeed_late(state.ghosts[event.span], event)
            return
        record = span.record
        if type(record) is TaskRecord:  # the shortest way for what is most frequent
            if record.waits:  # what it travelled with was undone meanwhile
                self._on_returned(facts.SpanReturned(event.span, 0, 1))
            elif event.start == 0 and event.stop == 1:
                self._facts.append(_completed(state, span, record, event))
                lifecycle.task_ended(state, span, record, event.seconds, event.host)
            return
        low, high = span.left[0]  # a span that holds nothing is forgotten, so there is a first
        if low <= event.start < event.stop <= high:
            self._record(_completed(state, span, record, event))
        elif span.start <= event.start and event.stop <= span.stop:
            for start, stop in _parts_with(span, event.start, event.stop):  # the rest was cancelled meanwhile
                self._record(_completed(state, span, record, _part(event, start, stop)))

    def _on_calls_ended(self, event: facts.CallsEnded) -> None:
        """Many loose tasks succeeded, of consecutive spans."""
        state, spans, note, host = self._state, self._state.spans, self._facts.append, event.host
        if len(event.seconds) != len(event.results):
            return  # no executor of ours says so
        for number, (seconds, results) in enumerate(
            zip(event.seconds, event.results, strict=True), event.span + event.start
        ):
            span = spans.get(number)
            record = span.record if span is not None else None
            if span is None or type(record) is not TaskRecord or record.waits:
                self._on_ended(facts.SpanEnded(SpanId(number), 0, 1, seconds, results, host=host))
                continue
            key = key_of(state, record) if record.key else record.key
            note(
                facts.SpanEnded(
                    number,  # type: ignore[arg-type]
                    0,
                    1,
                    seconds,
                    results,
                    (),
                    record.id,  # type: ignore[arg-type]
                    span.attempt,
                    span.executor.id,
                    key,
                    host,
                )
            )
            lifecycle.task_ended(state, span, record, seconds, host)

    def _succeed_late(self, ghost: Span, event: facts.SpanEnded) -> None:
        """A lost executor is back with results: they count for what nobody else has brought to an end."""
        if ghost.behind and ghost.record.waits:
            return  # made from something that did not count
        for low, high in _parts_with(ghost, event.start, event.stop):
            for start, stop in ghost.record.runs(task_actions.OPEN, low, high):
                self._record(_completed(self._state, ghost, ghost.record, _part(event, start, stop)))

    def _on_failed(self, event: facts.ElementFailed) -> None:
        span = self._state.spans.get(event.span)
        if span is None or not _is_with(span, event.index, event.index + 1):
            return
        if span.behind and span.record.waits:
            self._on_returned(facts.SpanReturned(event.span, 0, 1))
        else:
            self._fail(span, event)

    def _fail(self, span: Span, event: facts.ElementFailed) -> None:
        """Complete a failure by what becomes of the task, and record it."""
        record, workflow = span.record, span.record.group.workflow
        before = workflow.first_failure
        failure, retry_at = verdict(self._state, span, event.index, event.failure)
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
        first = workflow.first_failure
        if first is not None:  # with fail-fast: nothing more is started, and this one not again
            self._abandon_pending(first, list(workflow.group.records()) if before is None else [record])

    def _on_started(self, event: facts.SpanStarted) -> None:
        span = self._state.spans.get(event.span)
        if span is None:
            return
        for start, stop in _parts_with(span, event.start, event.stop):
            if span.record.count(RUNNING, start, stop) < stop - start:
                self._record(facts.SpanStarted(event.span, start, stop, RecordId(span.record.id), event.host))

    def _on_returned(self, event: facts.SpanReturned) -> None:
        span = self._state.spans.get(event.span)
        if span is None:
            return
        for start, stop in _parts_with(span, event.start, event.stop):
            self._record(facts.SpanReturned(event.span, start, stop, RecordId(span.record.id)))

    def _on_executor_joined(self, event: facts.ExecutorJoined) -> None:
        if event.executor not in self._state.executors:
            self._record(event)

    def _on_executor_known(
        self, event: facts.ExecutorDrained | facts.ExecutorSuspended | facts.ExecutorResumed
    ) -> None:
        if event.executor in self._state.executors:
            self._record(event)

    def _on_resized(self, event: facts.ExecutorResized) -> None:
        executor = self._state.executors.get(event.executor)
        if executor is not None and executor.wide:
            self._record(event)

    def _on_executor_lost(self, event: facts.ExecutorLost) -> None:
        """What surely or probably ran there has lost an attempt; the rest is given back."""
        executor = self._state.executors.get(event.executor)
        if executor is None:
            return
        failure = Failure(Cause.LOST, shortened(f"the executor on {executor.host} was lost: {event.reason}"))
        front = set(executor.front())
        for span in list(executor.spans.values()):
            for index in _probably_running(span, in_front=span in front):
                self._fail(span, facts.ElementFailed(span.id, index, failure, gone=True))
        self._record(event)

    # --- what running tasks say of themselves ----------------------------------------------------

    def _on_lock(self, event: facts.LockTaken | facts.LockFreed) -> None:
        if locks.is_lawful(self._state, event):
            record = self._state.spans[event.span].record
            self._record(msgspec.structs.replace(event, record=RecordId(record.id)))

    def _on_group_released(self, event: facts.GroupReleased) -> None:
        group = self._state.groups.get(event.group)
        if group is not None and group.parent is not None and not (group.released or group.settled):
            self._record(event)

    def _on_heard(self, event: facts.SpanAlive) -> None:
        """Where nobody waits for a word, or has just had one, it need not be written down."""
        span = self._state.spans.get(event.span)
        if span is not None and self._state.now - span.heard > span.record.spec.limits.replay / 10 > 0:
            self._record(facts.SpanAlive(event.span, RecordId(span.record.id)))

    # --- news from clients and the shell ---------------------------------------------------------

    def _on_submitted(self, event: facts.Submitted) -> None:
        problem = validation.check_submission(self._state, event)
        if problem:
            self._state.orders.append(Refuse(event.request, problem))
            return
        self._record(event)
        if self._state.stopping or self._state.failing:
            self._refuse_to_start([item.id for item in event.items if not isinstance(item, GroupSpec)])

    def _refuse_to_start(self, new: Iterable[RecordId]) -> None:
        """Once nothing more of a workflow is started, what still comes in is recorded as not run."""
        state = self._state
        closing = Failure(Cause.CLOSED, "the session was closing") if state.stopping else None
        for record in [state.records[id_] for id_ in new]:
            failure = record.group.workflow.first_failure or closing
            if failure is not None:
                self._abandon_pending(failure, [record])

    def _on_pages(self, event: facts.PagesAdded) -> None:
        problem = validation.check_pages(self._state, event)
        if problem:
            self._state.orders.append(Refuse(event.request, problem))
            return
        self._record(event)
        if self._state.stopping or self._state.failing:
            self._refuse_to_start([event.record])

    def _on_group_closed(self, event: facts.GroupClosed) -> None:
        group = self._state.groups.get(event.group)
        if group is not None and not group.closed:
            self._record(event)

    def _on_removed(self, event: facts.RunRemoved) -> None:
        """One that is not here was retired; whoever says it has looked whether there is such a run."""
        workflow = self._state.workflows.get(event.run)
        if workflow is None or (workflow.group.id != ROOT and workflow.group.settled):
            self._record(event)

    def _on_retired(self, event: facts.RunRetired) -> None:
        if retirement.may_retire(self._state, event.run):
            self._record(event)

    def _on_revived(self, event: facts.RunRevived) -> None:
        if event.run not in self._state.workflows:
            self._record(event)

    def _on_recalled(self, event: facts.MemoLookedUp) -> None:
        record = self._state.records.get(event.record)
        if record is None or not (record.recalling or record.is_array) or (record.is_array and record.waits):
            return
        if record.runs(bytes((WAITING,)), event.start, event.stop):
            self._record(event)

    def _on_deed(self, event: facts.Cancelled | facts.Killed | facts.Retried) -> None:
        if task_actions.touched(self._state, event) or isinstance(event, facts.Cancelled):
            self._record(event)

    def _on_take(self, event: facts.TakeTask) -> None:
        taken, answer = manual.take(self._state, event)
        for fact in taken:
            self._record(fact)
        self._state.orders.append(answer)

    # --- what is due by the clock -----------------------------------------------------------------

    def _wake(self, now: Seconds) -> None:
        timers = self._state.timers
        while timers and timers[0][0] <= now:
            _, record_id, index = heappop(timers)
            record = self._state.records.get(record_id)
            if record is not None and record.state_of(index) == WAITING and record.failures_of(index) != (0, 0):
                self._record(facts.RetryDue(RecordId(record_id), index))
        alarms = self._state.alarms
        while alarms and alarms[0][0] <= now:
            _, span, executor = heappop(alarms)
            if span < 0 and -span in self._state.groups:
                self._expire(self._state.groups[-span])
            if executor in self._state.executors and 0 < self._state.executors[ExecutorId(executor)].suspended <= now:
                self._record(facts.ExecutorResumed(ExecutorId(executor)))
            if span in self._state.spans:
                self._look_after(self._state.spans[span], now)

    def _look_after(self, span: Span, now: Seconds) -> None:
        """Send a span again of which nothing was heard for too long; what it still does there is ended."""
        patience = span.record.spec.limits.replay
        if now < span.heard + patience:
            heappush(self._state.alarms, (span.heard + patience, span.id, 0))
            return
        parts = [(low, high) for low, high in span.left]
        for low, high in parts:
            self._state.orders.append(StopSpan(span.executor.id, span.id, low, high))
        failure = Failure(Cause.LOST, shortened(f"no word of it from {span.executor.host} for {patience:g} s"))
        for index in _probably_running(span, in_front=True):
            self._fail(span, facts.ElementFailed(span.id, index, failure))
        for low, high in parts if span.id in self._state.spans else []:
            self._on_returned(facts.SpanReturned(span.id, low, high))


def _completed(state: State, span: Span, record: Record, event: facts.SpanEnded) -> facts.SpanEnded:
    """A success completed by whose it is and under which key it may be found again."""
    key = record.key if type(record) is TaskRecord else record.spec.key  # the former without putting its spec together
    return facts.SpanEnded(
        event.span,
        event.start,
        event.stop,
        event.seconds,
        event.results,
        event.details,
        record.id,  # type: ignore[arg-type]
        span.attempt,
        span.executor.id,
        key_of(state, record, event.start) if key else key,
        event.host,
    )


def _probably_running(span: Span, *, in_front: bool) -> list[int]:
    """The elements of a span that were said to run, or must be next."""
    if span.behind and span.record.waits:
        return []
    found = {i for lo, hi in span.left for part in span.record.runs(bytes((RUNNING,)), lo, hi) for i in range(*part)}
    if in_front and span.left:
        found.update(islice((index for low, high in span.left for index in range(low, high)), span.width))
    return sorted(found)


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
    return facts.SpanEnded(event.span, start, stop, seconds, results, details, host=event.host)
