"""Executors that have room for something that needs a core, those first that have been open the longest.

An executor that is full of long tasks stays open (a task that needs no core could go there), and would be looked at for
each placement. Here it leaves when somebody has found it full, and comes back when it gets room.
Rule: a look costs what it finds, and what has filled up since the last one; never the number of all executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush, heapreplace

from bough.core.records.executor_record import ExecutorRecord


class RoomIndex:
    """See the module. Alone it has those of which a core is free.

    `has_more`: whether one of which no core is free has room all the same; `vacant`: the index of the others. What is
    in that need not be told to this: it passes on those that it finds full, and who looks here looks there, too.
    """

    __slots__ = ("_full", "_has_more", "_heap", "_last", "_listed", "_tickets", "_vacant")

    def __init__(
        self, has_more: Callable[[ExecutorRecord], bool] | None = None, vacant: RoomIndex | None = None
    ) -> None:
        self._has_more = has_more
        self._vacant = vacant
        self._full: RoomIndex | None = None  # to whom those are passed on that are found full
        if vacant is not None:
            vacant._full = self
        self._last = 0
        self._tickets: dict[int, int] = {}  # by executor: when it was opened, or put at the end
        self._heap: list[tuple[int, int]] = []  # ticket, executor
        self._listed: set[int] = set()  # those in the heap, each once

    def opened(self, number: int) -> None:
        """An executor is open that was not, or is the last to be looked at from now on."""
        self._last += 1
        self._tickets[number] = self._last
        self.got_room(number)

    def got_room(self, number: int) -> None:
        """An open executor may have more room than it had."""
        listed = self._listed
        if number not in listed:
            listed.add(number)
            heappush(self._heap, (self._tickets[number], number))

    def forget(self, number: int) -> None:
        """An executor is gone."""
        self._tickets.pop(number, None)

    def _pass_on(self, executor: ExecutorRecord | None, number: int) -> None:
        """An executor was found full, or is not open any more."""
        self._listed.discard(number)
        full = self._full
        if full is not None and executor is not None and full._has_more is not None and full._has_more(executor):
            full.got_room(number)

    def _take_over(self) -> None:
        """List what the other index has, too."""
        if self._vacant is not None:
            tickets = self._tickets
            for _, number in self._vacant._heap:
                if number in tickets:
                    self.got_room(number)

    def first(self, there: Mapping[int, ExecutorRecord]) -> ExecutorRecord | None:
        """The first of `having`, if there is one."""
        if self._vacant is not None and self._vacant._heap:
            self._take_over()
        heap, has_more, tickets = self._heap, self._has_more, self._tickets
        while heap:
            ticket, number = heap[0]
            executor = there.get(number)
            if executor is None or not (
                executor.cores_free > 0 or executor.wide or (has_more is not None and has_more(executor))
            ):
                heappop(heap)
                self._pass_on(executor, number)
            elif tickets[number] != ticket:
                heapreplace(heap, (tickets[number], number))
            else:
                return executor
        return None

    def having(self, there: Mapping[int, ExecutorRecord]) -> Iterator[ExecutorRecord]:
        """The executors with room, of those that are open; nothing may change while somebody looks."""
        self._take_over()
        heap, has_more, kept = self._heap, self._has_more, []
        try:
            while heap:
                entry = heappop(heap)
                ticket, number = entry
                executor = there.get(number)
                if executor is None or not (
                    executor.cores_free > 0 or executor.wide or (has_more is not None and has_more(executor))
                ):
                    self._pass_on(executor, number)
                elif self._tickets[number] != ticket:
                    heappush(heap, (self._tickets[number], number))
                else:
                    kept.append(entry)
                    yield executor
        finally:
            for entry in kept:
                heappush(heap, entry)


def has_room(executor: ExecutorRecord) -> bool:
    """Whether a core is free, or a short task may wait for one."""
    if executor.cores_free > 0 or executor.wide:
        return True
    return executor.load < executor.backlog_limit and executor.long_cores < executor.capacity.cores
