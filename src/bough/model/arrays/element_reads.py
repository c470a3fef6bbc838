"""Which declared files each element of an array reads, packed: four bytes a read.

A client names the files by their paths; the core numbers them, as those of loose tasks. Rule: what does not fit
together (a count that is not the array's, a number without a file) is refused before it is stored.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bough.model.bounds import FilePath
from bough.model.ids import FileId

MOST_READS: Final = 1 << 28  # by all elements of one array together
_Packed = Annotated[bytes, Meta(max_length=4 * MOST_READS)]


class ElementReads(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The files that elements read: numbers of `files`, element after element."""

    files: tuple[FileId | FilePath, ...]
    reads: _Packed  # places in `files`, as little-endian numbers of four bytes
    stops: _Packed = b""  # where the reads of each element end; empty: all elements read equally many


def pack_reads(elements: Iterable[Sequence[str]], *, is_open: bool = False) -> ElementReads | None:
    """The reads of all elements of an array, some of which may come later; None if none reads anything."""
    places: dict[str, int] = {}
    reads, stops = array("I"), array("I")
    for paths in elements:
        for path in dict.fromkeys(paths):
            reads.append(places.setdefault(path, len(places)))
        stops.append(len(reads))
    if not reads:
        return None
    each = len(reads) // len(stops)
    is_even = not is_open and all(stop == each * number for number, stop in enumerate(stops, 1))
    return ElementReads(tuple(places), _little(reads).tobytes(), b"" if is_even else _little(stops).tobytes())


def why_wrong(reads: ElementReads, length: int, *, is_open: bool) -> str:
    """Why the reads cannot be those of an array of so many elements, or of more if it is open; empty: they can."""
    if len(reads.reads) % 4 or len(reads.stops) % 4:
        return "the files that its elements read are cut off"
    numbers, stops = _unpacked(reads.reads), _unpacked(reads.stops)
    if stops:
        if len(stops) < length or (len(stops) > length and not is_open) or stops[-1] != len(numbers):
            return "the files that its elements read are those of another number of elements"
        if any(high < low for low, high in pairwise(stops)):
            return "the files that its elements read are out of order"
    elif not length or is_open or len(numbers) % length:
        return "the files that its elements read are those of another number of elements"
    if numbers and max(numbers) >= len(reads.files):
        return "its elements read files that are not declared"
    return ""


class ReadTable:
    """The reads of an array, unpacked: the numbers of the files of each element."""

    __slots__ = ("_each", "_numbers", "_stops")

    def __init__(self, reads: ElementReads, length: int) -> None:
        files = array("Q", [file if isinstance(file, int) else 0 for file in reads.files])
        self._numbers = array("Q", [files[place] for place in _unpacked(reads.reads)])
        self._stops = _unpacked(reads.stops)
        self._each = len(self._numbers) // length if length and not self._stops else 0

    def of(self, element: int) -> Sequence[int]:
        """The files of an element; none, if it is not one of those that were declared."""
        stops = self._stops
        if not stops:
            return self._numbers[element * self._each : (element + 1) * self._each]
        if element >= len(stops):
            return ()
        return self._numbers[stops[element - 1] if element else 0 : stops[element]]


def _unpacked(data: bytes) -> array[int]:
    numbers = array("I")
    numbers.frombytes(data)
    return _little(numbers)


def _little(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
