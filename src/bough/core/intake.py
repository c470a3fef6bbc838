"""What arrives becomes facts: it is filtered, completed by a decision and recorded, and so is what follows from it.

Stale, duplicate and unknown news are passed over. A failure is completed by whether the task is tried again, and when:
failures of its own count against the retries that the user allowed; a failure of the place counts for nothing as long
as there is another place; executors and workers that die under it count against a limit of their own. Rule: what
follows from a fact (tasks that will never run, groups that are tried again, executors that are suspended) is recorded
right after it as facts of its own, so that a replay needs no decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from random import Random

import msgspec

from bough.core import lifecycle, populations, retirement
from bough.core.actions import amend, manual, remaking, reset, task_actions, watching
from bough.core.apply import APPLY
from bough.core.effects import Effects
from bough.core.graph import dependencies, submission, validation
from bough.core.graph.readiness import key_of
from bough.core.pilots import pilots, sites
from bough.core.records.array_record import OPEN_STATES, PENDING_STATES, RUNNING, UNSUCCESSFUL_STATES, WAITING, Record
from bough.core.records.attempts import Span
from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.group_record import GroupRecord
from bough.core.records.indexes.unsaved_outputs import unsaved_in
from bough.core.records.task_record import TaskRecord
from bough.core.state import State, TimerKind
from bough.core.storable import DECODED, latest, shortened, unstorable
from bough.model.arrays.result_lists import cut
from bough.model.events import facts, news
from bough.model.events.arriving import News, Recalled
from bough.model.events.facts import Fact
from bough.model.events.orders import CancelPilot, ClearExecutor, KeepExecutor, Refuse, StopSpan
from bough.model.ids import ROOT, ExecutorId, RecordId, Seconds, SpanId
from bough.model.outcomes import Cause, Detail, Failure, waited_in
from bough.model.sites.availability import ALWAYS
from bough.model.sites.suspension import SPACE_REST, describe_trouble, rest_after, wait_for_space
from bough.model.tasks import Dep, GroupSpec, Kind, On
from bough.model.texts.plurals import counted

Handler = Callable[..., None]

NEVER: Seconds = -1.0  # when a task that failed is tried again
_MOST_DOUBLED = 60  # times that a wait is doubled: a float holds no more than 1,023
# failures after which nothing is tried again; NO_SPACE: what may find space somewhere is not asked this
_IN_VAIN = frozenset({Cause.KILLED, Cause.CANCELLED, Cause.NO_SPACE})


class Intake:
    """See the module."""

    def __init__(self, state: State, random: Random) -> None:
        self._state = state
        self._random = random
        self._facts: list[Fact] = []
        self._effects = Effects()
        handlers: dict[type, Handler] = {
            news.WorkSucceeded: self._on_succeeded,
            news.CallsEnded: self._on_calls_ended,
            news.WorkFailed: self._on_failed,
            news.WorkStarted: self._on_started,
            news.WorkReturned: self._on_returned,
            news.WorkStopped: self._on_stopped,
            news.WorkObserved: self._on_observed,
            facts.Submitted: self._on_submitted,
            news.PagesAdded: self._on_pages,
            facts.ExecutorLost: self._on_executor_lost,
            facts.ExecutorJoined: self._on_executor_joined,
            facts.ExecutorDrained: self._on_executor_known,
            facts.ExecutorResized: self._on_resized,
            facts.MemoLookedUp: self._on_looked_up,
            Recalled: self._on_recalled,
            facts.MembersRecalled: self._on_members_recalled,
            news.GroupClosed: self._on_group_closed,
            news.Cancel: self._on_cancel,
            news.Kill: self._on_kill,
            news.Hold: self._on_hold,
            news.Release: self._on_release,
            news.Retry: self._on_retry,
            news.Reset: self._on_reset,
            news.Amend: self._on_amend,
            news.DeclareDone: self._on_declare_done,
            news.Prioritise: self._on_prioritise,
            news.AddMonitors: self._on_add_monitors,
            news.EndEarly: self._on_end_early,
            news.SetRule: self._on_set_rule,
            news.TakeTask: self._on_take,
            facts.RunOpened: self._record,
            facts.RunClosed: self._record,
            facts.RunRemoved: self._on_removed,
            facts.RunRetired: self._on_retired,
            facts.RunRevived: self._on_revived,
            facts.ExecutorSuspended: self._on_executor_known,
            facts.ExecutorResumed: self._on_executor_known,
            facts.Stopping: self._record,
            facts.CheckpointKept: self._on_checkpoint,
            facts.SiteRuleSet: self._on_site_rule,
            facts.SiteLeft: self._on_site_left,
            facts.SiteReturned: self._on_site_returned,
            facts.SiteDefined: self._on_site_defined,
            facts.QueueDefined: self._on_queue_defined,
            facts.QueueRemoved: self._on_queue_removed,
            facts.SiteRemoved: self._on_site_removed,
            facts.PilotQueued: self._on_pilot,
            facts.PilotEnded: self._on_pilot,
            facts.SiteHadRoom: self._on_room,
            news.TakeLock: self._on_take_lock,
            news.FreeLock: self._on_free_lock,
            facts.GroupReleased: self._on_group_released,
            news.TaskAlive: self._on_alive,
            news.CacheChanged: self._on_cache_changed,
            news.FilesIdentified: self._on_identified,
            news.BytesMoved: self._on_bytes_moved,
            news.OutputLost: self._on_output_lost,
            news.OutputsWritten: self._on_outputs_written,
        }
        self._due: dict[int, Callable[[int, int], None]] = {
            TimerKind.RETRY: self._on_retry_due,
            TimerKind.GROUP_LIMIT: self._on_group_limit,
            TimerKind.SUSPENSION: self._on_suspension_over,
            TimerKind.SILENCE: self._on_silence,
            TimerKind.CLEARANCE: self._on_clearance,
            TimerKind.PILOTS: self._on_rested,
            TimerKind.REPLICAS: self._on_replicas_due,
        }
        self._handlers = {
            kind: handler if kind in DECODED else partial(self._check, handler) for kind, handler in handlers.items()
        }

    def take_in(self, events: Iterable[News], effects: Effects) -> list[Fact]:
        """Take in what arrived, and what is due by now; the facts that came of it, already applied."""
        self._facts, self._effects = [], effects
        handlers = self._handlers
        for event in events:
            handlers[type(event)](event)
            if effects.skipped or effects.groups_to_retry or effects.populations:
                self._follow_up()
        if self._state.timers:
            self._wake(self._state.now)
        if effects.skipped or effects.groups_to_retry or effects.populations:
            self._follow_up()
        if effects.to_suspend:
            self._suspend()
        return self._facts

    def _check(self, handler: Handler, event: News) -> None:
        """Refuse what could not be read from a journal: the client that asked is told, otherwise the operator."""
        problem = unstorable(event)
        if not problem:
            handler(event)
            return
        text = f"{type(event).__name__} cannot be stored: {problem}"
        request = getattr(event, "request", 0)
        if request:
            self._effects.orders.append(Refuse(request, text))
        else:
            self._state.complaints.append(f"refused, {text}")

    # --- news from executors ---------------------------------------------------------------------

    def _on_succeeded(self, event: news.WorkSucceeded) -> None:  # noqa: C901 called for every task
        state = self._state
        span = state.spans.get(event.span)
        if span is None:
            if event.span in state.attempts.late:
                self._succeed_late(state.attempts.late[event.span], event)
            else:
                self._superseded_ended(event.span, event.details, event.host)
            return
        record = span.record
        if type(record) is TaskRecord:  # the shortest way for what is most frequent
            if record.waits:  # what it travelled with was undone meanwhile
                self._return(span, 0, 1)
            elif state.remakes.under_way and event.start == 0 and event.stop == 1:
                self._record(_completed(state, span, record, event))
            elif event.start == 0 and event.stop == 1:
                seconds, host, key = event.seconds, event.host, record.key
                fact = facts.SpanEnded(
                    event.span,
                    0,
                    1,
                    seconds,
                    event.results,
                    event.details,
                    record.id,  # type: ignore[arg-type]
                    span.attempt,
                    span.executor.id,
                    key_of(state, record) if key else key,
                    host,
                )
                self._facts.append(fact)
                waited = 0.0
                if event.details:
                    lifecycle.note_outputs(state, record, fact)
                    waited = waited_in(event.details)
                lifecycle.task_ended(state, self._effects, span, record, seconds, host, waited)
            return
        low, high = span.left[0]  # a span that holds nothing is forgotten, so there is a first
        if low <= event.start < event.stop <= high:
            self._record(_completed(state, span, record, event))
        elif span.start <= event.start and event.stop <= span.stop:
            for start, stop in span.parts(event.start, event.stop):  # the rest was cancelled meanwhile
                self._record(_completed(state, span, record, _part(event, start, stop)))

    def _on_calls_ended(self, event: news.CallsEnded) -> None:
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
                self._on_succeeded(news.WorkSucceeded(SpanId(number), 0, 1, seconds, results, host=host))
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
            lifecycle.task_ended(state, self._effects, span, record, seconds, host)

    def _succeed_late(self, late: Span, event: news.WorkSucceeded) -> None:
        """A lost executor is back with results: they count for what no other attempt has ended."""
        if late.behind and late.record.waits:
            return  # made from something that did not count
        if late.executor.id not in self._state.executors and unsaved_in(late.record, event):
            return  # nobody could say that what it holds is lost
        for low, high in late.parts(event.start, event.stop):
            for start, stop in late.record.runs(OPEN_STATES, low, high):
                self._record(_completed(self._state, late, late.record, _part(event, start, stop)))

    def _on_failed(self, event: news.WorkFailed) -> None:
        span = self._state.spans.get(event.span)
        if span is None or not _is_with(span, event.index, event.index + 1):
            self._superseded_ended(event.span, () if event.detail is None else (event.detail,), event.host)
            return
        if span.behind and span.record.waits:
            self._return(span, 0, 1)
        else:
            self._fail(span, event)

    def _fail(self, span: Span, event: news.WorkFailed, *, gone: bool = False) -> None:
        """Complete a failure by what becomes of the task, and record it; `gone`: its executor is lost."""
        record, workflow = span.record, span.record.group.workflow
        before = workflow.first_failure
        failure, retry_at = verdict(self._state, span, event.index, event.failure)
        if not self._state.attempts.only_with(span, event.index, event.index + 1):
            retry_at = self._state.now  # another attempt of it is running
        self._record(
            facts.ElementFailed(
                event.span,
                event.index,
                failure,
                event.detail,
                retry_at,
                RecordId(record.id),
                span.attempt,
                span.executor.id,
                gone,
                event.host,
            )
        )
        executor = self._state.executors.get(span.executor.id)
        is_full = failure.cause is Cause.NO_SPACE and not event.failure.site
        if is_full and executor is not None and not executor.suspended:
            until = self._state.now + SPACE_REST
            self._record(facts.ExecutorSuspended(executor.id, until, "the disk for its files is full"))
        first = workflow.first_failure
        if first is not None:  # with fail-fast: nothing more is started, and this one not again
            self._skip_pending(first, list(workflow.group.records()) if before is None else [record])

    def _on_started(self, event: news.WorkStarted) -> None:
        span = self._state.spans.get(event.span)
        if span is None:
            return
        for start, stop in span.parts(event.start, event.stop):
            if span.record.count(RUNNING, start, stop) < stop - start or self._state.replicas.is_unheard(span.id):
                self._record(facts.SpanStarted(event.span, start, stop, RecordId(span.record.id), event.host))

    def _on_returned(self, event: news.WorkReturned) -> None:
        span = self._state.spans.get(event.span)
        if span is not None:
            self._return(span, event.start, event.stop)

    def _return(self, span: Span, start: int, stop: int) -> None:
        """Record that elements came back unstarted, as far as the span has them."""
        for low, high in span.parts(start, stop):
            self._record(facts.SpanReturned(span.id, low, high, RecordId(span.record.id)))

    def _superseded_ended(self, span: SpanId, details: Sequence[Detail], host: str) -> None:
        """A superseded attempt ended before it could be stopped: what was moved for it is worth knowing."""
        if not self._state.replicas.untold:
            return
        for detail in details:
            attempt = self._state.replicas.find_untold(span, detail.index) if detail.staged is not None else None
            if attempt is not None:
                stopped = Detail(detail.index, started=detail.started, ended=detail.ended, staged=detail.staged)
                self._on_stopped(news.WorkStopped(span, RecordId(attempt[0]), *attempt[1:], stopped, host))

    def _on_stopped(self, event: news.WorkStopped) -> None:
        """Its task was cancelled or killed before, or comes again: what it wrote is worth knowing all the same."""
        record = self._state.records.get(event.record)
        if record is None or event.index >= record.length or event.detail.index != event.index:
            return
        self._record(
            facts.OutputKept(
                event.span, event.record, event.index, event.attempt, event.detail, event.host, event.executor
            )
        )

    def _on_observed(self, event: news.WorkObserved) -> None:
        """Of an attempt that counts no more nothing need be known; what was seen of another says that it runs."""
        span, index = self._state.spans.get(event.span), event.index
        if span is None or not event.observations or not span.has(index) or (span.behind and span.record.waits):
            return
        record = RecordId(span.record.id)
        if span.record.state_of(index) != RUNNING:
            self._record(facts.SpanStarted(event.span, index, index + 1, record))
        self._record(facts.Observed(event.span, record, index, span.attempt, event.observations))

    def _on_executor_joined(self, event: facts.ExecutorJoined) -> None:
        if event.executor not in self._state.executors:
            self._record(event)
            self._clear_if_away(event.executor)
            pilot = self._state.pilots.get(event.pilot)
            if pilot is not None and pilot.released and event.executor in pilot.executors:
                self._record(facts.ExecutorDrained(event.executor))  # it began before it could be withdrawn

    def _on_executor_known(
        self, event: facts.ExecutorDrained | facts.ExecutorSuspended | facts.ExecutorResumed
    ) -> None:
        if event.executor in self._state.executors:
            self._record(event)
            if type(event) is facts.ExecutorResumed:  # it may have reconnected, and not know
                self._clear_if_away(event.executor)

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
                self._fail(span, news.WorkFailed(span.id, index, failure), gone=True)
        for again in list(remaking.lost_with(self._state, event.executor, failure.message)):
            self._record(again)
        self._record(event)

    def _on_checkpoint(self, event: facts.CheckpointKept) -> None:
        record = self._state.records.get(event.record)
        if record is not None and event.index < record.length and record.state_of(event.index) in OPEN_STATES:
            self._record(event)

    # --- where data is: advice, of which no fact is made -------------------------------------------

    def _on_cache_changed(self, event: news.CacheChanged) -> None:
        executor, data = self._state.executors.get(event.executor), self._state.data
        host = None
        if executor is not None:
            host = data.join_store(executor, whole=event.whole) if event.shared else data.host_of(executor)
        if host is not None:
            data.cache_changed(host, event.added, event.removed, whole=event.whole)
            self._data_moved()

    def _on_identified(self, event: news.FilesIdentified) -> None:
        workflow = self._state.workflows.get(event.run)
        if workflow is None:
            return
        for one in event.files:
            if 0 < one.file <= workflow.files.last:
                self._state.data.file_identified(event.run, one.file, one.digest, one.size)
        for named in event.named:
            file = workflow.files.find(named.path)
            if file is not None:
                self._state.data.file_identified(event.run, file.id, named.digest, named.size)
        self._data_moved()

    def _data_moved(self) -> None:
        """What a policy held back for want of data may go now."""
        affinity = self._state.affinity
        if affinity is not None and affinity.units:
            self._state.due = True

    def _on_bytes_moved(self, event: news.BytesMoved) -> None:
        executor = self._state.executors.get(event.executor)
        host = self._state.data.host_of(executor) if executor is not None else None
        if host is not None:
            self._state.data.bytes_moved(host, event.source, event.bytes, event.seconds)

    def _on_output_lost(self, event: news.OutputLost) -> None:
        fact = remaking.decide(self._state, event)
        if fact is not None:
            self._record(fact)

    def _on_outputs_written(self, event: news.OutputsWritten) -> None:
        for fact in list(remaking.written(self._state, event)):
            self._record(fact)

    # --- sites -----------------------------------------------------------------------------------

    def _on_site_rule(self, event: facts.SiteRuleSet) -> None:
        site = self._state.sites.get(event.site)
        if event.rule != (site.rule if site is not None else ALWAYS):
            self._record(event)

    def _on_site_left(self, event: facts.SiteLeft) -> None:
        """A user's word is not taken back by the rule, and the rule's not said twice."""
        site = self._state.sites.get(event.site)
        if site is not None and site.away and not event.by_hand:
            return
        self._record(event)
        site = self._state.sites[event.site]
        for executor in site.executors:
            self._clear_if_away(ExecutorId(executor))
        self._effects.orders += [CancelPilot(pilot.id, site.name, event.grace) for pilot in site.pilots.values()]

    def _on_site_returned(self, event: facts.SiteReturned) -> None:
        site = self._state.sites.get(event.site)
        if site is None or not site.away:
            return
        keep = [KeepExecutor(ExecutorId(number)) for number, executor in site.executors.items() if executor.spans]
        self._record(event)
        self._effects.orders += keep

    def _on_site_defined(self, event: facts.SiteDefined) -> None:
        site = self._state.defined_sites.get(event.site)
        if site is None or site.spec != event.spec:
            self._record(event)

    def _on_site_removed(self, event: facts.SiteRemoved) -> None:
        if event.site in self._state.defined_sites:
            self._record(event)

    def _on_queue_defined(self, event: facts.QueueDefined) -> None:
        queue = self._state.named_queues.records.get(event.queue)
        if queue is None or not queue.is_defined or queue.spec != event.spec:
            self._record(event)

    def _on_queue_removed(self, event: facts.QueueRemoved) -> None:
        queue = self._state.named_queues.records.get(event.queue)
        if queue is not None and queue.is_defined:
            self._record(event)

    def _on_pilot(self, event: facts.PilotQueued | facts.PilotEnded) -> None:
        """Pilots that are forgotten, or were heard of already, are passed over."""
        pilot = self._state.pilots.get(event.pilot)
        if pilot is None or (type(event) is facts.PilotQueued and pilot.handle):
            return
        if isinstance(event, facts.PilotEnded):
            event = msgspec.structs.replace(event, usage=pilots.used_by(pilot, self._state.now))
        self._record(event)

    def _on_room(self, event: facts.SiteHadRoom) -> None:
        site = self._state.defined_sites.get(event.site)
        if site is not None and site.room != event.pilots:
            self._record(event)

    def _on_rested(self, number: int, _: int) -> None:
        self._state.pilots_due = True

    def _on_replicas_due(self, number: int, _: int) -> None:
        self._state.replicas_due = True

    def _clear_if_away(self, number: ExecutorId) -> None:
        executor = self._state.executors[number]
        if executor.away:
            reason = sites.why_given_back(self._state.sites[executor.site])
            self._effects.orders.append(
                ClearExecutor(number, sites.grace_left(self._state, executor), shortened(reason))
            )

    def _take_back(self, executor: ExecutorRecord, now: Seconds) -> None:
        """An executor whose site left has had its time: what it has not given back is taken."""
        site = self._state.sites[executor.site]
        if not site.away or now < site.deadline + sites.PATIENCE:
            return
        failure = Failure(Cause.GIVEN_BACK, shortened(sites.why_given_back(site)))
        front = set(executor.front())
        for span in list(executor.spans.values()):
            self._take_span_back(span, failure, in_front=span in front)

    def _take_span_back(self, span: Span, failure: Failure, *, in_front: bool) -> None:
        """End a span where it is; what probably ran there has lost an attempt, the rest comes back unstarted."""
        parts = [(low, high) for low, high in span.left]
        for low, high in parts:
            self._effects.orders.append(StopSpan(span.executor.id, span.id, low, high))
        for index in _probably_running(span, in_front=in_front):
            self._fail(span, news.WorkFailed(span.id, index, failure))
        for low, high in parts if span.id in self._state.spans else []:
            self._return(span, low, high)

    # --- what running tasks say of themselves ----------------------------------------------------

    def _on_take_lock(self, event: news.TakeLock) -> None:
        span = self._state.spans.get(event.span)
        if span is not None and self._state.locks.may_take(event.name, span, event.index):
            self._record(facts.LockTaken(event.name, event.span, event.index, RecordId(span.record.id)))

    def _on_free_lock(self, event: news.FreeLock) -> None:
        if self._state.locks.may_free(event.name, event.span, event.index):
            record = self._state.spans[event.span].record
            self._record(facts.LockFreed(event.name, event.span, event.index, RecordId(record.id)))

    def _on_group_released(self, event: facts.GroupReleased) -> None:
        group = self._state.groups.get(event.group)
        if group is not None and group.parent is not None and not (group.released or group.finished):
            self._record(event)

    def _on_alive(self, event: news.TaskAlive) -> None:
        """Where no sign of life is waited for, or one has just come, it need not be written down."""
        span = self._state.spans.get(event.span)
        if span is not None and self._state.now - span.heard > span.record.spec.limits.resend_after / 10 > 0:
            self._record(facts.SpanAlive(event.span, RecordId(span.record.id)))

    # --- news from clients and the shell ---------------------------------------------------------

    def _on_submitted(self, event: facts.Submitted) -> None:
        problem = validation.check_submission(self._state, event)
        if problem:
            self._effects.orders.append(Refuse(event.request, problem))
            return
        self._record(submission.declare(self._state, event))
        if self._state.stopping or self._state.failing:
            self._refuse_to_start([item.id for item in event.items if not isinstance(item, GroupSpec)])

    def _refuse_to_start(self, new: Iterable[RecordId]) -> None:
        """Once nothing more of a workflow is started, what still comes in is recorded as not run."""
        state = self._state
        closing = Failure(Cause.CLOSED, "the session was closing") if state.stopping else None
        for record in [state.records[id_] for id_ in new]:
            failure = record.group.workflow.first_failure or closing
            if failure is not None:
                self._skip_pending(failure, [record])

    def _on_pages(self, event: news.PagesAdded) -> None:
        problem = validation.check_pages(self._state, event)
        if problem:
            self._effects.orders.append(Refuse(event.request, problem))
            return
        self._record(event)
        if self._state.stopping or self._state.failing:
            self._refuse_to_start([event.record])

    def _on_group_closed(self, event: news.GroupClosed) -> None:
        group = self._state.groups.get(event.group)
        if group is not None and not group.closed:
            self._record(event)

    def _on_removed(self, event: facts.RunRemoved) -> None:
        """One that is not here was retired; the server has looked whether there is such a run."""
        workflow = self._state.workflows.get(event.run)
        if workflow is None or (workflow.group.id != ROOT and workflow.group.finished):
            self._record(event)

    def _on_retired(self, event: facts.RunRetired) -> None:
        if retirement.may_retire(self._state, event.run):
            self._record(event)

    def _on_revived(self, event: facts.RunRevived) -> None:
        if event.run not in self._state.workflows:
            self._record(event)

    def _on_looked_up(self, event: facts.MemoLookedUp) -> None:
        if self._awaited(event):
            self._record(event)

    def _on_recalled(self, event: Recalled) -> None:
        """What was seen comes before the end, as of tasks that run; no rule is asked in between."""
        for start, stop in self._awaited(event.found):
            for seen in event.seen:
                if seen.record == event.found.record and start <= seen.index < stop:
                    self._record(seen)
        self._on_looked_up(event.found)

    def _awaited(self, found: facts.MemoLookedUp) -> list[list[int]]:
        """The elements that wait for a lookup's answer."""
        record = self._state.records.get(found.record)
        if record is None or not (record.awaits_memo or record.is_array) or (record.is_array and record.waits):
            return []
        return record.runs(bytes((WAITING,)), found.start, found.stop)

    # --- actions that people ask for -------------------------------------------------------------

    def _on_cancel(self, action: news.Cancel) -> None:
        self._record(facts.Cancelled(action.target, action.stop))

    def _on_kill(self, action: news.Kill) -> None:
        if task_actions.touched(self._state, action):
            self._record(facts.Killed(action.target, action.stop, action.message))

    def _on_hold(self, action: news.Hold) -> None:
        if task_actions.is_lawful(self._state, action):
            self._record(facts.Held(action.target, action.stop, action.disabled))

    def _on_release(self, action: news.Release) -> None:
        if task_actions.is_lawful(self._state, action):
            self._record(facts.Released(action.target, action.stop, action.enabled))

    def _on_retry(self, action: news.Retry) -> None:
        if task_actions.touched(self._state, action):
            self._record(facts.Retried(action.target, action.stop))

    def _on_prioritise(self, action: news.Prioritise) -> None:
        self._record(facts.Prioritised(action.target, action.priority))

    def _on_add_monitors(self, action: news.AddMonitors) -> None:
        if watching.is_lawful(self._state, action):
            self._record(facts.MonitorsAdded(action.target, action.plan, action.stop))

    def _on_end_early(self, action: news.EndEarly) -> None:
        if watching.reach(self._state, action)[0]:
            self._record(facts.EndAsked(action.target, action.verdict, action.monitor, action.reason, action.stop))

    def _on_set_rule(self, action: news.SetRule) -> None:
        if populations.is_lawful(self._state, action):
            self._record(facts.RuleSet(action.target, action.rule, paged=action.rule is not None))

    def _on_members_recalled(self, event: facts.MembersRecalled) -> None:
        """What was reused before a rule is told before it is set, in pages."""
        if populations.is_lawful(self._state, news.SetRule(event.target, event.rule)):
            self._record(event)

    def _on_reset(self, action: news.Reset) -> None:
        parts, _ = reset.reach(self._state, action)
        if parts:
            self._record(facts.WasReset(action.target, action.stop, action.cascade, parts))

    def _on_amend(self, change: news.Amend) -> None:
        """What stays and had not succeeded is tried again, as if all were submitted anew; then comes the difference."""
        if amend.why_not(self._state, change.run) is not None:
            return
        for record in amend.unsuccessful(self._state, change.run, set(change.removed)):
            if record.runs(UNSUCCESSFUL_STATES, 0, record.length):
                self._record(facts.Retried(Dep(On.TASK, record.id)))
        self._record_skipped()
        fact = facts.Amended(change.run, change.added, change.changed, change.removed, change.removed_groups)
        if fact.added or fact.changed or fact.removed or fact.removed_groups:
            parts = amend.amend(self._state, self._effects, fact)
            self._facts.append(msgspec.structs.replace(fact, parts=parts))

    def _on_declare_done(self, action: news.DeclareDone) -> None:
        """What ended without success is revived first, and with it what was skipped because of it."""
        parts, _ = task_actions.reach(self._state, action)
        for record, start, stop in parts:
            if record.runs(UNSUCCESSFUL_STATES, start, stop):
                self._record(facts.Retried(Dep(On.TASK, record.id, start), stop))
        for record, start, stop in parts:
            for low, high in record.runs(PENDING_STATES, start, stop):
                done = task_actions.success(record, low, high)
                key = key_of(self._state, record, low) if task_actions.kind_of(record) is Kind.COMMAND else done.key
                self._record(msgspec.structs.replace(done, key=key))

    def _on_take(self, event: news.TakeTask) -> None:
        taken, answer = manual.take(self._state, event)
        for fact in taken:
            self._record(fact)
        self._effects.orders.append(answer)

    # --- what is due by the clock -----------------------------------------------------------------

    def _wake(self, now: Seconds) -> None:
        while (timer := self._state.due_timer(now)) is not None:
            _, kind, number, index = timer
            self._due[kind](number, index)

    def _on_retry_due(self, number: int, index: int) -> None:
        record = self._state.records.get(number)
        if record is None or record.state_of(index) != WAITING:
            return
        failure = record.failure_of(index)
        if record.failures_of(index) != (0, 0) or (failure is not None and failure.cause is Cause.NO_SPACE):
            self._record(facts.RetryDue(RecordId(number), index))

    def _on_group_limit(self, number: int, _: int) -> None:
        if number in self._state.groups:
            self._expire(self._state.groups[number])

    def _on_suspension_over(self, number: int, _: int) -> None:
        executor = self._state.executors.get(number)
        if executor is not None and 0 < executor.suspended <= self._state.now:
            self._record(facts.ExecutorResumed(ExecutorId(number)))

    def _on_silence(self, number: int, _: int) -> None:
        if number in self._state.spans:
            self._resend_if_silent(self._state.spans[number], self._state.now)

    def _on_clearance(self, number: int, _: int) -> None:
        if number in self._state.executors:
            self._take_back(self._state.executors[number], self._state.now)

    def _resend_if_silent(self, span: Span, now: Seconds) -> None:
        """Send a span again of which nothing was heard for too long; what it still does there is ended."""
        patience = span.record.spec.limits.resend_after
        if now < span.heard + patience:
            self._state.set_timer(span.heard + patience, TimerKind.SILENCE, span.id)
            return
        failure = Failure(Cause.LOST, shortened(f"no word of it from {span.executor.host} for {patience:g} s"))
        self._take_span_back(span, failure, in_front=True)

    def _expire(self, group: GroupRecord) -> None:
        """The time limit of a group is over: what runs in it is ended, the rest is not started."""
        if group.finished or not group.deadline or self._state.now < group.deadline:
            return
        message = shortened(f"the time limit of group {group.path}, {group.timeout:g} s, has passed")
        self._record(facts.Killed(Dep(On.GROUP, group.id), message=message))
        failure = Failure(Cause.KILLED, message)
        self._effects.skipped += [
            (one, 0, one.length, failure) for one in group.records() if not dependencies.is_final(one)
        ]
        self._record_skipped()

    # --- facts and what follows from them --------------------------------------------------------

    def _record(self, fact: Fact) -> None:
        """Make something a fact: note it and apply it."""
        self._facts.append(fact)
        APPLY[type(fact)](self._state, self._effects, fact)

    def _record_skipped(self) -> None:
        """Record, one after the other, what will never run because of what was just applied."""
        skipped = self._effects.skipped
        while skipped:
            record, start, stop, failure = skipped.pop()
            for low, high in record.runs(PENDING_STATES, start, min(stop, record.length)):
                self._record(facts.Skipped(RecordId(record.id), low, high, failure))

    def _skip_pending(self, failure: Failure, records: Iterable[Record]) -> None:
        """What has not started of these will not: the workflow stops at its first failure, or the session closes."""
        for record in records:
            if dependencies.is_final(record):
                continue  # what it waits for has ended, or will
            for start, stop in record.runs(PENDING_STATES, 0, record.length):
                self._record(facts.Skipped(RecordId(record.id), start, stop, failure))
        self._effects.skipped.clear()

    def _follow_up(self) -> None:
        """Record what follows from what was just applied."""
        self._record_skipped()
        while self._effects.groups_to_retry:
            self._try_again(self._effects.groups_to_retry.pop())
        while self._effects.populations:
            occasions, self._effects.populations = self._effects.populations, []
            for occasion in occasions:
                populations.ask(self._state, self._random, occasion, self._record)
            self._record_skipped()

    def _try_again(self, group: GroupRecord) -> None:
        """A whole group is tried again, because the user allowed so many retries of it."""
        if not group.finished and not group.unfinished:
            self._record(facts.Retried(Dep(On.GROUP, group.id), automatic=True))

    def _suspend(self) -> None:
        """Give a rest to executors on which much failed that worked elsewhere; a longer one each time."""
        state = self._state
        for executor in self._effects.to_suspend:
            if executor.id in state.executors and not executor.suspended:
                until = state.now + rest_after(executor.suspensions)
                self._record(facts.ExecutorSuspended(executor.id, until, describe_trouble(executor.trouble)))


def verdict(state: State, span: Span, index: int, failure: Failure) -> tuple[Failure, Seconds]:
    """The failure as it shall be recorded, and when the next attempt may start (`NEVER`: not at all)."""
    record, now = span.record, state.now
    failures, losses = record.failures_of(index)
    limits = record.spec.limits
    if failure.cause is Cause.GIVEN_BACK or (failure.cause is Cause.NO_SPACE and not failure.site):
        waits = failure.cause is Cause.NO_SPACE and not _is_another_open(state, span)
        return failure, latest(now + wait_for_space(span.attempt)) if waits else now
    if failure.site:
        if _can_go_elsewhere(state, span, index):
            return failure, now
        failure = msgspec.structs.replace(failure, site=False)  # wherever it could go it failed: it is the task's fault
    if failure.cause is Cause.LOST:
        if losses + 1 < limits.losses:
            return failure, now
        died = counted(losses + 1, "executor or worker", "executors or workers")
        message = shortened(f"{died} died while running it: {failure.message}")
        return msgspec.structs.replace(failure, message=message), NEVER
    if failure.cause is Cause.INPUT_LOST:
        if state.remakes.awaited(dependencies.direct(record, index)) or losses + 1 < limits.losses:
            return failure, now
        message = shortened(f"{failure.message}; it was in vain {counted(losses + 1, 'time')}")
        return msgspec.structs.replace(failure, message=message), NEVER
    if span.attempt <= failure.restarts:
        return failure, now  # a monitor wants it so, and no retry is used up
    if failures >= limits.retries or failure.cause in _IN_VAIN:
        return failure, NEVER
    return failure, latest(now + limits.backoff * 2 ** min(failures, _MOST_DOUBLED))


def _is_another_open(state: State, span: Span) -> bool:
    """Whether another executor gets work and could run it."""
    others = (one for one in state.executors.values() if one is not span.executor and one.is_open())
    return any(state.named_queues.could_fit(executor, span.record.needs) for executor in others)


def _can_go_elsewhere(state: State, span: Span, index: int) -> bool:
    """Whether there is an executor that could run it and on which it has not failed yet."""
    record = span.record
    tried = {span.executor.id, *(record.avoid if isinstance(record, TaskRecord) else record.avoided.get(index, ()))}
    others = (
        executor
        for executor in state.executors.values()
        if executor.id not in tried and not (executor.draining or executor.away)
    )
    return any(state.named_queues.could_fit(executor, record.needs) for executor in others)


def _completed(state: State, span: Span, record: Record, event: news.WorkSucceeded) -> facts.SpanEnded:
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
        remaking.same_as(state, record.id, event) if state.remakes.under_way and not state.attempts.several else 0,
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


def _part(event: news.WorkSucceeded, start: int, stop: int) -> news.WorkSucceeded:
    """The part of a success that concerns the elements [start, stop)."""
    if (start, stop) == (event.start, event.stop):
        return event
    results = event.results
    if isinstance(results, bytes):
        results = cut(results, start - event.start, stop - start)
    seconds = event.seconds * (stop - start) / (event.stop - event.start)
    details = tuple(detail for detail in event.details if start <= detail.index < stop)
    return news.WorkSucceeded(event.span, start, stop, seconds, results, details, event.host)
