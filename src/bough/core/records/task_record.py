"""The record of a loose task, made small: there may be millions of them waiting.

What many tasks have in common (function, name, needs, limits, group) is kept once, as the *like* of them all: the spec
of the first one that had it. A task's own spec is put together when it is asked for. Rule: a record holds facts about
itself and changes only through the modules of this package; it offers what an array's does, as an array of one.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Protocol

import msgspec

from bough.core.records.group_record import GroupRecord, Waiter
from bough.core.records.indexes.ready_queue import ReadyQueue
from bough.model.arrays.ranges import Ranges
from bough.model.arrays.runtimes import RunTime
from bough.model.ids import MemoKey, Seconds
from bough.model.outcomes import Failure, Success
from bough.model.sites.resources import Needs
from bough.model.states import TaskState
from bough.model.tasks import NO_EXTRAS, Dep, FileRef, Kind, TaskSpec

_WAITING, _DONE = int(TaskState.WAITING), int(TaskState.DONE)


class FailureHistory(msgspec.Struct, gc=False):
    """What only a task has with which something went wrong."""

    failures: int = 0  # of its own
    losses: int = 0  # executors and workers that died under it
    avoid: tuple[int, ...] = ()  # executors on which it failed for reasons of theirs
    failure: Failure | None = None  # why it did not succeed


def share_spec(spec: TaskSpec, like: TaskSpec) -> bool:
    """Whether two specs differ in nothing but their own; without a template each has a run time of its own."""
    return (
        spec.template != ""
        and spec.body == like.body
        and spec.name == like.name
        and spec.template == like.template
        and spec.group == like.group
        and (spec.needs is like.needs or spec.needs == like.needs)
        and (spec.limits is like.limits or spec.limits == like.limits)
        and spec.priority == like.priority
        and spec.kind is like.kind
        and spec.always is like.always
        and spec.extras.host == like.extras.host
        and spec.extras.watch == like.extras.watch
    )


def _has_own(spec: TaskSpec) -> bool:
    """Whether a spec says more than what is alike, and a payload."""
    extras = spec.extras
    return bool(
        spec.after
        or spec.writes
        or spec.reads
        or spec.payload_path
        or (extras is not NO_EXTRAS and extras != NO_EXTRAS)
    )


def can_batch(one: TaskRecord, other: TaskRecord) -> bool:
    """Whether two tasks differ in nothing that an executor must be told but their numbers and arguments."""
    if (
        one.shared_spec is not other.shared_spec
        or one.attempt != other.attempt
        or one.shared_spec.kind is not Kind.FUNCTION
    ):
        return False  # a command costs far more to start than to send
    own, others = one.own, other.own
    if own is None or others is None:
        return own is others
    return (
        own.after == others.after
        and own.inputs == others.inputs
        and not (own.writes or others.writes or own.payload_path or others.payload_path or own.reads or others.reads)
        and own.extras.checkpoint is others.extras.checkpoint is None
    )


def continues_chain(record: TaskRecord, before: TaskRecord) -> bool:
    """Whether a task is like the one before it in a chain and takes the value of that, and only of that."""
    like, own = record.shared_spec, record.own
    if like is not before.shared_spec or own is None or record.attempt or before.attempt != 1:
        return False
    if like.limits.timeout or like.limits.memory or own.writes or own.payload_path or len(own.inputs) != 1:
        return False
    if own.reads:
        return False
    if own.extras.checkpoint is not None:
        return False
    return own.after == own.inputs and own.inputs[0].id == before.id


class TaskRecord:
    """See the module."""

    __slots__ = (
        "attempt",
        "awaits_memo",
        "dependents",
        "generation",
        "group",
        "held",
        "id",
        "key",
        "occurrence",
        "original",
        "own",
        "payload",
        "priority",
        "queue",
        "queue_key",
        "ran_at",
        "ready",
        "runtime",
        "shared_spec",
        "state",
        "trouble",
        "turn",
        "urgent",
        "waits",
    )

    def __init__(self, spec: TaskSpec, like: TaskSpec, group: GroupRecord, runtime: RunTime, queue: ReadyQueue) -> None:
        self.id: int = spec.id
        self.shared_spec = like
        self.own = spec if _has_own(spec) else None
        self.payload = spec.payload
        self.key: MemoKey = spec.key
        self.group = group
        self.priority = spec.priority
        self.runtime = runtime
        self.queue = queue
        self.occurrence = 0
        self.state = _WAITING
        self.ready: int = 0  # how many of its elements are ready; kept by `State.move`
        self.attempt = 0  # the last one
        self.waits = 0
        self.generation = 0
        self.held = False
        self.awaits_memo = False
        self.urgent = 0  # see `ready_queue`: what was given back goes first
        self.trouble: FailureHistory | None = None
        self.dependents: list[Waiter] | None = None
        self.turn = 0  # that says it succeeded
        self.ran_at = ""  # the host where it did
        self.original: tuple[int, int, int] | None = None  # record, index, attempt of its success, if not its last
        self.queue_key: tuple[object, ...] = ()  # its valid entry in the ready queue

    length = 1  # class attributes: a loose task is an array of one
    is_array = False

    @property
    def spec(self) -> TaskSpec:
        """As it was submitted."""
        own = self.own
        if own is not None:
            return own
        like = self.shared_spec
        return TaskSpec(
            self.id,  # type: ignore[arg-type]
            like.kind,
            like.body,
            self.payload,
            like.group,
            like.name,
            like.template,
            like.needs,
            like.limits,
            like.priority,
            (),
            (),
            self.key,
            always=like.always,
        )

    @property
    def after(self) -> tuple[Dep, ...]:
        """What it waits for."""
        own = self.own
        return own.after if own is not None else ()

    @property
    def workflow(self) -> int:
        """The number of the run that it belongs to."""
        return self.group.workflow.run

    @property
    def declares_reads(self) -> bool:
        """Whether it declares files that it reads."""
        return self.own is not None and bool(self.own.reads)

    def files_of(self, _: int) -> tuple[FileRef, ...]:
        """The files that it reads; as of an array, whose elements have numbers."""
        return self.own.reads if self.own is not None else ()

    @property
    def has_inputs(self) -> bool:
        """Whether it declares files that it reads and that a host may have already."""
        return self.own is not None and len(self.own.reads) > self.own.fresh

    @property
    def reusable_reads(self) -> tuple[FileRef, ...]:
        """The files that it reads and that a host may have already; not those that are sent for each attempt anew."""
        own = self.own
        if own is None:
            return ()
        return own.reads[: max(0, len(own.reads) - own.fresh)] if own.fresh else own.reads

    @property
    def dependents_count(self) -> int:
        """How many wait for it directly."""
        return len(self.dependents) if self.dependents is not None else 0

    @property
    def path_below(self) -> Seconds:
        """The expected run time of it and of the longest chain of dependents."""
        return longest_path(self)

    @property
    def attributes(self) -> dict[str, str]:
        """What the user said of it, and of the groups around it."""
        return self.group.attributes_with(self.own.extras.attributes if self.own is not None else ())

    @property
    def needs(self) -> Needs:
        """What one element occupies."""
        return self.queue.needs

    @property
    def expected(self) -> Seconds:
        """Expected run time: measured, or the user's estimate, or 0 when unknown."""
        return self.runtime.mean or self.shared_spec.limits.walltime

    @property
    def avoid(self) -> tuple[int, ...]:
        """Executors that it should rather not go to."""
        trouble = self.trouble
        return trouble.avoid if trouble is not None else ()

    @property
    def place(self) -> str:
        """The host where it must run, as long as that is there."""
        return self.queue.place

    def state_of(self, index: int) -> int:
        """The state of an element."""
        return self.state

    def count(self, state: int, start: int, stop: int) -> int:
        """How many elements of a range are in a state."""
        return 1 if self.state == state else 0

    def runs(self, wanted: bytes, start: int, stop: int) -> Ranges:
        """The runs of elements within a range that are in one of the wanted states."""
        return [[0, 1]] if self.state in wanted and start <= 0 < stop else []

    def make_ready(self, start: int, stop: int, *, first: int = 0) -> None:
        """Note that elements may be sent: their attempt number is the next one."""

    def unready(self, start: int, stop: int) -> None:
        """Note that ready elements may not be sent any more."""

    def withdraw(self, start: int, stop: int) -> None:
        """As `unready`, for whatever is ready in a range."""

    def _troubled(self) -> FailureHistory:
        if self.trouble is None:
            self.trouble = FailureHistory()
        return self.trouble

    def avoid_at(self, index: int, executor: int) -> None:
        """Remember where an element should rather not go again."""
        self._troubled().avoid = (*self.avoid, executor)

    def failures_of(self, index: int) -> tuple[int, int]:
        """Failures of its own and losses so far."""
        trouble = self.trouble
        return (trouble.failures, trouble.losses) if trouble is not None else (0, 0)

    def blame(self, index: int, failures: int, losses: int) -> None:
        """Set failures and losses."""
        if failures or losses or self.trouble is not None:
            trouble = self._troubled()
            trouble.failures, trouble.losses = failures, losses

    def set_failure(self, start: int, stop: int, failure: Failure | None) -> None:
        """Keep why elements did not succeed."""
        if failure is not None or self.trouble is not None:
            self._troubled().failure = failure

    def failure_of(self, index: int) -> Failure | None:
        """Why an element did not succeed."""
        return self.trouble.failure if self.trouble is not None else None

    def succeed(self, success: Success) -> None:
        """Keep where elements succeeded."""
        self.turn = success.turn
        if success.source != self.id:
            self.original = (success.source, success.source_start, success.attempt)

    def won(self, attempt: int) -> None:
        """Keep which of several attempts succeeded; the number of the last one stays, so that none is given twice."""
        if attempt != self.attempt:
            self.original = (self.id, 0, attempt)

    def successes(self) -> list[Success]:
        """All successes, in order of their elements."""
        success = self.success_of(0)
        return [success] if success is not None else []

    def success_of(self, index: int) -> Success | None:
        """Where one element succeeded."""
        if self.state != _DONE:
            return None
        source, start, attempt = self.original or (self.id, 0, self.attempt)
        return Success(0, 1, self.turn, source, start, attempt)

    def wait_for_element(self, index: int, waiter: Waiter) -> None:
        """Let a waiter wait for one element."""
        if self.dependents is None:
            self.dependents = []
        self.dependents.append(waiter)


class _Chained(Protocol):
    """What the length of a path asks of a record."""

    dependents: list[Waiter] | None

    @property
    def expected(self) -> Seconds:
        """Expected run time of one task of it."""


_MOST_BELOW = 256  # dependents that are looked at for one path


def longest_path(record: _Chained) -> Seconds:
    """The longest sum of expected run times from a record along its dependents, as far as some of them tell.

    Each dependent counts by the longest way that leads to it; a walk through at most `_MOST_BELOW` of them finds it.
    """
    longest = best = record.expected or 1.0
    seen: dict[int, Seconds] = {id(record): longest}
    stack: list[tuple[Any, Seconds]] = [(record, longest)]
    looked = 0
    while stack and looked < _MOST_BELOW:
        one, so_far = stack.pop()
        for waiter, _, _ in islice(getattr(one, "dependents", None) or (), _MOST_BELOW):
            looked += 1
            length = so_far + (getattr(waiter, "expected", 0.0) or 1.0)
            if length > seen.get(id(waiter), 0.0):
                seen[id(waiter)] = length
                best = max(best, length)
                stack.append((waiter, length))
    return best
