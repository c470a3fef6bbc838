"""Fold what happened to ranges of arrays into spans, elements and counts."""

from __future__ import annotations

from typing import Final

from bough.core.states import TaskState
from bough.model.facts import ElementFailed, PagesAdded, Placed, Recalled, SpanEnded
from bough.model.ids import ExecutorId, RecordId, SpanId
from bough.model.outcomes import Cause, Detail, Failure
from bough.stores import arrayfold as moves
from bough.stores.arrayfold import ArrayFold
from bough.stores.ledger import Ledger
from bough.stores.rows import AttemptRow, Open, SpanRow, TaskRow, put_detail, put_failure, shown

_RANGED: Final = {
    TaskState.NOTRUN: moves.ABANDON,
    TaskState.CANCELLED: moves.CANCEL,
    TaskState.HELD: moves.HOLD,
}


class SpanFold:
    """See the module."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def grown(self, row: TaskRow, now: float, fact: PagesAdded) -> None:
        """Pages were added to an open array."""
        fold = self._ledger.array(row)
        fold.grow(max((page.stop for page in fact.pages), default=0))
        if fact.last:
            row.is_open, row.ended = 0, now

    def placed(self, row: TaskRow, now: float, fact: Placed) -> None:
        """A span was given to an executor."""
        fold = self._ledger.array(row)
        fold.move(fact.start, fact.stop, moves.PLACE)
        for index in fold.rows_in(fact.start, fact.stop):  # tried again: what an earlier attempt left no longer holds
            element = fold.element(index)
            element.attempt, element.executor = fact.attempt, fact.executor
            element.host = self._ledger.host(fact.executor)
            element.started = element.ended = element.seconds = None
            element.cause = element.message = element.signal = element.exit_code = None
        rest = [(fact.start, fact.stop)]
        self._ledger.place(Open(fact.span, row.id, fact.attempt, fact.executor, now, rest))
        row.attempt = max(row.attempt, fact.attempt)
        if row.started is None:
            row.started = now

    def started(self, row: TaskRow, now: float, span: Open | None, start: int, stop: int) -> None:
        """Elements run."""
        self._ledger.array(row).move(start, stop, moves.START)
        if span:
            span.started = span.started or now
            self._ledger.touch(span)

    def ended(self, row: TaskRow, now: float, turn: int, fact: SpanEnded) -> None:
        """Elements succeeded."""
        span = self._ledger.open.get(fact.span)
        fold = self._ledger.array(row)
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
        self._ledger.span_rows.append(done)
        self._succeed(fold, done, fact.details, host=fact.host)
        if span:
            self._ledger.heard(span, fact.start, fact.stop)
        else:  # an executor that was given up brought results; whoever has the elements now is stopped
            for number in list(self._ledger.of_record.get(row.id, ())):
                self._ledger.heard(self._ledger.open[number], fact.start, fact.stop)

    def failed(self, row: TaskRow, now: float, turn: int, fact: ElementFailed) -> None:
        """One element failed; perhaps it will be tried again."""
        span = self._ledger.open.get(fact.span)
        fold, index = self._ledger.array(row), fact.index
        fold.move(index, index + 1, moves.WAIT if fact.retry_at >= 0 else moves.FAIL)
        row.ended = now
        element = fold.element(index)
        host = fact.host or self._ledger.host(fact.executor)
        element.attempt, element.executor, element.host = fact.attempt, fact.executor or None, host
        element.started, element.ended, element.turn = span.started if span else None, now, turn
        if fact.detail:
            self._detail(fold, element.idx, fact.detail)
        put_failure(element, fact.failure)
        attempt = AttemptRow(
            row.id, index, fact.attempt, fact.executor or None, host, span.placed if span else None,
            element.started, element.ended, "lost" if fact.failure.cause is Cause.LOST else "failed", span=fact.span,
        )  # fmt: skip
        put_failure(attempt, fact.failure)
        self._ledger.put_attempt(attempt)
        if span:
            self._ledger.heard(span, index, index + 1)

    def given_back(self, row: TaskRow, now: float, span: Open, start: int, stop: int, *, lost: str | None) -> None:
        """Elements are ready again: given back unstarted, or their executor was lost."""
        fold = self._ledger.array(row)
        for low, high in list(span.rest):
            begin, end = max(low, start), min(high, stop)
            if begin >= end:
                continue
            fold.move(begin, end, moves.GIVE_BACK)
            if lost is not None:
                self._ledger.span_rows.append(
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
        self._ledger.heard(span, start, stop)

    def recalled(self, row: TaskRow, now: float, fact: Recalled) -> None:
        """Elements were done in an earlier run."""
        if not fact.found:
            return
        fold = self._ledger.array(row)
        fold.move(fact.start, fact.stop, moves.SUCCEED)
        row.ended = now
        row.reused += fact.stop - fact.start
        done = SpanRow(row.id, fact.start, fact.stop, "done", fact.source_attempt, ended=now, turn=fact.turn, reused=1)
        self._ledger.span_rows.append(done)
        details: list[Detail] = []
        if row.kind == "command":  # elements of function arrays seldom have anything of their own
            at = fact.source_start
            while at < fact.source_start + fact.stop - fact.start:
                success = self._ledger.success(fact.turn, fact.source, at)
                if success is None:
                    break
                details += (detail for detail in success.details if detail.index >= at)
                at = success.stop
        self._succeed(fold, done, details, fact.start - fact.source_start)

    def abandoned(self, row: TaskRow, now: float, start: int, stop: int, failure: Failure) -> None:
        """Elements will not run."""
        self._range(row, now, (start, stop), TaskState.NOTRUN, failure)

    def cancelled(self, row: TaskRow, now: float, start: int, stop: int) -> None:
        """Somebody cancelled elements."""
        self._range(row, now, (start, stop), TaskState.CANCELLED, Failure(Cause.CANCELLED))

    def killed(self, row: TaskRow, now: float, turn: int, start: int, stop: int) -> None:
        """Somebody killed elements: those that an executor has fail."""
        spans = [self._ledger.open[number] for number in self._ledger.of_record.get(row.id, ())]
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
        """Elements shall not start."""
        self._range(row, now, (start, stop), TaskState.HELD, None)

    def released(self, row: TaskRow, start: int, stop: int) -> None:
        """Elements may start."""
        fold = self._ledger.array(row)
        fold.move(start, stop, moves.RELEASE[fold.first])

    def retried(self, row: TaskRow, start: int, stop: int) -> None:
        """Elements are tried again."""
        fold = self._ledger.array(row)
        fold.move(start, stop, moves.REVIVE[fold.first])

    def reset(self, row: TaskRow, now: float, start: int, stop: int) -> None:
        """Elements have not started, whatever was: successes are cut out of what is written."""
        fold = self._ledger.array(row)
        for number in list(self._ledger.of_record.get(row.id, ())):
            self._ledger.heard(self._ledger.open[number], start, stop)
        self._ledger.forget_successes(row.id, start, stop)
        fold.move(start, stop, moves.RESET[fold.first])
        for index in fold.rows_in(start, stop):
            element = fold.element(index)
            element.started = element.ended = element.seconds = element.executor = element.host = None
            element.cause = element.message = element.signal = element.exit_code = None
        row.ended = None

    def due(self, row: TaskRow, index: int) -> None:
        """An element waited long enough."""
        self._ledger.array(row).move(index, index + 1, moves.FREE)

    def _range(self, row: TaskRow, now: float, place: tuple[int, int], to: TaskState, failure: Failure | None) -> None:
        """Bring elements to a state that is kept as ranges."""
        fold = self._ledger.array(row)
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
            for number in list(self._ledger.of_record.get(row.id, ())):
                self._ledger.heard(self._ledger.open[number], low, high)

    def _succeed(
        self,
        fold: ArrayFold,
        done: SpanRow,
        details: list[Detail] | tuple[Detail, ...],
        shift: int = 0,
        host: str = "",
    ) -> None:
        """Give rows to elements that have something of their own, and update those that failed before."""
        for index in fold.rows_in(done.start, done.stop):
            element = fold.element(index)
            element.attempt, element.executor, element.turn = done.attempt, done.executor, done.turn
            element.host = host or self._ledger.host(done.executor or 0)
            element.started, element.ended = done.started, done.ended
            element.cause = element.message = element.signal = element.exit_code = None
        for detail in details:
            index = detail.index + shift
            if done.start <= index < done.stop:
                element = fold.element(index)
                element.attempt, element.executor, element.turn = done.attempt, done.executor, done.turn
                element.host = host or self._ledger.host(done.executor or 0)
                element.started, element.ended, element.reused = done.started, done.ended, done.reused
                self._detail(fold, index, detail)

    def _detail(self, fold: ArrayFold, index: int, detail: Detail) -> None:
        put_detail(fold.element(index), detail)
        for made in detail.outputs:
            values = (fold.row.id, index, made.slot, made.path, made.size, made.mtime_ns)
            self._ledger.gathered["files"].append(values)
