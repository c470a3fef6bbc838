"""Finds successes of earlier runs: by key for a loose task, by key and place for elements of arrays.

Rule: a success counts only while its declared outputs, and the file that holds its result, are there and unchanged.
Within one run nothing is shared. In a service a workflow uses only runs of its own name.

Who looks only in unfinished runs finds what was done since the last script run that ended well, unless a run that ended
well has it too. A script run is all runs that one process opened: a success of its first session stays when its second
one ends well, and does not when the first one, opened again, has used it and ended well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from bough.folder_state import folder_state
from bough.model.events.facts import Fact, MemoLookedUp, SpanEnded, Submitted
from bough.model.events.news import PagesAdded
from bough.model.ids import MemoKey, RecordId
from bough.model.outcomes import Output, ResultFile, kept_time
from bough.model.tasks import ArraySpec, Page, Reuse
from bough.stores.database import Database
from bough.stores.store import MemoArray, MemoPages

_EARLIER: Final = "run < :before"
_NAMESAKES: Final = f"{_EARLIER} AND run IN (SELECT run FROM runs WHERE name = :name)"
_BY_KEY: Final = (
    "SELECT record, start, attempt, turn, checked, run FROM memo WHERE key = :key AND {} ORDER BY turn DESC LIMIT 1"
)
_TOGETHER: Final = 256  # loose tasks looked up by one statement
_NAMES: Final = tuple(f"key{number}" for number in range(_TOGETHER))
_BY_KEYS: Final = (
    f"SELECT key, record, start, attempt, turn, checked, run FROM memo WHERE key IN (:{', :'.join(_NAMES)})"
    " AND {} ORDER BY turn"  # the latest of each key comes last
)
# rows of one record do not overlap, so the one before the first that begins inside may scope into it
_BY_RANGE: Final = """
SELECT start, stop, attempt, turn, checked, run FROM memo WHERE key = :key AND record = :record AND {}
AND stop > :low AND start < :high AND start >= coalesce(
  (SELECT max(start) FROM memo WHERE key = :key AND record = :record AND start <= :low), 0) ORDER BY start"""
_ARRAYS: Final = (
    "SELECT record, length, table_blob, run FROM arrays WHERE key = :key AND {} ORDER BY run DESC, record DESC"
)
_IS_OLD: Final = "SELECT 1 FROM arrays WHERE record = :record AND {}"
_NEXT_PAGES: Final = "SELECT turn FROM array_pages WHERE record = ? AND turn > ? ORDER BY turn LIMIT 64"
_DONE_IN: Final = """
SELECT start, stop FROM memo WHERE record = :record AND start < :high AND start >= coalesce(
  (SELECT max(start) FROM memo WHERE record = :record AND start <= :low), 0) ORDER BY start"""
_PART_TURNS: Final = 64  # as in _NEXT_PAGES
_PART_BYTES: Final = 1 << 20
_KNOWN: Final = 1_000  # runs whose names are remembered
_BEFORE: Final = "SELECT run, script, complete FROM runs WHERE {} ORDER BY run DESC"
_USED_UP: Final = """
SELECT 1 FROM borrowed JOIN runs ON runs.run = borrowed.run
WHERE borrowed.turn = ? AND borrowed.source = ? AND runs.complete = 1 LIMIT 1"""


_Found = tuple[int, int, int, int, int, int]  # record, start, attempt, turn, checked, run


class MemoScope(msgspec.Struct, frozen=True):
    """Which runs' memos may be used: those with a smaller number, and of a name if there is one."""

    before: int
    name: str | None = None
    unfinished: frozenset[int] | None = None  # only those of these runs; None: of all

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
        self._unfinished: dict[int, frozenset[int]] = {}  # by the run that looks
        self.contents = ""  # the folder of outputs that are kept by content
        self.dropped: frozenset[int] = frozenset()  # runs whose files are deleted: nothing of them is reused
        self.before = 0  # memos of runs from this number up are not shared

    def look_up(
        self,
        record: int,
        start: int,
        stop: int,
        key: MemoKey,
        reuse: Sequence[Reuse],
        *,
        run: int = 0,
        always: bool = True,
    ) -> list[MemoLookedUp]:
        """Pieces found and not found, in order, covering [start, stop)."""
        scope = self._scope(run, always=always)
        if reuse:
            found = list(self._array(record, start, stop, key, reuse, scope=scope))
        else:
            found = list(self._loose(record, start, key, scope))
        found.sort(key=lambda piece: piece.start)
        return list(_cover(record, start, stop, found))

    def look_up_tasks(
        self, wanted: Sequence[tuple[RecordId, MemoKey]], *, run: int = 0, always: bool = True
    ) -> list[MemoLookedUp]:
        """One answer for each loose task, in order."""
        scope = self._scope(run, always=always)
        rows: dict[bytes, _Found] = {}
        for at in range(0, len(wanted), _TOGETHER):
            keys = [key for _, key in wanted[at : at + _TOGETHER]]
            keys += keys[-1:] * (_TOGETHER - len(keys))  # so that there is one statement
            values = scope.values(**dict(zip(_NAMES, keys, strict=True)))
            for key, *found in self._database.execute(scope.of(_BY_KEYS), values).fetchall():
                rows[bytes(key)] = tuple(found)
        return [
            self._checked(record, 0, rows.get(key), scope) or MemoLookedUp(record, 0, 1, found=False)
            for record, key in wanted
        ]

    def old_arrays(self, body: MemoKey, run: int = 0, *, always: bool = True) -> list[MemoArray]:
        """Arrays of earlier runs with a body of which something is done."""
        arrays = []
        for record, length, table in self._arrays(body, self._scope(run, always=always)):
            done = merged(
                self._database.execute("SELECT start, stop FROM memo WHERE record = ? ORDER BY start", (record,))
            )
            if done:
                content = self._blob(table) if table else b""
                arrays.append(MemoArray(record, length, content, self._pages(record), done))
        return arrays

    def _arrays(self, body: MemoKey, scope: MemoScope) -> list[tuple[RecordId, int, bytes]]:
        rows = self._database.execute(scope.of(_ARRAYS), scope.values(key=body)).fetchall()
        among = scope.unfinished
        return [tuple(row[:3]) for row in rows if row[3] not in self.dropped and (among is None or row[3] in among)]

    def old_feeds(self, body: MemoKey, run: int = 0, *, always: bool = True) -> list[RecordId]:
        """As `old_arrays`, for arrays that a generator fed: only their ids, because such an array may be very long."""
        return [
            RecordId(record)
            for record, _, _ in self._arrays(body, self._scope(run, always=always))
            if self._database.execute("SELECT 1 FROM memo WHERE record = ? LIMIT 1", (record,)).fetchone()
        ]

    def fed_pages(self, record: int, after: int, run: int = 0) -> MemoPages:
        """The next pages of such an array, from turns after a number, and which of their elements succeeded."""
        scope = self._all_of(run)
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

    def unfinished_runs(self, before: int, name: str | None, script: str) -> frozenset[int]:
        """The runs that a script run continues: unfinished ones since the last script run that ended well."""
        scope = MemoScope(before, name)
        found: set[int] = set()
        condition = _EARLIER if name is None else f"{_EARLIER} AND name = :name"
        rows = self._database.execute(_BEFORE.format(condition), scope.values())
        for opened_by, some in groupby(rows, lambda row: row[1] or row[0]):  # an earlier version did not say by which
            runs = {run: complete for run, _, complete in some}
            if opened_by != script and all(runs.values()):
                break
            found.update(run for run, complete in runs.items() if not complete)
        return frozenset(found)

    def _scope(self, run: int, *, always: bool) -> MemoScope:
        scope = self._all_of(run)
        if always or not scope.before:
            return scope
        found = self._unfinished.get(scope.before)
        if found is None:
            row = self._database.execute("SELECT script FROM runs WHERE run = ?", (scope.before,)).fetchone()
            if len(self._unfinished) > _KNOWN:
                self._unfinished.clear()
            found = self.unfinished_runs(scope.before, scope.name, row[0] if row else "")
            self._unfinished[scope.before] = found
        return msgspec.structs.replace(scope, unfinished=found)

    def _all_of(self, run: int) -> MemoScope:
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
        found = self._checked(record, start, row, scope)
        if found is not None:
            yield found

    def _may_use(self, scope: MemoScope, run: int, turn: int, source: int) -> bool:
        """Whether a success counts: one of an unfinished run does until a run that ended well has used it."""
        if run in self.dropped:
            return False
        if scope.unfinished is None:
            return True
        return run in scope.unfinished and self._database.execute(_USED_UP, (turn, source)).fetchone() is None

    def _checked(self, record: int, start: int, row: _Found | None, scope: MemoScope) -> MemoLookedUp | None:
        if row is None:
            return None
        source, source_start, attempt, turn, checked, run = row
        if not self._may_use(scope, run, turn, source):
            return None
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
        for begin, end, attempt, turn, checked, run in self._database.execute(scope.of(_BY_RANGE), values).fetchall():
            if not self._may_use(scope, run, turn, source):
                continue
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
                if not all(map(self._is_unchanged, detail.outputs)):
                    return False
        except OSError:
            return False
        return True

    def _is_unchanged(self, made: Output) -> bool:
        """Whether an output is as it was; OSError when it is not there."""
        if not made.kept:
            return True  # it is temporary: if somebody wants it, it is made again
        if made.digest and not made.mtime_ns:  # its place is on another machine
            name = made.digest.hex()
            return bool(self.contents) and os.stat(f"{self.contents}/{name[:2]}/{name}").st_size == made.size
        if made.folder:
            size, time = folder_state(made.path)
            return (bool(made.digest) or size == made.size) and kept_time(time) == made.mtime_ns
        now = os.stat(made.path)
        return (now.st_size, kept_time(now.st_mtime_ns)) == (made.size, made.mtime_ns)

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
