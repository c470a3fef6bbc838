"""Which function applies which fact; the same for a turn and for a replay."""

from __future__ import annotations

from collections.abc import Callable

from bough.core import lifecycle, populations, retirement
from bough.core.actions import amend, remaking, reset, task_actions, watching
from bough.core.effects import Effects
from bough.core.graph import submission
from bough.core.pilots import named_queues, pilots, sites
from bough.core.state import State
from bough.model.events import facts, news


def _freed(state: State, effects: Effects | None, fact: facts.Freed) -> None:
    """Nothing to do: the facts before it made these tasks ready."""


def _stopping(state: State, effects: Effects | None, fact: facts.Stopping) -> None:
    state.stopping = True


def _output_kept(state: State, effects: Effects | None, fact: facts.OutputKept) -> None:
    """Only the jobs database knows what tasks wrote; what was moved for a superseded attempt is waste."""
    staged = fact.detail.staged
    if staged is not None and state.replicas.untold:
        state.replicas.moved((fact.record, fact.index, fact.attempt), staged.from_peers + staged.from_origin)


APPLY: dict[type, Callable[..., None]] = {
    facts.RunOpened: submission.run_opened,
    facts.RunClosed: submission.run_closed,
    facts.RunRemoved: retirement.run_removed,
    facts.RunRetired: retirement.run_retired,
    facts.RunRevived: retirement.run_revived,
    facts.Stopping: _stopping,
    facts.Submitted: submission.submitted,
    news.PagesAdded: lifecycle.pages_added,
    news.GroupClosed: submission.group_closed,
    facts.ExecutorJoined: lifecycle.executor_joined,
    facts.ExecutorLost: lifecycle.executor_lost,
    facts.ExecutorDrained: lifecycle.executor_drained,
    facts.ExecutorResized: lifecycle.executor_resized,
    facts.ExecutorSuspended: lifecycle.executor_suspended,
    facts.ExecutorResumed: lifecycle.executor_resumed,
    facts.CheckpointKept: lifecycle.checkpoint_kept,
    facts.SiteRuleSet: sites.site_rule_set,
    facts.SiteLeft: sites.site_left,
    facts.SiteReturned: sites.site_returned,
    facts.SiteDefined: pilots.site_defined,
    facts.QueueDefined: named_queues.queue_defined,
    facts.QueueRemoved: named_queues.queue_removed,
    facts.SiteRemoved: pilots.site_removed,
    facts.PilotAsked: pilots.pilot_asked,
    facts.PilotQueued: pilots.pilot_queued,
    facts.PilotReleased: pilots.pilot_released,
    facts.PilotEnded: pilots.pilot_ended,
    facts.SiteHadRoom: pilots.site_had_room,
    facts.Placed: lifecycle.placed,
    facts.Replicated: lifecycle.replicated,
    facts.SpanStarted: lifecycle.span_started,
    facts.SpanEnded: lifecycle.span_ended,
    facts.ElementFailed: lifecycle.element_failed,
    facts.SpanReturned: lifecycle.span_returned,
    facts.OutputKept: _output_kept,
    facts.Observed: watching.observed,
    facts.MonitorsAdded: watching.monitors_added,
    facts.EndAsked: watching.end_asked,
    facts.RuleSet: populations.rule_set,
    facts.MembersRecalled: populations.members_recalled,
    facts.RetryDue: lifecycle.retry_due,
    facts.Freed: _freed,
    facts.MemoLookedUp: lifecycle.memo_looked_up,
    facts.Skipped: lifecycle.skipped,
    facts.Cancelled: task_actions.cancelled,
    facts.Killed: task_actions.killed,
    facts.Held: task_actions.held,
    facts.Released: task_actions.released,
    facts.WasReset: reset.reset,
    facts.MadeAgain: remaking.made_again,
    facts.OutputsSafe: remaking.outputs_safe,
    facts.Amended: amend.amended,
    facts.Retried: task_actions.retried,
    facts.Prioritised: task_actions.prioritised,
    facts.GroupReleased: submission.group_released,
    facts.LockTaken: lifecycle.lock_taken,
    facts.LockFreed: lifecycle.lock_freed,
    facts.SpanAlive: lifecycle.span_alive,
}
