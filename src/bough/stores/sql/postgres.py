"""A store in PostgreSQL, and its lock.

The tables of `schema` have a schema of their own in the database (`bough`, or the URL's search_path). A turn is one row
and one transaction that does not wait for the disk (`synchronous_commit=off`): it survives `kill -9` of every process
of ours. `sync` commits through a second connection that waits, which flushes all turns before it. The lock is an
advisory lock of a connection, with pid and host of the holder in the table `holder`; the database releases it when
the connection ends.
Rule: turns that are not flushed yet are kept in memory, and written again when the database lost them. Every holder has
a new number (`epoch`); a holder that reconnects and finds another number has lost the store.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

import psycopg

from bough.errors import InvariantBroken, StoreFailed, StoreHeld
from bough.model.ids import BlobId
from bough.stores import schema
from bough.stores.sql.pg_database import Address, PostgresDatabase, connect, failed, read_address, reported
from bough.stores.sql.sql_store import SqlStore

MOST_UNSYNCED: Final = 5_000  # turns kept in memory before the store syncs by itself
PAGE_BYTES: Final = 4 << 20  # of journal rows fetched at a time, about
FEWEST_ROWS: Final = 16  # of them
MOST_ROWS: Final = 10_000
WORTH_REWRITING: Final = 0.5  # of the journal's space unused, after which it is written anew
_INSERT: Final = "INSERT INTO journal VALUES (?, ?, ?) ON CONFLICT (turn) DO NOTHING"
_BLOBS: Final = "INSERT INTO blobs VALUES (?, ?) ON CONFLICT DO NOTHING"
_SYNCED: Final = "INSERT INTO about VALUES ('synced', %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_VERSION: Final = "SELECT value FROM about WHERE name = 'schema'"
_PLAIN: Final = ("journal", "blobs", "snapshots")  # stored as they are: big rows are compressed already
_TRY: Final = "SELECT pg_try_advisory_lock(%s)"
_KEEPALIVE: Final = (
    "SELECT set_config('tcp_keepalives_idle', '30', false), set_config('tcp_keepalives_interval', '10', false),"
    " set_config('tcp_keepalives_count', '3', false)"
)
_MAKE: Final = """
CREATE TABLE IF NOT EXISTS holder(
  one INTEGER PRIMARY KEY CHECK (one = 1), pid BIGINT, host TEXT, epoch BIGINT, since TIMESTAMPTZ)"""
_TAKE: Final = """
INSERT INTO holder VALUES (1, %s, %s, 1, now()) ON CONFLICT (one) DO UPDATE SET pid = excluded.pid,
host = excluded.host, epoch = holder.epoch + 1, since = excluded.since"""

Turn = tuple[int, float, bytes | bytearray]


class PostgresLock:
    """The store's lock, held from construction to `release`; `StoreHeld` names the process that has it."""

    def __init__(self, url: str) -> None:
        self.address = read_address(url)
        with reported(self.address.shown):
            self._connection = connect(self.address, flushed=True)
            try:
                self._take()
            except BaseException:
                self._connection.close()
                raise

    def _take(self) -> None:
        execute = self._connection.execute
        execute(_KEEPALIVE)
        row = execute(_TRY, (self.address.key,)).fetchone()
        if not row or not row[0]:
            raise StoreHeld(held_by(self._connection, self.address))
        make_schema(self._connection, self.address)
        execute(_MAKE)
        execute(_TAKE, (os.getpid(), socket.gethostname()))

    def release(self) -> None:
        """Release the lock at once, not when the database notices that the connection is closed."""
        with contextlib.suppress(psycopg.Error):  # the connection is lost already
            self._connection.execute("SELECT pg_advisory_unlock_all()")
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def make_schema(connection: psycopg.Connection[tuple[object, ...]], address: Address) -> None:
    """Make the store's schema unless it is there: an administrator may have made it, and we may not be allowed to."""
    if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (address.schema,)).fetchone() is None:
        name = psycopg.sql.Identifier(address.schema)
        connection.execute(psycopg.sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))


def epoch(connection: psycopg.Connection[tuple[object, ...]]) -> int:
    """The number of the latest holder, 0 when there was none."""
    if connection.execute("SELECT to_regclass('holder')").fetchone() == (None,):
        return 0
    row = connection.execute("SELECT epoch FROM holder").fetchone()
    return int(str(row[0])) if row else 0


def held_by(connection: psycopg.Connection[tuple[object, ...]], address: Address) -> str:
    """The message for the process that comes second."""
    who = "another process"
    if connection.execute("SELECT to_regclass('holder')").fetchone() != (None,):
        row = connection.execute("SELECT pid, host FROM holder").fetchone()
        who = f"pid {row[0]} on host {row[1]}" if row else who
    return f"the store {address.shown} is held by {who}; wait for it or end it"


class PostgresStore(SqlStore):
    """See `stores.store.Store` for what each method promises."""

    _database: PostgresDatabase

    def __init__(self, url: str) -> None:
        self.address = read_address(url)
        self.path = self.address.shown
        super().__init__(PostgresDatabase(self.address))
        self._last = 0
        self._unsynced: deque[tuple[Turn, list[tuple[BlobId, bytes]]]] = deque()
        self._syncing = threading.Lock()
        self._flushing: psycopg.Connection[tuple[Any, ...]] | None = None
        self._to_vacuum: list[str] | None = None
        self._epoch = 0
        try:
            with reported(self.path):
                self._prepare()
                self._epoch = epoch(self._database.connection)
                self._last = self._newest()
        except BaseException:
            self._database.close()
            raise
        self._database.on_connect = self._put_right

    def _prepare(self) -> None:
        connection = self._database.connection
        make_schema(connection, self.address)
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (self.address.key ^ 1,))  # one process makes tables
            version = 0
            if connection.execute("SELECT to_regclass('about')").fetchone() != (None,):
                found = connection.execute(_VERSION).fetchone()
                version = int(found[0]) if found else 0
            if version > schema.SCHEMA:
                raise StoreFailed(f"the store {self.path} was made by a newer version of bough: use that one")
            self._database.execute(self._translated(schema.QUARANTINE))
            if version == schema.SCHEMA:
                for statement in schema.ADDED:
                    self._database.execute(self._translated(statement))
                return
            self._make_tables(anew=bool(version))  # what is folded is made again in the present shape
            for table in _PLAIN:
                self._database.execute(
                    f"ALTER TABLE {table} ALTER {'facts' if table == 'journal' else 'data'} SET STORAGE EXTERNAL"
                )
            self._database.execute(
                "INSERT INTO about VALUES ('schema', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (str(schema.SCHEMA),),
            )

    def _put_right(self) -> None:
        """After a lost connection: check that the store is still ours, and write the turns that the database lost."""
        connection = self._database.connection
        taken = connection.execute("SELECT pg_try_advisory_lock(%s)", (self.address.key,)).fetchone()
        if epoch(connection) != self._epoch:
            if taken and taken[0]:
                connection.execute("SELECT pg_advisory_unlock(%s)", (self.address.key,))
            raise StoreHeld(held_by(connection, self.address))
        if not self._epoch and taken and taken[0]:  # it was not locked before either
            connection.execute("SELECT pg_advisory_unlock(%s)", (self.address.key,))
        with self._syncing:
            forgotten = list(self._unsynced)
        for values, blobs in forgotten:
            with connection.transaction():
                if blobs:
                    self._database.executemany(_BLOBS, blobs)
                self._database.execute(_INSERT, values)
        last = self._newest()
        if last < self._last:
            raise StoreFailed(
                f"the database {self.path} lost turns after {last} of {self._last} that it had on its disk"
            )

    def _translated(self, statement: str) -> str:
        return schema.postgresql(statement)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            self._folding.forget()  # a database that went down may be behind what it said
            raise failed(self.path, error) from error

    # --- the journal ---

    def _insert(self, values: Turn) -> None:
        blobs = list(self._blobs.items())
        with self._reported():
            try:
                if blobs:
                    self._database.execute("BEGIN")
                    self._database.executemany(_BLOBS, blobs)
                written = self._database.execute(_INSERT, values).rowcount
                if blobs:
                    self._database.execute("COMMIT")
            except psycopg.Error:
                self._roll_back()
                raise
        if not written and self._row(values[0]) != bytes(values[2]):
            raise InvariantBroken(f"turn {values[0]} of {self.path} was written by another process")
        self._unsynced.append((values, blobs))
        if blobs:
            self._known.update(self._blobs)
            self._blobs.clear()
        if len(self._unsynced) > MOST_UNSYNCED:
            self.sync()

    def sync(self) -> None:
        """Flush all that was committed. May be called from another thread."""
        with self._syncing, reported(self.path):
            upto = self._last
            try:
                if self._flushing is None:
                    self._flushing = connect(self.address, flushed=True)
                self._flushing.execute(_SYNCED, (str(upto),))
            except psycopg.Error:
                if self._flushing is not None:
                    self._flushing.close()
                    self._flushing = None
                raise
            while self._unsynced and self._unsynced[0][0][0] <= upto:
                self._unsynced.popleft()

    def _rows(self, after: int) -> Iterator[tuple[int, float, bytes]]:
        count = 256
        while True:
            sql = "SELECT turn, time, facts FROM journal WHERE turn > ? ORDER BY turn LIMIT ?"
            rows = self._database.execute(sql, (after, count)).fetchall()
            yield from rows
            if len(rows) < count:
                return
            after = rows[-1][0]
            size = sum(len(row[2]) for row in rows) // count + 1
            count = max(FEWEST_ROWS, min(MOST_ROWS, PAGE_BYTES // size))

    # --- space ---

    def _free_space(self) -> bool:
        if self._to_vacuum is None:
            self._to_vacuum = ["journal", "blobs", "snapshots", *schema.FOLDED]
        table = self._to_vacuum.pop(0)
        full = "(FULL)" if table in {"journal", "blobs"} and self._is_hollow(table) else ""
        self._database.execute(f"VACUUM {full} {table}")
        if self._to_vacuum:
            return False
        self._to_vacuum = None
        return True

    def _is_hollow(self, table: str) -> bool:
        """Whether much of a table's space is unused; writing it anew then takes little time."""
        column = "facts" if table == "journal" else "data"
        sql = f"SELECT sum(octet_length({column}) + 64)::bigint, pg_total_relation_size('{table}') FROM {table}"
        used, size = self._database.execute(sql).fetchone() or (0, 0)
        used = used or 0
        return bool(size > PAGE_BYTES // 8 and used < (1 - WORTH_REWRITING) * size)

    def _disconnect(self) -> None:
        self._database.close()
        if self._flushing is not None:
            self._flushing.close()
            self._flushing = None
