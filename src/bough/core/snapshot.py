"""The state as bytes and back, so that a restart replays only what came after.

What can be derived is not stored: who waits for whom, queues and counts are built again from the
specs and the states. Rule: a restored machine and the one it was taken from give the same answers.
"""

from __future__ import annotations

import msgspec

from bough.core.groups import GroupRecord, Workflow
from bough.core.loose import Success, TaskRecord
from bough.core.ranges import Ranges
from bough.core.records import ArrayRecord
from bough.core.room import ExecutorRecord, Span
from bough.core.state import Alarm, State
from bough.core.window import Window
from bough.model.facts import ExecutorJoined
from bough.model.ids import ROOT, Seconds, SpanId
from bough.model.outcomes import Failure
from bough.model.tasks import ArraySpec, GroupSpec, Page, TaskSpec

VERSION = 2


class KeptTask(msgspec.Struct, array_like=True):
    """A loose task."""

    spec: TaskSpec
    state: int
    attempt: int
    failures: int
    losses: int
    held: bool
    priority: int
    recalling: bool
    urgent: bool
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
    recalling: bool
    urgent: bool
    open: bool
    attempts: dict[int, int]
    trouble: dict[int, tuple[int, int]]
    failures: dict[int, Failure]
    doomed: Failure | None
    found: list[Success]
    paged: list[Page]
    ready: list[list[int]]
    shunned: dict[int, tuple[int, ...]]
    base: int = 0  # of a fed array: where `states` begins
    odd: dict[int, int] = {}  # and what has not succeeded before


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


class KeptExecutor(msgspec.Struct, array_like=True):
    """An executor."""

    joined: ExecutorJoined
    draining: bool
    suspended: Seconds
    suspensions: int
    trouble: int


class KeptGroup(msgspec.Struct, array_like=True):
    """A group."""

    spec: GroupSpec
    closed: bool
    settled: bool
    held: bool
    failed_by: int
    doomed: Failure | None
    released: bool = False
    tried: int = 0
    deadline: Seconds = 0
    disabled: bool = False


class KeptSpan(msgspec.Struct, array_like=True):
    """A span in flight, or a ghost."""

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
    ghosts: list[tuple[KeptSpan, ExecutorJoined]]
    timers: list[tuple[Seconds, int, int]]
    alarms: list[Alarm]
    runtimes: list[tuple[str | int, Seconds, int]]
    locks: list[tuple[str, int, int]] = []  # name, span, index
    root_disabled: bool = False


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
            [_span(span) for span in state.spans.values()],
            [(_span(ghost), ghost.executor.joined) for ghost in state.ghosts.values()],
            list(state.timers),
            list(state.alarms),
            [(template, runtime.mean, runtime.seen) for template, runtime in state.runtimes.items()],
            [(name, lock.span, lock.index) for name, lock in state.locks.items()],
            state.groups[ROOT].disabled,
        )
    )


def kept_task(record: TaskRecord) -> KeptTask:
    """A loose task as it is kept."""
    return KeptTask(
        record.spec,
        record.state,
        record.attempt,
        *record.failures_of(0),
        record.held,
        record.priority,
        record.recalling,
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
    window = states if isinstance(states, Window) else None
    return KeptArray(
        spec,
        bytes(window.tail if window is not None else states),  # type: ignore[arg-type]
        record.held,
        record.held_ranges,
        record.priority,
        record.recalling,
        record.urgent,
        record.open,
        record.attempts,
        record.trouble,
        record.failures,
        record.doomed,
        record.successes(),
        record.paged,
        list(record.ready_ranges),
        record.shunned,
        window.base if window is not None else 0,
        window.odd if window is not None else {},
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
    own = (group.released, group.tried, group.deadline, group.disabled)
    return KeptGroup(spec, group.closed, group.settled, group.held, group.failed_by, group.doomed, *own)


def _executor(executor: ExecutorRecord) -> KeptExecutor:
    return KeptExecutor(executor.joined, executor.draining, executor.suspended, executor.suspensions, executor.trouble)


def _span(span: Span) -> KeptSpan:
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
    )
