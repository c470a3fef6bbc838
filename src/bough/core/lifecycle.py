"""Executors and spans, from placement to the end: how each fact about them changes the state.

Of several attempts of a task, replicas or those of lost executors, the first success counts and ends the others. Rule:
these functions only apply what is already decided and lawful; `intake` filters and decides.
"""

from __future__ import annotations

from typing import cast

from bough.core import populations
from bough.core.effects import Effects
from bough.core.graph import dependencies
from bough.core.graph.readiness import elements_free
from bough.core.graph.submission import grow
from bough.core.growth import ask_for_more
from bough.core.pilots.pilots import executor_came, executor_has_other_cores, executor_left
from bough.core.pilots.sites import add_executor, remove_executor
from bough.core.records.array_record import (
    CANCELLED,
    DONE,
    FAILED,
    PLACED,
    READY,
    RUNNING,
    SKIPPED,
    WAITING,
    ArrayRecord,
    Record,
    forget_succeeded,
)
from bough.core.records.attempts import WHOLE, Span
from bough.core.records.executor_record import ExecutorRecord, RelayExecutorRecord
from bough.core.records.group_record import GroupRecord, Waiter
from bough.core.records.indexes.ready_queue import CAME_BACK, HAD_RUN
from bough.core.records.indexes.replicas import ReplicaStart
from bough.core.records.indexes.unsaved_outputs import Holder, unsaved_in
from bough.core.records.task_record import TaskRecord
from bough.core.state import State, TimerKind
from bough.core.storable import shortened
from bough.model.arrays import ranges
from bough.model.arrays.runtimes import SHORT
from bough.model.events import facts, news
from bough.model.events.orders import StopSpan
from bough.model.ids import ExecutorId, Seconds
from bough.model.memo_keys import digest_of_made
from bough.model.outcomes import Cause, Failure, Success, waited_in
from bough.model.sites.suspension import TROUBLED


def executor_joined(state: State, effects: Effects | None, fact: facts.ExecutorJoined) -> None:
    """There is room."""
    executor = ExecutorRecord(fact) if fact.each is None else RelayExecutorRecord(fact)
    add_executor(state, executor)
    state.update_open(executor)
    if fact.pilot:
        executor_came(state, fact)


def executor_resized(state: State, effects: Effects | None, fact: facts.ExecutorResized) -> None:
    """There are more or fewer executors behind a relay."""
    executor = state.executors[fact.executor]
    assert isinstance(executor, RelayExecutorRecord)
    state.cores += fact.capacity.cores - executor.capacity.cores
    if executor.accounted:
        executor_has_other_cores(state, executor, fact)
    executor.resize(fact)
    if not state.uses_backlogs:
        executor.backlog_limit = 0.0
    state.named_queues.recount(executor)
    state.update_open(executor)


def executor_suspended(state: State, effects: Effects | None, fact: facts.ExecutorSuspended) -> None:
    """It gets nothing for a while."""
    executor = state.executors[fact.executor]
    executor.suspended = fact.until
    if executor.trouble >= TROUBLED:  # otherwise it is only missing
        executor.suspensions += 1
    executor.trouble = 0
    state.set_timer(fact.until, TimerKind.SUSPENSION, fact.executor)
    state.named_queues.recount(executor)
    state.update_open(executor)


def executor_resumed(state: State, effects: Effects | None, fact: facts.ExecutorResumed) -> None:
    """It gets work again."""
    executor = state.executors[fact.executor]
    executor.suspended = 0.0
    state.named_queues.recount(executor)
    state.update_open(executor)


def executor_drained(state: State, effects: Effects | None, fact: facts.ExecutorDrained) -> None:
    """It gets nothing new."""
    executor = state.executors[fact.executor]
    if not executor.draining:
        executor.draining = True
        if not executor.away:
            state.forget_host(executor.host)
        state.named_queues.recount(executor)
    state.update_open(executor)


def executor_lost(state: State, effects: Effects | None, fact: facts.ExecutorLost) -> None:
    """All that was with it is given back, to go first; the losses were counted before, one by one."""
    executor = state.executors[fact.executor]
    if executor.pilot:
        executor_left(state, executor)
    remove_executor(state, executor)
    for number, index, _ in state.unsaved.of_executor(fact.executor):  # of a journal that lost the facts about these
        state.unsaved.take(state.records[number], index, index + 1)
    for span in list(executor.spans.values()):
        left, span.left = span.left, []
        for start, stop in left:
            state.attempts.keep_late(span, start, stop)
            for low, high in state.attempts.only_with(span, start, stop):
                _give_back(state, effects, span, low, high)
        state.drop(span)
    state.due = True


def placed(state: State, effects: Effects | None, fact: facts.Placed) -> None:
    """Ready elements went to an executor."""
    record, executor = state.records[fact.record], state.executors[fact.executor]
    if isinstance(record, ArrayRecord):
        place_elements(state, fact, record, executor)
    else:
        place_task(state, fact, record, executor)
    if not executor.is_open():
        state.open_executors.pop(executor.id, None)


def place_task(state: State, fact: facts.Placed, record: TaskRecord, executor: ExecutorRecord) -> None:
    """A loose task went to an executor; the caller updates whether the executor is open."""
    number, attempt, behind = fact.span, fact.attempt, fact.behind
    state.task_placed(record, WAITING if behind else READY)
    record.attempt = attempt
    record.urgent = 0
    each = record.runtime.slot
    load = each if each <= SHORT else 0.0
    span = Span(number, record, 0, 1, attempt, executor, WHOLE, fact.backlog, load, behind)
    state.spans[number] = state.attempts.tasks[record.id] = span  # as `add_task`, without a call
    state.last_span = number
    executor.add(span)
    if executor.bound is not None:
        state.count_out(span, 1)
    if fact.backlog:
        state.crowded[executor.id] = executor
    if executor.accounted:
        _begins(state, executor, span)
    if state.timed_groups:
        start_clocks(state, record.group)
    if record.shared_spec.limits.resend_after:
        watch_silence(state, span)


def place_elements(state: State, fact: facts.Placed, record: ArrayRecord, executor: ExecutorRecord) -> None:
    """Elements of an array went to an executor; the caller updates whether the executor is open."""
    number, start, stop, attempt, urgent = fact.span, fact.start, fact.stop, fact.attempt, record.urgent
    state.move(record, start, stop, PLACED)
    record.took(start, stop, attempt)
    each = record.runtime.slot
    load = each * (stop - start) if each <= SHORT else 0.0
    span = Span(number, record, start, stop, attempt, executor, [[start, stop]], fact.backlog, load)
    if executor.wide:
        cast("RelayExecutorRecord", executor).widen(span)
    state.attempts.add_elements(span)
    state.last_span = number
    executor.add(span)
    if executor.bound is not None:
        state.count_out(span, stop - start)
    if fact.backlog:
        state.crowded[executor.id] = executor
    if executor.accounted:
        _begins(state, executor, span)
    if state.timed_groups:
        start_clocks(state, record.group)
    if record.spec.limits.resend_after:
        watch_silence(state, span)
    if urgent and not record.given_back:  # only what came back goes before others, not the rest of its array
        record.urgent = 0
        if record.ready:
            state.enqueue(record)


def replicated(state: State, effects: Effects | None, fact: facts.Replicated) -> None:
    """An element that an executor has went to another one, too."""
    executor = state.executors[fact.executor]
    place_replica(state, fact, state.records[fact.record], executor)
    if not executor.is_open():
        state.open_executors.pop(executor.id, None)


def place_replica(state: State, fact: facts.Replicated, record: Record, executor: ExecutorRecord) -> None:
    """The element stays in the state in which it is; the caller updates whether the executor is open."""
    number, index, attempt = fact.span, fact.index, fact.attempt
    each = record.runtime.slot
    load = each if each <= SHORT else 0.0
    span = Span(number, record, index, index + 1, attempt, executor, [[index, index + 1]], queued=False, load=load)
    if executor.wide:
        cast("RelayExecutorRecord", executor).widen(span)
    if isinstance(record, TaskRecord):
        record.attempt = attempt
    else:
        record.attempts[index] = attempt
    state.attempts.add_replica(span)
    state.replicas.replicated(record, index, number, ReplicaStart(state.now, fact.reason))
    state.last_span = number
    executor.add(span)
    if executor.bound is not None:
        state.count_out(span, 1)
    if executor.accounted:
        _begins(state, executor, span)
    if record.spec.limits.resend_after:
        watch_silence(state, span)


def _begins(state: State, executor: ExecutorRecord, span: Span) -> None:
    """An executor whose core-hours are added up has something to do."""
    span.heard = state.now
    if not executor.begun:
        executor.begun = state.now


def start_clocks(state: State, group: GroupRecord) -> None:
    """Something of a group was sent: time limits of it and of those above begin."""
    for above in group.chain():
        if above.timeout and not above.deadline:
            above.deadline = state.now + above.timeout
            state.set_timer(above.deadline, TimerKind.GROUP_LIMIT, above.id)


def watch_silence(state: State, span: Span) -> None:
    """Look after a span again if nothing is said of it for as long as its tasks allow."""
    span.heard = state.now
    state.set_timer(state.now + span.record.spec.limits.resend_after, TimerKind.SILENCE, span.id)


def lock_taken(state: State, effects: Effects | None, fact: facts.LockTaken) -> None:
    """A task owns a lock."""
    state.locks.take(fact.name, fact.span, fact.index)


def lock_freed(state: State, effects: Effects | None, fact: facts.LockFreed) -> None:
    """A task needs a lock no more."""
    state.locks.free(fact.name)


def span_alive(state: State, effects: Effects | None, fact: facts.SpanAlive) -> None:
    """A task of a span gave a sign of life."""
    state.spans[fact.span].heard = state.now


def span_started(state: State, effects: Effects | None, fact: facts.SpanStarted) -> None:
    """Elements are running."""
    span = state.spans[fact.span]
    span.heard = state.now
    record = span.record
    for start, stop in record.runs(bytes((PLACED,)), fact.start, fact.stop):
        state.move(record, start, stop, RUNNING)
        if state.replicas.is_on and state.replicas.note_started(state.records, span, start, stop, state.now):
            state.replicas_due = True
    if state.replicas.started:
        state.replicas.began(span.id, state.now)


def span_ended(state: State, effects: Effects | None, fact: facts.SpanEnded) -> None:
    """Elements succeeded."""
    span = state.spans.get(fact.span)
    if span is None:
        if fact.span:
            late_success(state, effects, fact)
        else:
            _declared(state, effects, fact)
    elif type(span.record) is TaskRecord:
        if fact.details:
            note_outputs(state, span.record, fact)
        if fact.same_as:
            span.record.won(fact.same_as)
        task_ended(state, effects, span, span.record, fact.seconds, fact.host, waited_in(fact.details))
    else:
        if fact.details:
            note_outputs(state, span.record, fact)
        _elements_ended(state, effects, span, span.record, fact)  # type: ignore[arg-type]


def note_outputs(state: State, record: Record, fact: facts.SpanEnded) -> None:
    """Tasks may have left outputs: some are on their way, and policies that look at data expect as much of others."""
    for index, detail in unsaved_in(record, fact).items():
        made = digest_of_made(detail.outputs, fact.results)
        state.unsaved.add(record, index, Holder(fact.executor, fact.attempt, made))
    if state.affinity is not None and any(detail.outputs for detail in fact.details):
        state.affinity.note_outputs(record, fact.details)


def _declared(state: State, effects: Effects | None, fact: facts.SpanEnded) -> None:
    """A user declared elements done that no executor had."""
    record, start, stop = state.records[fact.record], fact.start, fact.stop
    record.withdraw(start, stop)
    state.move(record, start, stop, DONE)
    record.succeed(Success(start, stop, state.turn, record.id, start, fact.attempt))
    if isinstance(record, TaskRecord):
        record.generation += 1
        record.awaits_memo = False
    end_attempts(state, effects, record, start, stop)
    dependencies.ended(state, effects, record, start, stop)


def late_success(state: State, effects: Effects | None, fact: facts.SpanEnded) -> None:
    """An executor that was given up reported results, before another attempt did."""
    late = state.attempts.late[fact.span]
    record, start, stop = late.record, fact.start, fact.stop
    record.withdraw(start, stop)
    ranges.take(late.left, start, stop)
    _end_others(state, effects, record, start, stop)
    if fact.details:
        note_outputs(state, record, fact)
    state.move(record, start, stop, DONE)
    record.succeed(Success(start, stop, state.turn, record.id, start, late.attempt))
    if isinstance(record, TaskRecord):
        record.won(late.attempt)
    dependencies.ended(state, effects, record, start, stop)


def end_attempts(
    state: State, effects: Effects | None, record: Record, start: int, stop: int
) -> list[tuple[Span, int, int]]:
    """End all that executors have of elements, current and late; the parts of current attempts that were ended."""
    if state.attempts.late:
        for late, low, high in state.attempts.end_late(record, start, stop):
            if effects is not None:
                effects.orders.append(StopSpan(late.executor.id, late.id, low, high))
    ended: list[tuple[Span, int, int]] = []
    for span in state.attempts.of(record, start, stop):
        if span.executor.accounted and not span.queued and span.heard:
            span.executor.wasted += max(0.0, state.now - span.heard) * span.queue.cores
            span.heard = state.now
        for low, high in span.take(start, stop):
            if effects is not None:
                effects.orders.append(StopSpan(span.executor.id, span.id, low, high))
            ended.append((span, low, high))
        state.shrink_span(span)
    return ended


def _end_others(state: State, effects: Effects | None, record: Record, start: int, stop: int) -> None:
    """Elements have succeeded: the attempts of them that still run are superseded."""
    for span in state.attempts.of(record, start, stop):
        for low, high in span.parts(start, stop):
            for index in range(low, high):
                wasted = state.replicas.superseded(span, index, state.now)
                span.executor.wasted += wasted
    end_attempts(state, effects, record, start, stop)


def task_ended(  # noqa: C901, PLR0917 called for every task: names and calls would cost
    state: State,
    effects: Effects | None,
    span: Span,
    record: TaskRecord,
    seconds: Seconds,
    host: str = "",
    waited: Seconds = 0.0,
) -> None:
    """A loose task succeeded, which `waited` for its inputs; `host` says where, if that is behind a relay."""
    record.runtime.note(1, seconds, waited)
    if state.affinity is not None and state.affinity.is_used:
        state.affinity.note_runtime(record, span.executor.host, 0, 1, seconds)
    state.task_done(record)
    if state.checkpoints:
        _forget_checkpoints(state, record.id, 0, 1)
    record.turn = state.turn
    record.ran_at = host or span.executor.host
    if span.executor.accounted:
        span.executor.used += seconds * span.queue.cores
    if span.executor.trouble or record.trouble is not None:
        _compare_places(state, effects, span, record.avoid)
    several = state.attempts.several  # before this one leaves
    state.drop(span)
    if several:
        record.won(span.attempt)
        _end_others(state, effects, record, 0, 1)
    if state.remakes.under_way:
        dependencies.remade(state, effects, record, 0, 1, good=True)
    if state.seen:
        state.seen.pop(record.id, None)
    if state.ruled:
        populations.ended(state, effects, record, 0, 1, good=True)
    waiters = record.dependents
    if waiters:
        record.dependents = None
        if state.has_near:
            _keep_on_host(state, waiters, record)
        dependencies.satisfy(state, effects, waiters)
    group = record.group
    if record.own is not None and record.own.extras.release:
        dependencies.release(state, effects, group)
    if group.closed and (not group.unfinished or group.released_children):
        dependencies.finish(state, effects, group)


def _keep_on_host(state: State, waiters: list[Waiter], record: TaskRecord) -> None:
    """Those that are to run where a task ran know now where that is."""
    for waiter, _, _ in waiters:
        if type(waiter) is TaskRecord and waiter.own is not None and waiter.own.extras.same_host_as == record.id:
            waiter.queue = state.queue_for(waiter.needs, waiter.group, record.ran_at)


def _elements_ended(
    state: State, effects: Effects | None, span: Span, record: ArrayRecord, fact: facts.SpanEnded
) -> None:
    start, stop = fact.start, fact.stop
    record.runtime.note(stop - start, fact.seconds, waited_in(fact.details))
    if state.affinity is not None and state.affinity.is_used:
        state.affinity.note_runtime(record, span.executor.host, start, stop, fact.seconds)
    if span.executor.accounted:
        span.executor.used += fact.seconds * span.queue.cores
    state.move(record, start, stop, DONE)
    record.succeed(Success(start, stop, state.turn, record.id, start, fact.same_as or span.attempt))
    if state.checkpoints:
        _forget_checkpoints(state, record.id, start, stop)
    span.heard = state.now
    ranges.take(span.left, start, stop)
    if span.executor.trouble or record.avoided:
        avoided = (record.avoided.pop(index, ()) for index in range(start, stop) if index in record.avoided)
        _compare_places(state, effects, span, tuple(place for places in avoided for place in places))
    several = state.attempts.several  # before this one leaves
    state.shrink_span(span)
    if several:
        _end_others(state, effects, record, start, stop)
    dependencies.ended(state, effects, record, start, stop)


def _compare_places(state: State, effects: Effects | None, span: Span, elsewhere: tuple[int, ...]) -> None:
    """What worked here had failed elsewhere: that speaks against those places, and for this one."""
    span.executor.trouble = 0
    for number in elsewhere:
        executor = state.executors.get(ExecutorId(number))
        if executor is not None and executor is not span.executor:
            executor.trouble += 1
            if executor.trouble >= TROUBLED and effects is not None:
                effects.to_suspend.append(executor)


def element_failed(state: State, effects: Effects | None, fact: facts.ElementFailed) -> None:
    """An element failed: it ends, or waits for another attempt."""
    span = state.spans[fact.span]
    record, index = span.record, fact.index
    runs_on = not state.attempts.only_with(span, index, index + 1)
    span.take(index, index + 1)
    heard, span.heard = span.heard, state.now
    failures, losses = record.failures_of(index)
    awaited = _awaited(state, record, index) if fact.failure.cause is Cause.INPUT_LOST else None
    lost = fact.failure.cause in {Cause.LOST, Cause.INPUT_LOST} and awaited is None
    again = fact.retry_at >= 0
    elsewhere = fact.failure.site and again
    given_back = fact.failure.cause in _NOT_ITS_OWN or span.attempt <= fact.failure.restarts
    forgiven = elsewhere or (again and given_back) or awaited is not None  # which costs it nothing
    if elsewhere or (lost and again):
        record.avoid_at(index, span.executor.id)
    if fact.gone:
        state.attempts.keep_late(span, index, index + 1)
    detail = fact.detail
    _note_waste(state, span, fact, heard)
    if detail is not None and detail.ended > detail.started > 0 and fact.failure.cause in _NATURAL:
        record.runtime.note(1, detail.ended - detail.started)
    if runs_on:  # what becomes of the task is decided when the last of its attempts ends
        state.shrink_span(span)
        return
    record.blame(index, failures + (not lost and not forgiven), losses + lost)
    record.set_failure(index, index + 1, fact.failure)
    if isinstance(record, ArrayRecord):
        record.attempts[index] = max(span.attempt, record.attempts.get(index, 0))  # a replica may have had a later one
    state.shrink_span(span)
    if fact.retry_at < 0:
        workflow = record.group.workflow
        if workflow.fail_fast and workflow.first_failure is None:
            message = shortened(
                f"{dependencies.name_of(record, index)} failed and the workflow stops at the first failure"
            )
            workflow.first_failure = Failure(Cause.FAIL_FAST, message, source=record.id)
            state.failing = True
        state.move(record, index, index + 1, FAILED)
        dependencies.ended(state, effects, record, index, index + 1)
    else:
        ask_for_more(state, span, fact)
        populations.begins_anew(state, record, index)
        state.move(record, index, index + 1, WAITING)
        if awaited is not None:
            state.remakes.wait(record.id, index, awaited)
        else:
            in_turn = fact.failure.cause is Cause.NO_SPACE  # others may need less, or make space
            _try_again(state, effects, record, fact, first=HAD_RUN if (lost or forgiven) and not in_turn else 0)


def _try_again(state: State, effects: Effects | None, record: Record, fact: facts.ElementFailed, *, first: int) -> None:
    """An element that failed is ready at once, or when its time has come."""
    index = fact.index
    if fact.retry_at > state.now:
        state.set_timer(fact.retry_at, TimerKind.RETRY, record.id, index)
        return
    state.free(record, index, index + 1, first=first)
    if effects is not None:
        effects.freed.append((record, index, index + 1))


def _awaited(state: State, record: Record, index: int) -> tuple[int, int] | None:
    """A task that runs again for what an element wants to read."""
    return state.remakes.awaited(dependencies.direct(record, index)) if state.remakes.under_way else None


def _note_waste(state: State, span: Span, fact: facts.ElementFailed, heard: Seconds) -> None:
    """An attempt came to nothing: it took the time that is said, or that has passed since it was last heard of."""
    detail = fact.detail
    known = detail is not None and detail.ended > detail.started > 0
    seconds = detail.ended - detail.started if known and detail is not None else state.now - heard if heard else 0.0
    span.executor.wasted += max(0.0, seconds) * span.queue.cores


def checkpoint_kept(state: State, effects: Effects | None, fact: facts.CheckpointKept) -> None:
    """The next attempt of an element begins where the last one was."""
    state.checkpoints.setdefault(fact.record, {})[fact.index] = fact.digest


def _forget_checkpoints(state: State, record: int, start: int, stop: int) -> None:
    """Elements have succeeded."""
    kept = state.checkpoints.get(record)
    if kept is not None:
        for index in [index for index in kept if start <= index < stop]:
            del kept[index]
        if not kept:
            del state.checkpoints[record]


def retry_due(state: State, effects: Effects | None, fact: facts.RetryDue) -> None:
    """The wait before another attempt is over."""
    state.free(state.records[fact.record], fact.index, fact.index + 1)


def span_returned(state: State, effects: Effects | None, fact: facts.SpanReturned) -> None:
    """Elements came back unstarted."""
    span = state.spans[fact.span]
    for low, high in span.take(fact.start, fact.stop):
        for start, stop in state.attempts.only_with(span, low, high):
            _wait_or_free(state, effects, span.record, start, stop)
    state.shrink_span(span)


def skipped(state: State, effects: Effects | None, fact: facts.Skipped) -> None:
    """Elements will never run."""
    record = state.records[fact.record]
    record.withdraw(fact.start, fact.stop)
    state.move(record, fact.start, fact.stop, SKIPPED)
    record.set_failure(fact.start, fact.stop, fact.failure)
    record.awaits_memo = False
    if not isinstance(record, ArrayRecord):
        record.generation += 1
    dependencies.ended(state, effects, record, fact.start, fact.stop)


def memo_looked_up(state: State, effects: Effects | None, fact: facts.MemoLookedUp) -> None:
    """Memos were looked up: found elements are done, the others may run."""
    record = state.records[fact.record]
    record.awaits_memo = False
    waiting = record.runs(bytes((WAITING,)), fact.start, fact.stop)
    for start, stop in waiting:
        if not fact.found:
            state.free(record, start, stop)
            continue
        state.move(record, start, stop, DONE)
        offset = fact.source_start + start - fact.start
        record.succeed(Success(start, stop, fact.turn, fact.source, offset, fact.source_attempt))
        if state.populations.pending:
            populations.reused(state, record, start, stop)
        dependencies.ended(state, effects, record, start, stop)
    if isinstance(record, ArrayRecord) and record.spec.fed:  # every page of it is looked up by itself
        record.awaits_memo = record.counts[WAITING] > 0


def pages_added(state: State, effects: Effects | None, fact: news.PagesAdded) -> None:
    """An open array grew, or is complete."""
    record = state.records[fact.record]
    assert isinstance(record, ArrayRecord)
    start, had_inputs = record.length, record.has_inputs
    record.add_pages(fact.pages)
    for page in fact.pages:
        if page.reads is not None:
            record.group.workflow.files.declare_fed(page.reads, record.group.id)
    count = fact.pages[-1].stop - start if fact.pages else 0
    record.states.extend(bytes(count))
    if record.spec.fed:
        forget_succeeded(record, state.unsaved.by_record.get(record.id, ()))
    grow(state, record, count)
    if fact.last and record.open:
        record.open = False
        state.open_arrays -= 1
        record.group.unfinished -= 1
        dependencies.array_complete(state, effects, record)
    if record.has_inputs and not had_inputs:
        state.list_ready(record)
    if count and record.waits == 0:
        elements_free(state, effects, record, start, record.length, candidates=fact.reuse or None)
        if effects is not None and (record.after or record.group.gated):
            effects.freed.append((record, start, record.length))
    elif count and (failure := dependencies.why_skipped(state, record)) is not None and effects is not None:
        effects.skipped.append((record, start, record.length, failure))


def cancel(state: State, effects: Effects | None, record: Record, start: int, stop: int) -> None:
    """Elements that have not ended are cancelled; the spans that hold them shrink."""
    record.withdraw(start, stop)
    state.move(record, start, stop, CANCELLED)
    if not isinstance(record, ArrayRecord):
        record.generation += 1
        record.awaits_memo = False
    dependencies.ended(state, effects, record, start, stop)


_NOT_ITS_OWN = frozenset({Cause.GIVEN_BACK, Cause.NO_SPACE})
_NATURAL = frozenset({Cause.EXIT, Cause.EXCEPTION})  # failures that took the time such a task takes


def _give_back(state: State, effects: Effects | None, span: Span, start: int, stop: int) -> None:
    record = span.record
    if isinstance(record, ArrayRecord):
        for index in range(start, stop):
            record.attempts[index] = max(span.attempt, record.attempts.get(index, 0))
    _wait_or_free(state, effects, record, start, stop)


def _wait_or_free(state: State, effects: Effects | None, record: Record, start: int, stop: int) -> None:
    """Elements are with no executor any more: they may go to another one, or wait again for the one before them."""
    if isinstance(record, TaskRecord) and record.waits:
        state.move_task(record, WAITING)
        failure = dependencies.why_skipped(state, record)
        if failure is not None and effects is not None:
            effects.skipped.append((record, 0, 1, failure))
    else:
        state.free(record, start, stop, first=CAME_BACK)
        if effects is not None and isinstance(record, TaskRecord):
            effects.freed.append((record, start, stop))
