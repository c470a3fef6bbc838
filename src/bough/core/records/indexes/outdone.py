"""Places where all that has data has more of it elsewhere, so that a policy which waits for the best place looks once.

An executor that such a policy leaves idle is looked at in every turn; what was found out about its place stays true
until something changes that it was found by: the place gains or loses a content, one of its first contents gets or
loses a reader, or a place that had more of a task loses one of the contents that made it more.
Rule: what is noted here is never wrong, and is forgotten rather too early; so a policy that asks gets the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_MOST: Final = 1_000_000  # reasons that are kept: they are forgotten together when there are more


class Outdone:
    """See the module. Places are known by their names here, hosts and contents by their numbers."""

    __slots__ = ("_again", "_by_content", "_by_holder", "_reasons", "places")

    def __init__(self) -> None:
        self.places: set[str] = set()
        self._again: set[str] = set()  # those that were among them until something changed
        self._by_content: dict[int, set[str]] = {}  # by content whose readers were looked at: for which places
        self._by_holder: dict[int, set[str]] = {}  # by host and content, packed: the places that have less
        self._reasons = 0

    def note(self, place: str, contents: Iterable[int], better: Iterable[tuple[int, Sequence[int]]]) -> None:
        """All who read the first contents of a place have more elsewhere: the hosts, and the contents of each task."""
        if self._reasons > _MOST:
            self.clear()
        self.places.add(place)
        for content in contents:
            self._by_content.setdefault(content, set()).add(place)
            self._reasons += 1
        by_holder = self._by_holder
        for host, read in better:
            for content in read:
                by_holder.setdefault(host << 32 | content, set()).add(place)
            self._reasons += len(read)

    def read_otherwise(self, contents: Iterable[int]) -> None:
        """Contents got a reader, or lost one."""
        if self.places:
            by_content = self._by_content
            for content in contents:
                if content in by_content:
                    self._forget(by_content.pop(content))

    def gained(self, place: str) -> None:
        """A place has something that it had not, or other than it had."""
        if place in self.places:
            self._forget({place})

    def lost(self, place: str, host: int, contents: Iterable[int]) -> None:
        """A host of a place lost contents: it may have less than others now."""
        by_holder, high = self._by_holder, host << 32
        self.gained(place)
        for content in contents:
            if high | content in by_holder:
                self._forget(by_holder.pop(high | content))

    def _forget(self, places: set[str]) -> None:
        self._again |= self.places & places
        self.places -= places

    def take_again(self) -> set[str]:
        """The places that are to be looked at again, each once."""
        again, self._again = self._again, set()
        return again

    def clear(self) -> None:
        """Nothing is sure any more."""
        self._again |= self.places
        self.places.clear()
        self._by_content.clear()
        self._by_holder.clear()
        self._reasons = 0
