"""Which bytes of a content are there, which are on their way, and which nobody brings yet.

Several streams, of one peer after the other, and pieces of the server fill one plan. Ranges are taken in order, so that
the part that is complete from the beginning on grows steadily: it is handed on at once, in order. What comes before
its turn is kept in memory, a bounded number of bytes. Pure: no lock, no clock, no file. Rule: a byte is taken by one at
a time; what was taken and did not come is given back, and is the first to be taken again.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import Final

AHEAD: Final = 16 << 20  # bytes beyond what is complete, from which on nothing new is taken


class RangePlan:
    """The bytes from `start` to `end`; `hand_on` gets them in order."""

    def __init__(self, start: int, end: int, hand_on: Callable[[bytes | memoryview], None]) -> None:
        self.complete = start  # all bytes before this one are there
        self.end = end
        self.came = 0  # bytes, those that wait for their turn included
        self._hand_on = hand_on
        self._next = start  # nothing was ever taken from here on
        self._back: list[tuple[int, int]] = []  # taken and given back: beginnings and ends, in order
        self._early: dict[int, bytes] = {}  # by offset

    @property
    def is_complete(self) -> bool:
        """Whether all is there."""
        return self.complete >= self.end

    @property
    def left(self) -> int:
        """Bytes that nobody brings yet."""
        return self.end - self._next + sum(end - start for start, end in self._back)

    def take(self, most: int) -> range:
        """The first bytes that nobody brings; empty: there are none, or they are too far ahead."""
        if self._back:
            start, end = self._back.pop(0)
            if end - start > most:
                self._back.insert(0, (start + most, end))
            return range(start, min(end, start + most))
        start = self._next
        if start - self.complete < AHEAD:
            self._next = min(self.end, start + most)
        return range(start, self._next)

    def put(self, offset: int, data: bytes | memoryview) -> None:
        """Bytes of a range that was taken; ValueError if they lie outside of all these."""
        if not self.complete <= offset <= offset + len(data) <= self._next:
            raise ValueError(f"{len(data)} bytes at {offset} were not asked for")
        self.came += len(data)
        if offset > self.complete:
            self._early[offset] = bytes(data)
            return
        while data:
            self._hand_on(data)
            self.complete += len(data)
            data = self._early.pop(self.complete, b"")

    def give_back(self, span: range) -> None:
        """What is left of a range that was taken does not come."""
        if span:
            insort(self._back, (span.start, span.stop))
