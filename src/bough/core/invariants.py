"""The conservation laws of the core, checked by tests after every turn.

Rule: each law is recomputed from scratch here, never read from the index it checks.
"""

from __future__ import annotations

from bough.core import ranges
from bough.core.records import PLACED, READY, RUNNING, STATES, ArrayRecord, GroupRecord, Record
from bough.core.state import State
from bough.core.states import ENDED
from bough.errors import InvariantBroken

_BUSY = bytes((PLACED, RUNNING))
_ENDED = {int(state) for state in ENDED}


def check(state: State) -> None:
    """Raise `InvariantBroken` naming the first law that does not hold."""
    for group in state.groups.values():
        _counts(group)
        _unfinished(group)
    for record in state.records.values():
        _ready(state, record)
    _spans(state)
    _resources(state)
    _totals(state)


def _demand(holds: bool, law: str) -> None:
    if not holds:
        raise InvariantBroken(law)


def _states(record: Record) -> bytes:
    return bytes(record.state_of(index) for index in range(record.length))


def _counts(group: GroupRecord) -> None:
    counted = [0] * STATES
    for record in group.members:
        own = _states(record)
        for state in own:
            counted[state] += 1
        if isinstance(record, ArrayRecord):
            _demand(record.counts == [own.count(s) for s in range(STATES)], f"counts of array {record.id} are wrong")
    _demand(counted == group.counts, f"counts of group {group.id} are {group.counts}, should be {counted}")


def _unfinished(group: GroupRecord) -> None:
    own = sum(1 for record in group.members for state in _states(record) if state not in _ENDED)
    own += sum(1 for record in group.members if isinstance(record, ArrayRecord) and record.open)
    below = sum(1 for child in group.children if not child.settled)
    _demand(group.unfinished == own + below, f"group {group.id} has {own + below} unfinished, not {group.unfinished}")
    _demand(not group.settled or (group.closed and not group.unfinished), f"group {group.id} is settled too early")


def _ready(state: State, record: Record) -> None:
    runs = record.runs(bytes((READY,)), 0, record.length)
    _demand(record.ready == ranges.size(runs), f"record {record.id} says {record.ready} ready, has {runs}")
    if isinstance(record, ArrayRecord):
        offered = sorted([start, stop] for start, stop, _ in record.ready_ranges)
        indexes = [index for start, stop in offered for index in range(start, stop)]
        truth = [index for start, stop in runs for index in range(start, stop)]
        _demand(indexes == truth, f"array {record.id} offers {offered}, ready are {runs}")
    if record.ready:
        queued = any(entry[0] is record.queue_key for entry in record.queue.entries())
        _demand(queued and record.queue in state.waiting, f"record {record.id} is ready but not in the queue")


def _spans(state: State) -> None:
    held: set[tuple[int, int]] = set()
    for span in state.spans.values():
        _demand(bool(span.left), f"span {span.id} holds nothing")
        _demand(span.executor.spans.get(span.id) is span, f"span {span.id} is not with its executor")
        for start, stop in span.left:
            for index in range(start, stop):
                _demand(span.record.state_of(index) in _BUSY, f"{span.record.id}.{index} is with a span, not busy")
                _demand((span.record.id, index) not in held, f"{span.record.id}.{index} is with two spans")
                held.add((span.record.id, index))
    busy = {(r.id, i) for r in state.records.values() for lo, hi in r.runs(_BUSY, 0, r.length) for i in range(lo, hi)}
    _demand(busy == held, f"busy without a span: {sorted(busy - held)[:5]}")


def _resources(state: State) -> None:
    for executor in state.executors.values():
        used: dict[str, float] = {}
        for span in executor.spans.values():
            _demand(
                span.front != (span.id in executor.backlog),
                f"span {span.id} is in front and in the backlog, or neither",
            )
            if span.front:
                for name, amount in span.record.spec.needs.amounts().items():
                    used[name] = used.get(name, 0) + amount
        for name, amount in executor.capacity.amounts().items():
            free = executor.free(name)
            _demand(free >= -1e-9, f"executor {executor.id} is oversubscribed: {name} {free}")
            law = f"executor {executor.id}: {name} free {free} + used {used.get(name, 0)} is not {amount}"
            _demand(abs(free + used.get(name, 0) - amount) < 1e-6, law)
        tasks = sum(span.stop - span.start for span in executor.backlog.values())
        _demand(tasks == executor.backlog_tasks, f"executor {executor.id}: {tasks} tasks in its backlog")
        load = sum(span.load for span in executor.backlog.values())
        _demand(abs(load - executor.load) < 1e-6, f"executor {executor.id}: load {executor.load}, should be {load}")


def _totals(state: State) -> None:
    unended = sum(1 for record in state.records.values() for s in _states(record) if s not in _ENDED)
    _demand(unended == state.unended, f"{unended} tasks have not ended, the core says {state.unended}")
    cores = sum(executor.capacity.cores for executor in state.executors.values())
    _demand(abs(cores - state.cores) < 1e-6, f"{cores} cores, the core says {state.cores}")


def _waits(record: Record) -> int:
    """What a record waits for; of no meaning once it has ended."""
    return record.waits if any(state not in _ENDED for state in _states(record)) else 0


def picture(state: State) -> dict[str, object]:
    """What two states must agree on to be the same; for replay and snapshot tests."""
    return {
        "records": {
            r.id: (_states(r), _waits(r), r.priority, r.held, [r.failures_of(i) for i in range(r.length)], r.ready)
            for r in state.records.values()
        },
        "groups": {
            g.id: (g.counts, g.unfinished, g.closed, g.settled, g.waits, g.held, g.failed_by)
            for g in state.groups.values()
        },
        "spans": {s.id: (s.record.id, s.left, s.attempt, s.executor.id, s.front) for s in state.spans.values()},
        "executors": {
            x.id: ([x.free(n) for n in sorted(x.capacity.amounts())], round(x.load, 9), x.draining)
            for x in state.executors.values()
        },
        "totals": (state.unended, state.open_arrays, state.last_span, state.turn, state.stopping),
    }
