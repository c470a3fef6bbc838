"""Find successes of earlier runs: by key for a loose task, by key and place for elements of arrays.

Rule: a success counts only while its declared outputs, and the file that holds its result, are there
and unchanged; nothing is shared within a run. In a service a workflow sees only runs of its own name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from bough.model.facts import Fact, PagesAdded, Recalled, SpanEnded, Submitted
from bough.model.ids import MemoKey, RecordId
from bough.model.outcomes import ResultFile
from bough.model.tasks import ArraySpec, Reuse
from bough.stores.api import OldArray
from bough.stores.database import Database

_EARLIER: Final = "run < :before"
_NAMESAKES: Final = f"{_EARLIER} AND run IN (SELECT run FROM runs WHERE name = :name)"
_BY_KEY: Final = (
    "SELECT record, start, attempt, turn, checked FROM memo WHERE key = :key AND {} ORDER BY turn DESC LIMIT 1"
)
# rows of one record do not overlap, so the one before the first that begins inside may reach into it
_BY_RANGE: Final = """
SELECT start, stop, attempt, turn, checked FROM memo WHERE key = :key AND record = :record AND {}
AND stop > :low AND start < :high AND start >= coalesce(
  (SELECT max(start) FROM memo WHERE key = :key AND record = :record AND start <= :low), 0) ORDER BY start"""
_ARRAYS: Final = "SELECT record, length, table_blob FROM arrays WHERE key = :key AND {} ORDER BY run DESC, record DESC"


class Reach(msgspec.Struct, frozen=True):
    """Which runs' memos may be seen: those with a smaller number, and of a name if there is one."""

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
    """See the module."""

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

    def recall(
        self, record: int, start: int, stop: int, key: MemoKey, reuse: Sequence[Reuse], *, run: int = 0
    ) -> list[Recalled]:
        """Pieces found and not found, in order, covering [start, stop)."""
        reach = self._reach(run)
        if reuse:
            found = list(self._array(record, start, stop, key, reuse, reach=reach))
        else:
            found = list(self._loose(record, start, key, reach))
        found.sort(key=lambda piece: piece.start)
        return list(_cover(record, start, stop, found))

    def old_arrays(self, body: MemoKey, run: int = 0) -> list[OldArray]:
        """Arrays of earlier runs with a body of which something is done."""
        reach = self._reach(run)
        rows = self._database.execute(reach.of(_ARRAYS), reach.values(key=body)).fetchall()
        arrays = []
        for record, length, table in rows:
            done = merged(
                self._database.execute("SELECT start, stop FROM memo WHERE record = ? ORDER BY start", (record,))
            )
            if done:
                content = self._blob(table) if table else b""
                arrays.append(OldArray(record, length, content, self._pages(record), done))
        return arrays

    def _reach(self, run: int) -> Reach:
        if not run:
            return Reach(self.before)
        if run not in self._names:
            row = self._database.execute("SELECT name FROM runs WHERE run = ?", (run,)).fetchone()
            if row is None:
                return Reach(0)
            self._names[run] = row[0]
        return Reach(run, self._names[run])

    def _loose(self, record: int, start: int, key: MemoKey, reach: Reach) -> Iterator[Recalled]:
        row = self._database.execute(reach.of(_BY_KEY), reach.values(key=key)).fetchone()
        if row is None:
            return
        source, source_start, attempt, turn, checked = row
        if checked and not self._is_there(turn, source, source_start):
            return
        yield Recalled(RecordId(record), start, start + 1, True, source, source_start, attempt, turn)

    def _array(
        self, record: int, start: int, stop: int, key: MemoKey, reuse: Sequence[Reuse], *, reach: Reach
    ) -> Iterator[Recalled]:
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
                for piece in self._range(record, candidate.source, key, (at, end), shift, reach=reach):
                    left.append((at, piece.start))
                    yield piece
                    at = piece.stop
                left += [(at, end), (end, high)]
            missing = [piece for piece in left if piece[0] < piece[1]]

    def _range(
        self, record: int, source: int, key: MemoKey, place: tuple[int, int], shift: int, *, reach: Reach
    ) -> Iterator[Recalled]:
        """Successes of a source for a range of elements, which lie `shift` further there."""
        low, high = place
        values = reach.values(key=key, record=source, low=low + shift, high=high + shift)
        for begin, end, attempt, turn, checked in self._database.execute(reach.of(_BY_RANGE), values).fetchall():
            first, last = max(begin, low + shift), min(end, high + shift)
            pieces: Iterable[tuple[int, int]] = [(first, last)]
            if checked:
                pieces = merged((at, at + 1) for at in range(first, last) if self._is_there(turn, source, at))
            for at, until in pieces:
                yield Recalled(RecordId(record), at - shift, until - shift, True, RecordId(source), at, attempt, turn)

    def _is_there(self, turn: int, record: int, index: int) -> bool:
        """Whether what a success made is there and unchanged."""
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
                    if (now.st_size, now.st_mtime_ns) != (made.size, made.mtime_ns):
                        return False
        except OSError:
            return False
        return True

    def _pages(self, record: int) -> list[tuple[int, int, bytes]]:
        pages = []
        for (turn,) in self._database.execute(
            "SELECT turn FROM array_pages WHERE record = ? ORDER BY turn", (record,)
        ).fetchall():
            for fact in self._turn(turn):
                if isinstance(fact, PagesAdded) and fact.record == record:
                    pages += fact.pages
                elif isinstance(fact, Submitted):
                    for item in fact.items:
                        if isinstance(item, ArraySpec) and item.id == record:
                            pages += item.pages
        return [(page.start, page.stop, page.data) for page in sorted(pages, key=lambda page: page.start)]


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted ranges, with those that touch made one."""
    together: list[tuple[int, int]] = []
    for start, stop in ranges:
        if together and together[-1][1] >= start:
            together[-1] = (together[-1][0], max(stop, together[-1][1]))
        else:
            together.append((start, stop))
    return together


def _cover(record: int, start: int, stop: int, found: Sequence[Recalled]) -> Iterator[Recalled]:
    """Fill the gaps, and join pieces that continue each other."""
    held: Recalled | None = None
    at = start
    for piece in found:
        if held and piece.start == held.stop and _continues(held, piece):
            held = msgspec.structs.replace(held, stop=piece.stop)
        else:
            if held:
                yield held
            if piece.start > at:
                yield Recalled(RecordId(record), at, piece.start, False)
            held = piece
        at = piece.stop
    if held:
        yield held
    if at < stop:
        yield Recalled(RecordId(record), at, stop, False)


def _continues(one: Recalled, other: Recalled) -> bool:
    return (one.source, one.source_attempt, one.turn, one.source_start + one.stop - one.start) == (
        other.source,
        other.source_attempt,
        other.turn,
        other.source_start,
    )
