"""What a place, a host or a site, holds that ready tasks read: heavy contents first, of equals those that came first.

Rule: only the first ones are sorted; the others when it is their turn, since most leave before that.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from bough.core.data.data_index import HostRecord

CONTENTS: Final = 3  # of a place that are looked at for one decision
_FRONT: Final = 32  # contents of a place that are sorted at least, if there are so many
_PART: Final = 8  # of the others, this part is sorted at a time
_SLACK: Final = 64  # stale entries that a place may have, besides as many as valid ones


class Place:
    """A host or a site, and what it holds that is wanted; see the module.

    Only the first contents are sorted, at the end of a list, where it costs nothing to take them away. The others are
    sorted when it is their turn: most leave before that, and each comparison is a look into cold memory. Contents that
    are not in `listed` are stale.
    """

    __slots__ = ("_rest", "_weights", "hosts", "listed", "name", "only", "wanted")

    def __init__(self, name: str, weights: Sequence[int] | None) -> None:
        """`weights`: by content; None: all count the same."""
        self.name = name
        self.hosts: dict[int, HostRecord] = {}
        self.only = -1  # the number of its host, if it has one
        self.listed: set[int] = set()  # the contents that it holds and that count
        self.wanted: list[int] = []  # the first of them, the very first at the end
        self._rest: list[int] = []  # what comes after all of `wanted`; of equals the first that came stands first
        self._weights = weights

    @property
    def count(self) -> int:
        """How many entries it has, with stale ones."""
        return len(self.wanted) + len(self._rest)

    def add(self, contents: Collection[int]) -> None:
        """It holds contents that are wanted, and that it did not list."""
        wanted, rest, listed, weights = self.wanted, self._rest, self.listed, self._weights
        listed.update(contents)
        for content in contents:
            if weights is None or not wanted or (weight := weights[content]) <= weights[wanted[0]]:
                if rest or len(wanted) >= _FRONT:
                    rest.append(content)
                else:
                    wanted.insert(0, content)
            else:
                wanted.insert(bisect_left(wanted, weight, key=weights.__getitem__), content)
                if len(wanted) > 2 * _FRONT + len(rest) // _PART:
                    half = len(wanted) // 2
                    rest[:0] = wanted[half - 1 :: -1]
                    del wanted[:half]
        if len(wanted) + len(rest) > 2 * len(listed) + _SLACK:
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Keep each content that counts, once."""
        listed = self.listed
        first = dict.fromkeys(content for content in reversed(self.wanted) if content in listed)
        self._rest = list(dict.fromkeys(one for one in self._rest if one in listed and one not in first))
        self.wanted = list(reversed(first))
        if self._rest and len(self.wanted) < CONTENTS:
            self._sort_next()

    def _sort_next(self) -> None:
        """Sort the first of the others: so large a part of them that each is compared with few in all."""
        rest = self._rest
        if self._weights is not None:
            rest.sort(key=self._weights.__getitem__, reverse=True)  # equals keep their order, also this way round
        some = max(_FRONT, len(rest) // _PART)
        self.wanted[:0] = reversed(rest[:some])
        del rest[:some]

    def drop_first(self, wanting: array[int]) -> None:
        """Forget what stands first and is not held any more, or read by nobody; `wanting`: readers by content."""
        wanted, listed = self.wanted, self.listed
        while wanted:
            content = wanted[-1]
            if content in listed:
                if wanting[content] > 0:
                    return
                listed.discard(content)
            del wanted[-1]
            if len(wanted) < CONTENTS and self._rest:
                self._sort_next()

    def first(self) -> Iterator[int]:
        """The first contents that it holds, as many as are looked at for one decision."""
        listed = self.listed
        return (content for content in self.wanted[: -CONTENTS - 1 : -1] if content in listed)
