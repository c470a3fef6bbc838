"""Asking the replication policy and carrying out its wishes: running tasks get further attempts beside the first.

It is asked when executors have room after placement had its turn. Of all attempts of a task the first success counts,
and ends the others (see `lifecycle`). Rules: a task is replicated no more often than the policy's cap says, not before
its age, and only where it fits, on an executor that has no attempt of it; never one that its user calls not
idempotent, that saves checkpoints (all attempts would write one file), holds a lock (its replica would wait for it), is
a member of a population under a rule, or was taken by a person. An unlawful wish is passed over; a policy that raises
is not heard further in that turn. Without replication nothing here is called.

A policy that is *unasked* serves users who did not choose replication. It sees only tasks that their user calls
idempotent, or of which nothing is said and whose declared outputs cannot clash (`TaskSpec.atomic_outputs`). Of the
latter it sees none that is watched, because what that reports would be of two attempts, and none that has had a lock,
because who takes one has effects on something that is not its own. It gets only executors on other hosts than those of
the attempts, and is asked at most once a second, and not while anything that is ready waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from heapq import heapify
from math import isfinite
from random import Random
from typing import NamedTuple, cast

from bough.core import lifecycle
from bough.core.pilots.named_queues import capped
from bough.core.populations import populations_of
from bough.core.records.array_record import RUNNING, ArrayRecord
from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.indexes.ready_queue import ReadyQueue
from bough.core.records.indexes.replicas import Candidate
from bough.core.records.indexes.waiting_units import files_read
from bough.core.records.task_record import TaskRecord
from bough.core.state import State, TimerKind
from bough.errors import BoughError
from bough.model.events import facts
from bough.model.events.facts import Fact
from bough.model.events.orders import Order, SendSpan
from bough.model.ids import BlobId, RecordId, Seconds, SpanId
from bough.model.tasks import Page
from bough.policy.interface import AskAgain, ExecutorView, Replicate, ReplicationPolicy, RunningWork, is_unasked

_MOST_REFUSED = 1000  # unlawful wishes in a row before a policy is not asked further in a turn
_NO_PAGES: tuple[Page, ...] = ()
_LONGEST = 1000  # characters of a reason
_SELDOM: Seconds = 1.0  # between two questions to a policy that nobody asked for


def replicate(state: State, random: Random, orders: list[Order]) -> list[Fact]:
    """Make the replicas that the policy wants, as far as they are lawful; the facts, with the orders noted."""
    policy = state.policies.replication
    state.replicas_due = False
    if policy is None or not state.replicas.by_element or not _has_room(state):
        return []
    written: list[Fact] = []
    view = StateReplicationView(state, random, policy)
    if is_unasked(policy) and (later := _better_later(state, policy)) > state.now:
        _ask_again(state, later)
        return []
    if next(view.running(), None) is None or not view.executors():
        if view.next_due is not None:
            _ask_again(state, view.next_due)
        return []
    state.replicas_looked = state.now
    try:
        _follow(state, view, policy, written, orders)
    except BoughError:
        raise  # our own bug, found while carrying out a wish
    except Exception as error:  # noqa: BLE001 a policy is anybody's code: it must not stop the machine
        state.complaints.append(f"the replication policy failed: {error!r}")
    if view.next_due is not None:
        _ask_again(state, view.next_due)
    return written


def _better_later(state: State, policy: ReplicationPolicy) -> Seconds:
    """When a policy that nobody asked for is asked; the past: now.

    Not while something is ready that may yet want the executors that idle; and seldom, because it looks at what runs.
    """
    if next(iter(state.demand), None) is not None:
        return state.now + max(policy.age, _SELDOM)
    return state.replicas_looked + _SELDOM


def catch_up(state: State) -> None:
    """Note what runs already, when a server begins that replicates: an earlier one may not have."""
    for span in list(state.spans.values()):
        for low, high in span.left:
            for start, stop in span.record.runs(bytes((RUNNING,)), low, high):
                for index in range(start, stop):
                    if state.replicas.get(state.records, span.record.id, index) is None:
                        since = span.heard or state.now
                        state.replicas.note_started(state.records, span, index, index + 1, since)


def _has_room(state: State) -> bool:
    """Whether some cores are not held, as far as that is seen without looking at executors."""
    return state.cores > sum(queue.cores for queue in state.named_queues.records.values())


def _follow(
    state: State, view: StateReplicationView, policy: ReplicationPolicy, written: list[Fact], orders: list[Order]
) -> None:
    refused = 0
    for wish in policy.replicate(view):
        found = None
        if isinstance(wish, AskAgain):
            view.ask_at(wish.when)
        elif (found := view.lawful(wish)) is not None:
            refused = 0
            written.append(_send(state, *found, wish.reason, orders))
            view.took(found[1])
        if found is None:
            refused += 1
            if refused > _MOST_REFUSED:
                state.complaints.append(
                    f"the replication policy was not asked further in this turn: none of {_MOST_REFUSED} wishes in a"
                    " row made a replica"
                )
                return


def _send(
    state: State, candidate: Candidate, executor: ExecutorRecord, reason: str, orders: list[Order]
) -> facts.Replicated:
    """Give a task to one more executor."""
    record, index, text = candidate.record, candidate.index, _plain(reason)
    span = SpanId(state.last_span + 1)
    if isinstance(record, TaskRecord):
        attempt, pages = record.attempt + 1, _NO_PAGES
    else:
        attempt, pages = record.attempts.get(index, 1) + 1, record.pages(index, index + 1)
    fact = facts.Replicated(span, RecordId(record.id), index, attempt, executor.id, text)
    if state.named_queues.several:
        state.named_queues.charge(record.queue.named, record.queue.cores)
    lifecycle.place_replica(state, fact, record, executor)
    watch: tuple[BlobId, ...] = state.watch.plans_of(record, index) if record.queue.workflow.watched else ()
    spec = record.spec if not record.queue.needs.queue else capped(record.spec, record.queue.named)
    each = record.runtime.slot
    orders.append(SendSpan(executor.id, span, spec, index, index + 1, attempt, pages, each, watch=watch, replica=True))
    return fact


def _plain(reason: str) -> str:
    """A policy's words as they can be kept."""
    return reason[:_LONGEST].encode("utf-8", "replace").decode().replace("\0", " ")


def _ask_again(state: State, when: Seconds) -> None:
    """Look again at a time, unless that is going to happen before it anyway."""
    if when > state.now and not (state.now < state.replicas_at <= when):
        state.replicas_at = when
        state.set_timer(when, TimerKind.REPLICAS, 0)


def stop_waiting(state: State) -> None:
    """Nothing runs that could grow old enough: nobody need look again."""
    state.replicas_at = 0.0
    state.timers = [timer for timer in state.timers if timer[1] != TimerKind.REPLICAS]
    heapify(state.timers)


class _Taken(NamedTuple):
    """Where a replica of a task may not go."""

    executors: set[int]  # that have an attempt of it, or on which it failed for reasons of theirs
    hosts: AbstractSet[tuple[str, str]]  # with their sites: that have an attempt, if a replica must leave them


class StateReplicationView:
    """What runs, at one instant; what was wished for and carried out is in it."""

    def __init__(self, state: State, random: Random, policy: ReplicationPolicy) -> None:
        self._state = state
        self._random = random
        self._cap = policy.cap
        self._age = policy.age
        self._is_unasked = is_unasked(policy)
        self._full: set[ReadyQueue] = set()  # of tasks that fit on no idle executor
        self.next_due: Seconds | None = None  # when the policy is to be asked in any case

    @cached_property
    def _idle(self) -> dict[int, ExecutorRecord]:
        """The executors that have room: looked for once something is old enough."""
        open_executors = self._state.open_executors.values()
        return {executor.id: executor for executor in open_executors if executor.cores_free > 0}

    @property
    def now(self) -> Seconds:
        """The time."""
        return self._state.now

    @property
    def random(self) -> Random:
        """The only dice."""
        return self._random

    def running(self) -> Iterator[RunningWork]:
        """What may be replicated, the least replicated first."""
        state = self._state
        for candidate in state.replicas.in_order(state.records, self._cap, self._is_young):
            if self._is_free(candidate):
                yield candidate

    def executors(self) -> Sequence[ExecutorView]:
        """Those that have room."""
        return list(self._idle.values())

    def may_run(self, work: RunningWork, executor: ExecutorView) -> bool:
        """Whether a replica of some work could start on an executor now."""
        candidate = cast("Candidate", work)
        return self._may_run(candidate, cast("ExecutorRecord", executor), self._taken(candidate))

    def executor_for(self, work: RunningWork) -> ExecutorView | None:
        """The executor that has been open the longest and could run it."""
        candidate = cast("Candidate", work)
        record, taken = candidate.record, self._taken(candidate)
        if record.queue in self._full:
            return None
        fits_nowhere = True
        for executor in self._idle.values():
            if self._may_run(candidate, executor, taken):
                return executor
            fits_nowhere = fits_nowhere and not executor.fits(record)
        if fits_nowhere:  # and so does all that needs the same
            self._full.add(record.queue)
        return None

    def affinity(self, work: RunningWork, executor: ExecutorView) -> int:
        """Bytes of its inputs that the executor's site holds, as far as that is known."""
        record = cast("Candidate", work).record
        run, files, index = record.group.workflow.run, files_read(record, work.index), self._state.affinity
        if index is not None and index.frozen:  # the second phase goes by what the first one goes by
            return index.bytes_then(run, files, executor.site)
        return self._state.data.bytes_at(run, files, executor.site)

    # --- what the core does between two wishes -------------------------------------------------------

    def ask_at(self, when: Seconds) -> None:
        """The policy is to be asked at a time in any case."""
        if isfinite(when) and when > self._state.now and (self.next_due is None or when < self.next_due):
            self.next_due = when

    def took(self, executor: ExecutorRecord) -> None:
        """An executor got a replica."""
        if executor.bound is not None and (reached := executor.bound.reached()) is not None:
            self._state.park(executor, reached)
        if executor.cores_free <= 0:
            self._idle.pop(executor.id, None)
        if not executor.is_open():
            self._state.open_executors.pop(executor.id, None)

    def lawful(self, wish: object) -> tuple[Candidate, ExecutorRecord] | None:
        """What a wish names, if it is one and may be carried out."""
        if not isinstance(wish, Replicate):
            return None
        state = self._state
        candidate = state.replicas.get(state.records, wish.record, wish.index)
        executor = self._idle.get(wish.executor)
        if candidate is None or executor is None or candidate.replicas >= self._cap:
            return None
        if self._is_young(candidate) or not self._is_free(candidate):
            return None
        return (candidate, executor) if self._may_run(candidate, executor, self._taken(candidate)) else None

    def _is_young(self, candidate: Candidate) -> bool:
        """Whether a task has not run for long enough; the policy is asked again when it has."""
        old_at = candidate.since + self._age
        if old_at <= self._state.now:
            return False
        self.ask_at(old_at)
        return True

    def _taken(self, candidate: Candidate) -> _Taken:
        """Where a replica of a task may not go, because of the attempts that there are or were."""
        record, index = candidate.record, candidate.index
        avoided = record.avoid if isinstance(record, TaskRecord) else record.avoided.get(index, ())
        having = [span.executor for span in self._state.attempts.of(record, index, index + 1)]
        hosts = {(one.site, one.host) for one in having} if self._is_unasked else frozenset()
        return _Taken({one.id for one in having}.union(avoided), hosts)

    def _is_free(self, candidate: Candidate) -> bool:
        """Whether nothing of what a task does now speaks against running it twice."""
        state, record, index = self._state, candidate.record, candidate.index
        queue = record.queue
        if (queue.limits or queue.named.bounded) and queue.spare <= 0:
            return False
        if record.held or record.group.workflow.first_failure is not None:
            return False  # nothing more of it is started
        if state.held_groups and record.group.is_held():
            return False
        if isinstance(record, ArrayRecord) and any(low <= index < high for low, high in record.held_ranges):
            return False
        if state.ruled and populations_of(state, record):
            return False
        is_trusted = not self._is_unasked or record.spec.limits.repeatable
        if not is_trusted and self._is_watched(candidate):
            return False
        for span in state.attempts.of(record, index, index + 1):
            if span.id in (state.locks.by_span if is_trusted else state.locks.users):
                return False
            if span.executor.draining and not span.executor.pid:
                return False
        return True

    def _is_watched(self, candidate: Candidate) -> bool:
        record = candidate.record
        return record.queue.workflow.watched and bool(self._state.watch.plans_of(record, candidate.index))

    def _may_run(self, candidate: Candidate, executor: ExecutorRecord, taken: _Taken) -> bool:
        state, record = self._state, candidate.record
        if executor.id in taken.executors or (executor.site, executor.host) in taken.hosts:
            return False
        if executor.draining or executor.suspended or executor.away:
            return False
        if executor.bound is not None and executor.bound.reached() is not None:
            return False
        if record.place in state.hosts and executor.host != record.place:
            return False
        return executor.fits(record) and executor.ends_before(record, state.now)
