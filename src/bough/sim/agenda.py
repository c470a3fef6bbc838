"""The kernel of a simulation: things to come, in the order of their time.

Rule: things at the same time happen in the order they were put down, so that a run repeats exactly.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

from bough.model.ids import Seconds

T = TypeVar("T")


class Agenda(Generic[T]):
    """A heap of (time, ticket, thing)."""

    def __init__(self) -> None:
        self._heap: list[tuple[Seconds, int, T]] = []
        self._ticket = 0

    def put(self, when: Seconds, thing: T) -> None:
        """Let something happen at a time."""
        self._ticket += 1
        heappush(self._heap, (when, self._ticket, thing))

    def pop(self) -> tuple[Seconds, T]:
        """The next thing and its time."""
        when, _, thing = heappop(self._heap)
        return when, thing

    def next_time(self) -> Seconds | None:
        """When the next thing happens."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        """How many things are to come."""
        return len(self._heap)
