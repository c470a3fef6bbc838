"""Folds facts about loose tasks, and about ranges of arrays, into their rows.

`TaskFold` changes the row of one loose task and the rows of its attempts. `ArrayRangeFold` changes a slice of an array:
states, spans, and the rows of single elements. `fold` decides which of the two a fact goes to.
Rule: a method concerns one kind of fact, and a fact that no longer fits the state of its task changes nothing.
"""

from __future__ import annotations

from typing import Final

from bough.model.events.facts import ElementFailed, MemoLookedUp, OutputKept, Placed, Replicated, SpanEnded
from bough.model.events.news import PagesAdded
from bough.model.ids import ExecutorId, RecordId, SpanId
from bough.model.outcomes import Cause, Detail, Failure
from bough.model.states import TaskState
from bough.stores.jobs import array_states as moves
from bough.stores.jobs.array_states import FoldedArray
from bough.stores.jobs.rows import (
    ENDED_LABELS,
    PENDING_LABELS,
    UNSUCCESSFUL_LABELS,
    AttemptRow,
    OpenSpan,
    SpanRow,
    TaskRow,
    put_detail,
    put_failure,
    put_streams,
    shown,
)
from bough.stores.jobs.tables import JobsTables

FASTER: Final = "another attempt was first"


class TaskFold:
    """Facts about loose tasks."""

    def __init__(self, tables: JobsTables) -> None:
        self._tables = tables

    def placed(self, row: TaskRow, now: float, fact: Placed) -> None:
        """The core gave the task to an executor."""
        host = self._tables.host(fact.executor)
        attempt = AttemptRow(row.id, 0, fact.attempt, fact.executor, host, now, span=fact.span)
        self._tables.place(OpenSpan(fact.span, row.id, fact.attempt, fact.executor, now, [(0, 1)], row=attempt))
        self._tables.put_attempt(attempt)
        enter(row, "ready")  # until the executor says that it runs
        row.attempt, row.executor, row.host = fact.attempt, fact.executor, host
        row.started = row.ended = row.seconds = None

    def replicated(self, row: TaskRow, now: float, fact: Replicated) -> None:
        """The core gave the task to one more executor: a replica. The row is that of the attempt before."""
        host = self._tables.host(fact.executor)
        attempt = AttemptRow(row.id, 0, fact.attempt, fact.executor, host, now, span=fact.span)
        self._tables.place(OpenSpan(fact.span, row.id, fact.attempt, fact.executor, now, [(0, 1)], row=attempt))
        self._tables.put_attempt(attempt)

    def started(self, row: TaskRow, now: float, span: OpenSpan | None) -> None:
        """The executor says that the task runs."""
        if span is None or span.attempt == row.attempt or row.state != "running":
            enter(row, "running")
            row.started = now
        if span and span.row:
            span.row.state, span.row.started = "running", now
            self._tables.put_attempt(span.row)

    def ended(self, row: TaskRow, now: float, turn: int, fact: SpanEnded) -> None:
        """The task succeeded."""
        span = self._tables.open.get(fact.span)
        if span is not None and span.attempt != row.attempt:  # a replica was faster
            row.started = span.row.started if span.row else None
        self._supersede_others(row, now, fact.span)
        enter(row, "done")
        row.attempt, row.turn, row.ended, row.seconds = fact.attempt or row.attempt, turn, now, fact.seconds
        row.cause = row.message = row.traceback = row.parameters = row.signal = row.exit_code = None
        if fact.executor:
            row.executor, row.host = fact.executor, fact.host or self._tables.host(fact.executor)
        if row.started is None:
            row.started = now - fact.seconds
        self._detail(row, fact.details[0] if fact.details else None)
        self._tables.put_staging(row.id, 0, row.attempt, fact.details[0] if fact.details else None)
        attempt = self._attempt(row, fact.span, row.attempt)
        attempt.state, attempt.started, attempt.ended, attempt.exit_code = "done", row.started, row.ended, row.exit_code

    def failed(self, row: TaskRow, now: float, turn: int, fact: ElementFailed) -> None:
        """An attempt failed; the core may retry the task."""
        if fact.retry_at >= 0 and self._others(row, fact.span):
            attempt = self._attempt(row, fact.span, fact.attempt)
            attempt.state, attempt.ended = _ended_as(fact), now
            put_failure(attempt, fact.failure)
            self._continue_elsewhere(row)
            return
        enter(row, "waiting" if fact.retry_at >= 0 else "failed")
        row.attempt, row.turn, row.ended = fact.attempt or row.attempt, turn, now
        if fact.executor:
            row.executor, row.host = fact.executor, fact.host or self._tables.host(fact.executor)
        self._detail(row, fact.detail)
        self._tables.put_staging(row.id, 0, row.attempt, fact.detail)
        put_failure(row, fact.failure)
        attempt = self._attempt(row, fact.span, row.attempt)
        attempt.state = _ended_as(fact)
        attempt.started, attempt.ended = row.started, row.ended
        put_failure(attempt, fact.failure)
        if fact.retry_at >= 0:
            row.ended = None

    def given_back(self, row: TaskRow, now: float, span: OpenSpan, *, lost: str | None) -> None:
        """The task may go to another executor: its own gave it back unstarted, or was lost."""
        runs_on = bool(self._others(row, span.span))
        if self._tables.is_out(row.id) and not runs_on:
            enter(row, first_state(row.waits))  # a `Freed` follows if it waits for nothing
            row.started = row.executor = row.host = None
        attempt = span.row
        self._tables.take_from_span(span, 0, 1)
        if attempt is None:
            return
        if lost is None:
            self._tables.drop_attempt(attempt)
        else:
            attempt.state, attempt.ended, attempt.cause, attempt.message = "lost", now, Cause.LOST.value, shown(lost)
            self._tables.put_attempt(attempt)
        if runs_on:
            self._continue_elsewhere(row)

    def freed(self, row: TaskRow) -> None:
        """The task waits for nothing any more."""
        if row.state == "waiting":
            enter(row, "ready")

    def output_kept(self, row: TaskRow, fact: OutputKept) -> None:
        """An attempt was ended from outside; what it wrote stands until a later one has ended."""
        if fact.attempt == row.attempt and row.state != "done":
            put_streams(row, fact.detail)
            row.memory, row.cpu = fact.detail.memory or row.memory, fact.detail.cpu or row.cpu
            row.executor = row.executor or fact.executor or None
            row.host = row.host or fact.host or self._tables.host(fact.executor)

    def memo_found(self, row: TaskRow, now: float, fact: MemoLookedUp) -> None:
        """A lookup ended: an earlier run may have done the task."""
        if not fact.found:
            self.freed(row)
            return
        enter(row, "done")
        row.reused, row.turn, row.attempt, row.ended = 1, fact.turn, fact.source_attempt, now
        success = self._tables.success(fact.turn, fact.source, fact.source_start)
        if success:
            row.seconds = success.seconds
            for detail in success.details:
                if detail.index == fact.source_start:
                    self._detail(row, detail)

    def skipped(self, row: TaskRow, now: float, failure: Failure) -> None:
        """The task will not run."""
        if row.state not in ENDED_LABELS:
            self.stop(row, now, "skipped", failure)

    def cancelled(self, row: TaskRow, now: float) -> None:
        """A user cancelled the task."""
        if row.state not in ENDED_LABELS:
            self.stop(row, now, "cancelled", Failure(Cause.CANCELLED))

    def killed(self, row: TaskRow, now: float) -> None:
        """A user killed the task."""
        if self._tables.is_out(row.id):
            self.stop(row, now, "failed", Failure(Cause.KILLED, "killed on request"))

    def held(self, row: TaskRow) -> None:
        """A user holds the task."""
        if row.state in PENDING_LABELS and not self._tables.is_out(row.id):
            enter(row, "held")

    def released(self, row: TaskRow) -> None:
        """A user released the task."""
        if row.state == "held":
            enter(row, first_state(row.waits))

    def retried(self, row: TaskRow) -> None:
        """The task is retried."""
        if row.state in UNSUCCESSFUL_LABELS:
            enter(row, first_state(row.waits))
            row.ended = None

    def reset(self, row: TaskRow, now: float) -> None:
        """The task counts as not started; the rows of its attempts stay."""
        if self._tables.is_out(row.id):
            self.stop(row, now, "cancelled", Failure(Cause.CANCELLED, "it was reset"))
        self._tables.forget_successes(row.id, 0, 1)
        enter(row, first_state(row.waits))
        row.started = row.ended = row.seconds = row.executor = row.host = None
        row.cause = row.message = row.traceback = row.parameters = row.signal = row.exit_code = row.memory = row.cpu = (
            None
        )
        row.reused = 0

    def stop(self, row: TaskRow, now: float, state: str, failure: Failure) -> None:
        """The task ended without success, and so did the attempt that an executor has."""
        enter(row, state)
        row.ended = now
        put_failure(row, failure)
        for number in list(self._tables.of_record.get(row.id, ())):
            span = self._tables.open[number]
            self._tables.take_from_span(span, 0, 1)
            if span.row:
                span.row.state, span.row.ended = ("lost" if state == "skipped" else state), now
                put_failure(span.row, failure)
                self._tables.put_attempt(span.row)

    def _others(self, row: TaskRow, span: int) -> list[OpenSpan]:
        """The other attempts of a task that executors have, the newest last."""
        return [
            self._tables.open[number] for number in sorted(self._tables.of_record.get(row.id, ())) if number != span
        ]

    def _continue_elsewhere(self, row: TaskRow) -> None:
        """One of several attempts has ended: the row is that of the newest that is left."""
        left = self._others(row, 0)[-1]
        row.attempt, row.executor, row.host = left.attempt, left.executor, self._tables.host(left.executor)
        if left.row and left.row.started is not None:
            row.started = left.row.started

    def _supersede_others(self, row: TaskRow, now: float, winner: int) -> None:
        """An attempt succeeded: the others that run now, replicas or one before a late success, are ended."""
        for span in self._others(row, winner):
            self._tables.take_from_span(span, 0, 1)
            if span.row:
                span.row.state, span.row.ended, span.row.message = "superseded", now, FASTER
                self._tables.put_attempt(span.row)

    def _attempt(self, row: TaskRow, number: int, attempt: int) -> AttemptRow:
        """The row of a span's attempt."""
        span = self._tables.open.get(number)
        if span and span.row:
            found = span.row
            self._tables.take_from_span(span, 0, 1)
        else:  # cancelled, killed or lost before
            found = AttemptRow(row.id, 0, attempt, row.executor, row.host, None, span=number)
        self._tables.put_attempt(found)
        return found

    def _detail(self, row: TaskRow, detail: Detail | None) -> None:
        if detail is None:
            return
        put_detail(row, detail)
        for made in detail.outputs:
            self._tables.gathered["files"].append((row.id, 0, made.slot, made.path, made.size, made.mtime_ns))


def first_state(waits: int) -> str:
    """The state in which a task begins, with dependencies or without."""
    return "waiting" if waits else "ready"


def _ended_as(fact: ElementFailed) -> str:
    """The state of an attempt that a failure ended."""
    cause = fact.failure.cause
    if cause is Cause.LOST:
        return "lost"
    if cause is Cause.NO_SPACE:  # for want of a disk that is big enough it fails for good
        return "given back" if fact.retry_at >= 0 else "failed"
    return "given back" if cause is Cause.GIVEN_BACK else "failed"


def enter(row: TaskRow, state: str) -> None:
    """Change a loose task's state and its counts of one."""
    row.state = state
    row.done = int(state == "done")
    row.failed = int(state == "failed")
    row.skipped = int(state == "skipped")
    row.cancelled = int(state == "cancelled")


_RANGED: Final = {
    TaskState.SKIPPED: moves.SKIP,
    TaskState.CANCELLED: moves.CANCEL,
    TaskState.HELD: moves.HOLD,
}


class ArrayRangeFold:
    """Facts about ranges of arrays."""

    def __init__(self, tables: JobsTables) -> None:
        self._tables = tables

    def grown(self, row: TaskRow, now: float, fact: PagesAdded) -> None:
        """A client added pages to an open array."""
        fold = self._tables.array(row)
        fold.grow(max((page.stop for page in fact.pages), default=0))
        if fact.last:
            row.is_open, row.ended = 0, now

    def placed(self, row: TaskRow, now: float, fact: Placed) -> None:
        """The core gave a span to an executor."""
        fold = self._tables.array(row)
        fold.move(fact.start, fact.stop, moves.PLACE)
        for index in fold.rows_in(fact.start, fact.stop):  # a retry: what an earlier attempt left no longer holds
            element = fold.element(index)
            element.attempt, element.executor = fact.attempt, fact.executor
            element.host = self._tables.host(fact.executor)
            element.started = element.ended = element.seconds = None
            element.cause = element.message = element.signal = element.exit_code = None
            element.traceback = element.parameters = None
        rest = [(fact.start, fact.stop)]
        self._tables.place(OpenSpan(fact.span, row.id, fact.attempt, fact.executor, now, rest))
        row.attempt = max(row.attempt, fact.attempt)
        if row.started is None:
            row.started = now

    def replicated(self, row: TaskRow, now: float, fact: Replicated) -> None:
        """The core gave an element to one more executor: a replica, which has a row among the attempts."""
        rest = [(fact.index, fact.index + 1)]
        host = self._tables.host(fact.executor)
        attempt = AttemptRow(row.id, fact.index, fact.attempt, fact.executor, host, now, span=fact.span)
        self._tables.place(OpenSpan(fact.span, row.id, fact.attempt, fact.executor, now, rest, row=attempt))
        self._tables.put_attempt(attempt)
        self._tables.replicas.setdefault(row.id, set()).add(fact.index)
        row.attempt = max(row.attempt, fact.attempt)

    def started(self, row: TaskRow, now: float, span: OpenSpan | None, start: int, stop: int) -> None:
        """The executor says that elements run."""
        self._tables.array(row).move(start, stop, moves.START)
        if span:
            span.started = span.started or now
            self._tables.touch(span)
            if span.row:
                span.row.state, span.row.started = "running", span.started
                self._tables.put_attempt(span.row)

    def ended(self, row: TaskRow, now: float, turn: int, fact: SpanEnded) -> None:
        """Elements succeeded."""
        span = self._tables.open.get(fact.span)
        fold = self._tables.array(row)
        fold.move(fact.start, fact.stop, moves.SUCCEED)
        row.ended = now
        row.seconds = (row.seconds or 0) + fact.seconds
        executor, attempt = fact.executor or None, fact.attempt
        placed, started = (span.placed, span.started) if span else (None, None)
        started = started or now - fact.seconds
        done = SpanRow(
            row.id, fact.start, fact.stop, "done", attempt, executor, placed, started, now, fact.seconds, turn,
            span=fact.span,
        )  # fmt: skip
        self._tables.span_rows.append(done)
        self._succeed(fold, done, fact.details, host=fact.host)
        if row.id in self._tables.replicas:
            self._supersede_others(row, now, fact)
        if span:
            if span.row:
                self._tables.drop_attempt(span.row)  # a success is among the spans
            self._tables.take_from_span(span, fact.start, fact.stop)
        else:  # a late attempt succeeded: the attempts that run now are stopped
            for number in list(self._tables.of_record.get(row.id, ())):
                self._tables.take_from_span(self._tables.open[number], fact.start, fact.stop)

    def failed(self, row: TaskRow, now: float, turn: int, fact: ElementFailed) -> None:
        """One element failed; the core may retry it."""
        span = self._tables.open.get(fact.span)
        fold, index = self._tables.array(row), fact.index
        if fact.retry_at >= 0 and span and self._others(row, fact.span, index):
            self._end_attempt(span, index, now, _ended_as(fact), failure=fact.failure)
            self._promote(row, index)
            return
        fold.move(index, index + 1, moves.WAIT if fact.retry_at >= 0 else moves.FAIL)
        row.ended = now
        element = fold.element(index)
        host = fact.host or self._tables.host(fact.executor)
        element.attempt, element.executor, element.host = fact.attempt, fact.executor or None, host
        element.started, element.ended, element.turn = span.started if span else None, now, turn
        if fact.detail:
            self._detail(fold, element.idx, fact.detail)
            self._tables.put_staging(row.id, index, fact.attempt, fact.detail)
        put_failure(element, fact.failure)
        attempt = AttemptRow(
            row.id, index, fact.attempt, fact.executor or None, host, span.placed if span else None,
            element.started, element.ended, _ended_as(fact), span=fact.span,
        )  # fmt: skip
        put_failure(attempt, fact.failure)
        self._tables.put_attempt(attempt)
        if span:
            self._tables.take_from_span(span, index, index + 1)

    def given_back(self, row: TaskRow, now: float, span: OpenSpan, start: int, stop: int, *, lost: str | None) -> None:
        """Elements are ready again: their executor gave them back unstarted, or was lost."""
        fold = self._tables.array(row)
        for low, high in list(span.rest):
            begin, end = max(low, start), min(high, stop)
            if begin >= end:
                continue
            if row.id not in self._tables.replicas:
                fold.move(begin, end, moves.GIVE_BACK)
            else:
                self._give_back_replicas(row, now, span, begin, end, lost=lost)
            if lost is not None and not span.row:
                self._tables.span_rows.append(
                    SpanRow(
                        row.id,
                        begin,
                        end,
                        "lost",
                        span.attempt,
                        span.executor,
                        span.placed,
                        span.started,
                        now,
                        cause=Cause.LOST.value,
                        message=shown(lost),
                        span=span.span,
                    )
                )
        self._tables.take_from_span(span, start, stop)

    def output_kept(self, row: TaskRow, fact: OutputKept) -> None:
        """An attempt at an element was ended from outside; what it wrote stands until a later one has ended."""
        fold = self._tables.array(row)
        if fact.index >= row.length or fold.states[fact.index] == TaskState.DONE:
            return
        element = fold.element(fact.index)
        if fact.attempt >= element.attempt:
            element.attempt, element.executor = fact.attempt, fact.executor or None
            element.host = fact.host or self._tables.host(fact.executor)
            element.started = fact.detail.started or element.started
            put_streams(element, fact.detail)

    def memo_found(self, row: TaskRow, now: float, fact: MemoLookedUp) -> None:
        """A lookup ended: an earlier run may have done the elements."""
        if not fact.found:
            if row.waits:
                self.freed(row, fact.start, fact.stop)
            return
        fold = self._tables.array(row)
        fold.move(fact.start, fact.stop, moves.SUCCEED)
        row.ended = now
        row.reused += fact.stop - fact.start
        done = SpanRow(row.id, fact.start, fact.stop, "done", fact.source_attempt, ended=now, turn=fact.turn, reused=1)
        self._tables.span_rows.append(done)
        details: list[Detail] = []
        if row.kind == "command":  # elements of function arrays seldom have anything of their own
            at = fact.source_start
            while at < fact.source_start + fact.stop - fact.start:
                success = self._tables.success(fact.turn, fact.source, at)
                if success is None:
                    break
                details += (detail for detail in success.details if detail.index >= at)
                at = success.stop
        self._succeed(fold, done, details, fact.start - fact.source_start)

    def skipped(self, row: TaskRow, now: float, start: int, stop: int, failure: Failure) -> None:
        """Elements will not run."""
        self._range(row, now, (start, stop), TaskState.SKIPPED, failure)

    def cancelled(self, row: TaskRow, now: float, start: int, stop: int) -> None:
        """A user cancelled elements."""
        self._range(row, now, (start, stop), TaskState.CANCELLED, Failure(Cause.CANCELLED))

    def stopped(self, row: TaskRow, now: float, failure: Failure) -> None:
        """The elements that run are ended with their run."""
        fold = self._tables.array(row)
        for start, stop, state in list(fold.open_pieces(0, row.length)):
            if state == "running":
                self._range(row, now, (start, stop), TaskState.CANCELLED, failure)

    def killed(self, row: TaskRow, now: float, turn: int, start: int, stop: int) -> None:
        """A user killed elements: those that an executor has fail."""
        spans = [self._tables.open[number] for number in self._tables.of_record.get(row.id, ())]
        for span in spans:
            for low, high in list(span.rest):
                for index in range(max(low, start), min(high, stop)):
                    failure = Failure(Cause.KILLED, "killed on request")
                    fact = ElementFailed(
                        SpanId(span.span),
                        index,
                        failure,
                        record=RecordId(row.id),
                        attempt=span.attempt,
                        executor=ExecutorId(span.executor),
                    )
                    self.failed(row, now, turn, fact)

    def held(self, row: TaskRow, now: float, start: int, stop: int) -> None:
        """A user holds elements."""
        self._range(row, now, (start, stop), TaskState.HELD, None)

    def released(self, row: TaskRow, start: int, stop: int) -> None:
        """A user released elements."""
        fold = self._tables.array(row)
        fold.move(start, stop, moves.RELEASE[fold.first])

    def retried(self, row: TaskRow, start: int, stop: int) -> None:
        """Elements are retried."""
        fold = self._tables.array(row)
        fold.move(start, stop, moves.REVIVE[fold.first])

    def reset(self, row: TaskRow, now: float, start: int, stop: int) -> None:
        """Elements count as not started: their successes are cut out of the tables."""
        fold = self._tables.array(row)
        if row.id in self._tables.replicas:
            self._end_replicas(row, now, start, stop, Failure(Cause.CANCELLED, "it was reset"))
        for number in list(self._tables.of_record.get(row.id, ())):
            self._tables.take_from_span(self._tables.open[number], start, stop)
        self._tables.forget_successes(row.id, start, stop)
        fold.move(start, stop, moves.RESET[fold.first])
        for index in fold.rows_in(start, stop):
            element = fold.element(index)
            element.started = element.ended = element.seconds = element.executor = element.host = None
            element.cause = element.message = element.signal = element.exit_code = None
            element.traceback = element.parameters = None
        row.ended = None

    def freed(self, row: TaskRow, start: int, stop: int) -> None:
        """Elements wait for nothing any more: what they depend on succeeded, or another attempt is due."""
        self._tables.array(row).move(start, stop, moves.FREE)

    def _others(self, row: TaskRow, span: int, index: int) -> list[OpenSpan]:
        """The other attempts of an element that executors have."""
        if index not in self._tables.replicas.get(row.id, ()):
            return []
        spans = (self._tables.open[number] for number in self._tables.of_record.get(row.id, ()) if number != span)
        return [other for other in spans if any(low <= index < high for low, high in other.rest)]

    def _supersede_others(self, row: TaskRow, now: float, fact: SpanEnded) -> None:
        """Elements succeeded: their other attempts are ended."""
        replicated = self._tables.replicas[row.id]
        for index in [index for index in replicated if fact.start <= index < fact.stop]:
            for other in self._others(row, fact.span, index):
                self._end_attempt(other, index, now, "superseded", message=FASTER)
            replicated.discard(index)
        if not replicated:
            del self._tables.replicas[row.id]

    def _give_back_replicas(
        self, row: TaskRow, now: float, span: OpenSpan, start: int, stop: int, *, lost: str | None
    ) -> None:
        """Elements came back, some of which other executors may have, too."""
        fold = self._tables.array(row)
        for index in range(start, stop):
            others = self._others(row, span.span, index)
            if not others:
                fold.move(index, index + 1, moves.GIVE_BACK)
            if span.row and lost is None:
                self._tables.drop_attempt(span.row)
            elif span.row:
                self._end_attempt(span, index, now, "lost", failure=Failure(Cause.LOST, lost or ""))
            elif others:
                self._tables.take_from_span(span, index, index + 1)
                self._promote(row, index)

    def _promote(self, row: TaskRow, index: int) -> None:
        """The attempt of an element that had its row among the spans has ended: another one has it there now."""
        left = self._others(row, 0, index)
        if left and all(span.row for span in left):
            first = min(left, key=lambda span: span.span)
            if first.row:
                self._tables.drop_attempt(first.row)
            first.row = None
            self._tables.touch(first)

    def _end_attempt(
        self, span: OpenSpan, index: int, now: float, state: str, *, failure: Failure | None = None, message: str = ""
    ) -> None:
        """One of several attempts of an element has ended."""
        host = self._tables.host(span.executor)
        ended = span.row or AttemptRow(
            span.record, index, span.attempt, span.executor or None, host, span.placed, span.started, span=span.span
        )
        ended.state, ended.ended, ended.message = state, now, message or None
        if failure is not None:
            put_failure(ended, failure)
        self._tables.put_attempt(ended)
        self._tables.take_from_span(span, index, index + 1)

    def _end_replicas(self, row: TaskRow, now: float, start: int, stop: int, failure: Failure) -> None:
        """Elements are ended from outside: so are the attempts of them that have rows of their own."""
        for index in [one for one in self._tables.replicas.get(row.id, ()) if start <= one < stop]:
            for span in self._others(row, 0, index):
                if span.row:
                    self._end_attempt(span, index, now, "cancelled", failure=failure)

    def _range(self, row: TaskRow, now: float, place: tuple[int, int], to: TaskState, failure: Failure | None) -> None:
        """Bring elements to a state that is kept as ranges."""
        fold = self._tables.array(row)
        for low, high in fold.move(*place, _RANGED[to]):
            piece = SpanRow(row.id, low, high, to.label)
            if failure:
                piece.ended, piece.cause, piece.message = now, failure.cause.value, shown(failure.message)
            fold.add_range(piece)
            if failure is None:
                continue
            row.ended = now
            for index in fold.rows_in(low, high):
                element = fold.element(index)
                element.ended = now
                put_failure(element, failure)
            if row.id in self._tables.replicas:
                self._end_replicas(row, now, low, high, failure)
            for number in list(self._tables.of_record.get(row.id, ())):
                self._tables.take_from_span(self._tables.open[number], low, high)

    def _succeed(
        self,
        fold: FoldedArray,
        done: SpanRow,
        details: list[Detail] | tuple[Detail, ...],
        shift: int = 0,
        host: str = "",
    ) -> None:
        """Give rows to elements with values of their own, and update the rows of those that failed before."""
        for index in fold.rows_in(done.start, done.stop):
            element = fold.element(index)
            element.attempt, element.executor, element.turn = done.attempt, done.executor, done.turn
            element.host = host or self._tables.host(done.executor or 0)
            element.started, element.ended = done.started, done.ended
            element.cause = element.message = element.signal = element.exit_code = None
            element.traceback = element.parameters = None
        for detail in details:
            index = detail.index + shift
            if done.start <= index < done.stop:
                element = fold.element(index)
                element.attempt, element.executor, element.turn = done.attempt, done.executor, done.turn
                element.host = host or self._tables.host(done.executor or 0)
                element.started, element.ended, element.reused = done.started, done.ended, done.reused
                self._detail(fold, index, detail)
                if not done.reused:
                    self._tables.put_staging(fold.row.id, index, done.attempt, detail)

    def _detail(self, fold: FoldedArray, index: int, detail: Detail) -> None:
        put_detail(fold.element(index), detail)
        for made in detail.outputs:
            values = (fold.row.id, index, made.slot, made.path, made.size, made.mtime_ns)
            self._tables.gathered["files"].append(values)
