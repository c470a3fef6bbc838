"""Executors that have room for something that needs a core, in the order in which they got it.

A policy that waits for the best place leaves executors idle, maybe most of them. Those at outdone places (see
`outdone`) are looked at again when something changed at their place, and not in every turn.
Rule: who was found full, or is not open, leaves at the next look, and stands last when it has room again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.indexes.room_index import has_room

Open = Mapping[int, ExecutorRecord]


class RoomyExecutors:
    """See the module."""

    __slots__ = ("_came", "_coming", "_found", "_unlooked")

    def __init__(self) -> None:
        self._found: dict[int, ExecutorRecord] = {}  # some may have filled up since
        self._came: dict[int, int] = {}  # when they got room, as a number that grows
        self._coming = count(1)
        self._unlooked: dict[int, None] = {}  # those that were not left idle by a look at their place

    def __iter__(self) -> Iterator[int]:
        return iter(self._found)

    def get(self, number: int) -> ExecutorRecord | None:
        """An executor, if it may have room."""
        return self._found.get(number)

    def got_room(self, executor: ExecutorRecord) -> None:
        """An executor may have more room than it had."""
        number = executor.id
        if number not in self._found:
            self._found[number] = executor
            self._came[number] = next(self._coming)
        self._unlooked[number] = None

    def pop(self, number: int) -> ExecutorRecord | None:
        """An executor is full, or gone, or to be passed over for now."""
        self._unlooked.pop(number, None)
        self._came.pop(number, None)
        return self._found.pop(number, None)

    def any_with_room(self, open_: Open) -> bool:
        """Whether there is one."""
        return any(number in open_ and has_room(executor) for number, executor in self._found.items())

    def with_room(self, open_: Open) -> Iterator[ExecutorRecord]:
        """All, one after the other."""
        for number, executor in list(self._found.items()):
            if number in open_ and has_room(executor):
                yield executor
            else:
                self.pop(number)

    def all_with_room(self, open_: Open) -> list[ExecutorRecord]:
        """As `with_room`, all at once."""
        found = [
            executor
            for number, executor in self._found.items()
            if number in open_ and (executor.cores_free > 0 or has_room(executor))
        ]
        if len(found) < len(self._found):
            for number in self._found.keys() - {executor.id for executor in found}:
                self.pop(number)
        return found

    def unlooked(
        self, open_: Open, again: Iterable[int], is_outdone: Callable[[ExecutorRecord], bool]
    ) -> list[ExecutorRecord]:
        """As `all_with_room`, without those at outdone places; `again`: at whose places something changed."""
        unlooked = self._unlooked
        unlooked.update([(number, None) for number in again if number in self._found])
        found: list[ExecutorRecord] = []
        for number in list(unlooked):
            executor = self._found.get(number)
            if executor is None or number not in open_ or not has_room(executor):
                self.pop(number)
            elif is_outdone(executor):
                del unlooked[number]
            else:
                found.append(executor)
        found.sort(key=lambda executor: self._came[executor.id])
        return found
