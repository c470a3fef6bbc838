"""Fold what happened to loose tasks into their rows and attempts."""

from __future__ import annotations

from bough.core.states import OCCUPYING, PENDING, UNSUCCESSFUL
from bough.model.facts import ElementFailed, Placed, Recalled, SpanEnded
from bough.model.outcomes import Cause, Detail, Failure
from bough.stores.ledger import ENDED_LABELS, Ledger
from bough.stores.rows import AttemptRow, Open, TaskRow, put_detail, put_failure, shown

_PENDING = frozenset(state.label for state in PENDING)
_OCCUPYING = frozenset(state.label for state in OCCUPYING)
_UNSUCCESSFUL = frozenset(state.label for state in UNSUCCESSFUL)


class LooseFold:
    """See the module."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def placed(self, row: TaskRow, now: float, fact: Placed) -> None:
        """It was given to an executor."""
        host = self._ledger.host(fact.executor)
        attempt = AttemptRow(row.id, 0, fact.attempt, fact.executor, host, now, span=fact.span)
        self._ledger.place(Open(fact.span, row.id, fact.attempt, fact.executor, now, [(0, 1)], row=attempt))
        self._ledger.put_attempt(attempt)
        enter(row, "placed")
        row.attempt, row.executor, row.host = fact.attempt, fact.executor, host
        row.started = row.ended = row.seconds = None

    def started(self, row: TaskRow, now: float, span: Open | None) -> None:
        """The executor said that it runs."""
        enter(row, "running")
        row.started = now
        if span and span.row:
            span.row.state, span.row.started = "running", now
            self._ledger.put_attempt(span.row)

    def ended(self, row: TaskRow, now: float, turn: int, fact: SpanEnded) -> None:
        """It succeeded."""
        if fact.span not in self._ledger.open:
            self._overtaken(row, now)
        enter(row, "done")
        row.attempt, row.turn, row.ended, row.seconds = fact.attempt or row.attempt, turn, now, fact.seconds
        row.cause = row.message = row.signal = row.exit_code = None
        if fact.executor:
            row.executor, row.host = fact.executor, fact.host or self._ledger.host(fact.executor)
        if row.started is None:
            row.started = now - fact.seconds
        self._detail(row, fact.details[0] if fact.details else None)
        attempt = self._attempt(row, fact.span, row.attempt)
        attempt.state, attempt.started, attempt.ended, attempt.exit_code = "done", row.started, row.ended, row.exit_code

    def failed(self, row: TaskRow, now: float, turn: int, fact: ElementFailed) -> None:
        """An attempt failed; perhaps it will be tried again."""
        enter(row, "waiting" if fact.retry_at >= 0 else "failed")
        row.attempt, row.turn, row.ended = fact.attempt or row.attempt, turn, now
        if fact.executor:
            row.executor, row.host = fact.executor, fact.host or self._ledger.host(fact.executor)
        self._detail(row, fact.detail)
        put_failure(row, fact.failure)
        attempt = self._attempt(row, fact.span, row.attempt)
        attempt.state = "lost" if fact.failure.cause is Cause.LOST else "failed"
        attempt.started, attempt.ended = row.started, row.ended
        put_failure(attempt, fact.failure)
        if fact.retry_at >= 0:
            row.ended = None

    def given_back(self, row: TaskRow, now: float, span: Open, *, lost: str | None) -> None:
        """It is ready again: given back unstarted, or its executor was lost."""
        if row.state in _OCCUPYING:
            enter(row, "ready")
            row.started = row.executor = row.host = None
        attempt = span.row
        self._ledger.heard(span, 0, 1)
        if attempt is None:
            return
        if lost is None:
            self._ledger.drop_attempt(attempt)
        else:
            attempt.state, attempt.ended, attempt.cause, attempt.message = "lost", now, Cause.LOST.value, shown(lost)
            self._ledger.put_attempt(attempt)

    def recalled(self, row: TaskRow, now: float, fact: Recalled) -> None:
        """An earlier run did it."""
        if not fact.found:
            return
        enter(row, "done")
        row.reused, row.turn, row.attempt, row.ended = 1, fact.turn, fact.source_attempt, now
        success = self._ledger.success(fact.turn, fact.source, fact.source_start)
        if success:
            row.seconds = success.seconds
            for detail in success.details:
                if detail.index == fact.source_start:
                    self._detail(row, detail)

    def abandoned(self, row: TaskRow, now: float, failure: Failure) -> None:
        """It will not run."""
        if row.state not in ENDED_LABELS:
            self.stop(row, now, "notrun", failure)

    def cancelled(self, row: TaskRow, now: float) -> None:
        """Somebody cancelled it."""
        if row.state not in ENDED_LABELS:
            self.stop(row, now, "cancelled", Failure(Cause.CANCELLED))

    def killed(self, row: TaskRow, now: float) -> None:
        """Somebody killed it."""
        if row.state in _OCCUPYING:
            self.stop(row, now, "failed", Failure(Cause.KILLED, "killed on request"))

    def held(self, row: TaskRow) -> None:
        """It shall not start."""
        if row.state in _PENDING:
            enter(row, "held")

    def released(self, row: TaskRow) -> None:
        """It may start."""
        if row.state == "held":
            enter(row, "waiting" if row.waits else "ready")

    def retried(self, row: TaskRow) -> None:
        """It is tried again."""
        if row.state in _UNSUCCESSFUL:
            enter(row, "waiting" if row.waits else "ready")
            row.ended = None

    def reset(self, row: TaskRow, now: float) -> None:
        """It has not started, whatever was; its attempts are remembered."""
        if row.state in _OCCUPYING:
            self.stop(row, now, "cancelled", Failure(Cause.CANCELLED, "it was reset"))
        self._ledger.forget_successes(row.id, 0, 1)
        enter(row, "waiting" if row.waits else "ready")
        row.started = row.ended = row.seconds = row.executor = row.host = None
        row.cause = row.message = row.signal = row.exit_code = row.memory = row.cpu = None
        row.reused = 0

    def stop(self, row: TaskRow, now: float, state: str, failure: Failure) -> None:
        """It ended without success, and so did what an executor has of it."""
        enter(row, state)
        row.ended = now
        put_failure(row, failure)
        for number in list(self._ledger.of_record.get(row.id, ())):
            span = self._ledger.open[number]
            self._ledger.heard(span, 0, 1)
            if span.row:
                span.row.state, span.row.ended = ("lost" if state == "notrun" else state), now
                put_failure(span.row, failure)
                self._ledger.put_attempt(span.row)

    def _overtaken(self, row: TaskRow, now: float) -> None:
        """An executor that was given up brought the result; whoever has the task now is stopped."""
        for number in list(self._ledger.of_record.get(row.id, ())):
            span = self._ledger.open[number]
            self._ledger.heard(span, 0, 1)
            if span.row:
                span.row.state, span.row.ended, span.row.message = "cancelled", now, "another attempt was first"
                self._ledger.put_attempt(span.row)

    def _attempt(self, row: TaskRow, number: int, attempt: int) -> AttemptRow:
        """The row of the attempt that a span was."""
        span = self._ledger.open.get(number)
        if span and span.row:
            found = span.row
            self._ledger.heard(span, 0, 1)
        else:  # cancelled, killed or lost before
            found = AttemptRow(row.id, 0, attempt, row.executor, row.host, None, span=number)
        self._ledger.put_attempt(found)
        return found

    def _detail(self, row: TaskRow, detail: Detail | None) -> None:
        if detail is None:
            return
        put_detail(row, detail)
        for made in detail.outputs:
            self._ledger.gathered["files"].append((row.id, 0, made.slot, made.path, made.size, made.mtime_ns))


def enter(row: TaskRow, state: str) -> None:
    """Change a loose task's state and its counts of one."""
    row.state = state
    row.done = int(state == "done")
    row.failed = int(state == "failed")
    row.notrun = int(state == "notrun")
    row.cancelled = int(state == "cancelled")
