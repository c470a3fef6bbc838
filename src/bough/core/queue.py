"""The ready index: which records have something to hand out, best first, by what they need.

Records with equal needs share one queue, so that a shape of task that fits nowhere costs one look a
turn, however many of them wait. Rule: an entry is valid while it holds its record's `queue_key` and
the record still has something ready; stale entries are dropped when they surface.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from bough.model.resources import Needs

if TYPE_CHECKING:
    from bough.core.records import Record

Key = tuple[float, ...]
Entry = tuple[Key, int, "Record"]


class ReadyQueue:
    """The ready records of one shape of needs."""

    __slots__ = ("_heap", "_ticket", "needs")

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self._heap: list[Entry] = []
        self._ticket = 0

    def push(self, record: Record, key: Key) -> None:
        """Add a record under a key, or move it to another key."""
        if record.queue_key == key:
            return
        record.queue_key = key
        self._ticket += 1
        heappush(self._heap, (key, self._ticket, record))

    def head(self) -> Entry | None:
        """The best valid entry."""
        heap = self._heap
        while heap:
            entry = heap[0]
            record = entry[2]
            if record.queue_key is entry[0]:
                if record.ready:
                    return entry
                record.queue_key = ()
            heappop(heap)
        return None

    def take(self) -> Entry | None:
        """Remove the best valid entry and return it."""
        heap = self._heap
        while heap:
            entry = heappop(heap)
            record = entry[2]
            if record.queue_key is entry[0]:
                if record.ready:
                    return entry
                record.queue_key = ()
        return None

    def put_back(self, entry: Entry) -> None:
        """Return an entry that was popped, if its record still has something ready under this key."""
        record = entry[2]
        if record.queue_key is entry[0]:
            if record.ready:
                heappush(self._heap, entry)
            else:
                record.queue_key = ()

    def entries(self) -> list[Entry]:
        """All entries, stale ones included; for checks."""
        return self._heap

    def __len__(self) -> int:
        """How many entries there are, stale ones included."""
        return len(self._heap)
