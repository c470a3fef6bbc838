"""Whether a fact of a journal can be applied, when facts before it are missing: set aside, damaged or removed.

A whole journal needs none of this: what the core wrote, it can apply. Rule: a fact that names what is not there is
passed over, and nothing is changed by asking; a success counts although the facts that handed its task out are missing,
so that what is finished does not run again.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bough.core import retirement
from bough.core.graph import validation
from bough.core.records.array_record import (
    DONE,
    ENDED_STATES,
    OCCUPYING_STATES,
    OPEN_STATES,
    PENDING_STATES,
    READY,
    WAITING,
    Record,
)
from bough.core.records.attempts import Span
from bough.core.records.executor_record import is_manual
from bough.core.records.indexes.replicas import may_be_replicated
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.model.events import facts, news
from bough.model.events.facts import Fact
from bough.model.ids import ROOT, SpanId

_BEGUN = OCCUPYING_STATES + ENDED_STATES


def misfit(state: State, fact: Fact) -> str:
    """Why a fact cannot be applied to this state; empty: it can."""
    look = _LOOK.get(type(fact))
    return look(state, fact) if look is not None else ""


def fitted(state: State, fact: Fact) -> Fact:
    """A fact that fits, as it is to be applied.

    A success of a span that is not known is that of span 0. What was sent into room that seems taken,
    since an end before it is missing, waits there behind others; but what a person has taken is in that person's hands.
    """
    if isinstance(fact, facts.SpanEnded) and fact.span not in state.spans and fact.span not in state.attempts.late:
        return msgspec.structs.replace(fact, span=SpanId(0))
    if isinstance(fact, facts.Placed):
        executor = state.executors[fact.executor]
        if not (is_manual(executor) or executor.fits(state.records[fact.record])):
            return msgspec.structs.replace(fact, backlog=True)
    return fact


def pass_over(state: State, fact: Fact) -> None:
    """What is left of a fact that cannot be applied: the number of a span is not given again."""
    if isinstance(fact, facts.Placed | facts.Replicated):
        reserve(state, fact.span)


def reserve(state: State, span: int) -> None:
    """Executors may know spans up to this number."""
    state.last_span = max(state.last_span, span)


# --- runs, groups and executors ---------------------------------------------------------------------------


def _run_opened(state: State, fact: facts.RunOpened) -> str:
    return f"the group {fact.group} is taken" if fact.group != ROOT and fact.group in state.groups else ""


def _run_removed(state: State, fact: facts.RunRemoved) -> str:
    workflow = state.workflows.get(fact.run)
    if workflow is None or workflow.group.id != ROOT:  # of one that was retired there is nothing to forget
        return ""
    return f"run {fact.run} is not a workflow's"


def _run_retired(state: State, fact: facts.RunRetired) -> str:
    return "" if retirement.may_retire(state, fact.run) else f"there is no workflow {fact.run} that is over"


def _run_revived(state: State, fact: facts.RunRevived) -> str:
    if fact.run in state.workflows:
        return f"the workflow {fact.run} is there already"
    try:
        pieces = retirement.unpack(fact.kept)
    except ValueError as error:
        return str(error)
    taken: list[int] = [one.spec.id for piece in pieces for one in piece.groups if one.spec.id in state.groups]
    items = [one for piece in pieces for some in (piece.tasks, piece.arrays) for one in some]
    taken += [one.spec.id for one in items if one.spec.id in state.records]
    return f"the number {taken[0]} of something in it is taken" if taken else ""


def _group(state: State, fact: news.GroupClosed | facts.GroupReleased) -> str:
    return "" if fact.group in state.groups else f"there is no group {fact.group}"


def _joined(state: State, fact: facts.ExecutorJoined) -> str:
    return f"the executor {fact.executor} is there already" if fact.executor in state.executors else ""


def _executor(
    state: State,
    fact: facts.ExecutorLost | facts.ExecutorDrained | facts.ExecutorSuspended | facts.ExecutorResumed,
) -> str:
    return "" if fact.executor in state.executors else f"there is no executor {fact.executor}"


def _checkpoint(state: State, fact: facts.CheckpointKept) -> str:
    return "" if fact.record in state.records else f"there is no record {fact.record}"


def _returned_site(state: State, fact: facts.SiteReturned) -> str:
    site = state.sites.get(fact.site)
    return "" if site is not None and site.away else f"the site {fact.site} is not away"


def _defined_site(state: State, fact: facts.SiteRemoved | facts.PilotAsked | facts.SiteHadRoom) -> str:
    if isinstance(fact, facts.PilotAsked) and fact.pilot in state.pilots:
        return f"there is a pilot {fact.pilot} already"
    return "" if fact.site in state.defined_sites else f"the site {fact.site} has no definition"


def _pilot(state: State, fact: facts.PilotQueued | facts.PilotReleased | facts.PilotEnded) -> str:
    pilot = state.pilots.get(fact.pilot)
    if pilot is None:
        return f"there is no pilot {fact.pilot}"
    return f"pilot {fact.pilot} is queued already" if isinstance(fact, facts.PilotQueued) and pilot.handle else ""


def _queue_removed(state: State, fact: facts.QueueRemoved) -> str:
    queue = state.named_queues.records.get(fact.queue)
    return "" if queue is not None and queue.is_defined else f"there is no queue {fact.queue}"


def _resized(state: State, fact: facts.ExecutorResized) -> str:
    executor = state.executors.get(fact.executor)
    return "" if executor is not None and executor.wide else f"there is no relay {fact.executor}"


# --- what is submitted ------------------------------------------------------------------------------------


def _submitted(state: State, fact: facts.Submitted) -> str:
    return validation.check_submission(state, fact, replayed=True) or ""


def _pages(state: State, fact: news.PagesAdded) -> str:
    return validation.check_pages(state, fact) or ""


def _reset(state: State, fact: facts.WasReset) -> str:
    for id_, start, stop in fact.parts:
        if problem := _unless_all_of(state, id_, _BEGUN, start, stop):
            return problem
    return ""


def _made_again(state: State, fact: facts.MadeAgain) -> str:
    return _unless_all_of(state, fact.record, bytes((DONE,)), fact.index, fact.index + 1)


def _outputs_safe(state: State, fact: facts.OutputsSafe) -> str:
    return _unless_all_of(state, fact.record, bytes((DONE,)), fact.start, fact.stop)


def _amended(state: State, fact: facts.Amended) -> str:
    return "" if fact.run in state.workflows else f"there is no workflow {fact.run}"


def _retried(state: State, fact: facts.Retried) -> str:
    return f"there is no group {fact.target.id}" if fact.automatic and fact.target.id not in state.groups else ""


# --- spans ------------------------------------------------------------------------------------------------


def _placed(state: State, fact: facts.Placed) -> str:
    record = state.records.get(fact.record)
    if record is None or fact.executor not in state.executors:
        return f"there is no record {fact.record}" if record is None else f"there is no executor {fact.executor}"
    if fact.span in state.spans:
        return f"the span {fact.span} is there already"
    if record.queue.limits and record.queue.spare <= 0:
        return f"as many tasks of its group as may run at once do, without record {fact.record}"
    if record.needs.queue and not record.queue.named.room(record.queue.cores):
        return f"as many tasks of its queue as may run at once do, without record {fact.record}"
    wanted = WAITING if fact.behind and isinstance(record, TaskRecord) else READY
    return _unless_all(record, bytes((wanted,)), fact.start, fact.stop)


def _replicated(state: State, fact: facts.Replicated) -> str:
    record = state.records.get(fact.record)
    if record is None or fact.executor not in state.executors:
        return f"there is no record {fact.record}" if record is None else f"there is no executor {fact.executor}"
    if fact.span in state.spans:
        return f"the span {fact.span} is there already"
    if not state.executors[fact.executor].fits(record):
        return f"executor {fact.executor} has no room for a replica of record {fact.record}"
    if (record.queue.limits or record.queue.named.bounded) and record.queue.spare <= 0:
        return f"as many tasks as may run at once do, without a replica of record {fact.record}"
    others = state.attempts.of(record, fact.index, fact.index + 1)
    if any(span.executor.id == fact.executor or span.attempt >= fact.attempt for span in others):
        return f"record {fact.record} has attempt {fact.attempt} already, or executor {fact.executor} has it"
    if not may_be_replicated(record):
        return f"record {fact.record} may not be replicated"
    return _unless_all(record, OCCUPYING_STATES, fact.index, fact.index + 1)


def _of_span(state: State, fact: facts.SpanStarted | facts.SpanReturned | facts.SpanAlive) -> str:
    return "" if fact.span in state.spans else f"there is no span {fact.span}"


def _ended(state: State, fact: facts.SpanEnded) -> str:
    span = state.spans.get(fact.span)
    if span is not None:
        if span.behind and span.record.waits:
            return "what it was to follow has not succeeded"
        return _unless_with(span, fact.start, fact.stop)
    late = state.attempts.late.get(fact.span)
    if late is not None:
        return _unless_with(late, fact.start, fact.stop) or _unless_all(late.record, OPEN_STATES, fact.start, fact.stop)
    return _unless_all_of(state, fact.record, PENDING_STATES, fact.start, fact.stop)


def _failed(state: State, fact: facts.ElementFailed) -> str:
    span = state.spans.get(fact.span)
    return f"there is no span {fact.span}" if span is None else _unless_with(span, fact.index, fact.index + 1)


def _output(state: State, fact: facts.OutputKept) -> str:
    return "" if fact.record in state.records else f"there is no record {fact.record}"


def _observed(state: State, fact: facts.Observed) -> str:
    return _unless_all_of(state, fact.record, OPEN_STATES, fact.index, fact.index + 1)


def _monitors(state: State, fact: facts.MonitorsAdded | facts.RuleSet | facts.MembersRecalled) -> str:
    known = fact.target.id in (state.groups if fact.target.is_group else state.records)
    return "" if known else f"there is no {'group' if fact.target.is_group else 'record'} {fact.target.id}"


def _due(state: State, fact: facts.RetryDue) -> str:
    return _unless_all_of(state, fact.record, bytes((WAITING,)), fact.index, fact.index + 1)


def _recalled(state: State, fact: facts.MemoLookedUp) -> str:
    record = state.records.get(fact.record)
    known = record is not None and 0 <= fact.start < fact.stop <= record.length
    return "" if known else f"there is no record {fact.record} with elements {fact.start} to {fact.stop}"


def _not_runnable(state: State, fact: facts.Skipped) -> str:
    return _unless_all_of(state, fact.record, PENDING_STATES, fact.start, fact.stop)


def _lock_taken(state: State, fact: facts.LockTaken) -> str:
    lawful = state.locks.may_take(fact.name, state.spans.get(fact.span), fact.index)
    return "" if lawful else f"the lock {fact.name} is not in that state"


def _lock_freed(state: State, fact: facts.LockFreed) -> str:
    lawful = state.locks.may_free(fact.name, fact.span, fact.index)
    return "" if lawful else f"the lock {fact.name} is not in that state"


def _unless_all_of(state: State, number: int, states: bytes, start: int, stop: int) -> str:
    """Why there are no such elements of a record in these states; empty: they are there."""
    record = state.records.get(number)
    return f"there is no record {number}" if record is None else _unless_all(record, states, start, stop)


def _unless_all(record: Record, states: bytes, start: int, stop: int) -> str:
    """Why not all of some elements are in these states; empty: they are."""
    if not 0 <= start < stop <= record.length:
        return f"record {record.id} has no elements {start} to {stop}"
    found = record.runs(states, start, stop)
    return "" if found == [[start, stop]] else f"elements {start} to {stop} of record {record.id} are in another state"


def _unless_with(span: Span, start: int, stop: int) -> str:
    with_it = start < stop and any(low <= start and stop <= high for low, high in span.left)
    return "" if with_it else f"elements {start} to {stop} are not with the span {span.id}"


_LOOK: dict[type, Callable[..., str]] = {
    facts.RunOpened: _run_opened,
    facts.RunRemoved: _run_removed,
    facts.RunRetired: _run_retired,
    facts.RunRevived: _run_revived,
    news.GroupClosed: _group,
    facts.GroupReleased: _group,
    facts.ExecutorJoined: _joined,
    facts.ExecutorLost: _executor,
    facts.ExecutorDrained: _executor,
    facts.ExecutorSuspended: _executor,
    facts.ExecutorResumed: _executor,
    facts.ExecutorResized: _resized,
    facts.SiteReturned: _returned_site,
    facts.CheckpointKept: _checkpoint,
    facts.SiteRemoved: _defined_site,
    facts.PilotAsked: _defined_site,
    facts.QueueRemoved: _queue_removed,
    facts.PilotQueued: _pilot,
    facts.PilotReleased: _pilot,
    facts.PilotEnded: _pilot,
    facts.SiteHadRoom: _defined_site,
    facts.Submitted: _submitted,
    news.PagesAdded: _pages,
    facts.WasReset: _reset,
    facts.MadeAgain: _made_again,
    facts.OutputsSafe: _outputs_safe,
    facts.Amended: _amended,
    facts.Retried: _retried,
    facts.Placed: _placed,
    facts.Replicated: _replicated,
    facts.SpanStarted: _of_span,
    facts.SpanReturned: _of_span,
    facts.SpanAlive: _of_span,
    facts.SpanEnded: _ended,
    facts.ElementFailed: _failed,
    facts.OutputKept: _output,
    facts.Observed: _observed,
    facts.MonitorsAdded: _monitors,
    facts.RuleSet: _monitors,
    facts.MembersRecalled: _monitors,
    facts.RetryDue: _due,
    facts.MemoLookedUp: _recalled,
    facts.Skipped: _not_runnable,
    facts.LockTaken: _lock_taken,
    facts.LockFreed: _lock_freed,
}
