"""What a place, a host or a site, holds that ready tasks read: the keys of contents, of which the first come first.

Rule: only the first keys are sorted; the others when it is their turn, since most leave before that.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Collection, Iterable
from typing import Final

from bough.core.data.data_index import HostRecord

CONTENTS: Final = 3  # of a place that are looked at for one decision
CONTENT: Final = 0xFFFFFFFF  # the bits of a key that say the content
ORDER_BITS: Final = 72  # of a key: the content, and how late it came
LATEST: Final = 1 << 40  # contents that can be told apart by when they came
_FRONT: Final = 32  # keys of a place that are sorted at least, if there are so many
_PART: Final = 8  # of the others, this part is sorted at a time
_SLACK: Final = 64  # stale keys that a place may have, besides as many as valid ones


class Place:
    """A host or a site, and what it holds that is wanted; see the module.

    The keys of contents have an order: see `AffinityIndex._offer`. Only the first are sorted, at the end of a list,
    where it costs nothing to take them away. The others are sorted when it is their turn: most leave before that, and
    each comparison is a look into cold memory. Keys of contents that are not in `listed` are stale.
    """

    __slots__ = ("_rest", "hosts", "listed", "name", "only", "wanted")

    def __init__(self, name: str) -> None:
        self.name = name
        self.hosts: dict[int, HostRecord] = {}
        self.only = -1  # the number of its host, if it has one
        self.listed: set[int] = set()  # the contents that it holds and that count
        self.wanted: list[int] = []  # their keys, ascending
        self._rest: list[int] = []  # keys that are below all of `wanted`, in no order

    @property
    def count(self) -> int:
        """How many keys it has, with stale ones."""
        return len(self.wanted) + len(self._rest)

    def add(self, contents: Collection[int], keys: Iterable[int]) -> None:
        """It holds contents that are wanted, and that it did not list."""
        wanted, listed, rest = self.wanted, self.listed, self._rest
        listed.update(contents)
        for key in keys:
            if wanted and key < wanted[0] and (rest or len(wanted) >= _FRONT):
                rest.append(key)
            elif wanted or not rest:
                insort(wanted, key)
                if len(wanted) > 2 * _FRONT + len(rest) // _PART:
                    half = len(wanted) // 2
                    rest += wanted[:half]
                    del wanted[:half]
            else:
                rest.append(key)
                self._sort_next()
        if len(wanted) + len(rest) > 2 * len(listed) + _SLACK:
            wanted[:] = [key for key in wanted if key & CONTENT in listed]
            rest[:] = [key for key in rest if key & CONTENT in listed]
            if rest and len(wanted) < CONTENTS:
                self._sort_next()

    def _sort_next(self) -> None:
        """Sort the first of the others: so large a part of them that each is compared with few in all."""
        rest = self._rest
        rest.sort()
        first = max(0, len(rest) - max(_FRONT, len(rest) // _PART))
        self.wanted[:0] = rest[first:]
        del rest[first:]

    def drop_first(self, wanting: array[int]) -> None:
        """Forget what stands first and is not held any more, or read by nobody; `wanting`: readers by content."""
        wanted, listed = self.wanted, self.listed
        while wanted:
            content = wanted[-1] & CONTENT
            if content in listed:
                if wanting[content] > 0:
                    return
                listed.discard(content)
            del wanted[-1]
            if len(wanted) < CONTENTS and self._rest:
                self._sort_next()
