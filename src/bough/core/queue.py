"""The ready index: which records have something to hand out, best first, by what they need.

Records with equal needs share one heap, so that a shape of task that fits nowhere costs one look a
turn, however many of them wait. Rule: an entry is valid while it equals its record's `queue_key` and
the record still has something ready; stale entries are dropped when they surface.
"""

from __future__ import annotations

from heapq import heappop, heappush

from bough.core.records import Record
from bough.model.resources import Needs

Key = tuple[float, ...]
Entry = tuple[Key, int, Record]


class ReadyIndex:
    """All ready records, in one heap per shape of needs."""

    def __init__(self) -> None:
        self._heaps: dict[Needs, list[Entry]] = {}
        self._ticket = 0

    def push(self, record: Record, key: Key) -> None:
        """Add a record under a key, or move it to another key."""
        if record.queue_key == key:
            return
        record.queue_key = key
        needs = record.spec.needs
        heap = self._heaps.get(needs)
        if heap is None:
            heap = self._heaps[needs] = []
        self._ticket += 1
        heappush(heap, (key, self._ticket, record))

    def head(self, needs: Needs) -> Entry | None:
        """The best valid entry of one shape."""
        heap = self._heaps.get(needs)
        while heap:
            entry = heap[0]
            record = entry[2]
            if record.queue_key is entry[0]:
                if record.ready:
                    return entry
                record.queue_key = ()
            heappop(heap)
        self._heaps.pop(needs, None)
        return None

    def pop(self, needs: Needs) -> None:
        """Remove the entry that `head` returned."""
        heappop(self._heaps[needs])

    def put_back(self, entry: Entry) -> None:
        """Return an entry that was popped, if its record still has something ready under this key."""
        key, _, record = entry
        if record.queue_key is key:
            if record.ready:
                heappush(self._heaps.setdefault(record.spec.needs, []), entry)
            else:
                record.queue_key = ()

    def shapes(self) -> list[Needs]:
        """The shapes that have entries."""
        return list(self._heaps)

    def entries(self, needs: Needs) -> list[Entry]:
        """All entries of one shape, stale ones included; for checks."""
        return list(self._heaps.get(needs, []))

    def __bool__(self) -> bool:
        """Whether there may be anything ready."""
        return bool(self._heaps)
