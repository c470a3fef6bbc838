"""The read-only questions about the core's state.

The server asks them between two turns. Questions about one task also look into the copies of retired workflows that
`look_at` was given; all others look at the core alone. Rule: no question changes the state, and a question that is
asked for every message is one lookup.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence

from bough.core import explain, populations, retirement
from bough.core.actions import amend, difference, dry_run, task_actions, watching
from bough.core.actions.difference import Difference
from bough.core.graph.dependencies import direct, is_final, label_of
from bough.core.graph.readiness import unanswered
from bough.core.machine import Machine
from bough.core.pilots.pilots import why_none
from bough.core.queries.answers import (
    Attempt,
    Contents,
    ExecutorCounts,
    ExecutorInfo,
    GroupInfo,
    GroupTry,
    Holder,
    Part,
    PilotInfo,
    Preview,
    QueueInfo,
    RetiredCopy,
    SeenNow,
    SiteInfo,
    TaskCounts,
    TaskInfo,
    UsageInfo,
    WorkflowInfo,
    as_attempt,
    as_executor,
    as_group,
    as_pilot,
    as_queue,
    as_record,
    as_seen,
    as_site,
    as_usage,
    as_workflow,
    combined_state,
    count_tasks,
    covers,
    groups_below,
    subtree_of,
)
from bough.core.records.array_record import OCCUPYING_STATES, OPEN_STATES, ArrayRecord, Record
from bough.core.records.executor_record import is_manual
from bough.core.records.group_record import GroupRecord, Workflow
from bough.core.records.indexes.replicas import Waste
from bough.core.records.indexes.unsaved_outputs import may_write_later, unsaved_in
from bough.core.records.pilot_record import Usage
from bough.core.records.site_record import usage_at
from bough.core.records.task_record import TaskRecord
from bough.core.state import State, TimerKind
from bough.model.arrays import ranges
from bough.model.events.facts import Cancelled, Killed, SpanEnded
from bough.model.events.news import Action, CallsEnded, WorkNews
from bough.model.events.orders import EndSpan, LookUpMemo, WatchSpan
from bough.model.ids import NUMBERS, ROOT, ExecutorId, FileId, GroupId, RecordId, Seconds, SpanId, number_of
from bough.model.outcomes import Cause, Failure, Success
from bough.model.sites.availability import ALWAYS
from bough.model.sites.resources import Needs
from bough.model.sites.site_specs import PilotId
from bough.model.states import UNSUCCESSFUL, TaskState, as_bytes
from bough.model.tasks import NODE_ATTRIBUTE, ArraySpec, Dep, GroupSpec, Item, Kind, On, Page, TaskSpec

_UNSUCCESSFUL = as_bytes(UNSUCCESSFUL)
_NOT_CANCELLED = as_bytes(UNSUCCESSFUL - {TaskState.CANCELLED})
_CANCELLED = Failure(Cause.CANCELLED, "cancelled by a user")
_UNKNOWN = Failure(Cause.LOST, "why it failed is not known any more")


class Queries:
    """See the module."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._state = machine.state
        self._copies: list[RetiredCopy] = []

    # --- the whole ---------------------------------------------------------------------------------

    @property
    def turn(self) -> int:
        """The number of the last turn that changed something."""
        return self._state.turn

    @property
    def record_count(self) -> int:
        """How many tasks and arrays there are."""
        return len(self._state.records)

    @property
    def workflow_count(self) -> int:
        """How many workflows there are, without the run of the server itself."""
        return len(self._state.workflows) - 1

    @property
    def has_ready(self) -> bool:
        """Whether something may be ready."""
        return bool(self._state.waiting)

    def has_record(self, record: int) -> bool:
        """Whether there is such a task or array."""
        return record in self._state.records

    def has_run(self, run: int) -> bool:
        """Whether there is such a workflow."""
        return run in self._state.workflows

    def has_executor(self, executor: int) -> bool:
        """Whether there is such an executor."""
        return executor in self._state.executors

    # --- one task ----------------------------------------------------------------------------------

    def can_find(self, record: int) -> bool:
        """Whether questions about a task or array can be answered: it is here, or in a copy that is looked at."""
        return self._find(record) is not None

    def length_of(self, record: int) -> int | None:
        """How many tasks a record has; None: it is not known."""
        found = self._find(record)
        return found.length if found is not None else None

    def run_of(self, record: int) -> int:
        """The run that a record belongs to; KeyError when there is no such record."""
        return self._state.records[record].group.workflow.run

    def find_run(self, record: int) -> int | None:
        """As `run_of`, also of a record in a copy that is looked at; None: it is not known."""
        found = self._find(record)
        return found.group.workflow.run if found is not None else None

    def find_workflow(self, record: int) -> WorkflowInfo | None:
        """The workflow of a record, also of one in a copy that is looked at; None: it is not known."""
        found = self._find(record)
        return as_workflow(found.group.workflow) if found is not None else None

    def group_of(self, record: int) -> GroupInfo | None:
        """The group that a record is in."""
        found = self._state.records.get(record)
        return as_group(found.group) if found is not None else None

    def spec_of(self, record: int) -> TaskSpec | ArraySpec:
        """As it was submitted; KeyError when there is no such record."""
        return self._there(record).spec

    def pages_of(self, record: int, index: int) -> tuple[Page, ...]:
        """The pages with the arguments of an element of an array."""
        found = self._find(record)
        return found.pages(index, index + 1) if isinstance(found, ArrayRecord) else ()

    def label(self, record: int, index: int) -> str:
        """A task's id as people write it."""
        found = self._find(record)
        return label_of(found, index) if found is not None else f"{number_of(record)}.{index}"

    def path_of(self, record: int) -> str | None:
        """The path of a task: that of its group, and its name."""
        found = self._state.records.get(record)
        return difference.path_of(found) if found is not None else None

    def task(self, record: int, index: int) -> TaskInfo:
        """All that is known of one task; KeyError when there is no such record."""
        found = self._there(record)
        group = found.group
        return TaskInfo(
            label_of(found, index),
            RecordId(found.id),
            index,
            found.is_array,
            found.spec,
            GroupId(group.id),
            group.path,
            group.workflow.name,
            group.workflow.run,
            TaskState(found.state_of(index)),
            found.attempt if isinstance(found, TaskRecord) else found.attempts.get(index, 0),
            found.needs,
            found.priority,
            found.expected,
            found.attributes,
        )

    def state_of(self, record: int, index: int) -> TaskState | None:
        """The state of one task; None: it is not known."""
        found = self._find(record)
        return TaskState(found.state_of(index)) if found is not None else None

    def explain(self, record: int, index: int) -> list[str]:
        """Why a task is not running, or how it ended; one line a reason."""
        return explain.explain(self._state_with(record), record, index)

    def results_of(self, dep: Dep) -> list[Success]:
        """The successes that a dependency points at, in order of their elements; KeyError: no such record."""
        record = self._state.records.get(dep.id) or self._there(dep.id)
        if dep.on is not On.TASK:
            return list(record.successes())
        found = record.success_of(dep.index)
        return [found] if found is not None else []

    def results_wanted(self, record: int) -> bool:
        """Whether results may be asked for soon: those of a feed only if a task waits for them."""
        found = self._state.records.get(record)
        if not isinstance(found, ArrayRecord) or not found.spec.fed:
            return True
        return bool(found.dependents or found.element_dependents)

    def outcomes(self, record: int, first: int) -> Iterator[Success | tuple[int, Failure]]:
        """How elements from `first` on ended: all successes, then each element that did not succeed, and why.

        The iterator may be read while turns are made: an element that is retried meanwhile may be told as failed.
        """
        found = self._find(record)
        if found is None:
            return
        yield from [success for success in found.successes() if success.stop > first]
        for low, high in found.runs(_UNSUCCESSFUL, first, found.length):
            for index in range(low, high):
                failure = found.failure_of(index)
                if failure is None:
                    failure = _CANCELLED if found.state_of(index) == TaskState.CANCELLED else _UNKNOWN
                yield index, failure

    def ended_by(self, action: Cancelled | Killed) -> list[tuple[RecordId, int, int, Failure]]:
        """The elements that an action ended, after its turn; maybe also some that an earlier one had ended."""
        killed = isinstance(action, Killed)
        wanted = bytes((TaskState.FAILED if killed else TaskState.CANCELLED,))
        ended: list[tuple[RecordId, int, int, Failure]] = []
        for record, start, stop in task_actions.targets(self._state, action.target, action.stop):
            number = RecordId(record.id)
            for low, high in record.runs(wanted, start, stop):
                if not killed:
                    ended.append((number, low, high, _CANCELLED))
                    continue
                for index in range(low, high):
                    failure = record.failure_of(index)
                    if failure is not None and failure.cause is Cause.KILLED:
                        ended.append((number, index, index + 1, failure))
        return ended

    def open_lookups(self) -> list[LookUpMemo]:
        """Memo lookups that a server before this one was to answer, and did not."""
        return list(unanswered(self._state))

    def reused_parts(self, target: Dep) -> list[tuple[RecordId, int, int]]:
        """The tasks of an array or a group that were reused from earlier runs."""
        return populations.reused_parts(self._state, target)

    # --- attempts ----------------------------------------------------------------------------------

    def attempt(self, span: int) -> Attempt | None:
        """A span that an executor has; None: nothing is left of it."""
        found = self._state.spans.get(span)
        return as_attempt(found) if found is not None else None

    def attempt_of(self, executor: int, span: int, index: int) -> Attempt | None:
        """The span by which an executor has an element, also a late one; None: it is not wanted from there."""
        found, is_late = self._state.spans.get(span), False
        if found is None:
            found, is_late = self._state.attempts.late.get(span), True
        if found is None or found.executor.id != executor or not covers(found.left, index):
            return None
        return as_attempt(found, is_late=is_late)

    def attempt_at(self, record: int, index: int, attempt: int = 0) -> Attempt | None:
        """The span by which an executor has an element; None: no executor has it.

        Of several that run at the same time that with the number, or the oldest.
        """
        known = self._state.records.get(record)
        found = self._state.attempts.of(known, index, index + 1) if known is not None else []
        if not found:
            return None
        return as_attempt(next((span for span in found if span.attempt == attempt), found[0]))

    def seen(self) -> Iterator[SeenNow]:
        """What was seen of tasks that executors have."""
        for record, elements in self._state.watch.seen.by_record.items():
            known = self._state.records[record]
            for index, seen in elements.items():
                if known.state_of(index) in OCCUPYING_STATES:
                    yield as_seen(record, index, seen)

    def attempts(self) -> list[Attempt]:
        """All spans that executors have; for a server that begins."""
        return [as_attempt(span) for span in self._state.spans.values()]

    def replicated(self) -> list[tuple[RecordId, int]]:
        """The tasks, as record and index, that have more than one attempt, or had when one of these was sent."""
        return [(RecordId(span.record.id), span.start) for span in self._state.attempts.replicas.values()]

    @property
    def uses_caches(self) -> bool:
        """Whether the policies let executors reuse what their hosts hold; some for comparison do not."""
        policies = self._state.policies
        return all(getattr(one, "uses_caches", True) for one in (policies.placement, policies.replication))

    def waste(self) -> Waste:
        """What replicas have cost so far."""
        return self._state.replicas.waste

    def expected_left(self, span: int) -> Seconds | None:
        """How long the rest of a span is expected to run, 0: unknown; None: nothing is left of it."""
        found = self._state.spans.get(span)
        if found is None:
            return None
        record = found.record
        each = max(record.spec.limits.walltime, record.runtime.mean)
        return each * sum(high - low for low, high in found.left)

    def spans_on(self, executor: int) -> list[SpanId]:
        """The spans that an executor is believed to have."""
        known = self._state.executors.get(ExecutorId(executor))
        return [span.id for span in known.spans.values()] if known is not None else []

    def attempts_on(self, executor: int) -> list[Attempt]:
        """As `spans_on`, with what is in them; those of which nothing is left are left out."""
        known = self._state.executors.get(ExecutorId(executor))
        return [as_attempt(span) for span in known.spans.values() if span.left] if known is not None else []

    def orders_again(self, span: int) -> list[WatchSpan | EndSpan]:
        """What an executor that is back may not have heard of a span."""
        found = self._state.spans.get(span)
        return list(watching.orders_again(self._state, found)) if found is not None else []

    def is_wanted(self, span: int, executor: int) -> bool:
        """Whether what an executor has of a span may still be of use."""
        held = self._state.spans.get(span) or self._state.attempts.late.get(span)
        return held is not None and held.executor.id == executor

    def is_foreign(self, news: WorkNews, executor: int) -> bool:
        """Whether news is about a span of another executor: an executor may speak of its own tasks only."""
        spans, late = self._state.spans, self._state.attempts.late
        numbers: Iterable[int] = (news.span,)
        if type(news) is CallsEnded:
            numbers = range(news.span + news.start, news.span + news.start + len(news.seconds))
        for number in numbers:
            held = spans.get(number) or late.get(number)
            if held is not None and held.executor.id != executor:
                return True
        return False

    def lock_owner(self, name: str) -> tuple[int, int] | None:
        """The span and the index of the task that has a lock; None: it is not locked."""
        owner = self._state.locks.get(name)
        return (owner.span, owner.index) if owner is not None else None

    # --- groups and workflows ----------------------------------------------------------------------

    def counts(self, groups: Iterable[int] | None = None) -> TaskCounts:
        """The tasks of some groups and of all groups in them, by state; without `groups`: all tasks."""
        known = self._state.groups
        if groups is None:
            return count_tasks(known.values())
        tops = [known[GroupId(group)] for group in groups if group in known]
        return count_tasks(one for top in tops for one in subtree_of(top))

    def is_quiet(self) -> bool:
        """Whether no task is unfinished. Only where none is ready or with an executor all groups are looked at."""
        state = self._state
        return not (state.spans or any(state.demand) or state.unsaved) and not self.counts().unfinished

    def how_to_start(self, groups: Iterable[int]) -> str:
        """What lets tasks of these groups start that are held: a group that is disabled must be enabled."""
        tops = [self._state.groups[GroupId(group)] for group in groups if group in self._state.groups]
        inside = (one for top in tops for one in (*top.chain(), *subtree_of(top)))
        disabled = next((one for one in inside if one.disabled), None)
        if disabled is None:
            return "release them with bough release"
        return f"the group {disabled.path or 'of all'} is disabled: bough enable {disabled.path or 'all'}"

    def node_counts(self, run: int) -> TaskCounts:
        """The tasks of a workflow by state; a group that stands for one node of a DAG counts as one."""
        totals = [0] * len(TaskState)
        found = self._state.workflows.get(run)
        stack = [found.group] if found is not None else []
        while stack:
            group = stack.pop()
            if any(key == NODE_ATTRIBUTE for key, _ in group.attributes):
                totals[combined_state(count_tasks(subtree_of(group)))] += 1
                continue
            for state, count in enumerate(group.counts):
                totals[state] += count
            stack += group.children
        return TaskCounts(tuple(totals))

    def cancellable(self, run: int, names: Container[str] | None) -> list[int]:
        """The tasks and arrays of a workflow that have not ended, and are not final; `names`: only these."""
        found = self._state.workflows.get(run)
        return [
            record.id
            for record in (found.group.records() if found is not None else ())
            if (names is None or record.spec.name in names)
            and not is_final(record)
            and record.runs(OPEN_STATES, 0, record.length)
        ]

    def counts_by_group(self) -> dict[GroupId, TaskCounts]:
        """The tasks of every group by itself."""
        return {GroupId(group.id): TaskCounts(tuple(group.counts)) for group in self._state.groups.values()}

    def runs(self) -> list[int]:
        """The runs there are: those of workflows, and the server's own."""
        return list(self._state.workflows)

    def workflows(self, *, and_own: bool = False) -> list[WorkflowInfo]:
        """The workflows that a service holds; `and_own`: the run of the service itself, too."""
        return [as_workflow(one) for one in self._state.workflows.values() if and_own or one.group.id != ROOT]

    def workflow(self, run: int) -> WorkflowInfo | None:
        """The workflow of a run."""
        found = self._state.workflows.get(run)
        return as_workflow(found) if found is not None else None

    def numbered(self, number: int, name: str = "") -> list[TaskInfo]:
        """The tasks and arrays of a number, in every workflow or in those of a name."""
        found: list[TaskInfo] = []
        for workflow in self._state.workflows.values():
            for base in (workflow.base,) if workflow.base else (0, workflow.run * NUMBERS):
                record = self._state.records.get(base + number)
                if record is not None and record.group.workflow is workflow and name in {"", workflow.name}:
                    found.append(self.task(record.id, 0))
        return found

    def is_fed(self, run: int) -> bool:
        """Whether an array of a workflow takes more tasks."""
        records = self._state.workflows[run].group.records()
        return any(isinstance(record, ArrayRecord) and record.open for record in records)

    def last_record(self, run: int) -> int:
        """The record of a workflow with the highest number, 0 if it has none: all of its records are looked at."""
        records = self._state.workflows[run].group.records()
        return max((record.id for record in records), key=number_of, default=0)

    def workflows_named(self, text: str) -> list[WorkflowInfo]:
        """The workflows of a name, or the one whose group has it, such as name#7."""
        return [
            as_workflow(one)
            for one in self._state.workflows.values()
            if one.group.id != ROOT and text in {one.name, one.group.name}
        ]

    def running_workflow(self, name: str) -> WorkflowInfo | None:
        """The workflow of a name whose end is not recorded."""
        for one in self._state.workflows.values():
            if one.name == name and one.group.id != ROOT and not one.closed:
                return as_workflow(one)
        return None

    def group(self, group: int) -> GroupInfo | None:
        """A group."""
        found = self._state.groups.get(GroupId(group))
        return as_group(found) if found is not None else None

    def subtree(self, group: int) -> list[GroupInfo]:
        """A group and all groups in it, groups below before groups above."""
        found = self._state.groups.get(GroupId(group))
        return [as_group(one) for one in reversed(list(subtree_of(found)))] if found is not None else []

    def records_of(self, run: int) -> list[int]:
        """The numbers of all tasks and arrays of a workflow."""
        found = self._state.workflows.get(run)
        return [record.id for record in found.group.records()] if found is not None else []

    def contents(self, group: int) -> Contents | None:
        """What there is in a group, for a client that returns; None: there is no such group."""
        top = self._state.groups.get(GroupId(group))
        if top is None:
            return None
        below = [as_group(one) for one in groups_below(top)]
        return Contents([as_record(record) for record in top.records()], below)

    def has_items(self, items: Iterable[Item]) -> bool:
        """Whether all of a submission is there: a client that reconnected says again what was not acknowledged."""
        for item in items:
            if isinstance(item, GroupSpec):
                group = self._state.groups.get(item.id)
                if group is None or group.name != item.name:
                    return False
            else:
                record = self._state.records.get(item.id)
                if record is None or record.spec.name != item.name or record.spec.body != item.body:
                    return False
        return True

    def has_pages(self, record: int, pages: Iterable[Page], *, last: bool) -> bool:
        """Whether an array has these pages already."""
        found = self._state.records.get(record)
        if not isinstance(found, ArrayRecord):
            return False
        return all(page.stop <= found.length for page in pages) and not (last and found.open)

    # --- retries of groups -------------------------------------------------------------------------

    def has_retrying_groups(self, record: int, source: int) -> bool:
        """Whether a group with retries is around a task, or around the one that is to blame for its failure."""
        return any(True for _ in self._retrying_groups(record, source))

    def retrying_group(self, record: int, source: int) -> GroupTry | None:
        """The innermost of these groups that may still be retried."""
        for group in self._retrying_groups(record, source):
            if self._has_retries(group):
                return GroupTry(GroupId(group.id), group.tried)
        return None

    def may_be_retried(self, that: GroupTry) -> bool:
        """Whether a group may be retried, and was not since."""
        group = self._state.groups.get(that.group)
        return group is not None and group.tried == that.tried and self._has_retries(group)

    def failed_parts(self, record: int, start: int, stop: int) -> list[Part]:
        """The elements of a range that failed or were skipped."""
        found = self._state.records.get(record)
        return [(low, high) for low, high in found.runs(_NOT_CANCELLED, start, stop)] if found is not None else []

    def _retrying_groups(self, record: int, source: int) -> Iterator[GroupRecord]:
        for number in (record, source):
            one = self._state.records.get(number)
            if one is not None:
                yield from (group for group in one.group.chain() if group.retries)

    def _has_retries(self, group: GroupRecord) -> bool:
        """While a group is open nobody knows when it ends: only closed ones are waited for."""
        return group.closed and not group.finished and group.tried < group.retries and not self._state.stopping

    # --- what stands still -------------------------------------------------------------------------

    def awaits_retry(self, run: int) -> bool:
        """Whether a task of a workflow failed and will be retried at a later time."""
        workflow = self._state.workflows.get(run)
        records = (
            self._state.records.get(record) for _, kind, record, _ in self._state.timers if kind is TimerKind.RETRY
        )
        return any(record is not None and record.group.workflow is workflow for record in records)

    def why_stuck(self, run: int) -> str:
        """Why nothing more of a workflow runs before a user acts; empty when something does, or all has ended.

        Open memo lookups are not considered: ask when nothing waits for a turn.
        """
        workflow = self._state.workflows.get(run)
        if workflow is None or workflow.closed or workflow.cores or self._can_place(workflow):
            return ""
        counts = count_tasks(subtree_of(workflow.group))
        if not counts.unfinished or counts.out or self.awaits_retry(run):
            return ""
        held = counts.by_state[TaskState.HELD]
        if held:
            return f"{held} of its tasks are held; {self.how_to_start([workflow.group.id])}"
        if counts.ready:
            if any(pilot.starting for pilot in self._state.pilots.values()):
                return ""  # executors are about to come
            if all(executor.draining for executor in self._state.executors.values()):
                return f"{counts.ready} of its tasks are ready and there is no executor"
            return f"{counts.ready} of its tasks are ready and no executor has what they need; see bough explain"
        waiting = counts.by_state[TaskState.WAITING]
        return f"{waiting} of its tasks wait for something that nothing runs; see bough explain"

    def _can_place(self, workflow: Workflow) -> bool:
        """Whether an executor could take something of a workflow that is ready."""
        able = [executor for executor in self._state.executors.values() if not executor.draining]
        queues = [queue for queue in self._state.roots_of(workflow) if queue.head() is not None]
        could_fit = self._state.named_queues.could_fit
        return any(could_fit(executor, queue.needs) for executor in able for queue in queues)

    def unplaceable(self) -> dict[Needs, int]:
        """Needs of ready tasks that no executor could ever meet, each with the record that goes next."""
        return self._state.demand.unplaceable(self._state.executors.values())

    def demand(self) -> dict[Needs, int]:
        """How many tasks are ready, by what they need."""
        return {shape.needs: shape.ready for shape in self._state.demand}

    # --- executors ---------------------------------------------------------------------------------

    def executor(self, number: int) -> ExecutorInfo | None:
        """An executor."""
        found = self._state.executors.get(ExecutorId(number))
        return as_executor(found) if found is not None else None

    def host_of(self, number: int) -> str:
        """The host of an executor; empty when it is not known any more."""
        found = self._state.executors.get(ExecutorId(number))
        return found.host if found is not None else ""

    def executors(self) -> list[ExecutorInfo]:
        """All executors."""
        return [as_executor(executor) for executor in self._state.executors.values()]

    def queues(self) -> list[QueueInfo]:
        """The named queues that are defined, and then others that hold something, the default queue among them."""
        records = self._state.named_queues.records.values()
        others = [record for record in records if not record.is_defined and (not record.name or record.shapes)]
        return [as_queue(record) for record in (*self._state.named_queues.defined(), *others)]

    def out_in_queues(self) -> dict[str, int]:
        """How many tasks are with executors, by named queue; all attempts are looked at."""
        found: dict[str, int] = {}
        for span in self._state.spans.values():
            name = span.queue.named.name
            found[name] = found.get(name, 0) + ranges.size(span.left)
        return found

    def sites(self) -> list[SiteInfo]:
        """All sites that have executors, a rule or a definition, or are away."""
        found = [as_site(site) for site in self._state.sites.values()]
        return [site for site in found if site.executors or site.is_away or site.spec or site.rule != ALWAYS]

    def checkpoint(self, record: int, index: int) -> bytes | None:
        """The digest of the checkpoint with which the next attempt of a task begins, if the server keeps one."""
        return self._state.checkpoints.get(record, {}).get(index)

    def checkpoints(self, record: int, start: int, stop: int) -> list[int]:
        """The elements of a range that have one."""
        return sorted(index for index in self._state.checkpoints.get(record, ()) if start <= index < stop)

    def missing_sites(self) -> dict[int, list[str]]:
        """The sites that ready tasks name and of which none is there, by the run of their workflow."""
        found: dict[int, set[str]] = {}
        for shape in self._state.demand:
            wanted = shape.needs.sites
            if wanted and not any(name in self._state.sites for name in wanted):
                for queue in shape.queues:
                    if queue.head() is not None:
                        found.setdefault(queue.workflow.run, set()).update(wanted)
        return {run: sorted(names) for run, names in found.items()}

    def site(self, name: str) -> SiteInfo | None:
        """A site, if there is something to know of it."""
        found = self._state.sites.get(name)
        return as_site(found) if found is not None else None

    def pilot(self, number: PilotId) -> PilotInfo | None:
        """A pilot that has not ended."""
        found = self._state.pilots.get(number)
        return as_pilot(found) if found is not None else None

    def site_usage(self, name: str, now: Seconds) -> UsageInfo | None:
        """The core-hours of a site; None: nothing is known of it."""
        found = self._state.sites.get(name)
        return as_usage(found, now) if found is not None else None

    def core_seconds(self, now: Seconds) -> dict[str, Usage]:
        """Core-seconds by site that has used some: in all, until executors got their first task, used, wasted."""
        found = {name: usage_at(site, now) for name, site in self._state.sites.items()}
        return {name: usage for name, usage in found.items() if usage[0]}

    def site_waits(self, name: str) -> list[Seconds]:
        """How long the last pilots of a site took to bring an executor."""
        found = self._state.defined_sites.get(name)
        return list(found.waits) if found is not None else []

    def why_no_pilot(self, name: str) -> str:
        """Why no pilot more is asked for at a site; empty: nothing is known to keep one from it."""
        found = self._state.defined_sites.get(name)
        return why_none(self._state, found) if found is not None else ""

    def is_away(self, site: str) -> bool:
        """Whether a site is away."""
        found = self._state.sites.get(site)
        return found is not None and found.away

    def executor_numbers(self) -> list[ExecutorId]:
        """The numbers of all executors."""
        return [executor.id for executor in self._state.executors.values()]

    def manual_executors(self) -> list[ExecutorId]:
        """The numbers of those that stand for a person."""
        return [executor.id for executor in self._state.executors.values() if is_manual(executor)]

    def takes_functions(self) -> bool:
        """Whether an executor that runs tasks by itself is there, and is not about to leave."""
        return any(not is_manual(one) and not one.draining for one in self._state.executors.values())

    def executor_counts(self, connected: Container[ExecutorId]) -> ExecutorCounts:
        """Executors by what they do; those that are not `connected` are missing."""
        idle = active = suspended = draining = missing = manual = 0
        cores = 0.0
        for executor in self._state.executors.values():
            if is_manual(executor):
                manual += 1
                continue
            cores += executor.capacity.cores
            if executor.id not in connected:
                missing += 1
            elif executor.draining:
                draining += 1
            elif executor.suspended:
                suspended += 1
            elif executor.spans:
                active += 1
            else:
                idle += 1
        return ExecutorCounts(idle, active, suspended, draining, missing, manual, cores)

    # --- what actions would do ---------------------------------------------------------------------

    def preview(self, action: Action) -> Preview:
        """What an action would change if it were done now."""
        return Preview(*dry_run.survey(self._state, action))

    def difference(self, run: int, items: Sequence[Item], directory: str) -> Difference | str:
        """What a description would change in a running workflow, or why it cannot be applied."""
        state = self._state
        problem = amend.why_not(state, run)
        if problem is not None:
            return problem
        workflow = state.workflows[run]
        if directory != workflow.directory:
            return (
                f"the workflow {workflow.name} is running in {workflow.directory}; submit it there to change it,"
                " or choose another name"
            )
        problem = difference.why_wrong(state, workflow, items)
        if problem is not None:
            return problem
        found = difference.find_difference(workflow, items)
        return difference.why_taken(state, found.news) or found

    def would_rerun(self, found: Difference) -> list[str]:
        """The paths of tasks that a difference does not name, but that have started and would run again."""
        return dry_run.run_again(self._state, self._state.workflows[found.news.run], found)

    def unsuccessful(self, run: int, removed: Collection[int]) -> set[int]:
        """The records of a workflow that have ended without success and are not among the removed ones."""
        return {record.id for record in amend.unsuccessful(self._state, run, set(removed))}

    # --- where data is ---------------------------------------------------------------------------------

    def holders_of(self, digest: bytes) -> list[Holder]:
        """The hosts whose caches hold a content, as far as is known, with their executors."""
        data = self._state.data
        content = data.contents.find(digest)
        if content < 0:
            return []
        found = [data.by_number[number] for number in data.holders(content)]
        return [Holder(host.site, host.host, tuple(host.executors)) for host in found if host is not None and host.host]

    def knows_store(self, site: str) -> bool:
        """Whether somebody has said all that the shared store of a site holds."""
        store = self._state.data.stores.get(site)
        return store is not None and store.is_listed

    def max_transfers(self, site: str) -> int:
        """Contents that go at a time between a site and another one, if its definition says so; 0: it does not."""
        found = self._state.sites.get(site)
        return found.spec.max_transfers if found is not None and found.spec is not None else 0

    def store_has(self, site: str, digest: bytes) -> bool:
        """Whether the shared store of a site holds a content, as far as is known."""
        data = self._state.data
        store, content = data.stores.get(site), data.contents.find(digest)
        return store is not None and content >= 0 and data.holds(content, store.number)

    def has_temporary(self, run: int) -> bool:
        """Whether some task of a workflow says that what it writes is temporary."""
        workflow = self._state.workflows.get(run)
        return workflow is not None and workflow.lives.has_temporary

    def inputs_that_may_go(self, record: int, start: int, stop: int) -> list[tuple[int, str]]:
        """The inputs of commands, by element and path, if some may not be in their places.

        These are temporary in their workflow, or on their way there.
        """
        found = self._state.records[record]
        workflow = found.group.workflow
        may_go = workflow.lives.has_temporary or (workflow.lives.has_later and self._state.unsaved)
        if not may_go or not found.declares_reads or found.spec.kind is not Kind.COMMAND:
            return []
        return [
            (index, path)
            for index in range(start, stop)
            for path in workflow.files.paths(found.files_of(index))  # type: ignore[arg-type]
        ]

    def reads_path(self, record: int, index: int, path: str) -> bool:
        """Whether a task declares that it reads a file, by its absolute path."""
        found = self._state.records[record]
        file = found.group.workflow.files.find(path)
        return file is not None and file.id in found.files_of(index)

    def content_size(self, digest: bytes) -> int:
        """The bytes of a content that some host holds or some file has; 0: it is not known."""
        table = self._state.data.contents
        content = table.find(digest)
        return table.sizes[content] if content >= 0 else 0

    def is_to_be_read(self, digest: bytes) -> bool:
        """Whether a file that somebody is still to read is known to have a content."""
        data, workflows = self._state.data, self._state.workflows
        content = data.contents.find(digest)
        files = data.files_of(content) if content >= 0 else []
        return any(run in workflows and workflows[run].lives.is_unread(file) for run, file in files)

    def is_made_again(self, record: int, index: int) -> bool:
        """Whether something that an element depends on runs again, because what it had made was lost."""
        found = self._state.records.get(record)
        return found is not None and self._state.remakes.awaited(direct(found, index)) is not None

    def may_write_later(self, record: int, start: int, stop: int) -> bool:
        """Whether the outputs of elements may be written back when these have succeeded; not if that went wrong."""
        found = self._state.records[record]
        again = self._state.remakes.by_record.get(record, ())
        return may_write_later(found) and not any(start <= index < stop for index in again)

    def unsaved_in(self, ended: SpanEnded) -> Collection[int]:
        """The elements among those that succeeded whose outputs were to be written back."""
        found = self._state.records.get(ended.record)
        return unsaved_in(found, ended) if found is not None else ()

    def is_unsaved(self, record: int, start: int, stop: int) -> bool:
        """Whether outputs of some of these elements are on their way."""
        return any(start <= index < stop for index in self._state.unsaved.by_record.get(record, ()))

    def unsaved_of(self, record: int) -> Collection[int]:
        """The elements of a record whose outputs are on their way."""
        return self._state.unsaved.by_record.get(record, ())

    def is_unsaved_with(self, executor: int, record: int, index: int, attempt: int) -> bool:
        """Whether the outputs of an element are to be written back by this attempt, on this executor."""
        return self._state.unsaved.is_with(executor, record, index, attempt)

    def count_unsaved(self, run: int) -> int:
        """The tasks of a workflow whose outputs are on their way."""
        records = self._state.records
        return sum(
            len(elements)
            for record, elements in self._state.unsaved.by_record.items()
            if records[record].group.workflow.run == run
        )

    def waiting_readers(self, digest: bytes) -> int:
        """About how many ready tasks read a content; 0 also where the policy does not look at data."""
        affinity, data = self._state.affinity, self._state.data
        content = data.contents.find(digest) if affinity is not None else -1
        return affinity.count_readers(content) if affinity is not None and content >= 0 else 0

    def file_content(self, run: int, file: int) -> tuple[bytes, int] | None:
        """The digest and the size of what a file of a workflow holds; None: nobody has read it."""
        table = self._state.data.contents
        content = self._state.data.content_of(run, file)
        return (table.digest(content), table.sizes[content]) if content >= 0 else None

    def file_number(self, run: int, path: str) -> int:
        """The number of a file that a workflow declares, by its absolute path; 0: it declares none such."""
        workflow = self._state.workflows.get(run)
        file = workflow.files.find(path) if workflow is not None else None
        return file.id if file is not None else 0

    def file_paths(self, run: int, files: Iterable[FileId]) -> list[str]:
        """The paths of some files that a workflow declares."""
        workflow = self._state.workflows.get(run)
        return workflow.files.paths(files) if workflow is not None else []

    # --- retired workflows -------------------------------------------------------------------------

    def may_retire(self, run: int) -> bool:
        """Whether a workflow has finished, so that it can leave the core."""
        return retirement.may_retire(self._state, run)

    def group_sizes(self, run: int) -> list[tuple[int, int]]:
        """How many records and how many tasks each group of a workflow has."""
        workflow = self._state.workflows[run]
        return [(len(group.members), sum(group.counts)) for group in subtree_of(workflow.group)]

    def retired_pieces(self, run: int) -> Iterator[bytes]:
        """A workflow that may retire as bytes, piece by piece; no turn may change it before the last piece."""
        return retirement.pieces(self._state, run)

    def pack_retired(self, pieces: list[bytes]) -> bytes:
        """The pieces of a workflow as one; this is what `RunRevived` carries."""
        return retirement.pack(pieces)

    def check_retired(self, data: bytes) -> None:
        """Raise ValueError when what was kept of a workflow cannot be read. Any thread may call it."""
        retirement.unpack(data)

    def read_retired(self, data: bytes) -> RetiredCopy:
        """What was kept of a workflow, to be looked at; ValueError: it cannot be read. Any thread may call it."""
        return RetiredCopy(retirement.aside(self._state, data))

    def look_at(self, copies: Iterable[RetiredCopy]) -> None:
        """Answer questions about single tasks also from these copies, and from no others."""
        self._copies = list(copies)

    def run_named_by(self, target: Dep) -> int | None:
        """The run of the group or the record that an action names; None: it is not in the core."""
        if target.is_group:
            group = self._state.groups.get(GroupId(target.id))
        else:
            record = self._state.records.get(target.id)
            group = record.group if record is not None else None
        return group.workflow.run if group is not None else None

    # --- finding -----------------------------------------------------------------------------------

    def _find(self, record: int) -> Record | None:
        return self._state.records.get(record) or self._state_with(record).records.get(record)

    def _there(self, record: int) -> Record:
        return self._state_with(record).records[record]

    def _state_with(self, record: int) -> State:
        if record not in self._state.records:
            for copy in self._copies:
                if record in copy.state.records:
                    return copy.state
        return self._state
