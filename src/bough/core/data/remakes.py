"""Files that were lost and are made again: which tasks run once more for that, and who waits for them.

A task that had succeeded runs again when something that it made is nowhere any more and a reader wants it. For all who
depend on it, it counts as done from then on, however that ends: only a reader that has asked in vain waits, for one
such task after the other until none of those it depends on runs again. Rule: a task is made again a bounded number of
times; a reader that asks in vain while nothing is made again for it pays with one of its losses, so that nothing goes
on for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from bough.model.tasks import Dep, On

MOST_REMAKES: Final = 10  # of one element


class Remake(msgspec.Struct, array_like=True):
    """What is known of an element that was made again."""

    count: int = 0
    under_way: bool = False
    reason: str = ""  # of the last time
    waiters: list[tuple[int, int]] = []  # elements, by record and index, that wait for it
    attempt: int = 0  # the one that made what was lost; 0: another task did, whose success was reused
    made: bytes = b""  # the digest of all that it had made; empty: not known


class RemakeIndex:
    """See the module."""

    __slots__ = ("by_record", "under_way")

    def __init__(self) -> None:
        self.by_record: dict[int, dict[int, Remake]] = {}
        self.under_way: dict[int, set[int]] = {}  # elements that run again, by record

    def begin(self, record: int, index: int, reason: str, former: Remake | None) -> Remake:
        """An element runs again; `former`: what is known of earlier times."""
        remake = self.by_record.setdefault(record, {})[index] = former or Remake()
        remake.count += 1
        remake.under_way = True
        remake.reason = reason
        self.under_way.setdefault(record, set()).add(index)
        return remake

    def find(self, record: int, index: int) -> Remake | None:
        """What is known of an element; None: it was never made again."""
        return self.by_record.get(record, {}).get(index)

    def may_begin(self, record: int, index: int) -> bool:
        """Whether an element may be made again once more."""
        remake = self.find(record, index)
        return remake is None or (remake.count < MOST_REMAKES and not remake.under_way)

    def is_under_way(self, record: int, index: int) -> bool:
        """Whether an element runs again."""
        return index in self.under_way.get(record, ())

    def counts_as_done(self, record: int, index: int) -> bool:
        """Whether an element counts as done, whatever its state is."""
        return index in self.by_record.get(record, ())

    def revive(self, record: int, start: int, stop: int) -> None:
        """A user has elements tried again that had failed when they were made again."""
        for index, remake in self.by_record.get(record, {}).items():
            if start <= index < stop and not remake.under_way:
                remake.under_way = True
                self.under_way.setdefault(record, set()).add(index)

    def forget(self, record: int, start: int, stop: int) -> None:
        """Elements are as if they had never run."""
        elements = self.by_record.get(record)
        if elements is not None:
            for index in [index for index in elements if start <= index < stop]:
                del elements[index]
                self.under_way.get(record, set()).discard(index)
            if not elements:
                del self.by_record[record]
            if not self.under_way.get(record, True):
                del self.under_way[record]

    def awaited(self, deps: Iterable[Dep]) -> tuple[int, int] | None:
        """The first element that runs again among those of some dependencies."""
        for dep in deps:
            again = self.under_way.get(dep.id) if dep.on in {On.TASK, On.ARRAY} else None
            if again and (dep.on is On.ARRAY or dep.index in again):
                return dep.id, min(again) if dep.on is On.ARRAY else dep.index
        return None

    def wait(self, reader: int, index: int, awaited: tuple[int, int]) -> None:
        """A reader waits for an element that runs again."""
        self.by_record[awaited[0]][awaited[1]].waiters.append((reader, index))

    def end(self, record: int, start: int, stop: int) -> list[tuple[int, int]]:
        """Elements have ended: those of them that ran again do so no more; who waited for them."""
        again = self.under_way.get(record)
        if not again:
            return []
        freed: list[tuple[int, int]] = []
        for index in sorted(one for one in again if start <= one < stop):
            again.discard(index)
            remake = self.by_record[record][index]
            remake.under_way = False
            freed += remake.waiters
            remake.waiters = []
        if not again:
            del self.under_way[record]
        return freed

    def is_waited_for(self, record: int, index: int) -> bool:
        """Whether an element waits for one that runs again."""
        return any((record, index) in remake.waiters for remake in self._all())

    def _all(self) -> Iterator[Remake]:
        for elements in self.by_record.values():
            yield from elements.values()

    def forget_record(self, record: int) -> None:
        """A record leaves."""
        self.by_record.pop(record, None)
        self.under_way.pop(record, None)

    def restore(self, kept: dict[int, dict[int, Remake]]) -> None:
        """Put back what a snapshot has."""
        self.by_record = kept
        self.under_way = {
            record: again
            for record, elements in kept.items()
            if (again := {index for index, remake in elements.items() if remake.under_way})
        }
