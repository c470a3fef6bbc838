"""Finds successes of earlier runs: by key for a loose task, by key and place for elements of arrays.

Rule: a success counts only while its declared outputs, and the file that holds its result, are there and unchanged.
Within one run nothing is shared. In a service a workflow uses only runs of its own name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from bough.model.events.facts import Fact, MemoLookedUp, SpanEnded, Submitted
from bough.model.events.news import PagesAdded
from bough.model.ids import MemoKey, RecordId
from bough.model.outcomes import ResultFile, kept_time
from bough.model.tasks import ArraySpec, Page, Reuse
from bough.stores.database import Database
from bough.stores.store import MemoArray, MemoPages

_EARLIER: Final = "run < :before"
_NAMESAKES: Final = f"{_EARLIER} AND run IN (SELECT run FROM runs WHERE name = :name)"
_BY_KEY: Final = (
    "SELECT record, start, attempt, turn, checked FROM memo WHERE key = :key AND {} ORDER BY turn DESC LIMIT 1"
)
_TOGETHER: Final = 256  # loose tasks looked up by one statement
_NAMES: Final = tuple(f"key{number}" for number in range(_TOGETHER))
_BY_KEYS: Final = (
    f"SELECT key, record, start, attempt, turn, checked FROM memo WHERE key IN (:{', :'.join(_NAMES)})"
    " AND {} ORDER BY turn"  # the latest of each key comes last
)
# rows of one record do not overlap, so the one before the first that begins inside may scope into it
_BY_RANGE: Final = """
SELECT start, stop, attempt, turn, checked FROM memo WHERE key = :key AND record = :record AND {}
AND stop > :low AND start < :high AND start >= coalesce(
  (SELECT max(start) FROM memo WHERE key = :key AND record = :record AND start <= :low), 0) ORDER BY start"""
_ARRAYS: Final = "SELECT record, length, table_blob FROM arrays WHERE key = :key AND {} ORDER BY run DESC, record DESC"
_IS_OLD: Final = "SELECT 1 FROM arrays WHERE record = :record AND {}"
_NEXT_PAGES: Final = "SELECT turn FROM array_pages WHERE record = ? AND turn > ? ORDER BY turn LIMIT 64"
_DONE_IN: Final = """
SELECT start, stop FROM memo WHERE record = :record AND start < :high AND start >= coalesce(
  (SELECT max(start) FROM memo WHERE record = :record AND start <= :low), 0) ORDER BY start"""
_PART_TURNS: Final = 64  # as in _NEXT_PAGES
_PART_BYTES: Final = 1 << 20
_KNOWN: Final = 1_000  # runs whose names are remembered


_Found = tuple[int, int, int, int, int]  # record, start, attempt, turn, checked


class MemoScope(msgspec.Struct, frozen=True):
    """Which runs' memos may be used: those with a smaller number, and of a name if there is one."""

    before: int
    name: str | None = None

    def of(self, sql: str) -> str:
        """A statement with its condition on runs."""
        return sql.format(_EARLIER if self.name is None else _NAMESAKES)

    def values(self, **others: object) -> dict[str, object]:
        """The values of such a statement."""
        more = {} if self.name is None else {"name": self.name}
        return {**others, **more, "before": self.before}


class Memos:
    """Answers lookups from the tables of memos and arrays."""

    def __init__(
        self,
        database: Database,
        success: Callable[[int, int, int], SpanEnded | None],
        turn: Callable[[int], list[Fact]],
        blob: Callable[[bytes], bytes],
    ) -> None:
        self._database = database
        self._success = success
        self._turn = turn
        self._blob = blob
        self._names: dict[int, str] = {}  # of workflows' runs
        self.contents = ""  # the folder of outputs that are kept by content
        self.before = 0  # memos of runs from this number up are not shared

    def look_up(
        self, record: int, start: int, stop: int, key: MemoKey, reuse: Sequence[Reuse], *, run: int = 0
    ) -> list[MemoLookedUp]:
        """Pieces found and not found, in order, covering [start, stop)."""
        scope = self._scope(run)
        if reuse:
            found = list(self._array(record, start, stop, key, reuse, scope=scope))
        else:
            found = list(self._loose(record, start, key, scope))
        found.sort(key=lambda piece: piece.start)
        return list(_cover(record, start, stop, found))

    def look_up_tasks(self, wanted: Sequence[tuple[RecordId, MemoKey]], *, run: int = 0) -> list[MemoLookedUp]:
        """One answer for each loose task, in order."""
        scope = self._scope(run)
        rows: dict[bytes, _Found] = {}
        for at in range(0, len(wanted), _TOGETHER):
            keys = [key for _, key in wanted[at : at + _TOGETHER]]
            keys += keys[-1:] * (_TOGETHER - len(keys))  # so that there is one statement
            values = scope.values(**dict(zip(_NAMES, keys, strict=True)))
            for key, *found in self._database.execute(scope.of(_BY_KEYS), values).fetchall():
                rows[bytes(key)] = tuple(found)
        return [
            self._checked(record, 0, rows.get(key)) or MemoLookedUp(record, 0, 1, found=False) for record, key in wanted
        ]

    def old_arrays(self, body: MemoKey, run: int = 0) -> list[MemoArray]:
        """Arrays of earlier runs with a body of which something is done."""
        scope = self._scope(run)
        rows = self._database.execute(scope.of(_ARRAYS), scope.values(key=body)).fetchall()
        arrays = []
        for record, length, table in rows:
            done = merged(
                self._database.execute("SELECT start, stop FROM memo WHERE record = ? ORDER BY start", (record,))
            )
            if done:
                content = self._blob(table) if table else b""
                arrays.append(MemoArray(record, length, content, self._pages(record), done))
        return arrays

    def old_feeds(self, body: MemoKey, run: int = 0) -> list[RecordId]:
        """As `old_arrays`, for arrays that a generator fed: only their ids, because such an array may be very long."""
        scope = self._scope(run)
        rows = self._database.execute(scope.of(_ARRAYS), scope.values(key=body)).fetchall()
        return [
            RecordId(record)
            for record, _, _ in rows
            if self._database.execute("SELECT 1 FROM memo WHERE record = ? LIMIT 1", (record,)).fetchone()
        ]

    def fed_pages(self, record: int, after: int, run: int = 0) -> MemoPages:
        """The next pages of such an array, from turns after a number, and which of their elements succeeded."""
        scope = self._scope(run)
        pages: list[tuple[int, int, bytes]] = []
        if self._database.execute(scope.of(_IS_OLD), scope.values(record=record)).fetchone() is None:
            return MemoPages(pages, [], 0)
        turns = self._database.execute(_NEXT_PAGES, (record, after)).fetchall()
        last = 0
        for at, (turn,) in enumerate(turns, 1):
            pages += self._pages_in(turn, record)
            if at < len(turns) and sum(len(page[2]) for page in pages) > _PART_BYTES:
                last = turn
                break
        else:
            last = turns[-1][0] if len(turns) == _PART_TURNS else 0
        if not pages:
            return MemoPages(pages, [], last)
        low, high = pages[0][0], pages[-1][1]
        rows = self._database.execute(_DONE_IN, {"record": record, "low": low, "high": high})
        done = merged((max(start, low), min(stop, high)) for start, stop in rows if stop > low)
        return MemoPages(pages, done, last)

    def _scope(self, run: int) -> MemoScope:
        if not run:
            return MemoScope(self.before)
        if run not in self._names:
            row = self._database.execute("SELECT name FROM runs WHERE run = ?", (run,)).fetchone()
            if row is None:
                return MemoScope(0)
            if len(self._names) > _KNOWN:
                self._names.clear()
            self._names[run] = row[0]
        return MemoScope(run, self._names[run])

    def _loose(self, record: int, start: int, key: MemoKey, scope: MemoScope) -> Iterator[MemoLookedUp]:
        row = self._database.execute(scope.of(_BY_KEY), scope.values(key=key)).fetchone()
        found = self._checked(record, start, row)
        if found is not None:
            yield found

    def _checked(self, record: int, start: int, row: _Found | None) -> MemoLookedUp | None:
        if row is None:
            return None
        source, source_start, attempt, turn, checked = row
        if checked and not self._is_there(turn, source, source_start):
            return None
        return MemoLookedUp(RecordId(record), start, start + 1, True, RecordId(source), source_start, attempt, turn)

    def _array(
        self, record: int, start: int, stop: int, key: MemoKey, reuse: Sequence[Reuse], *, scope: MemoScope
    ) -> Iterator[MemoLookedUp]:
        missing = [(start, stop)]
        for candidate in reuse:
            shift = candidate.source_start - candidate.start
            left: list[tuple[int, int]] = []
            for low, high in missing:
                at, end = max(low, candidate.start), min(high, candidate.stop)
                if at >= end:
                    left.append((low, high))
                    continue
                left.append((low, at))
                for piece in self._range(record, candidate.source, key, (at, end), shift, scope=scope):
                    left.append((at, piece.start))
                    yield piece
                    at = piece.stop
                left += [(at, end), (end, high)]
            missing = [piece for piece in left if piece[0] < piece[1]]

    def _range(
        self, record: int, source: int, key: MemoKey, place: tuple[int, int], shift: int, *, scope: MemoScope
    ) -> Iterator[MemoLookedUp]:
        """Successes of a source for a range of elements, which lie `shift` further there."""
        low, high = place
        values = scope.values(key=key, record=source, low=low + shift, high=high + shift)
        for begin, end, attempt, turn, checked in self._database.execute(scope.of(_BY_RANGE), values).fetchall():
            first, last = max(begin, low + shift), min(end, high + shift)
            pieces: Iterable[tuple[int, int]] = [(first, last)]
            if checked:
                pieces = merged((at, at + 1) for at in range(first, last) if self._is_there(turn, source, at))
            for at, until in pieces:
                yield MemoLookedUp(
                    RecordId(record), at - shift, until - shift, True, RecordId(source), at, attempt, turn
                )

    def _is_there(self, turn: int, record: int, index: int) -> bool:
        """Whether the outputs of a success, and the file of its result, are there and unchanged."""
        success = self._success(turn, record, index)
        if success is None:
            return False
        try:
            if (
                isinstance(success.results, ResultFile)
                and os.stat(success.results.path).st_size != success.results.size
            ):
                return False
            for detail in success.details:
                if detail.index != index:
                    continue
                for made in detail.outputs:
                    if made.digest and not made.mtime_ns:  # its place is on another machine
                        name = made.digest.hex()
                        if not self.contents or os.stat(f"{self.contents}/{name[:2]}/{name}").st_size != made.size:
                            return False
                        continue
                    now = os.stat(made.path)
                    if (now.st_size, kept_time(now.st_mtime_ns)) != (made.size, made.mtime_ns):
                        return False
        except OSError:
            return False
        return True

    def _pages(self, record: int) -> list[tuple[int, int, bytes]]:
        pages: list[tuple[int, int, bytes]] = []
        for (turn,) in self._database.execute(
            "SELECT turn FROM array_pages WHERE record = ? ORDER BY turn", (record,)
        ).fetchall():
            pages += self._pages_in(turn, record)
        return sorted(pages, key=lambda page: page[0])

    def _pages_in(self, turn: int, record: int) -> list[tuple[int, int, bytes]]:
        """The pages of an array that came in a turn."""
        pages: list[Page] = []
        for fact in self._turn(turn):
            if isinstance(fact, PagesAdded) and fact.record == record:
                pages += fact.pages
            elif isinstance(fact, Submitted):
                for item in fact.items:
                    if isinstance(item, ArraySpec) and item.id == record:
                        pages += item.pages
        return [(page.start, page.stop, page.data) for page in pages]


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted ranges, with those that touch made one."""
    together: list[tuple[int, int]] = []
    for start, stop in ranges:
        if together and together[-1][1] >= start:
            together[-1] = (together[-1][0], max(stop, together[-1][1]))
        else:
            together.append((start, stop))
    return together


def _cover(record: int, start: int, stop: int, found: Sequence[MemoLookedUp]) -> Iterator[MemoLookedUp]:
    """Fill the gaps, and join pieces that continue each other."""
    held: MemoLookedUp | None = None
    at = start
    for piece in found:
        if held and piece.start == held.stop and _continues(held, piece):
            held = msgspec.structs.replace(held, stop=piece.stop)
        else:
            if held:
                yield held
            if piece.start > at:
                yield MemoLookedUp(RecordId(record), at, piece.start, False)
            held = piece
        at = piece.stop
    if held:
        yield held
    if at < stop:
        yield MemoLookedUp(RecordId(record), at, stop, False)


def _continues(one: MemoLookedUp, other: MemoLookedUp) -> bool:
    return (one.source, one.source_attempt, one.turn, one.source_start + one.stop - one.start) == (
        other.source,
        other.source_attempt,
        other.turn,
        other.source_start,
    )
