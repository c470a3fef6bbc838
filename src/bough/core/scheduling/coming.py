"""What becomes ready next: tasks that wait for nothing but what executors have, or what is ready.

It is seen by looking at some of the spans that are out, and at who waits for their tasks and groups. Rule: the look
is bounded, however much runs and waits; of a group with many tasks some stand for all. What it does not see is not
known to come, and nothing worse follows. Replicas do not count: their task ends once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from bough.core.records.array_record import PLACED, READY, RUNNING, WAITING, ArrayRecord, Record
from bough.core.records.attempts import Span
from bough.core.records.group_record import GroupRecord, Waiter
from bough.core.state import State
from bough.model.ids import Seconds
from bough.model.sites.resources import Needs
from bough.policy.interface import Coming

_LOOK: Final = 64  # spans, waiters of a thing, tasks of a group


class _Awaited:
    """What waits for things that will end soon: how many of these it waits for, and when the last one ends."""

    __slots__ = ("after", "ends", "waiter")

    def __init__(self, waiter: Record | GroupRecord) -> None:
        self.waiter = waiter
        self.ends = 0
        self.after: Seconds = 0.0

    def note(self, after: Seconds) -> None:
        self.ends += 1
        self.after = max(self.after, after)


def coming(state: State) -> list[Coming]:
    """See the module."""
    awaited: dict[int, _Awaited] = {}
    groups: dict[int, Seconds] = {}  # that have something out: when what was looked at of them ends
    tops: dict[int, GroupRecord] = {}
    for span in _firsts(state):
        left = _left(state, span)
        record = span.record
        if record.dependents and not (record.is_array and not _is_last(record)):
            _note(awaited, record.dependents, left)
        for group in record.group.chain():
            if group.dependents or group.waiting_for_end:
                tops[group.id] = group
                groups[group.id] = max(groups.get(group.id, 0.0), left)
    for number, group in tops.items():
        if _ends_soon(group):
            after = groups[number] + _queued(state, group)
            _note(awaited, group.dependents, after)
            _note(awaited, group.waiting_for_end, after)
    found: dict[Needs, list[float]] = {}
    for one in awaited.values():
        if one.waiter.waits == one.ends:
            for needs, tasks, expected in _tasks_of(one.waiter):
                sums = found.setdefault(needs, [0.0, 0.0, 0.0, 0.0])
                sums[0] += tasks
                sums[1] += tasks * expected
                sums[2] += tasks if expected else 0
                sums[3] = max(sums[3], one.after)
    coming = [
        Coming(needs, round(tasks), seconds / known if known else 0.0, after)
        for needs, (tasks, seconds, known, after) in found.items()
    ]
    return list(_let_out(state, coming)) if state.named_queues.several else coming


def _let_out(state: State, found: list[Coming]) -> Iterator[Coming]:
    """What of it its queues will let out at once: what they hold now will have ended, what is ready goes first."""
    taken: dict[str, float] = {}
    for one in found:
        queue, cores = state.named_queues[one.needs.queue], one.needs.cores
        if not queue.spec.max_cores:
            yield one._replace(expected=queue.at_most(one.expected))
            continue
        if queue.name not in taken:
            taken[queue.name] = min(
                sum((shape.ready * shape.needs.cores for shape in queue.shapes), 0.0), queue.spec.max_cores
            )
        tasks = min(one.tasks, queue.room(cores, taken[queue.name]))
        if tasks:
            taken[queue.name] += tasks * cores
            yield one._replace(tasks=tasks, expected=queue.at_most(one.expected))


def remaining(state: State) -> list[Seconds]:
    """About how long some of what executors have will still run."""
    return [_left(state, span) for span in _firsts(state) if span.record.expected]


def _firsts(state: State) -> Iterator[Span]:
    """Some of the spans that are out, without replicas."""
    replicas = state.attempts.replicas
    return (span for span in islice(state.spans.values(), _LOOK) if span.id not in replicas)


def _left(state: State, span: Span) -> Seconds:
    """How long a span will still run, about."""
    whole = _length(state, span.record) * (span.stop - span.start)
    return max(0.0, whole - (state.now - span.heard)) if span.heard else whole


def _is_last(record: Record) -> bool:
    """Whether all of an array is out, ready or done."""
    return isinstance(record, ArrayRecord) and not record.open and not record.counts[WAITING]


def _ends_soon(group: GroupRecord) -> bool:
    """Whether nothing in a group waits, and no group in it goes on."""
    counts = group.counts
    return group.closed and group.unfinished == counts[READY] + counts[PLACED] + counts[RUNNING]


def _queued(state: State, group: GroupRecord) -> Seconds:
    """How long what is ready of a group keeps all cores busy, about."""
    ready = group.counts[READY]
    if not ready or not state.cores:
        return 0.0
    some = [record for record in islice(group.members, _LOOK) if record.ready]
    each = max((_length(state, record) * max(record.needs.cores, 0.01) for record in some), default=0.0)
    return ready * each / min([state.cores, *(most for record in some if (most := _ceiling(state, record)))])


def _length(state: State, record: Record) -> Seconds:
    """How long a task of a record will run, about."""
    name = record.needs.queue
    return state.named_queues[name].at_most(record.expected) if name else record.expected


def _ceiling(state: State, record: Record) -> float:
    """The cores that the queue of a record may hold, 0: any number."""
    name = record.needs.queue
    return state.named_queues[name].spec.max_cores if name else 0.0


def _note(awaited: dict[int, _Awaited], waiters: Iterable[Waiter], after: Seconds) -> None:
    for waiter, index, generation in islice(waiters, _LOOK):
        if index < 0 and waiter.generation == generation:
            known = awaited.get(id(waiter))
            if known is None:
                known = awaited[id(waiter)] = _Awaited(waiter)
            known.note(after)


def _tasks_of(waiter: Record | GroupRecord) -> Iterator[tuple[Needs, float, Seconds]]:
    """The tasks that become ready with a waiter: needs, how many, and the expected run time of one."""
    if not isinstance(waiter, GroupRecord):
        yield waiter.needs, waiter.count(WAITING, 0, waiter.length), waiter.expected
        return
    some = [record for record in islice(waiter.records(), _LOOK) if record.waits <= 1]
    seen = [(record, record.count(WAITING, 0, record.length)) for record in some]
    total = sum(tasks for _, tasks in seen)
    share = waiter.counts[WAITING] / total if total and len(some) == _LOOK else 1.0
    for record, tasks in seen:
        if tasks:
            yield record.needs, tasks * max(1.0, share), record.expected
