"""Contents by dense numbers: what a digest is called inside of the core, and how many bytes the content has.

The digests lie one after the other in one array of bytes, and a table of open addressing finds them, because a Python
object for each of a million digests would cost more than all else that is known of them. Rule: a number is given again
only after its content was forgotten; places in the table depend on Python's own seeded hash, so that no peer can make
them collide, and nothing is decided by them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

WIDTH: Final = 32  # bytes of a digest
_EMPTY: Final = 0xFFFFFFFF
_GONE: Final = 0xFFFFFFFE
_LEAST: Final = 64  # places of the smallest table


class ContentTable:
    """See the module."""

    __slots__ = ("_digests", "_free", "_mask", "_places", "_used", "count", "sizes", "weights")

    def __init__(self) -> None:
        self.count = 0
        self.sizes = array("Q")  # by number
        self.weights = array("Q")  # as `sizes`, and 1 for what is empty, so that it counts where it is
        self._digests = bytearray()
        self._free: list[int] = []  # numbers that can be given again
        self._used = 0  # places that are not empty
        self._places = array("I")
        self._resize(_LEAST)

    def find(self, digest: bytes) -> int:
        """The number of a content, -1 if it is not known."""
        return self.find_all((digest,))[0]

    def find_all(self, digests: Iterable[bytes]) -> list[int]:
        """The numbers of contents, -1 for each that is not known."""
        places, mask = self._places, self._mask
        starts_with = self._digests.startswith  # compares in place: a slice would be a copy
        found: list[int] = []
        note = found.append
        for digest in digests:
            at = hash(digest) & mask
            number = places[at]
            while number >= _GONE or not starts_with(digest, number * WIDTH):
                if number == _EMPTY:
                    number = -1
                    break
                at = at + 1 & mask
                number = places[at]
            note(number)
        return found

    def add(self, digest: bytes, size: int) -> int:
        """The number of a content, which is made known with its size if it was not; a size that is known stays."""
        number = self.find(digest)
        if number >= 0:
            return number
        if self._free:
            number = self._free.pop()
            self._digests[number * WIDTH : number * WIDTH + WIDTH] = digest
            self.sizes[number] = size
            self.weights[number] = size or 1
        else:
            number = len(self.sizes)
            self._digests += digest
            self.sizes.append(size)
            self.weights.append(size or 1)
        self.count += 1
        if 3 * self._used >= 2 * len(self._places):
            self._resize(4 * self.count)
        self._put(digest, number)
        return number

    def remove(self, number: int) -> None:
        """Forget a content."""
        places, mask = self._places, self._mask
        at = hash(self.digest(number)) & mask
        while places[at] != number:
            at = (at + 1) & mask
        places[at] = _GONE
        self._free.append(number)
        self.count -= 1

    def digest(self, number: int) -> bytes:
        """The digest of a content."""
        return bytes(self._digests[number * WIDTH : number * WIDTH + WIDTH])

    def _put(self, digest: bytes, number: int) -> None:
        places, mask = self._places, self._mask
        at = hash(digest) & mask
        while places[at] < _GONE:
            at = (at + 1) & mask
        self._used += places[at] == _EMPTY
        places[at] = number

    def _resize(self, wanted: int) -> None:
        """Make the table anew, with places for what is in it and as much again."""
        former = self._places if self._used else array("I")
        size = _LEAST
        while size < wanted:
            size *= 2
        self._places = array("I", (_EMPTY,)) * size
        self._mask, self._used = size - 1, 0
        for number in former:
            if number < _GONE:
                self._put(self.digest(number), number)
