"""Spans from hand-out to end: how each fact about executors and spans changes the state.

Rule: these functions only apply what is already decided and lawful; `machine.py` filters and decides.
"""

from __future__ import annotations

from bough.core import graph, ranges
from bough.core.memo import elements_free
from bough.core.records import (
    CANCELLED,
    DONE,
    FAILED,
    NOTRUN,
    PLACED,
    READY,
    RUNNING,
    WAITING,
    ArrayRecord,
    Record,
    Success,
    TaskRecord,
)
from bough.core.room import ExecutorRecord, Span
from bough.core.state import State
from bough.model import facts
from bough.model.outcomes import Cause, Failure


def executor_joined(state: State, fact: facts.ExecutorJoined) -> None:
    """There is room."""
    executor = ExecutorRecord(fact)
    state.executors[fact.executor] = executor
    state.cores += fact.capacity.cores
    state.note_room(executor)


def executor_drained(state: State, fact: facts.ExecutorDrained) -> None:
    """It gets nothing new."""
    executor = state.executors[fact.executor]
    executor.draining = True
    state.note_room(executor)


def executor_lost(state: State, fact: facts.ExecutorLost) -> None:
    """All that was with it is given back, to go first; the losses were counted before, one by one."""
    executor = state.executors.pop(fact.executor)
    state.roomy.pop(fact.executor, None)
    state.cores -= executor.capacity.cores
    for span in list(executor.spans.values()):
        left, span.left = span.left, []
        for start, stop in left:
            _give_back(state, span, start, stop)
        _drop(state, span)
    state.due = True


def placed(state: State, fact: facts.Placed) -> None:
    """Ready elements went to an executor."""
    record, executor = state.records[fact.record], state.executors[fact.executor]
    if isinstance(record, ArrayRecord):
        place_elements(state, fact, record, executor)
    else:
        place_task(state, fact, record, executor)
    if not executor.has_room():
        state.roomy.pop(executor.id, None)


def place_task(state: State, fact: facts.Placed, record: TaskRecord, executor: ExecutorRecord) -> None:
    """A loose task went to an executor; whoever calls looks after the executor's room."""
    number, attempt = fact.span, fact.attempt
    state.move_task(record, PLACED)
    record.attempt = attempt
    record.urgent = False
    span = Span(number, record, 0, 1, attempt, executor, [[0, 1]], not fact.backlog, 0.0)
    state.spans[number] = span
    state.last_span = number
    executor.add(span)


def place_elements(state: State, fact: facts.Placed, record: ArrayRecord, executor: ExecutorRecord) -> None:
    """Elements of an array went to an executor; whoever calls looks after the executor's room."""
    number, start, stop, attempt = fact.span, fact.start, fact.stop, fact.attempt
    state.move(record, start, stop, PLACED)
    record.took(start, stop, attempt)
    span = Span(number, record, start, stop, attempt, executor, [[start, stop]], not fact.backlog, 0.0)
    state.spans[number] = span
    state.last_span = number
    executor.add(span)
    if record.urgent:  # only what was lost goes before others, not the rest of its array
        record.urgent = False
        if record.ready:
            state.enqueue(record)


def span_started(state: State, fact: facts.SpanStarted) -> None:
    """Elements are running."""
    record = state.spans[fact.span].record
    for start, stop in record.runs(bytes((PLACED,)), fact.start, fact.stop):
        state.move(record, start, stop, RUNNING)


def span_ended(state: State, fact: facts.SpanEnded) -> None:
    """Elements succeeded."""
    span = state.spans[fact.span]
    record, start, stop = span.record, fact.start, fact.stop
    record.runtime.note(stop - start, fact.seconds)
    if isinstance(record, TaskRecord):
        state.move_task(record, DONE)
        record.turn = state.turn
        _drop(state, span)
        graph.succeeded(state, record)
    else:
        state.move(record, start, stop, DONE)
        record.succeed(Success(start, stop, state.turn, record.id, start, span.attempt))
        ranges.take(span.left, start, stop)
        if not span.left:
            _drop(state, span)
        graph.ended(state, record, start, stop)


def element_failed(state: State, fact: facts.ElementFailed) -> None:
    """An element failed: it ends, or waits for another attempt."""
    span = state.spans[fact.span]
    record, index = span.record, fact.index
    ranges.take(span.left, index, index + 1)
    failures, losses = record.failures_of(index)
    lost = fact.failure.cause is Cause.LOST
    detail = fact.detail
    if detail is not None and detail.ended > detail.started > 0 and fact.failure.cause in _NATURAL:
        record.runtime.note(1, detail.ended - detail.started)
    record.blame(index, failures + (not lost), losses + lost)
    record.set_failure(index, index + 1, fact.failure)
    if isinstance(record, ArrayRecord):
        record.attempts[index] = span.attempt
    if not span.left:
        _drop(state, span)
    if fact.retry_at < 0:
        if state.fail_fast and state.first_failure is None:
            message = f"{graph.name_of(record, index)} failed and the workflow stops at the first failure"
            state.first_failure = Failure(Cause.FAIL_FAST, message, source=record.id)
        state.move(record, index, index + 1, FAILED)
        graph.ended(state, record, index, index + 1)
    else:
        state.move(record, index, index + 1, WAITING)
        if fact.retry_at <= state.now:
            state.free(record, index, index + 1, first=lost)
        else:
            state.retry_later(record, index, fact.retry_at)


def retry_due(state: State, fact: facts.RetryDue) -> None:
    """The wait before another attempt is over."""
    state.free(state.records[fact.record], fact.index, fact.index + 1)


def span_returned(state: State, fact: facts.SpanReturned) -> None:
    """Elements came back unstarted."""
    span = state.spans[fact.span]
    for start, stop in ranges.take(span.left, fact.start, fact.stop):
        state.free(span.record, start, stop, first=True)
    if not span.left:
        _drop(state, span)


def not_runnable(state: State, fact: facts.NotRunnable) -> None:
    """Elements will never run."""
    record = state.records[fact.record]
    withdraw(record, fact.start, fact.stop)
    state.move(record, fact.start, fact.stop, NOTRUN)
    record.set_failure(fact.start, fact.stop, fact.failure)
    record.recalling = False
    if not isinstance(record, ArrayRecord):
        record.generation += 1
    graph.ended(state, record, fact.start, fact.stop)


def recalled(state: State, fact: facts.Recalled) -> None:
    """Memos were looked up: found elements are done, the others may run."""
    record = state.records[fact.record]
    record.recalling = False
    waiting = record.runs(bytes((WAITING,)), fact.start, fact.stop)
    for start, stop in waiting:
        if not fact.found:
            state.free(record, start, stop)
            continue
        state.move(record, start, stop, DONE)
        offset = fact.source_start + start - fact.start
        record.succeed(Success(start, stop, fact.turn, fact.source, offset, fact.source_attempt))
        graph.ended(state, record, start, stop)


def pages_added(state: State, fact: facts.PagesAdded) -> None:
    """An open array grew, or is complete."""
    record = state.records[fact.record]
    assert isinstance(record, ArrayRecord)
    start = record.length
    for page in fact.pages:
        record.paged.append(page)
        record.length = page.stop
    count = record.length - start
    record.states += bytes(count)
    record.counts[WAITING] += count
    record.group.counts[WAITING] += count
    record.group.unfinished += count
    state.unended += count
    if fact.last and record.open:
        record.open = False
        state.open_arrays -= 1
        record.group.unfinished -= 1
        graph.array_complete(state, record)
    if count and record.waits == 0:
        elements_free(state, record, start, record.length)
    elif count and (failure := graph.why_never(state, record)) is not None:
        state.doomed.append((record, start, record.length, failure))


def cancel(state: State, record: Record, start: int, stop: int) -> None:
    """Elements that have not ended are cancelled; the spans that hold them shrink."""
    withdraw(record, start, stop)
    state.move(record, start, stop, CANCELLED)
    if not isinstance(record, ArrayRecord):
        record.generation += 1
        record.recalling = False
    graph.ended(state, record, start, stop)


def withdraw(record: Record, start: int, stop: int) -> None:
    """Ready elements may not be handed out any more."""
    if record.is_array:
        for low, high in record.runs(_READY, start, stop):
            record.unready(low, high)


_READY = bytes((READY,))
_NATURAL = frozenset({Cause.EXIT, Cause.EXCEPTION})  # failures that took the time such a task takes


def release_span(state: State, span: Span) -> None:
    """A span that holds nothing any more lets go of its resources."""
    if not span.left:
        _drop(state, span)


def _give_back(state: State, span: Span, start: int, stop: int) -> None:
    record = span.record
    if isinstance(record, ArrayRecord):
        for index in range(start, stop):
            record.attempts[index] = span.attempt
    state.free(record, start, stop, first=True)


def _drop(state: State, span: Span) -> None:
    """Forget a span, and let its executor use what it occupied."""
    del state.spans[span.id]
    executor = span.executor
    executor.drop(span)
    if executor.id in state.roomy:
        state.due = True  # a span that goes leaves more room, never less
    elif executor.id in state.executors:
        state.note_room(executor)
