"""Copy a store to another place, or back one up while a server writes to it.

Only what must not be lost is copied: journal, blobs, snapshots; the tables are folded anew. Files beside a store
(`results/`, `args/`, `out/`) stay where they are, and the journal names them by their full paths. Rule: a copy is there
completely, and compared with its source, or not at all.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from bough.errors import Clash, StoreFailed, UnknownName, UserError
from bough.stores.database import Database
from bough.stores.faults import reported
from bough.stores.folder import make_store_folder
from bough.stores.opening import is_postgres, lock_store, open_store
from bough.stores.reading import DURABLE, Reader, open_reader
from bough.stores.sqlite import FILE, make_private_database
from bough.stores.sqlstore import SqlStore

BATCH_BYTES: Final = 4 << 20
MOST_ROWS: Final = 5_000  # in one batch
_OURS: Final = frozenset({"highest"})  # what `about` says of the store, not of its place


class Copied(msgspec.Struct, frozen=True):
    """What was copied."""

    source: str
    target: str
    turns: int
    blobs: int
    snapshots: int
    digest: str  # of the journal


def copy(source: str, target: str) -> Copied:
    """Copy a store that nobody holds to a place where there is none, and compare the two."""
    if not is_postgres(source) and not (Path(source) / FILE).is_file():
        raise UnknownName(f"there is no store in {source}: it would hold a {FILE}")
    with ExitStack() as stack:
        for where in (source, target):
            stack.callback(lock_store(where).release)
        open_store(source).close()  # in its present shape
        reader = stack.enter_context(open_reader(source))
        with closing(open_store(target)) as copied:
            _fill(copied, reader)
        return _compare(reader, target)


def backup(source: str, target: str) -> Copied:
    """Copy a store as it is now into a folder, also while a server holds it."""
    if is_postgres(target):
        raise UserError("a backup is a folder: name one, or use bough store copy once the server is stopped")
    path = Path(target) / FILE
    if path.exists():
        raise Clash(f"there is a store in {target} already: choose another folder for the backup")
    with open_reader(source) as reader:
        with reported(target):
            make_store_folder(target)
        if is_postgres(source):
            with closing(open_store(target)) as copied:
                _fill(copied, reader)
            return _compare(reader, target)
        _online(source, path)
        with open_reader(target) as made:
            return _told(made, reader.where, target)


def _online(source: str, path: Path) -> None:
    """SQLite's own backup: all pages as of one instant."""
    hidden = path.with_name(f".{FILE}.{os.getpid()}")
    name = f"file:{quote(str(Path(source, FILE).absolute()))}?mode=ro"
    with reported(str(path)):
        hidden.unlink(missing_ok=True)  # of a dead process with our number
        try:
            make_private_database(str(hidden))
            with (
                closing(sqlite3.connect(name, uri=True, timeout=30.0)) as one,
                closing(sqlite3.connect(hidden)) as other,
            ):
                one.backup(other)
                other.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
            with open(hidden, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(hidden, path)
        finally:
            hidden.unlink(missing_ok=True)


def _fill(store: SqlStore, reader: Reader) -> None:
    database: Database = store._database
    for table in ("journal", "blobs"):
        if database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone():
            raise Clash(f"the store {store.path} is not empty: choose another place")
    for name, value in reader.rows("about"):
        if name == "kind":
            store.claim(value)
    with store._reported():
        database.execute("BEGIN IMMEDIATE")
        try:
            for table, columns in DURABLE.items():
                rows: Iterable[tuple[Any, ...]] = reader.rows(table)
                if table == "about":
                    rows = (row for row in rows if row[0] in _OURS)
                insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})"
                for batch in _batches(rows):
                    database.executemany(insert, batch)
            database.execute("COMMIT")
        except BaseException:
            store._roll_back()
            raise
    store.reopened()


def _batches(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    batch: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(value) for value in row if isinstance(value, bytes))
        if size > BATCH_BYTES or len(batch) >= MOST_ROWS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _compare(reader: Reader, target: str) -> Copied:
    with open_reader(target) as made:
        there, here = (_told(one, reader.where, made.where) for one in (made, reader))
    if there != here:
        raise StoreFailed(f"the copy in {made.where} differs from {reader.where}: remove it and copy again")
    return there


def _told(reader: Reader, source: str, target: str) -> Copied:
    turns, blobs, snapshots = (reader.count(table) for table in ("journal", "blobs", "snapshots"))
    return Copied(source, target, turns, blobs, snapshots, reader.digest())
