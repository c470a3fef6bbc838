"""What the orders of a dead server asked for and nobody did: memos that were to be looked up.

Everything else comes right by itself: a span that was not sent is not held by the executor that comes back, and one
that should have been stopped is not known. Rule: it looks at the state and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from bough.core.loose import TaskRecord
from bough.core.machine import Machine
from bough.core.memo import key_of
from bough.core.records import WAITING, ArrayRecord
from bough.model.ids import RecordId
from bough.model.orders import Recall
from bough.model.tasks import Reuse

_WAITING = bytes((WAITING,))


def unanswered(machine: Machine) -> Iterator[Recall]:
    """Lookups that tasks wait for."""
    state = machine.state
    for record in state.records.values():
        if not record.recalling or record.waits:
            continue
        number = RecordId(record.id)
        if isinstance(record, TaskRecord):
            if record.state == WAITING:
                yield Recall(number, 0, 1, key_of(state, record))
        elif isinstance(record, ArrayRecord):
            for low, high in _lookups(record):
                wanted = tuple(reuse for reuse in record.spec.reuse if reuse.start < high and low < reuse.stop)
                if record.spec.fed:  # what came with its pages is not known any more: nothing will be found
                    wanted = (Reuse(low, high, RecordId(0), low),)
                if wanted:
                    yield Recall(number, low, high, key_of(state, record, low), wanted)


def _lookups(array: ArrayRecord) -> Iterator[tuple[int, int]]:
    """Waiting elements, those with dependencies of their own alone and only when they are met."""
    for start, stop in array.runs(_WAITING, 0, array.length):
        first = start
        for index in sorted(i for i in array.trouble if start <= i < stop) if array.spec.fed else ():
            if first < index:
                yield first, index
            first = index + 1  # it waits for its next try
        for index in range(start, stop) if array.own_deps else ():
            if index in array.own_deps:
                if first < index:
                    yield first, index
                if index not in array.element_waits:
                    yield index, index + 1
                first = index + 1
        if first < stop:
            yield first, stop
