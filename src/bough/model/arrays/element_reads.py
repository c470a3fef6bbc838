"""Which declared files each element of an array reads, packed: four bytes a read.

A client names the files by their paths; the core numbers them, as those of loose tasks. Rule: what does not fit
together (a count that is not the array's, a number without a file) is refused before it is stored.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bough.model.bounds import Count, FilePath
from bough.model.ids import FileId

MOST_READS: Final = 1 << 28  # by all elements of one array together
_FRESH: Final = 1 << 31  # marks places of files that are put, until the number of the others is known
_Packed = Annotated[bytes, Meta(max_length=4 * MOST_READS)]


class ElementReads(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The files that elements read: numbers of `files`, element after element."""

    files: tuple[FileId | FilePath, ...]
    reads: _Packed  # places in `files`, as little-endian numbers of four bytes
    stops: _Packed = b""  # where the reads of each element end; empty: all elements read equally many
    fresh: Count = 0  # who reads one of so many of the last of `files` is sent it for each attempt anew


def pack_reads(elements: Iterable[Sequence[str]], *, put: int = 0, is_open: bool = False) -> ElementReads | None:
    """The reads of all elements of an array, some of which may come later; None if none reads anything.

    `put`: so many of the last of each element are sent for each attempt anew, unless it reads them otherwise, too.
    """
    places: dict[str, int] = {}
    fresh: dict[str, int] = {}
    reads, stops = array("I"), array("I")
    for paths in elements:
        kept = dict.fromkeys(paths[:-put] if put else paths)
        for path in kept:
            reads.append(places.setdefault(path, len(places)))
        for path in dict.fromkeys(paths[-put:]) if put else ():
            if path not in kept:
                reads.append(_FRESH | fresh.setdefault(path, len(fresh)))
        stops.append(len(reads))
    if not reads:
        return None
    if fresh:  # their places are behind those of the others
        reads = array("I", [place if place < _FRESH else len(places) + place - _FRESH for place in reads])
    each = len(reads) // len(stops)
    is_even = not is_open and all(stop == each * number for number, stop in enumerate(stops, 1))
    ends = b"" if is_even else _little(stops).tobytes()
    return ElementReads((*places, *fresh), _little(reads).tobytes(), ends, len(fresh))


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
    if reads.fresh > len(reads.files):
        return "more of the files that its elements read are put than there are"
    return ""


class ReadTable:
    """The reads of an array, unpacked: the numbers of the files of each element."""

    __slots__ = ("_all", "_reusable")

    def __init__(self, reads: ElementReads, length: int) -> None:
        files = array("Q", [file if isinstance(file, int) else 0 for file in reads.files])
        places, stops = _unpacked(reads.reads), _unpacked(reads.stops)
        each = len(places) // length if length and not stops else 0
        self._all = self._reusable = _Numbers(array("Q", [files[place] for place in places]), stops, each)
        if reads.fresh:
            first = len(files) - reads.fresh
            before = array("I", accumulate((place < first for place in places), initial=0))
            ends = stops or range(each, len(places) + 1, each) if places else ()
            kept = array("Q", [files[place] for place in places if place < first])
            self._reusable = _Numbers(kept, array("I", [before[end] for end in ends]), 0)

    def of(self, element: int) -> Sequence[int]:
        """The files of an element; none, if it is not one of those that were declared."""
        return self._all.of(element)

    def reusable(self, element: int) -> Sequence[int]:
        """Those of them that a host may have already: they are not sent for each attempt anew."""
        return self._reusable.of(element)


class _Numbers:
    """The numbers of the files of each element, one after the other."""

    __slots__ = ("_each", "_numbers", "_stops")

    def __init__(self, numbers: array[int], stops: array[int], each: int) -> None:
        self._numbers = numbers
        self._stops = stops
        self._each = each

    def of(self, element: int) -> Sequence[int]:
        """The files of an element."""
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
