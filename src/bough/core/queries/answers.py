"""The frozen values that answer questions about the core, and how each is made of a record.

Rule: an answer holds numbers, texts, specs and other answers; it never holds a record, so a later turn does not change
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from bough.core.actions.difference import Difference
from bough.core.records.array_record import Record
from bough.core.records.attempts import Span
from bough.core.records.executor_record import MANUAL_SITE, ExecutorRecord, is_manual
from bough.core.records.group_record import GroupRecord, Workflow
from bough.core.records.pilot_record import PilotRecord
from bough.core.records.queue_record import QueueRecord
from bough.core.records.site_record import SiteRecord, usage_at
from bough.core.records.task_record import TaskRecord
from bough.core.records.task_series import Seen
from bough.core.state import State
from bough.model.arrays import ranges
from bough.model.ids import ROOT, ExecutorId, GroupId, RecordId, Seconds, SpanId
from bough.model.reuse_scope import ReuseScope
from bough.model.sites.availability import SiteRule
from bough.model.sites.queue_specs import QueueSpec
from bough.model.sites.resources import Needs
from bough.model.sites.site_specs import PilotId, PilotState, SiteSpec
from bough.model.states import ENDED, OCCUPYING, OPEN, TaskState, counts_of, labels_of
from bough.model.tasks import ArraySpec, Page, TaskSpec

__all__ = [
    "Attempt",
    "Contents",
    "Difference",
    "ExecutorCounts",
    "ExecutorInfo",
    "GroupInfo",
    "GroupTry",
    "Part",
    "Preview",
    "RecordInfo",
    "RetiredCopy",
    "SeenMetric",
    "SeenNow",
    "TaskCounts",
    "TaskInfo",
    "WorkflowInfo",
    "as_attempt",
    "as_executor",
    "as_group",
    "as_record",
    "as_seen",
    "as_workflow",
    "count_tasks",
    "covers",
    "groups_below",
    "subtree_of",
]

RECENT = 64  # values of a metric that are told with the latest
_IN_TEXT = (*labels_of(ENDED), *labels_of(OPEN))  # the order of states in "12 done, 1 failed"

Part = tuple[int, int]  # elements [start, stop)


class Attempt(msgspec.Struct, frozen=True):
    """A span: elements of a record that an executor has. `is_late`: its executor was lost and may still return."""

    span: SpanId
    record: RecordId
    attempt: int
    executor: ExecutorId
    host: str
    left: tuple[Part, ...]  # elements whose end was not reported
    is_late: bool = False

    def has(self, index: int) -> bool:
        """Whether the end of an element was not reported."""
        return covers(self.left, index)


class SeenMetric(msgspec.Struct, frozen=True):
    """A metric of a running task: its latest value, and those before it, thinned."""

    step: float
    value: float
    total: int  # steps of a whole run, 0: not known
    recent: tuple[float, ...]


class SeenNow(msgspec.Struct, frozen=True):
    """What was seen of a task that runs."""

    record: RecordId
    index: int
    at: Seconds  # when the latest was
    metrics: dict[str, SeenMetric]
    tags: tuple[str, ...]


class TaskInfo(msgspec.Struct, frozen=True):
    """One task. `id` is written as people write it, such as 7 or 7.3."""

    id: str
    record: RecordId
    index: int
    is_array: bool
    spec: TaskSpec | ArraySpec
    group: GroupId
    path: str  # of its group
    workflow: str
    run: int
    state: TaskState
    attempt: int  # the last one, 0: none
    needs: Needs
    priority: int
    expected: Seconds  # run time, 0: unknown
    attributes: dict[str, str]


class TaskCounts(msgspec.Struct, frozen=True):
    """The tasks of some groups, by state."""

    by_state: tuple[int, ...]

    @property
    def unfinished(self) -> int:
        """Tasks that have not ended."""
        return sum(self.by_state[state] for state in OPEN)

    @property
    def out(self) -> int:
        """Tasks that are with executors."""
        return sum(self.by_state[state] for state in OCCUPYING)

    @property
    def ready(self) -> int:
        """Tasks that could run now."""
        return self.by_state[TaskState.READY]

    def labels(self) -> dict[str, int]:
        """The states of which there is a task, each with its number."""
        return {word: count for word, count in counts_of(self.by_state).items() if count}

    def __str__(self) -> str:
        """Read as in "12 done, 1 failed"."""
        counts = counts_of(self.by_state)
        words = [f"{counts[word]} {word}" for word in _IN_TEXT if counts[word]]
        return ", ".join(words) or "no tasks"


class GroupInfo(msgspec.Struct, frozen=True):
    """A group. `finished`: all in it has ended and nothing more comes; `is_workflow`: it stands for its workflow."""

    id: GroupId
    name: str
    path: str
    parent: GroupId
    run: int
    closed: bool
    finished: bool
    failed: bool
    released: bool
    is_workflow: bool


class WorkflowInfo(msgspec.Struct, frozen=True):
    """A workflow. `closed`: its end was recorded; `group_closed`: nothing more comes into it."""

    run: int
    name: str
    group: GroupId
    user: str
    directory: str
    token: str
    memos: bool
    closed: bool
    group_closed: bool
    finished: bool
    failed: bool
    reuse: ReuseScope = ReuseScope.ALL


class RecordInfo(msgspec.Struct, frozen=True):
    """What a returning client needs to know of a task or an array."""

    spec: TaskSpec | ArraySpec
    group: GroupId
    length: int
    is_array: bool
    is_open: bool  # more elements may come
    occurrence: int  # which of several identical tasks it is
    counts: TaskCounts
    pages: tuple[Page, ...]
    writes: tuple[str, ...] = ()  # paths that a task declared


class Contents(msgspec.Struct, frozen=True):
    """All that is in a group, without the group itself; groups above before groups below."""

    records: list[RecordInfo]
    groups: list[GroupInfo]


class ExecutorInfo(msgspec.Struct, frozen=True):
    """An executor. `is_manual`: it stands for a person who took a task."""

    number: ExecutorId
    site: str
    host: str
    pid: int
    capacity: Needs
    until: Seconds
    members: int
    is_draining: bool
    is_suspended: bool
    is_manual: bool
    tasks: int  # that it has, running or to be started next
    python: str
    is_away: bool  # its site is
    free: dict[str, float]  # what no task has, by resource; below 0 when something waits behind others
    attributes: dict[str, float | str | tuple[str, ...]]  # that it said of itself

    def used(self) -> dict[str, float]:
        """What tasks have of each resource."""
        return {name: most - max(0, self.free[name]) for name, most in self.capacity.amounts().items()}


class QueueInfo(msgspec.Struct, frozen=True):
    """A named queue; the one without a name is the default queue."""

    name: str
    spec: QueueSpec
    is_defined: bool
    ready: int  # tasks that could start, if there were room
    cores: float  # that its tasks hold, or wait for behind others


class PilotInfo(msgspec.Struct, frozen=True):
    """A pilot that has not ended. `asked`: when."""

    pilot: PilotId
    site: str
    state: PilotState
    handle: str
    asked: Seconds
    started: Seconds = 0.0  # when its first executor joined; 0: none has
    reason: str = ""  # why it was asked for
    released: str = ""  # why it is not wanted any more; empty: it is
    allocation: PilotId = PilotId(0)  # the first of those that were asked for together
    executors: int = 0  # that are there
    busy: int = 0  # of these
    cores: float = 0.0  # that it has, or is to bring; 0: not known


class UsageInfo(msgspec.Struct, frozen=True):
    """Core-hours of a site's pilots: all of them, and what for."""

    all: float
    used: float  # by attempts that succeeded
    idle: float
    startup: float  # until the first task came
    wasted: float  # by attempts that did not succeed


class Holder(msgspec.Struct, frozen=True):
    """A host whose cache holds a content, and its executors."""

    site: str
    host: str
    executors: tuple[int, ...]


class SiteInfo(msgspec.Struct, frozen=True):
    """A site: its rule, and whether it is away. `since`: when it left or came back; 0: it was always there."""

    name: str
    rule: SiteRule
    is_away: bool
    reason: str
    by_hand: bool
    since: Seconds
    executors: int
    cores: float
    tasks: int  # that they have, running or to be started next
    spec: SiteSpec | None = None  # its definition
    pilots: tuple[PilotInfo, ...] = ()
    rests_until: Seconds = 0.0  # no pilot is asked for before
    trouble: str = ""  # what the last pilot said that failed
    deadline: Seconds = 0.0  # while it is away: when what runs there must have ended
    room: int | None = None  # pilots that could start at once, as the site says


class ExecutorCounts(msgspec.Struct, frozen=True):
    """Executors by what they do. Those of people count as manual and as nothing else."""

    idle: int
    active: int
    suspended: int
    draining: int
    missing: int
    manual: int
    cores: float

    @property
    def allocated(self) -> int:
        """All that are not manual, whatever they do."""
        return self.idle + self.active + self.suspended + self.draining + self.missing


class GroupTry(msgspec.Struct, frozen=True):
    """A group that may be retried as a whole, and how often it was."""

    group: GroupId
    tried: int


class Preview(msgspec.Struct, frozen=True):
    """How many tasks an action would change now; what of its target it would not change, and why."""

    count: int
    not_changed: list[str]


class RetiredCopy:
    """A retired workflow, read from the bytes that were kept of it. No turn sees it.

    `state` is for `Queries` alone.
    """

    def __init__(self, state: State) -> None:
        self.state = state

    @property
    def record_count(self) -> int:
        """How many tasks and arrays it has."""
        return len(self.state.records)


# --- making them ----------------------------------------------------------------------------------------


def covers(left: Iterable[Sequence[int]], index: int) -> bool:
    """Whether an element is in one of these ranges."""
    return any(low <= index < high for low, high in left)


def as_seen(record: int, index: int, seen: Seen) -> SeenNow:
    """What was seen of a task."""
    metrics: dict[str, SeenMetric] = {}
    times = [one.at for one in seen.fired] + [one.at for one in seen.troubles]
    for name, series in seen.metrics.items():
        if series.points:
            step, at, value = series.points[-1]
            recent = tuple(value for _, _, value in series.points[-RECENT:])
            metrics[name] = SeenMetric(step, value, series.total, recent)
            times.append(at)
    return SeenNow(RecordId(record), index, max(times, default=0.0), metrics, tuple(seen.tags))


def as_attempt(span: Span, *, is_late: bool = False) -> Attempt:
    """A span as an answer."""
    executor = span.executor
    left = tuple((low, high) for low, high in span.left)
    return Attempt(span.id, RecordId(span.record.id), span.attempt, executor.id, executor.host, left, is_late)


def as_executor(executor: ExecutorRecord) -> ExecutorInfo:
    """An executor as an answer."""
    return ExecutorInfo(
        executor.id,
        MANUAL_SITE if is_manual(executor) else executor.site,
        executor.host,
        executor.pid,
        executor.capacity,
        executor.until,
        executor.members,
        executor.draining,
        bool(executor.suspended),
        is_manual(executor),
        sum(ranges.size(span.left) for span in executor.spans.values()),
        executor.python,
        executor.away,
        {name: executor.free(name) for name in executor.capacity.amounts()},
        dict(executor.attributes),
    )


def as_site(site: SiteRecord) -> SiteInfo:
    """A site as an answer; people who take tasks by hand belong to none."""
    executors = [executor for executor in site.executors.values() if not is_manual(executor)]
    return SiteInfo(
        site.name,
        site.rule,
        site.away,
        site.reason,
        site.by_hand,
        site.since,
        sum(executor.members for executor in executors),
        sum(executor.capacity.cores for executor in executors),
        sum(ranges.size(span.left) for executor in executors for span in executor.spans.values()),
        site.spec,
        tuple(as_pilot(pilot) for pilot in site.pilots.values()),
        site.rests_until,
        site.trouble,
        site.deadline,
        site.room,
    )


def as_queue(queue: QueueRecord) -> QueueInfo:
    """A named queue as an answer."""
    return QueueInfo(queue.name, queue.spec, queue.is_defined, queue.ready, queue.cores)


def as_pilot(pilot: PilotRecord) -> PilotInfo:
    """A pilot as an answer."""
    cores = sum(executor.capacity.cores for executor in pilot.executors.values())
    busy = sum(bool(executor.spans) for executor in pilot.executors.values())
    return PilotInfo(
        pilot.id,
        pilot.site,
        pilot.state,
        pilot.handle,
        pilot.asked,
        pilot.started,
        pilot.reason,
        pilot.released,
        pilot.allocation,
        len(pilot.executors),
        busy,
        cores or pilot.cores,
    )


def as_usage(site: SiteRecord, now: Seconds) -> UsageInfo:
    """What the executors of a site have used so far, those that are there included."""
    alive, startup, used, wasted = usage_at(site, now)
    idle = max(0.0, alive - startup - used - wasted)
    return UsageInfo(*(seconds / 3600 for seconds in (alive, used, idle, startup, wasted)))


def as_group(group: GroupRecord) -> GroupInfo:
    """A group as an answer."""
    workflow = group.workflow
    return GroupInfo(
        GroupId(group.id),
        group.name,
        group.path,
        GroupId(group.parent.id) if group.parent is not None else ROOT,
        workflow.run,
        group.closed,
        group.finished,
        bool(group.failed_by),
        group.released,
        workflow.group is group,
    )


def as_workflow(workflow: Workflow) -> WorkflowInfo:
    """A workflow as an answer."""
    group = workflow.group
    return WorkflowInfo(
        workflow.run,
        workflow.name,
        GroupId(group.id),
        workflow.user,
        workflow.directory,
        workflow.token,
        workflow.memos,
        workflow.closed,
        group.closed,
        group.finished,
        bool(group.failed_by),
        workflow.reuse,
    )


def as_record(record: Record) -> RecordInfo:
    """A task or an array as an answer."""
    if isinstance(record, TaskRecord):
        counts = [0] * len(TaskState)
        counts[record.state] = 1
        made = TaskCounts(tuple(counts))
        spec = record.spec
        writes = tuple(record.group.workflow.files.paths(spec.writes))
        return RecordInfo(spec, GroupId(record.group.id), 1, False, False, record.occurrence, made, (), writes)
    made, pages = TaskCounts(tuple(record.counts)), tuple(record.paged)
    return RecordInfo(record.spec, GroupId(record.group.id), record.length, True, record.open, 0, made, pages)


def count_tasks(groups: Iterable[GroupRecord]) -> TaskCounts:
    """The tasks of some groups, those of groups in them not included."""
    totals = [0] * len(TaskState)
    for group in groups:
        for state, count in enumerate(group.counts):
            if count:
                totals[state] += count
    return TaskCounts(tuple(totals))


def combined_state(counts: TaskCounts) -> TaskState:
    """The state of several tasks as that of one."""
    by_state = counts.by_state
    for state in (TaskState.FAILED, TaskState.RUNNING):
        if by_state[state]:
            return state
    if counts.out:
        return TaskState.RUNNING
    if counts.unfinished:
        return TaskState.WAITING
    for state in (TaskState.CANCELLED, TaskState.SKIPPED):
        if by_state[state]:
            return state
    return TaskState.DONE


def subtree_of(group: GroupRecord) -> Iterator[GroupRecord]:
    """A group and all groups in it."""
    stack = [group]
    while stack:
        one = stack.pop()
        yield one
        stack += one.children


def groups_below(group: GroupRecord) -> Iterator[GroupRecord]:
    """All groups in a group, each before those in it."""
    for child in group.children:
        yield child
        yield from groups_below(child)
