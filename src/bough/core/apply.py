"""Which function applies which fact; the same for a turn and for a replay."""

from __future__ import annotations

from collections.abc import Callable

from bough.core import deeds, lifecycle, submission
from bough.core.state import State
from bough.model import facts


def _opened(state: State, fact: facts.RunOpened) -> None:
    state.run, state.name, state.fail_fast, state.memos = fact.run, fact.name, fact.fail_fast, fact.memos


def _closed(state: State, fact: facts.RunClosed | facts.Stopping) -> None:
    state.stopping = True


APPLY: dict[type, Callable[..., None]] = {
    facts.RunOpened: _opened,
    facts.RunClosed: _closed,
    facts.Stopping: _closed,
    facts.Submitted: submission.submitted,
    facts.PagesAdded: lifecycle.pages_added,
    facts.GroupClosed: submission.group_closed,
    facts.ExecutorJoined: lifecycle.executor_joined,
    facts.ExecutorLost: lifecycle.executor_lost,
    facts.ExecutorDrained: lifecycle.executor_drained,
    facts.Placed: lifecycle.placed,
    facts.SpanStarted: lifecycle.span_started,
    facts.SpanEnded: lifecycle.span_ended,
    facts.ElementFailed: lifecycle.element_failed,
    facts.SpanReturned: lifecycle.span_returned,
    facts.RetryDue: lifecycle.retry_due,
    facts.Recalled: lifecycle.recalled,
    facts.NotRunnable: lifecycle.not_runnable,
    facts.Cancelled: deeds.cancelled,
    facts.Killed: deeds.killed,
    facts.Held: deeds.held,
    facts.Released: deeds.released,
    facts.Retried: deeds.retried,
    facts.Prioritised: deeds.prioritised,
}
