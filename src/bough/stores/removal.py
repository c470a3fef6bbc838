"""Takes the facts of removed runs out of the journal, a slice at a time.

The tables decide: a fact about a record, a group, a run or an executor that they do not know is dropped, wherever it
is. That a run was opened and removed is dropped last, in this order, when nothing else of it is left: tables that are
folded anew in the meantime must know which run its facts belong to. Rule: a success that a living run reuses stays;
only rows that no replay will read are changed. A slice is one transaction, and doing one twice is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from bough.errors import InvariantBroken
from bough.journal.codec import encode
from bough.model.events import facts as f
from bough.model.events.news import GroupClosed, PagesAdded
from bough.model.ids import RecordId
from bough.model.outcomes import ResultFile
from bough.model.tasks import GroupSpec, TaskSpec
from bough.stores.database import Database, found_in
from bough.stores.jobs.tables import keep_numbers
from bough.stores.quarantine import NOT_IN_TABLES

SLICE_BYTES: Final = 4 << 20  # of journal rows looked at in one go
_NEVER: Final = 1 << 62
MOST_BLOBS: Final = 100  # deleted in one go

_OF_RECORD: Final = (
    PagesAdded, f.Placed, f.Replicated, f.SpanStarted, f.SpanEnded, f.ElementFailed, f.SpanReturned, f.OutputKept,
    f.Observed, f.RetryDue, f.MemoLookedUp, f.Skipped, f.LockTaken, f.LockFreed, f.SpanAlive,
    f.CheckpointKept, f.MadeAgain, f.OutputsSafe,
)  # fmt: skip
_OF_EXECUTOR: Final = (
    f.ExecutorJoined, f.ExecutorResized, f.ExecutorLost, f.ExecutorSuspended, f.ExecutorResumed, f.ExecutorDrained,
)  # fmt: skip
_OF_RUN: Final = (f.RunClosed, f.RunRetired, f.RunRevived)
_LAST: Final = (f.RunOpened, f.RunRemoved)
_TARGETED: Final = (
    f.Cancelled, f.Killed, f.Held, f.Released, f.WasReset, f.Retried, f.Prioritised,
    f.MonitorsAdded, f.EndAsked, f.RuleSet, f.MembersRecalled,
)  # fmt: skip
_UNUSED: Final = """
SELECT blob FROM blob_uses WHERE run = 0 AND NOT EXISTS (
  SELECT 1 FROM blob_uses AS others WHERE others.blob = blob_uses.blob AND others.run != 0) LIMIT ?"""

_OLD_SNAPSHOTS: Final = "DELETE FROM snapshots WHERE turn < ? AND run NOT IN (SELECT run FROM runs WHERE grp != 0)"
_ROW: Final = "SELECT facts FROM journal WHERE turn = ?"
_STILL_USED: Final = """
DELETE FROM blob_uses WHERE run = 0 AND blob IN (SELECT others.blob FROM blob_uses AS others WHERE others.run != 0)"""


class NamedRuns(msgspec.Struct):
    """The records, groups, runs and executors that facts are about."""

    records: set[int]
    groups: set[int]
    runs: set[int]
    executors: set[int]


def named_by(facts: Iterable[f.Fact]) -> NamedRuns:
    """What facts are about."""
    facts = list(facts)
    named = NamedRuns(set(), set(), set(), {fact.executor for fact in facts if isinstance(fact, _OF_EXECUTOR)})
    for fact in facts:
        if isinstance(fact, f.Submitted):
            for item in fact.items:
                (named.groups if isinstance(item, GroupSpec) else named.records).add(item.id)
            named.groups.update(file.group for file in fact.files)
        elif isinstance(fact, f.Amended):
            for item in (*fact.added, *fact.changed):
                (named.groups if isinstance(item, GroupSpec) else named.records).add(item.id)
            named.records.update(fact.removed)
            named.groups.update(fact.removed_groups)
        elif isinstance(fact, (*_OF_RECORD, f.Freed)):
            named.records.update(_records_of(fact))
        elif isinstance(fact, GroupClosed | f.GroupReleased):
            named.groups.add(fact.group)
        elif isinstance(fact, _OF_RUN + _LAST):
            named.runs.add(fact.run)
        elif isinstance(fact, _TARGETED):
            (named.groups if fact.target.is_group else named.records).add(fact.target.id)
    return named


def _records_of(fact: f.Fact) -> Iterable[int]:
    """The records that a fact about records names."""
    if isinstance(fact, f.Freed):
        return [*_loose(fact), *(record for record, _, _ in fact.parts)]
    return (fact.record,)  # type: ignore[union-attr] # it is one of `_OF_RECORD`


def _loose(fact: f.Freed) -> Iterator[int]:
    return (record for first, last in fact.tasks for record in range(first, last + 1))


def _rest_of(fact: f.Submitted | f.Freed, dead: NamedRuns) -> list[f.Fact]:
    """A fact about several things without those that are dead, if anything is left."""
    if isinstance(fact, f.Freed):
        loose = tuple((RecordId(one), RecordId(one)) for one in _loose(fact) if one not in dead.records)
        parts = tuple(part for part in fact.parts if part[0] not in dead.records)
        return [f.Freed(loose, parts)] if loose or parts else []
    items = [
        item for item in fact.items if item.id not in (dead.groups if isinstance(item, GroupSpec) else dead.records)
    ]
    files = tuple(file for file in fact.files if file.group not in dead.groups)
    if not items:
        return []
    return [fact if len(items) == len(fact.items) else msgspec.structs.replace(fact, items=items, files=files)]


def without(facts: Sequence[f.Fact], dead: NamedRuns, borrowed: set[int]) -> list[f.Fact]:
    """The facts that are not about what is dead, and successes of borrowed records."""
    kept: list[f.Fact] = []
    for fact in facts:
        if isinstance(fact, f.Submitted | f.Freed):
            kept += _rest_of(fact, dead)
            continue
        if isinstance(fact, _OF_RECORD):
            gone = fact.record in dead.records and not (isinstance(fact, f.SpanEnded) and fact.record in borrowed)
        elif isinstance(fact, GroupClosed | f.GroupReleased):
            gone = fact.group in dead.groups
        elif isinstance(fact, f.Amended):  # all of it is of one run
            about = named_by([fact])
            gone = about.records <= dead.records and about.groups <= dead.groups
        elif isinstance(fact, _TARGETED):
            gone = fact.target.id in (dead.groups if fact.target.is_group else dead.records)
        elif isinstance(fact, _OF_EXECUTOR):
            gone = fact.executor in dead.executors
        else:
            gone = isinstance(fact, _OF_RUN) and fact.run in dead.runs
        if not gone:
            kept.append(fact)
    return kept


def files_of(facts: Iterable[f.Fact]) -> set[str]:
    """Files of results and arguments that facts name."""
    files = {
        fact.results.path for fact in facts if isinstance(fact, f.SpanEnded) and isinstance(fact.results, ResultFile)
    }
    for fact in facts:
        if isinstance(fact, f.Submitted):
            files |= {item.payload_path for item in fact.items if isinstance(item, TaskSpec) and item.payload_path}
    return files


class Removal:
    """Rewrites the journal of one store without the facts of removed runs."""

    def __init__(self, database: Database, decode: Callable[[int, bytes], list[f.Fact]]) -> None:
        self._database = database
        self._decode = decode
        self.files: list[str] = []
        self.rewritten: set[int] = set()  # turns whose rows changed
        self._last_turns: set[int] = set()  # that hold the last facts of removed runs: opened, removed

    def sweep(self, at_most: int, *, now: bool) -> bool:
        """Rewrite the next rows; True when none are left. The tables must have caught up.

        Rows that a replay would read wait for the next snapshot; with `now` they are an error.
        """
        database = self._database
        pending = self._pending(now=now)
        if pending is None:
            return self._drop_last_facts(at_most)
        first, last, removed = pending
        rows, after = self._slice(first, last, at_most)
        facts = {turn: self._decode(turn, data) for turn, data in rows}
        dead = self._dead(named_by(fact for some in facts.values() for fact in some))
        borrowed: dict[int, set[int]] = {}
        for turn, source in database.execute(
            "SELECT turn, source FROM borrowed WHERE turn >= ? AND turn < ?", (first, after)
        ):
            borrowed.setdefault(turn, set()).add(source)
        changed, files = [], set()
        for turn, some in facts.items():
            kept = without(some, dead, borrowed.get(turn, set()))
            if kept != some:
                changed.append((turn, kept))
                files |= files_of(some) - files_of(kept)
            if any(isinstance(fact, _LAST) and fact.run in dead.runs for fact in kept):
                self._last_turns.add(turn)
        with self._writing(changed):
            self._continue_after(first, last, after, removed)
        self.files += sorted(files)
        self.rewritten |= {turn for turn, _ in changed}
        return False

    def _pending(self, *, now: bool) -> tuple[int, int, int] | None:
        """The next range of rows; ranges that overlap are merged, because one pass is enough for all."""
        found = self._database.execute("SELECT first, last, removed FROM sweeps ORDER BY first").fetchall()
        if not found:
            return None
        replayed = self._first_replayed()
        ripe = [row for row in found if row[2] < replayed]
        if now and len(ripe) < len(found):
            removed = max(row[2] for row in found)
            raise InvariantBroken(f"a run was removed in turn {removed} and no snapshot saved since: save one first")
        if not ripe:
            return None
        first, last, removed = ripe[0]
        merged = [first]
        for other, end, by in ripe[1:]:
            if other > last + 1:
                break
            merged.append(other)
            last, removed = max(last, end), max(removed, by)
        if len(merged) > 1:
            self._merge(merged, (first, last, removed))
        return first, last, removed

    def _merge(self, firsts: list[int], one: tuple[int, int, int]) -> None:
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany("DELETE FROM sweeps WHERE first = ?", [(first,) for first in firsts])
            database.execute("INSERT INTO sweeps VALUES (?, ?, ?)", one)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def _slice(self, first: int, last: int, at_most: int) -> tuple[list[tuple[int, bytes]], int]:
        """Rows from a turn on, and the turn to continue with."""
        sizes = self._database.execute(
            "SELECT turn, length(facts) FROM journal WHERE turn >= ? AND turn <= ? ORDER BY turn LIMIT ?",
            (first, last, at_most),
        ).fetchall()
        total, until = 0, first
        for turn, size in sizes:
            total, until = total + size, turn
            if total > SLICE_BYTES:
                break
        if total <= SLICE_BYTES and len(sizes) < at_most:
            until = last
        found = self._database.execute(
            "SELECT turn, facts FROM journal WHERE turn >= ? AND turn <= ? ORDER BY turn", (first, until)
        ).fetchall()
        return [(turn, bytes(data)) for turn, data in found], until + 1

    def _first_replayed(self) -> int:
        """The first turn that a server which starts now would read."""
        run, clean = self._database.execute("SELECT run, clean FROM position").fetchone()
        if clean:
            return _NEVER
        saved = self._database.execute("SELECT turn FROM snapshots WHERE run = ?", (run,)).fetchone()
        begun = self._database.execute("SELECT turn FROM runs WHERE run = ?", (run,)).fetchone()[0]
        return int(max(begun, saved[0] + 1 if saved else 0))

    def _dead(self, named: NamedRuns) -> NamedRuns:
        records = found_in(self._database, "SELECT id FROM tasks WHERE id IN ({})", named.records)
        groups = found_in(self._database, "SELECT id FROM groups WHERE id IN ({})", named.groups)
        runs = found_in(self._database, "SELECT run FROM runs WHERE run IN ({})", named.runs)
        executors = found_in(self._database, "SELECT id FROM executors WHERE id IN ({})", named.executors)
        return NamedRuns(
            named.records - records - {0},
            named.groups - groups - {0},
            named.runs - runs,
            named.executors - executors,
        )

    def _drop_last_facts(self, at_most: int) -> bool:
        """Drop the last facts of removed runs; True when there are none."""
        turns = sorted(self._last_turns)[:at_most]
        if not turns:
            return True
        rows = [(turn, self._database.execute(_ROW, (turn,)).fetchone()) for turn in turns]
        facts = {turn: self._decode(turn, bytes(row[0])) for turn, row in rows if row is not None}
        dead = self._dead(named_by(fact for some in facts.values() for fact in some)).runs
        changed = []
        for turn, some in facts.items():
            kept = [fact for fact in some if not (isinstance(fact, _LAST) and fact.run in dead)]
            if kept != some:
                changed.append((turn, kept))
        with self._writing(changed):
            pass
        self._last_turns.difference_update(turns)
        self.rewritten |= {turn for turn, _ in changed}
        return False

    @contextmanager
    def _writing(self, changed: list[tuple[int, list[f.Fact]]]) -> Iterator[None]:
        """Write changed rows, and what the body writes, in one transaction."""
        database = self._database
        newest = database.execute("SELECT max(turn) FROM journal").fetchone()[0]
        database.execute("BEGIN IMMEDIATE")
        try:
            keep_numbers(database)
            empty = [(turn,) for turn, kept in changed if not kept and turn != newest]
            full = [(bytes(encode(kept)), turn) for turn, kept in changed if kept or turn == newest]
            database.executemany("DELETE FROM journal WHERE turn = ?", empty)
            database.executemany("UPDATE journal SET facts = ? WHERE turn = ?", full)
            moved = [(turn, NOT_IN_TABLES) for turn, _ in changed]  # facts have other positions now
            database.executemany("DELETE FROM quarantine WHERE turn = ? AND scope = ?", moved)
            yield
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def _continue_after(self, first: int, last: int, after: int, removed: int) -> None:
        """Write down where to continue; at the end delete old snapshots, except those of retired runs."""
        database = self._database
        database.execute("DELETE FROM sweeps WHERE first = ?", (first,))
        if after <= last:
            database.execute(
                "INSERT INTO sweeps VALUES (?, ?, ?) ON CONFLICT (first) DO UPDATE SET last = excluded.last"
                " WHERE sweeps.last < excluded.last",
                (after, last, removed),
            )
        else:
            database.execute(_OLD_SNAPSHOTS, (removed,))

    def drop_blobs(self, needed: Iterable[bytes]) -> list[bytes]:
        """Delete some blobs that only removed runs used, but none that is `needed` again."""
        database, needed = self._database, set(needed)
        unused = [bytes(row[0]) for row in database.execute(_UNUSED, (MOST_BLOBS,)).fetchall()]
        gone = [blob for blob in unused if blob not in needed]
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany("DELETE FROM blobs WHERE id = ?", [(blob,) for blob in gone])
            database.executemany("DELETE FROM blob_uses WHERE blob = ? AND run = 0", [(blob,) for blob in unused])
            database.execute(_STILL_USED)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        return unused
