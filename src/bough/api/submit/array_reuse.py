"""Which elements of a new array earlier runs have done already: arguments are compared element by element.

Equal bytes are equal arguments, so an unchanged table costs nothing; otherwise rows are compared by their value or
digest.

Rule: every old success is used once, and what cannot be compared is not reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from bough.api.memo.digests import value_digest
from bough.api.pickling import loads_unread
from bough.model.ids import RecordId
from bough.model.tasks import Page, Reuse
from bough.movers.value_files import Unread, names_files

_EXACT: frozenset[type] = frozenset({int, str, bytes, bool, type(None)})
RowKey = Callable[[Any], object]


class EarlierArray(msgspec.Struct, frozen=True):
    """An array of an earlier run, as the server tells of it."""

    record: int
    length: int
    table: bytes
    pages: list[tuple[int, int, bytes]]
    done: list[tuple[int, int]]

    def blocks(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """Its arguments in order, in pieces: where each begins, and its rows."""
        if self.table:
            yield 0, loads_unread(self.table)
        else:
            for start, _, data in self.pages:
                yield start, rows_in(data)


class NewArray(msgspec.Struct, frozen=True):
    """An array that is about to be submitted."""

    length: int
    table: bytes
    pages: tuple[Page, ...]

    def blocks(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """Its arguments in order, in pieces."""
        if self.table:
            yield 0, loads_unread(self.table)
        else:
            for page in self.pages:
                yield page.start, rows_in(page.data)


def rows_in(data: bytes) -> Sequence[Any]:
    """The arguments of a page; something that stands for it is the only one of its page."""
    found = loads_unread(data)
    return [found] if isinstance(found, Unread) else found


def unread_rows(pages: Iterable[Page], rows: Sequence[Any], start: int) -> Sequence[Any]:
    """Rows that begin at `start` as they are read from their pages, where these name files of big values."""
    named = [page for page in pages if names_files(page.data)]
    if not named:
        return rows
    found = list(rows)
    for page in named:
        found[page.start - start : page.stop - start] = rows_in(page.data)
    return found


def match(
    olds: Iterable[EarlierArray],
    new: NewArray,
    key: RowKey | None = None,
    old_keys: Mapping[int, RowKey] | None = None,
) -> tuple[Reuse, ...]:
    """The elements of a new array that may take over successes of old ones.

    `key` and, by record, `old_keys` give what must be equal for two rows to be the same; by default the row
    itself. With them, equal bytes alone say nothing.
    """
    reused = _Reused(new.length)
    rest = []
    for old in olds:  # newest run first
        if key is not None:
            rest.append(old)
            continue
        if new.table and old.table == new.table:
            reused.take_same_places(old, 0, min(new.length, old.length))
        elif new.pages and old.pages:
            there = {(start, stop): data for start, stop, data in old.pages}
            for page in new.pages:
                if there.get((page.start, page.stop)) == page.data:
                    reused.take_same_places(old, page.start, page.stop)
        if reused.left:
            rest.append(old)
    if rest and reused.left:
        _by_rows(reused, rest, new, key or row_key, old_keys or {})
    return reused.ranges()


class _Reused:
    """For each new element the old success it takes over."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.left = length
        self.whole: list[Reuse] = []  # found in one piece
        self.single: list[tuple[int, int, int]] = []  # (element, source, its element)
        self._used: dict[int, list[tuple[int, int]]] = {}  # of old records
        self._taken = bytearray(length)

    def take_same_places(self, old: EarlierArray, start: int, stop: int) -> None:
        """Take the successes of an old array in [start, stop) for the new elements at the same places."""
        for first, last in old.done:
            at, high = max(first, start), min(last, stop)
            while at < high:
                end = self._taken.find(1, at, high)  # an element that is taken ends the run
                end = high if end < 0 else end
                if end > at:
                    self.whole.append(Reuse(at, end, RecordId(old.record), at))
                    self._taken[at:end] = b"\x01" * (end - at)
                    self._used.setdefault(old.record, []).append((at, end))
                    self.left -= end - at
                at = end + 1

    def is_taken(self, index: int) -> bool:
        return bool(self._taken[index])

    def unused(self, old: EarlierArray) -> Iterator[tuple[int, int]]:
        """Successes of an old array that were not used yet."""
        used = sorted(self._used.get(old.record, []))
        for low, high in old.done:
            at = low
            for start, stop in used:
                if stop <= at or start >= high:
                    continue
                if at < start:
                    yield at, start
                at = max(at, stop)
            if at < high:
                yield at, high

    def take(self, index: int, source: int, source_index: int) -> None:
        self.single.append((index, source, source_index))
        self.left -= 1

    def ranges(self) -> tuple[Reuse, ...]:
        """All of them, in order, neighbours merged."""
        merged: list[Reuse] = []
        singles = (Reuse(i, i + 1, RecordId(source), j) for i, source, j in self.single)
        for found in sorted([*self.whole, *singles], key=lambda reuse: reuse.start):
            if merged:
                last = merged[-1]
                length = last.stop - last.start
                if (
                    last.stop == found.start
                    and last.source == found.source
                    and last.source_start + length == found.source_start
                ):
                    merged[-1] = Reuse(last.start, found.stop, last.source, last.source_start)
                    continue
            merged.append(found)
        return tuple(merged)


def _by_rows(
    reused: _Reused, olds: Sequence[EarlierArray], new: NewArray, key: RowKey, old_keys: Mapping[int, RowKey]
) -> None:
    there: dict[object, list[tuple[int, int]]] = {}
    for old in olds:
        old_key = old_keys.get(old.record, key)
        for index, row in _rows_of(old, list(reused.unused(old))):
            found = old_key(row)
            if found is not None:
                there.setdefault(found, []).append((old.record, index))
    if not there:
        return
    for places in there.values():
        places.reverse()  # taken from the end: the n-th twin takes the n-th success
    for start, rows in new.blocks():
        for index, row in _enumerated(rows, start):
            if not reused.is_taken(index):
                places = there.get(key(row), [])
                if places:
                    reused.take(index, *places.pop())


def _rows_of(old: EarlierArray, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Any]]:
    """The rows of an old array that lie in some ranges, with their places."""
    for start, rows in old.blocks():
        for low, high in ranges:
            first, last = max(low, start), min(high, start + len(rows))
            if first < last:
                yield from enumerate(rows[first - start : last - start], first)


def _enumerated(rows: Sequence[Any], start: int) -> Iterator[tuple[int, Any]]:
    for at in range(0, len(rows), 4096):  # spaces compute their rows in pieces
        yield from enumerate(rows[at : at + 4096], start + at)


def row_key(row: Any) -> object:
    """What stands for a row when rows are compared; None: it cannot be compared."""
    kind = type(row)
    if kind in _EXACT:
        return kind, row
    if kind is float:
        return kind, row.hex()
    if kind is tuple:
        keys = tuple(map(row_key, row))
        return None if None in keys else keys
    return value_digest(row)
