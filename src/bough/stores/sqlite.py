"""The default store: one SQLite file, `journal.db`, in the workflow's directory.

A turn is one row, committed before `append` returns. With the write-ahead log a commit is a write to
the operating system, which survives `kill -9`, and `sync` brings the log to the disk; on network file
systems every commit is synced instead. Rule: one process writes (it holds a `StoreLock`), any number reads.
"""

from __future__ import annotations

import os
import sqlite3
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bough.errors import InvariantBroken, StoreFailed
from bough.journal.codec import Unreadable, decode, encode
from bough.model.facts import Fact, Recalled, RunClosed, RunOpened, SpanEnded
from bough.model.ids import BlobId, MemoKey, RecordId, Seconds
from bough.model.tasks import Reuse
from bough.stores import schema
from bough.stores.api import LastRun, OldArray
from bough.stores.faults import failed, reported
from bough.stores.filesystems import is_network_filesystem
from bough.stores.memos import Memos
from bough.stores.projector import Projector

FILE: Final = "journal.db"
CACHED_BYTES: Final = 64 << 20  # of journal rows kept decoded
CHECKPOINT_PAGES: Final = 4_000  # of 4 kB in the log before it is copied into the file
CACHE_SIZE: Final = 32_768  # kB of pages SQLite keeps, so that folding touches each page of an index once
_BUSY: Final = 10.0  # seconds a commit waits for readers on network file systems
_INSERT: Final = "INSERT INTO journal VALUES (?, ?, ?)"
_RUN_FACTS: Final = frozenset({RunOpened, RunClosed})


class SqliteStore:
    """See the module, and `api.Store` for what each method promises."""

    def __init__(self, directory: Path | str, *, wal: bool | None = None) -> None:
        self.directory = Path(directory)
        self.path = str(self.directory / FILE)
        self.rows_read = 0  # journal rows decoded since the store was opened
        with reported(str(self.directory)):
            self.directory.mkdir(parents=True, exist_ok=True)
            self.wal = not is_network_filesystem(self.directory) if wal is None else wal
            self._database = sqlite3.connect(
                self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False, cached_statements=256
            )
        self._closed = False
        self._log = -1  # the write-ahead log, to be synced
        self._blobs: dict[BlobId, bytes] = {}  # written with the next turn
        self._known: set[BlobId] = set()
        self._stale = True  # a run opened or closed since the last complete projection
        self._decoded: OrderedDict[int, tuple[int, dict[int, list[SpanEnded]]]] = OrderedDict()
        self._decoded_bytes = 0
        self._projector: Projector | None = None
        self._memos = Memos(self._database, self.success, self.turn, lambda blob: self.blob(BlobId(blob)))
        try:
            self._prepare()
            self._cursor = self._database.cursor()
            self._last = int(self._database.execute("SELECT coalesce(max(turn), 0) FROM journal").fetchone()[0])
        except (sqlite3.Error, OSError) as error:
            self._database.close()
            raise failed(self.path, error) from error

    def _prepare(self) -> None:
        execute = self._database.execute
        mode = execute(f"PRAGMA journal_mode = {'WAL' if self.wal else 'TRUNCATE'}").fetchone()[0]
        self.wal = mode == "wal"
        execute(f"PRAGMA synchronous = {'NORMAL' if self.wal else 'FULL'}")
        execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        execute("PRAGMA temp_store = MEMORY")
        execute(f"PRAGMA cache_size = -{CACHE_SIZE}")
        version = execute("PRAGMA user_version").fetchone()[0]
        if version > schema.SCHEMA:
            raise StoreFailed(f"the store {self.path} was made by a newer version of bough: use that one")
        if version == schema.SCHEMA:
            return
        execute("BEGIN IMMEDIATE")
        if version:  # what is folded is made again in the present shape
            for table in schema.FOLDED:
                execute(f"DROP TABLE IF EXISTS {table}")
        for statement in (schema.DURABLE + schema.TABLES).split(";"):
            execute(statement)
        execute(f"PRAGMA user_version = {schema.SCHEMA}")
        execute("COMMIT")
        if self.wal:
            execute("PRAGMA wal_checkpoint(PASSIVE)")
        _sync_directory(self.directory)

    # --- the journal ---

    def append(self, turn: int, now: Seconds, facts: Sequence[Fact]) -> None:
        """Write one turn; it survives `kill -9` when this returns."""
        if turn != self._last + 1:
            raise InvariantBroken(f"turn {turn} was to follow turn {self._last} in {self.path}")
        values = (turn, now, encode(facts))
        try:
            if self._blobs:
                self._append_with_blobs(values)
            else:
                self._cursor.execute(_INSERT, values)
        except sqlite3.Error as error:
            raise failed(self.path, error) from error
        self._last = turn
        if not _RUN_FACTS.isdisjoint(map(type, facts)):
            self._stale = True

    def _append_with_blobs(self, values: tuple[int, float, bytes | bytearray]) -> None:
        self._write("INSERT OR IGNORE INTO blobs VALUES (?, ?)", list(self._blobs.items()), _INSERT, values)
        self._known.update(self._blobs)
        self._blobs.clear()

    def _write(self, many: str, rows: Sequence[Sequence[object]], one: str, values: Sequence[object]) -> None:
        """Write rows and one more in one transaction, or nothing."""
        execute = self._database.execute
        execute("BEGIN IMMEDIATE")
        try:
            self._database.executemany(many, rows)
            execute(one, values)
            execute("COMMIT")
        except sqlite3.Error:
            if self._database.in_transaction:
                execute("ROLLBACK")
            raise

    def sync(self) -> None:
        """Bring the log to the disk. May be called from another thread."""
        if not self.wal:
            return  # every commit was synced
        with reported(self.path):
            # Never open the main file besides SQLite: closing it would drop SQLite's own locks on it (POSIX).
            # A checkpoint syncs both files itself.
            if self._log < 0:
                self._log = os.open(f"{self.path}-wal", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                _sync_directory(self.directory)
            os.fdatasync(self._log)

    def journal(self, after: int = 0) -> Iterator[tuple[int, Seconds, list[Fact]]]:
        """Turns in order, lazily."""
        with reported(self.path):
            rows = self._database.execute(
                "SELECT turn, time, facts FROM journal WHERE turn > ? ORDER BY turn", (after,)
            )
            for turn, time, data in rows:
                yield turn, time, self._decode(turn, data)

    def turn(self, number: int) -> list[Fact]:
        """The facts of one turn."""
        return self._decode(number, self._row(number))

    def turns_of_run(self, run: int) -> int:
        """Where a run begins."""
        self._freshen()
        with reported(self.path):
            row = self._database.execute("SELECT turn FROM runs WHERE run = ?", (run,)).fetchone()
        if row is None:
            raise KeyError(run)
        return int(row[0])

    def last_run(self) -> LastRun:
        """How the store was left."""
        self.project()
        with reported(self.path):
            row = self._database.execute("SELECT run, clean, record, grp, executor, span FROM position").fetchone()
        run, clean, record, group, executor, span = row
        return LastRun(run, bool(clean), self._last, record, group, executor, span)

    def _row(self, number: int) -> bytes:
        with reported(self.path):
            row = self._database.execute("SELECT facts FROM journal WHERE turn = ?", (number,)).fetchone()
        if row is None:
            raise KeyError(number)
        return bytes(row[0])

    def _decode(self, turn: int, data: bytes) -> list[Fact]:
        self.rows_read += 1
        try:
            return decode(data)
        except Unreadable as error:
            raise StoreFailed(f"turn {turn} of the store {self.path} cannot be read: {error}") from error

    # --- blobs and snapshots ---

    def put_blob(self, blob: BlobId, data: bytes) -> None:
        """Keep a blob with the next turn."""
        if blob not in self._known:
            self._blobs[blob] = data

    def blob(self, blob: BlobId) -> bytes:
        """A blob's content."""
        if blob in self._blobs:
            return self._blobs[blob]
        with reported(self.path):
            row = self._database.execute("SELECT data FROM blobs WHERE id = ?", (blob,)).fetchone()
        if row is None:
            raise KeyError(blob)
        return bytes(row[0])

    def save_snapshot(self, turn: int, run: int, data: bytes) -> None:
        """Keep the newest snapshot of a run."""
        with reported(self.path):
            self._database.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (run, turn, data))

    def snapshot(self, run: int) -> tuple[int, bytes] | None:
        """The newest snapshot of a run."""
        with reported(self.path):
            row = self._database.execute("SELECT turn, data FROM snapshots WHERE run = ?", (run,)).fetchone()
        return (int(row[0]), bytes(row[1])) if row else None

    # --- the jobs database and the memos ---

    def project(self, at_most: int = 0) -> bool:
        """Fold journalled facts; True once caught up."""
        try:
            position = self._project(at_most)
        except BaseException:
            self._projector = None  # what it holds in memory is ahead of the tables
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        return position == self._last

    def _project(self, at_most: int) -> int:
        with reported(self.path):
            if self._projector is None:
                self._projector = Projector(self._database, lambda blob: self.blob(BlobId(blob)), self.success)
            projector, folded = self._projector, False
            after = projector.position
            until = min(self._last, after + at_most) if at_most else self._last
            if after < until:
                for turn, time, facts in self.journal(after):
                    projector.fold(turn, time, facts)
                    folded = True
                    if turn == until:
                        break
                    if projector.heavy:
                        projector.commit()
                        folded = False
                if folded:
                    projector.commit()
            position = projector.position
            if position == self._last:
                self._stale = False
            run, clean = self._database.execute("SELECT run, clean FROM position").fetchone()
            self._memos.before = run + 1 if clean else run
        return position

    def _freshen(self) -> None:
        """Catch up when the answer depends on which run this is."""
        if self._stale:
            self.project()

    def recall(self, record: RecordId, start: int, stop: int, key: MemoKey, reuse: Sequence[Reuse]) -> list[Recalled]:
        """Successes of earlier runs."""
        self._freshen()
        with reported(self.path):
            return self._memos.recall(record, start, stop, key, reuse)

    def old_arrays(self, body: MemoKey) -> list[OldArray]:
        """Arrays of earlier runs with this body."""
        self._freshen()
        with reported(self.path):
            return self._memos.old_arrays(body)

    def declared_paths(self) -> list[str]:
        """Paths ever declared or made as outputs."""
        self.project()
        with reported(self.path):
            rows = self._database.execute("SELECT path FROM declared UNION SELECT path FROM files").fetchall()
        return [row[0] for row in rows]

    def success(self, turn: int, record: int, index: int) -> SpanEnded | None:
        """The success that covers an element."""
        for fact in self._successes(turn).get(record, ()):
            if fact.start <= index < fact.stop:
                return fact
        return None

    def _successes(self, turn: int) -> dict[int, list[SpanEnded]]:
        """The successes of a turn by record; recently used turns are kept."""
        if turn in self._decoded:
            self._decoded.move_to_end(turn)
            return self._decoded[turn][1]
        try:
            data = self._row(turn)
        except KeyError:
            return {}
        found: dict[int, list[SpanEnded]] = {}
        for fact in self._decode(turn, data):
            if isinstance(fact, SpanEnded):
                found.setdefault(fact.record, []).append(fact)
        self._decoded[turn] = (len(data), found)
        self._decoded_bytes += len(data)
        while self._decoded_bytes > CACHED_BYTES and len(self._decoded) > 1:
            self._decoded_bytes -= self._decoded.popitem(last=False)[1][0]
        return found

    def close(self) -> None:
        """Catch up, sync and let go; harmless the second time."""
        if self._closed:
            return
        self._closed = True
        try:
            self.project()
            self.sync()
        finally:
            self._database.close()
            if self._log >= 0:
                os.close(self._log)
                self._log = -1


def _sync_directory(directory: Path) -> None:
    """Make new files' names durable."""
    number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
