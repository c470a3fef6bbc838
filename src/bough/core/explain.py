"""Answers to "why?": why a task is not running yet, or how it ended.

Rule: read from the state as it is, most specific reason first, in words a user can act on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bough.core.graph import dependencies
from bough.core.records.array_record import (
    CANCELLED,
    DONE,
    HELD,
    OCCUPYING_STATES,
    READY,
    RUNNING,
    SKIPPED,
    UNSUCCESSFUL_STATES,
    ArrayRecord,
    Record,
)
from bough.core.state import State, TimerKind
from bough.model.resources import show_bytes
from bough.model.states import TaskState
from bough.model.tasks import Dep, On

_MANY = 5  # reasons of one kind shown before "and n more"


def explain(state: State, record_id: int, index: int = 0) -> list[str]:
    """All that can be said of one task."""
    record = state.records.get(record_id)
    if record is None:
        return [f"there is no task {record_id} in this run"]
    if not 0 <= index < record.length:
        return [f"{record_id} has {record.length} tasks, there is no {record_id}.{index}"]
    reached = record.state_of(index)
    name = dependencies.name_of(record, index)
    if reached == DONE:
        return [_success(record, index, name)]
    if reached in UNSUCCESSFUL_STATES:
        return _ending(record, index, name, reached)
    if reached in OCCUPYING_STATES:
        return _whereabouts(state, record, index, name, reached)
    if reached == HELD:
        return [f"{name} is held: {_holder(record, index)}"]
    if reached == READY:
        return _no_room(state, record, name)
    return _waiting(state, record, index, name)


def _success(record: Record, index: int, name: str) -> str:
    success = record.success_of(index)
    if success is not None and success.source != record.id:
        return f"{name} is done: reused from an earlier run, where it was task {success.source}"
    return f"{name} is done"


def _ending(record: Record, index: int, name: str, reached: int) -> list[str]:
    failure = record.failure_of(index)
    if reached == CANCELLED:
        return [f"{name} was cancelled"]
    if failure is None:
        return [f"{name} is {TaskState(reached).label}"]
    if reached == SKIPPED:
        return [f"{name} was not run: {failure.message or failure.cause.value}"]
    failures, losses = record.failures_of(index)
    lines = [f"{name} failed: {failure.message or failure.cause.value}"]
    if failures + losses > 1:
        lines.append(f"it was tried {failures + losses} times, {record.spec.limits.retries} retries were allowed")
    if failure.stderr:
        lines += ["the last lines of its stderr:", *("  " + line for line in failure.stderr.splitlines()[-10:])]
    return lines


def _whereabouts(state: State, record: Record, index: int, name: str, reached: int) -> list[str]:
    span = state.attempts.at(record, index)
    if span is None:
        return [f"{name} is {TaskState(reached).label}"]
    host = span.executor.host
    if reached == RUNNING:
        return [f"{name} is running on {host}, attempt {span.attempt}"]
    if span not in span.executor.front():
        return [f"{name} waits on {host} behind {len(span.executor.spans) - 1} others"]
    return [f"{name} was given to {host}, attempt {span.attempt}, and is starting, or too short to be reported"]


def _holder(record: Record, index: int) -> str:
    for group in record.group.chain():
        if group.disabled:
            return f"its group {group.path or 'the workflow'} is disabled; bough enable {group.path or 'all'}"
        if group.held:
            path = f"{group.path}/*" if group.path else "all"
            return f"its group {group.path or 'the workflow'} is held; release it with: bough release {path}"
    if record.held:
        who = "its array" if record.is_array else "it"
        return f"a user held {who}; release it with: bough release {record.id}"
    return f"a user held {record.id}.{index}; release it with: bough release {record.id}.{index}"


def _no_room(state: State, record: Record, name: str) -> list[str]:
    needs = record.spec.needs
    if state.stopping:
        return [f"{name} is ready, but the session is closing and starts nothing new"]
    if not state.executors:
        return [f"{name} is ready, but there is no executor"]
    able = [executor for executor in state.executors.values() if executor.could_fit(needs)]
    if not able:
        most = {n: max(x.capacity.amounts().get(n, 0) for x in state.executors.values()) for n in needs.amounts()}
        lacking = [f"{n} {_amount(n, needs.amounts()[n])} (the most there is: {_amount(n, most[n])})" for n in most]
        wrong = [text for text, n in zip(lacking, most, strict=True) if needs.amounts()[n] > most[n]]
        return [
            f"{name} needs {needs}, and no executor has that much: {', '.join(wrong) or 'not all of it in one place'}"
        ]
    if all(executor.draining for executor in able):
        return [f"{name} is ready, but every executor that could take it is leaving"]
    for group in record.queue.limits:
        if group.busy >= group.limit:
            return [f"{name} is ready, but its group {group.path} is at its limit of {group.limit} tasks at once"]
    if record.place in state.hosts:
        able = [executor for executor in able if executor.host == record.place]
        if not any(executor.fits(record) for executor in able):
            return [f"{name} is ready and waits for room on {record.place}, where it must run"]
    if any(executor.fits(record) for executor in able):
        return [f"{name} is ready and will be placed in this moment"]
    busy = sum(len(executor.spans) for executor in able)
    return [f"{name} is ready and waits for {needs} to become free; {busy} spans are running on {len(able)} executors"]


def _amount(resource: str, amount: float) -> str:
    if resource == "memory":
        return show_bytes(int(amount))
    return f"{amount:g}"


def _waiting(state: State, record: Record, index: int, name: str) -> list[str]:
    if record.awaits_memo:
        return [f"{name} is being looked up among finished tasks of earlier runs"]
    for when, kind, id_, element in state.timers:
        if kind == TimerKind.RETRY and id_ == record.id and element == index:
            return [f"{name} failed and will be retried in {max(when - state.now, 0):.1f} s"]
    lines = []
    deps = list(record.after)
    if isinstance(record, ArrayRecord):
        deps += [dep for element, own in record.spec.element_after if element == index for dep in own]
    open_deps = list(_unmet(state, deps))
    if open_deps:
        shown = ", ".join(_describe(state, dep) for dep in open_deps[:_MANY])
        more = f" and {len(open_deps) - _MANY} more" if len(open_deps) > _MANY else ""
        lines.append(f"{name} waits for {shown}{more}")
    for group in record.group.chain():
        if group.disabled:
            lines.append(f"its group {group.path or 'the workflow'} is disabled; bough enable {group.path or 'all'}")
        waiting = list(_unmet(state, group.after))
        if waiting:
            shown = ", ".join(_describe(state, dep) for dep in waiting[:_MANY])
            lines.append(f"its group {group.path} waits for {shown}")
    return lines or [f"{name} is waiting"]


def _unmet(state: State, deps: Iterable[Dep]) -> Iterator[Dep]:
    """The dependencies that are not met; a hidden group stands for those that it waits for itself."""
    for dep in deps:
        if _met(state, dep):
            continue
        group = state.groups[dep.id] if dep.is_group else None
        if group is not None and group.name.startswith("."):
            yield from _unmet(state, group.after)
        else:
            yield dep


def _met(state: State, dep: Dep) -> bool:
    if dep.is_group:
        group = state.groups[dep.id]
        return (group.released and dep.on is On.GROUP) or (group.finished and not group.failed_by)
    record = state.records[dep.id]
    return record.state_of(dep.index) == DONE if dep.on is On.TASK else dependencies.is_done(record)


def _describe(state: State, dep: Dep) -> str:
    if dep.is_group:
        group = state.groups[dep.id]
        return f"group {group.path} ({group.unfinished} unfinished)"
    record = state.records[dep.id]
    if dep.on is On.ARRAY and isinstance(record, ArrayRecord):
        return f"array {record.id} ({record.length - record.counts[DONE]} of {record.length} not done)"
    return f"{dependencies.name_of(record, dep.index)} ({TaskState(record.state_of(dep.index)).label})"
