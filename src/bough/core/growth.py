"""Attempts that ask for more: after a memory or time limit ended an attempt, the next one gets a larger one.

A task that says `memory="2GB*2"` needs, and may use, twice as much after each attempt that its memory limit ended; a
time limit grows likewise. What grows is the record's own spec, so that placement, messages to executors, `explain` and
snapshots all see the same need. Of an array all elements that have not started grow together, because they are one
record; an element that failed with less than the others have by now raises nothing.
Rule: a replay of the same facts makes the same of them. Memory grows to what the largest executor has, and no further.
"""

from __future__ import annotations

from msgspec.structs import replace

from bough.core.records.array_record import ArrayRecord
from bough.core.records.attempts import Span
from bough.core.records.executor_record import ExecutorRecord, RelayExecutorRecord
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.model.bounds import LONGEST
from bough.model.events.facts import ElementFailed
from bough.model.outcomes import Cause
from bough.model.sites.resources import Needs
from bough.model.tasks import Limits, TaskSpec


def ask_for_more(state: State, span: Span, fact: ElementFailed) -> None:
    """An element failed and is tried again: let its record ask for more, if a limit was the reason."""
    record, cause = span.record, fact.failure.cause
    if cause is not Cause.MEMORY and cause is not Cause.TIMEOUT:
        return
    spec = record.spec
    needs, limits = spec.needs, spec.limits
    if cause is Cause.MEMORY and limits.memory_growth:
        had = span.queue.needs.memory or limits.memory
        memory = max(limits.memory, min(int(had * limits.memory_growth), _most_memory(state, needs)))
        needs = replace(needs, memory=max(needs.memory, memory)) if needs.memory else needs
        limits = replace(limits, memory=memory)
    elif cause is Cause.TIMEOUT and limits.timeout_growth:
        detail = fact.detail
        ran = detail.ended - detail.started if detail is not None and detail.started else limits.timeout
        had_time = min(limits.timeout, ran)
        timeout = min(max(limits.timeout, had_time * limits.timeout_growth), float(LONGEST))
        limits = replace(limits, timeout=timeout)
    if limits == spec.limits:
        return
    _respecify(record, needs, limits)
    if needs != record.needs:
        state.requeue(record, state.queue_for(needs, record.group, record.place))


def _respecify(record: TaskRecord | ArrayRecord, needs: Needs, limits: Limits) -> None:
    if isinstance(record, ArrayRecord):
        record.spec = replace(record.spec, needs=needs, limits=limits)
        return
    spec = replace(record.spec, needs=needs, limits=limits)
    record.shared_spec = spec
    if record.own is not None:
        record.own = spec


def _most_memory(state: State, needs: Needs) -> int:
    """The memory of the largest executor that could run such a task; without any there is no limit."""
    could_fit = state.named_queues.could_fit
    able = [executor for executor in state.executors.values() if could_fit(executor, needs)]
    return int(max(map(_memory, able), default=LONGEST))


def is_like(said: TaskSpec, there: TaskSpec) -> bool:
    """Whether a description still says what a task needs and what limits it, which may have grown since."""
    if said.needs == there.needs and said.limits == there.limits:
        return True
    limits = said.limits
    more = limits.memory_growth and there.limits.memory > limits.memory
    grown = replace(limits, memory=there.limits.memory) if more else limits
    if limits.timeout_growth and there.limits.timeout > limits.timeout:
        grown = replace(grown, timeout=there.limits.timeout)
    needs = replace(said.needs, memory=there.needs.memory) if more else said.needs
    return needs == there.needs and grown == there.limits


def _memory(executor: ExecutorRecord) -> float:
    return executor.each.memory if isinstance(executor, RelayExecutorRecord) else executor.capacity.memory
