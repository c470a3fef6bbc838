"""The state as bytes and back, so that a restart replays only what came after.

What can be derived is not stored: which tasks wait for which, queues and counts are built again from the specs and the
states. Where data is, is not stored: hosts say it again. What was measured of tasks and transfers is, since nobody else
has it; a snapshot without it is read as one of a server that has measured nothing. Snapshots of the version before are
read. Rule: a restored machine and the one that the snapshot was taken of give the same answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from bough.core.data.data_index import Rate
from bough.core.data.estimates import KeptEstimates
from bough.core.data.remakes import Remake
from bough.core.graph import dependencies
from bough.core.graph.submission import add_array, add_group, add_task, grow
from bough.core.pilots import pilots
from bough.core.pilots.sites import add_executor
from bough.core.records.array_record import READY, WAITING, ArrayRecord, Record
from bough.core.records.attempts import WHOLE, Span
from bough.core.records.executor_record import ExecutorRecord, RelayExecutorRecord
from bough.core.records.group_record import GroupRecord, Workflow
from bough.core.records.indexes.replicas import Candidate, ReplicaStart, Waste
from bough.core.records.indexes.unsaved_outputs import Holder, Kept
from bough.core.records.indexes.watch_index import AddedPlans, Ending
from bough.core.records.pilot_record import PilotRecord
from bough.core.records.population_record import KeptPopulation, Population
from bough.core.records.site_record import SiteRecord, SiteUsage
from bough.core.records.task_record import TaskRecord
from bough.core.records.task_series import Seen
from bough.core.state import State, Timer, TimerKind
from bough.model.arrays import ranges
from bough.model.arrays.ranges import Ranges
from bough.model.arrays.runtimes import RunTime
from bough.model.events.facts import ExecutorJoined, PilotAsked
from bough.model.files import FileSpec
from bough.model.ids import ROOT, BlobId, ExecutorId, Seconds, SpanId
from bough.model.outcomes import Failure, Success
from bough.model.reuse_scope import ReuseScope
from bough.model.sites.availability import ALWAYS, SiteRule
from bough.model.sites.queue_specs import QueueSpec
from bough.model.sites.resources import Needs
from bough.model.sites.site_specs import PilotId, PilotState, SiteSpec
from bough.model.states import ENDED, StateWindow, TaskState
from bough.model.tasks import ArraySpec, GroupSpec, Page, TaskSpec

VERSION = 3
_ONE_HEAP = 3  # the version since which there is one heap of timers


class KeptTask(msgspec.Struct, array_like=True):
    """A loose task."""

    spec: TaskSpec
    state: int
    attempt: int
    failures: int
    losses: int
    held: bool
    priority: int
    awaits_memo: bool
    urgent: bool | int
    turn: int
    original: tuple[int, int, int] | None
    failure: Failure | None
    avoid: tuple[int, ...]
    place: str = ""
    ran_at: str = ""


class KeptArray(msgspec.Struct, array_like=True):
    """An array."""

    spec: ArraySpec
    states: bytes
    held: bool
    held_ranges: Ranges
    priority: int
    awaits_memo: bool
    urgent: bool | int
    open: bool
    attempts: dict[int, int]
    trouble: dict[int, tuple[int, int]]
    failures: dict[int, Failure]
    skip_reason: Failure | None
    found: list[Success]
    paged: list[Page]
    ready: list[list[int]]
    avoided: dict[int, tuple[int, ...]]
    base: int = 0  # of a fed array: where `states` begins
    odd: dict[int, int] = {}  # and what has not succeeded before
    given_back: list[list[int]] = []


class KeptWorkflow(msgspec.Struct, array_like=True):
    """A workflow."""

    group: int
    run: int
    name: str
    fail_fast: bool
    memos: bool
    directory: str
    token: str
    user: str
    closed: bool
    first_failure: Failure | None
    files: tuple[FileSpec, ...] = ()
    reuse: ReuseScope = ReuseScope.ALL
    base: int = 0


class KeptExecutor(msgspec.Struct, array_like=True):
    """An executor."""

    joined: ExecutorJoined
    draining: bool
    suspended: Seconds
    suspensions: int
    trouble: int
    usage: tuple[Seconds, Seconds, Seconds, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)  # of one that a pilot brought


class KeptPilot(msgspec.Struct, array_like=True):
    """A pilot."""

    pilot: PilotId
    site: str
    asked: Seconds
    state: PilotState
    handle: str
    reason: str = ""
    allocation: PilotId = PilotId(0)
    cores: float = 0.0
    queued: Seconds = 0.0
    started: Seconds = 0.0
    released: str = ""
    usage: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    executors: tuple[int, ...] | None = None  # that it has brought; None: not kept then, all that name it
    succeeds: PilotId = PilotId(0)
    has_left: bool = False


class KeptSite(msgspec.Struct, array_like=True):
    """A site that has a rule or a definition, or is away."""

    name: str
    rule: SiteRule
    away: bool
    reason: str
    by_hand: bool
    since: Seconds
    deadline: Seconds
    spec: SiteSpec | None = None
    offers: ExecutorJoined | None = None
    failures: int = 0
    rests_until: Seconds = 0.0
    trouble: str = ""
    waits: tuple[Seconds, ...] = ()
    room: int | None = None
    usage: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


class KeptGroup(msgspec.Struct, array_like=True):
    """A group."""

    spec: GroupSpec
    closed: bool
    finished: bool
    held: bool
    failed_by: int
    skip_reason: Failure | None
    released: bool = False
    tried: int = 0
    deadline: Seconds = 0
    disabled: bool = False
    watch: tuple[BlobId, ...] = ()
    was_over: bool = False


class KeptSpan(msgspec.Struct, array_like=True):
    """A current or late attempt."""

    id: int
    record: int
    start: int
    stop: int
    attempt: int
    executor: int
    left: Ranges
    queued: bool
    load: Seconds
    heard: Seconds
    behind: SpanId
    width: int = 1
    replica: bool = False
    needs: Needs | None = None  # that it occupies, if its record asks for more by now


class KeptReplicas(msgspec.Struct, array_like=True):
    """What runs and may be replicated, and what replicas have cost."""

    running: list[tuple[int, int, int, Seconds, int]] = []  # record, index, span, since when, replicas made of it
    started: dict[int, ReplicaStart] = {}  # by span
    waste: Waste = msgspec.field(default_factory=Waste)
    at: Seconds = 0.0
    untold: list[tuple[int, int, int, int]] = []  # superseded attempts: record, index, number, span


class Snapshot(msgspec.Struct):
    """All that cannot be derived."""

    version: int
    turn: int
    now: Seconds
    run: int
    stopping: bool
    last_span: int
    root_held: bool
    root_failed_by: int
    workflows: list[KeptWorkflow]
    groups: list[KeptGroup]
    tasks: list[KeptTask]
    arrays: list[KeptArray]
    executors: list[KeptExecutor]
    spans: list[KeptSpan]
    late: list[tuple[KeptSpan, ExecutorJoined]] = msgspec.field(name="ghosts")
    runtimes: list[tuple[str | int, Seconds, int]]
    locks: list[tuple[str, int, int]] = []  # name, span, index
    root_disabled: bool = False
    due: list[Timer] = []
    sites: list[KeptSite] = []
    checkpoints: dict[int, dict[int, bytes]] = {}
    remakes: dict[int, dict[int, Remake]] = {}
    unsaved: list[Kept] = []  # outputs on their way
    pilots: list[KeptPilot] = []
    last_pilot: int = 0
    # until version 2: (when, record, index) of retries, and (when, span or less than 0: group, executor) of the rest
    timers: list[tuple[Seconds, int, int]] = []
    alarms: list[tuple[Seconds, int, int]] = []
    root_watch: tuple[BlobId, ...] = ()
    added: list[tuple[int, AddedPlans]] = []  # by record: plans that watch it, added after it was submitted
    endings: list[tuple[int, list[Ending]]] = []  # by span
    seen: list[tuple[int, dict[int, Seen]]] = []  # by record and element
    populations: list[KeptPopulation] = []
    queues: dict[str, QueueSpec] = {}  # by name: those that have a definition
    replicas: KeptReplicas = msgspec.field(default_factory=KeptReplicas)
    estimates: KeptEstimates = msgspec.field(default_factory=KeptEstimates)
    rates: list[tuple[str, str, str, float, Seconds, int]] = []  # site, host, source; rate, latency, transfers seen
    lock_users: list[int] = []  # spans that own a lock, or have owned one
    waits: list[tuple[str | int, Seconds]] = []  # for inputs, by template, see `RunTime`


_encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Snapshot).decode


def take(state: State) -> bytes:
    """The state as it is, between two turns."""
    tasks = [kept_task(record) for record in state.records.values() if isinstance(record, TaskRecord)]
    arrays = [kept_array(record) for record in state.records.values() if isinstance(record, ArrayRecord)]
    return _encode(
        Snapshot(
            VERSION,
            state.turn,
            state.now,
            state.run,
            state.stopping,
            state.last_span,
            state.groups[ROOT].held,
            state.groups[ROOT].failed_by,
            [kept_workflow(group.workflow) for group in state.groups.values() if group.workflow.group is group],
            [kept_group(group) for group in state.groups.values() if group.parent is not None],
            tasks,
            arrays,
            [_executor(executor) for executor in state.executors.values()],
            [_span(span, replica=span.id in state.attempts.replicas) for span in state.spans.values()],
            [(_span(late), late.executor.joined) for late in state.attempts.late.values()],
            [(template, runtime.mean, runtime.seen) for template, runtime in state.runtimes.items()],
            [(name, lock.span, lock.index) for name, lock in state.locks.items()],
            state.groups[ROOT].disabled,
            list(state.timers),
            root_watch=state.groups[ROOT].watch,
            added=list(state.watch.added.items()),
            endings=list(state.watch.endings.items()),
            seen=list(state.watch.seen.by_record.items()),
            checkpoints=state.checkpoints,
            remakes=state.remakes.by_record,
            unsaved=state.unsaved.all(),
            sites=[_site(site) for site in state.sites.values() if _is_kept(site)],
            pilots=[_pilot(pilot) for pilot in state.pilots.values()],
            last_pilot=state.last_pilot,
            populations=[one.kept() for one in state.populations.all()],
            queues={queue.name: queue.spec for queue in state.named_queues.defined()},
            replicas=_replicas(state),
            estimates=state.estimates.kept(),
            rates=[(*place, one.rate, one.latency, one.seen) for *place, one in state.data.kept_rates()],  # type: ignore[misc]
            lock_users=sorted(state.locks.users),
            waits=[(template, runtime.wait) for template, runtime in state.runtimes.items() if runtime.wait],
        )
    )


def _replicas(state: State) -> KeptReplicas:
    index = state.replicas
    running = [(one.id, one.index, one.span, one.since, one.replicas) for one in index.running(state.records)]
    untold = [(*attempt, span) for attempt, span in index.untold.items()]
    return KeptReplicas(running, index.started, index.waste, state.replicas_at, untold)


def _restore_replicas(state: State, kept: KeptReplicas) -> None:
    for number, index, span, since, replicas in kept.running:
        record = state.records[number]
        if state.replicas.allows(record):  # another policy may serve now
            state.replicas.note(state.records, Candidate(record, index, span, since, replicas))
    state.replicas.started, state.replicas.waste, state.replicas_at = kept.started, kept.waste, kept.at
    state.replicas.untold = {(record, index, attempt): span for record, index, attempt, span in kept.untold}


def kept_task(record: TaskRecord) -> KeptTask:
    """A loose task as it is kept."""
    return KeptTask(
        record.spec,
        record.state,
        record.attempt,
        *record.failures_of(0),
        record.held,
        record.priority,
        record.awaits_memo,
        record.urgent,
        record.turn,
        record.original,
        record.failure_of(0),
        record.avoid,
        record.place,
        record.ran_at,
    )


def kept_array(record: ArrayRecord) -> KeptArray:
    """An array as it is kept."""
    spec = msgspec.structs.replace(record.spec, pages=())
    states = record.states
    window = states if isinstance(states, StateWindow) else None
    return KeptArray(
        spec,
        bytes(window.kept if window is not None else states),  # type: ignore[arg-type]
        record.held,
        record.held_ranges,
        record.priority,
        record.awaits_memo,
        record.urgent,
        record.open,
        record.attempts,
        record.trouble,
        record.failures,
        record.skip_reason,
        record.successes(),
        record.paged,
        list(record.ready_ranges),
        record.avoided,
        window.first_kept if window is not None else 0,
        window.exceptions if window is not None else {},
        list(record.given_back),
    )


def kept_workflow(workflow: Workflow) -> KeptWorkflow:
    """A workflow as it is kept."""
    return KeptWorkflow(
        workflow.group.id,
        workflow.run,
        workflow.name,
        workflow.fail_fast,
        workflow.memos,
        workflow.directory,
        workflow.token,
        workflow.user,
        workflow.closed,
        workflow.first_failure,
        workflow.files.all(),
        workflow.reuse,
        workflow.base,
    )


def kept_group(group: GroupRecord) -> KeptGroup:
    """A group below another as it is kept."""
    assert group.parent is not None
    spec = GroupSpec(
        group.id,
        group.name,
        group.parent.id,
        group.after,
        group.limit,
        group.retries,
        group.timeout,
        group.attributes,
    )
    own = (group.released, group.tried, group.deadline, group.disabled, group.watch, group.was_over)
    return KeptGroup(spec, group.closed, group.finished, group.held, group.failed_by, group.skip_reason, *own)


def _is_kept(site: SiteRecord) -> bool:
    return site.away or bool(site.since or site.usage.alive) or site.spec is not None or site.rule != ALWAYS


def _site(site: SiteRecord) -> KeptSite:
    availability = (site.name, site.rule, site.away, site.reason, site.by_hand, site.since, site.deadline)
    learnt = (site.offers, site.failures, site.rests_until, site.trouble, tuple(site.waits), site.room)
    return KeptSite(*availability, site.spec, *learnt, site.usage.totals())


def _pilot(pilot: PilotRecord) -> KeptPilot:
    return KeptPilot(
        pilot.id,
        pilot.site,
        pilot.asked,
        pilot.state,
        pilot.handle,
        pilot.reason,
        pilot.allocation,
        pilot.cores,
        pilot.queued,
        pilot.started,
        pilot.released,
        pilot.usage,
        tuple(pilot.executors),
        pilot.succeeds,
        pilot.has_left,
    )


def _executor(executor: ExecutorRecord) -> KeptExecutor:
    usage = (executor.came, executor.begun, executor.idle_since, executor.used, executor.wasted)
    return KeptExecutor(
        executor.joined, executor.draining, executor.suspended, executor.suspensions, executor.trouble, usage
    )


def _span(span: Span, *, replica: bool = False) -> KeptSpan:
    return KeptSpan(
        span.id,
        span.record.id,
        span.start,
        span.stop,
        span.attempt,
        span.executor.id,
        span.left,
        span.queued,
        span.load,
        span.heard,
        span.behind,
        span.width,
        replica,
        span.queue.needs if span.queue is not span.record.queue else None,
    )


_DONE = int(TaskState.DONE)


def _restore_sites(state: State, kept: Snapshot) -> None:
    for there in kept.sites:
        site = state.sites[there.name] = SiteRecord(there.name)
        site.rule, site.away, site.reason, site.by_hand = there.rule, there.away, there.reason, there.by_hand
        site.since, site.deadline, site.usage = there.since, there.deadline, SiteUsage(*there.usage)
        if there.spec is not None:
            site.spec, site.offers, site.trouble = there.spec, there.offers, there.trouble
            site.failures, site.rests_until = there.failures, there.rests_until
            site.room = there.room
            site.waits.extend(there.waits)
            state.defined_sites[there.name] = site
            site.bound = pilots.bound_of(state, site)
    for flying in kept.pilots:
        fact = PilotAsked(flying.pilot, flying.site, flying.reason, flying.allocation, flying.cores, flying.succeeds)
        pilot = PilotRecord(fact, flying.asked)
        pilot.state, pilot.handle, pilot.released = flying.state, flying.handle, flying.released
        pilot.queued, pilot.started, pilot.usage = flying.queued, flying.started, flying.usage
        site = state.defined_sites[flying.site]
        pilots.add_pilot(state, site, pilot)
        pilots.pilot_restored(site, pilot, flying.has_left)
        if pilot.released:
            site.leaving[flying.pilot] = pilot
        elif pilot.starting:
            site.starting[flying.pilot] = pilot
    state.last_pilot = kept.last_pilot


def _restore_executors(state: State, kept: Snapshot) -> None:
    brought = {pilot.pilot: pilot.executors for pilot in kept.pilots}
    for one in kept.executors:
        executor = ExecutorRecord(one.joined) if one.joined.each is None else RelayExecutorRecord(one.joined)
        executor.draining, executor.suspended = one.draining, one.suspended
        executor.suspensions, executor.trouble = one.suspensions, one.trouble
        executor.came, executor.begun, executor.idle_since, executor.used, executor.wasted = one.usage
        add_executor(state, executor)
        if brought.get(executor.pilot) is None or executor.id in (brought[executor.pilot] or ()):
            pilots.executor_restored(state, executor)


def _restore_spans(state: State, kept: Snapshot) -> None:
    for kept_span in kept.spans:
        span = _restored(state, kept_span, state.executors[ExecutorId(kept_span.executor)])
        if kept_span.replica:
            state.attempts.add_replica(span)
        elif span.record.is_array:
            state.attempts.add_elements(span)
        else:
            state.attempts.add_task(span)
        span.executor.add(span)
        if span.executor.bound is not None:
            state.count_out(span, ranges.size(span.left))
        if span.queued:
            state.crowded[span.executor.id] = span.executor


def restore(state: State, data: bytes) -> None:
    """Fill an empty state from a snapshot."""
    kept = decode(data)
    state.turn, state.now, state.last_span = kept.turn, kept.now, kept.last_span
    state.run, state.stopping = kept.run, kept.stopping
    for name, queue in kept.queues.items():
        state.named_queues.define(name, queue)
    waits = dict(kept.waits)
    state.runtimes = {name: RunTime(mean, seen, waits.get(name, 0.0)) for name, mean, seen in kept.runtimes}
    state.estimates.restore(kept.estimates)
    for site, host, source, rate, latency, seen in kept.rates:
        state.data.restore_rate(site, host, source, Rate(rate, latency, seen))
    root = state.groups[ROOT]
    _restore_workflow(state, root, next(one for one in kept.workflows if one.group == ROOT))
    root.held, root.failed_by, root.disabled = kept.root_held, kept.root_failed_by, kept.root_disabled
    root.watch, root.workflow.watched = kept.root_watch, bool(kept.root_watch)
    state.held_groups = int(root.held)
    state.remakes.restore(kept.remakes)
    add_kept(state, kept.workflows, kept.groups, [*kept.tasks, *kept.arrays])
    add_plans(state, kept.added)
    state.watch.endings.update(kept.endings)
    state.watch.seen.by_record.update(kept.seen)
    state.checkpoints = kept.checkpoints
    _restore_sites(state, kept)
    for population in kept.populations:
        state.populations.put(Population.restored(population))
    _restore_executors(state, kept)
    for number, index, holder, attempt, made in kept.unsaved:
        state.unsaved.add(state.records[number], index, Holder(holder, attempt, made))
    _restore_spans(state, kept)
    _restore_replicas(state, kept.replicas)
    for name, number, index in kept.locks:
        state.locks.take(name, number, index)
    state.locks.users.update(number for number in kept.lock_users if number in state.spans)
    for kept_span, joined in kept.late:
        late = _restored(state, kept_span, ExecutorRecord(joined))
        late.left = kept_span.left
        state.attempts.add_late(late)
    for executor in state.executors.values():
        state.update_open(executor)
    state.timers = sorted(kept.due if kept.version >= _ONE_HEAP else _one_heap(kept))


def _one_heap(kept: Snapshot) -> Iterator[Timer]:
    """The timers of a snapshot of version 2."""
    for when, record, index in kept.timers:
        yield when, TimerKind.RETRY, record, index
    for when, span, executor in kept.alarms:
        if span < 0:
            yield when, TimerKind.GROUP_LIMIT, -span, 0
        elif span:
            yield when, TimerKind.SILENCE, span, 0
        else:
            yield when, TimerKind.SUSPENSION, executor, 0


def add_kept(
    state: State,
    workflows: Sequence[KeptWorkflow],
    groups: Sequence[KeptGroup],
    items: Sequence[KeptTask | KeptArray],
) -> None:
    """Put workflows into a state that has none of their groups; groups come before what is in them."""
    own = {one.group: one for one in workflows}
    for group in groups:
        _restore_group(state, group, own)
    for item in sorted(items, key=lambda one: one.spec.id):
        if isinstance(item, KeptTask):
            _restore_task(state, item)
        else:
            _restore_array(state, item)
    _settle_groups(state, groups)
    _link(state, [state.groups[one.spec.id] for one in groups], [state.records[one.spec.id] for one in items])
    for one in workflows:
        state.count_reads_anew(state.groups[one.group].workflow)


def add_plans(state: State, added: Iterable[tuple[int, AddedPlans]]) -> None:
    """Put back which plans were added to records."""
    for record, plans in added:
        state.watch.added[record] = plans
        state.records[record].group.workflow.watched = True


def _restored(state: State, kept: KeptSpan, executor: ExecutorRecord) -> Span:
    record = state.records[kept.record]
    left = WHOLE if isinstance(record, TaskRecord) and kept.left == WHOLE else kept.left
    span = Span(SpanId(kept.id), record, kept.start, kept.stop, kept.attempt, executor, left, kept.queued, kept.load)
    span.heard, span.behind, span.width = kept.heard, kept.behind, kept.width
    if kept.needs is not None:
        span.queue = state.queue_for(kept.needs, record.group, record.place)
    return span


def _restore_workflow(state: State, group: GroupRecord, kept: KeptWorkflow) -> None:
    workflow = group.workflow
    workflow.run, workflow.name, workflow.user = kept.run, kept.name, kept.user
    workflow.base = kept.base
    workflow.fail_fast, workflow.memos, workflow.closed = kept.fail_fast, kept.memos, kept.closed
    workflow.directory, workflow.token, workflow.first_failure = kept.directory, kept.token, kept.first_failure
    workflow.reuse = kept.reuse
    state.failing = state.failing or kept.first_failure is not None
    for file in kept.files:
        workflow.files.put(file)
    if kept.run:
        state.workflows[kept.run] = workflow


def _restore_group(state: State, kept: KeptGroup, workflows: dict[int, KeptWorkflow]) -> None:
    group = add_group(state, kept.spec)
    if kept.spec.id in workflows:
        group.workflow = Workflow(group)
        _restore_workflow(state, group, workflows[kept.spec.id])
    group.closed, group.held, group.disabled = kept.closed, kept.held, kept.disabled
    group.failed_by, group.skip_reason = kept.failed_by, kept.skip_reason
    group.released, group.tried, group.deadline = kept.released, kept.tried, kept.deadline
    group.was_over = kept.was_over
    group.watch = kept.watch
    group.workflow.watched = group.workflow.watched or bool(kept.watch)
    state.held_groups += kept.held


def _settle_groups(state: State, groups: Sequence[KeptGroup]) -> None:
    for one in groups:
        group = state.groups[one.spec.id]
        assert group.parent is not None
        if one.finished:
            group.finished = True
            group.parent.unfinished -= 1
        elif one.released:
            group.parent.released_children += 1


def _restore_task(state: State, kept: KeptTask) -> None:
    record = add_task(state, kept.spec)
    _count(state, record, kept.state, 1)
    record.state = kept.state
    record.ready = int(kept.state == READY)
    record.attempt = kept.attempt
    record.blame(0, kept.failures, kept.losses)
    record.held, record.priority, record.awaits_memo, record.urgent = (
        kept.held,
        kept.priority,
        kept.awaits_memo,
        int(kept.urgent),
    )
    record.turn, record.original = kept.turn, kept.original
    record.set_failure(0, 1, kept.failure)
    for executor in kept.avoid:
        record.avoid_at(0, executor)
    record.ran_at = kept.ran_at
    if kept.place:
        record.queue = state.queue_for(record.needs, record.group, kept.place)
    if record.ready:
        state.enqueue(record)


def _restore_array(state: State, kept: KeptArray) -> None:
    fed = kept.spec.fed
    length = 0 if fed else len(kept.states)
    record = add_array(state, msgspec.structs.replace(kept.spec, length=length, open=kept.open))
    record.spec = kept.spec
    record.add_pages(kept.paged)
    if fed:
        record.states = StateWindow(kept.base, kept.odd, kept.states)
        grow(state, record, len(record.states))
    else:
        record.states = bytearray(kept.states)
    for number in TaskState:
        count = record.states.count(number)
        _count(state, record, number, count)
        record.counts[WAITING] -= count
        record.counts[number] += count
    record.held, record.held_ranges, record.priority = kept.held, kept.held_ranges, kept.priority
    record.awaits_memo, record.urgent = kept.awaits_memo, int(kept.urgent)
    record.attempts, record.trouble, record.failures = kept.attempts, kept.trouble, kept.failures
    record.skip_reason, record.found, record.avoided = kept.skip_reason, kept.found, kept.avoided
    record.ready_ranges.extend(kept.ready)
    record.given_back.extend(kept.given_back)
    record.ready = record.counts[READY]
    waiting = (*record.ready_ranges, *record.given_back)
    record.has_gaps = sum(stop - start for start, stop, _ in waiting) != record.ready
    if record.ready:
        state.enqueue(record)


def _count(state: State, record: Record, number: int, count: int) -> None:
    """Move elements from waiting, where adding put them, to the state they had."""
    counts = record.group.counts
    counts[WAITING] -= count
    counts[number] += count
    if number == READY:
        record.queue.shape.ready += count
    if TaskState(number) in ENDED:
        state.unfinished -= count
        record.group.unfinished -= count


def _link(state: State, groups: Sequence[GroupRecord], records: Sequence[Record]) -> None:
    """Find again what waits for what; ended ones too, since a user may retry them."""
    for group in groups:
        group.waits = dependencies.wait_for(state, None, group, -1, group.after)
    for group in groups:
        if group.parent is not None and group.parent.waits:
            group.waits += 1
            group.parent.waiting_for_gate.append((group, -1, group.generation))
    for record in records:
        if not (isinstance(record, TaskRecord) and record.state == _DONE):
            _link_record(state, record)


def _link_record(state: State, record: Record) -> None:
    record.waits = dependencies.wait_for(state, None, record, -1, record.after)
    if record.group.waits and not (record.group.skip_reason is not None and dependencies.is_final(record)):
        record.waits += 1
        record.group.waiting_for_gate.append((record, -1, record.generation))
    if isinstance(record, ArrayRecord):
        for index, deps in record.spec.element_after:
            if record.states[index] != _DONE and (waits := dependencies.wait_for(state, None, record, index, deps)):
                record.element_waits[index] = waits
