"""The default store: one SQLite file, `journal.db`, in the workflow's directory.

A turn is one row, committed before `append` returns. With the write-ahead log a commit is a write to
the operating system, which survives `kill -9`, and `sync` brings the log to the disk; on network file
systems every commit is synced instead. Rule: one process writes (it holds a `StoreLock`), any number reads.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

from bough import private
from bough.errors import StoreFailed
from bough.filesystems import is_network_filesystem
from bough.stores import schema
from bough.stores.folder.store_folder import make_store_folder
from bough.stores.schema import FILE
from bough.stores.sql.sql_store import SqlStore
from bough.stores.store_errors import failed, reported

CHECKPOINT_PAGES: Final = 4_000  # of 4 kB in the log before it is copied into the file
CACHE_SIZE: Final = 32_768  # kB of pages SQLite keeps, so that folding touches each page of an index once
GIVEN_BACK: Final = 2_000  # pages returned to the file system in one go
_BUSY: Final = 10.0  # seconds a commit waits for readers on network file systems
_BUSY_WAL: Final = 0.5  # seconds it waits elsewhere: only a foreign writer can block it
_INSERT: Final = "INSERT INTO journal VALUES (?, ?, ?)"
_STEPWISE: Final = 2  # auto_vacuum = INCREMENTAL


class SqliteStore(SqlStore):
    """See `stores.store.Store` for what each method promises."""

    _database: sqlite3.Connection

    def __init__(self, directory: str | os.PathLike[str], *, wal: bool | None = None) -> None:
        self.directory = os.fspath(directory)
        self.path = os.path.join(self.directory, FILE)
        with reported(self.directory):
            make_store_folder(self.directory)
            make_private_database(self.path)
            self.wal = not is_network_filesystem(self.directory) if wal is None else wal
            database = sqlite3.connect(
                self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False, cached_statements=256
            )
        super().__init__(database, self.directory)
        self._log = -1  # the write-ahead log, to be synced
        try:
            self._prepare()
            if self.wal:
                self._database.execute(f"PRAGMA busy_timeout = {int(_BUSY_WAL * 1000)}")
            self._cursor = self._database.cursor()
            self._last = self._newest()
        except (sqlite3.Error, OSError) as error:
            self._database.close()
            raise failed(self.path, error) from error
        except BaseException:
            self._database.close()
            raise

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
        execute(schema.QUARANTINE)
        if version == schema.SCHEMA:
            for statement in schema.ADDED:
                execute(statement)
            return
        execute("BEGIN IMMEDIATE")
        self._make_tables(anew=bool(version))  # what is folded is made again in the present shape
        execute(f"PRAGMA user_version = {schema.SCHEMA}")
        execute("COMMIT")
        if self.wal:
            execute("PRAGMA wal_checkpoint(PASSIVE)")
        private.sync_folder(self.directory)

    def claim(self, kind: str) -> None:
        """As `Store.claim`; a service's store frees space in steps, which makes appending somewhat slower."""
        super().claim(kind)
        if kind == "service" and not self._last:
            with reported(self.path):
                self._database.execute(f"PRAGMA auto_vacuum = {_STEPWISE}")
                self._database.execute("VACUUM")

    def _reported(self) -> AbstractContextManager[None]:
        return reported(self.path)

    def _insert(self, values: tuple[int, float, bytes | bytearray]) -> None:
        try:
            if self._blobs:
                blobs = "INSERT INTO blobs VALUES (?, ?) ON CONFLICT DO NOTHING"
                self._write(blobs, list(self._blobs.items()), _INSERT, values)
                self._known.update(self._blobs)
                self._blobs.clear()
            else:
                self._cursor.execute(_INSERT, values)
        except sqlite3.Error as error:
            raise failed(self.path, error) from error

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
                self._log = private.opener(f"{self.path}-wal", os.O_RDWR | os.O_CREAT)
                private.sync_folder(self.directory)
            os.fdatasync(self._log)

    def _rows(self, after: int) -> Iterator[tuple[int, float, bytes]]:
        yield from self._database.execute(
            "SELECT turn, time, facts FROM journal WHERE turn > ? ORDER BY turn", (after,)
        )

    def _free_space(self) -> bool:
        free, all_pages, stepwise = (
            self._database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("freelist_count", "page_count", "auto_vacuum")
        )
        if stepwise == _STEPWISE and free:
            # executescript, because execute stops after the first page
            self._database.executescript(f"PRAGMA incremental_vacuum({GIVEN_BACK})")
            if free > GIVEN_BACK:
                return False
        elif free * 4 > all_pages:
            self._database.execute("VACUUM")
        if self.wal:  # readers that are in the way are not waited for
            self._database.execute("PRAGMA busy_timeout = 0")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._database.execute(f"PRAGMA busy_timeout = {int(_BUSY_WAL * 1000)}")
        self._database.execute("PRAGMA shrink_memory")
        return True

    def _disconnect(self) -> None:
        self._database.close()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1


def make_private_database(path: str) -> None:
    """Make an empty file for a database, if there is none, that only we can read: its log gets the same mode."""
    try:
        os.close(private.opener(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        private.close_file(path)
