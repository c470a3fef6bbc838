"""Copies, backs up and checks stores: reads all that must not be lost, as of one instant.

`StoreReader` reads the journal, blobs and snapshots of a store, also beside a server that writes to it. `copy` and
`backup` copy these; the jobs database is folded anew. Files beside a store (`results/`, `args/`, `out/`) stay where
they are, and the journal names them by their full paths. `check` reads everything and names what is wrong; a fact that
was set aside is named too, and is no problem.
Rule: reading changes nothing, and all that one reader reads belongs together. A copy is complete and compared with its
source, or it is not there.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from bough.core.machine import Machine
from bough.errors import Clash, StoreFailed, UnknownName, UserError
from bough.journal.codec import Newer, Unreadable, decode, salvage
from bough.model.blobs import is_blob
from bough.model.events.facts import Fact, Submitted
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.stores.database import Database
from bough.stores.folder.store_folder import make_store_folder
from bough.stores.open import is_postgres, lock_store, need_psycopg, open_store
from bough.stores.quarantine import SetAside, spoilt
from bough.stores.schema import FILE
from bough.stores.sql.sql_store import SqlStore
from bough.stores.sql.sqlite import make_private_database
from bough.stores.store_errors import reported

# durable tables: their columns, PostgreSQL's types for them; the first column is the key
DURABLE: Final = {
    "journal": {"turn": "int8", "time": "float8", "facts": "bytea"},
    "blobs": {"id": "bytea", "data": "bytea"},
    "snapshots": {"run": "int8", "turn": "int8", "data": "bytea"},
    "about": {"name": "text", "value": "text"},
    "quarantine": {
        "turn": "int8", "position": "int8", "scope": "text", "kind": "text", "reason": "text", "data": "bytea",
    },
    "site_usage": {
        "site": "text", "period": "int8", "start": "int8",
        "core_seconds": "float8", "startup": "float8", "used": "float8", "wasted": "float8",
    },
    "usage_counted": {
        "site": "text", "core_seconds": "float8", "startup": "float8", "used": "float8", "wasted": "float8",
    },
}  # fmt: skip
BATCH_BYTES: Final = 4 << 20  # of rows copied at a time
MOST_ROWS: Final = 5_000  # in one batch
_OURS: Final = frozenset({"highest"})  # rows of `about` that a copy keeps
MOST: Final = 20  # problems of a damaged file that are named
_REPAIR: Final = "bough store repair mends it"
_ROW: Final = struct.Struct("<QdQ")


class StoreReader:
    """A store as it was at one instant; a server may go on writing to it."""

    def __init__(
        self, where: str, database: Database, rows: Callable[[str], Iterator[tuple[Any, ...]]], there: str
    ) -> None:
        self.where = where
        self.database = database
        self._rows = rows
        self._there = there  # the query that finds a table by its name

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """All rows of a durable table in the order of its key, lazily; none if the store is older than the table."""
        if self.database.execute(self._there, (table,)).fetchone()[0] is None:
            return iter(())
        return self._rows(f"SELECT {', '.join(DURABLE[table])} FROM {table} ORDER BY {next(iter(DURABLE[table]))}")

    def count(self, table: str) -> int:
        """How many rows a table has."""
        return int(self.database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def digest(self) -> str:
        """What the whole journal is, in 32 hexadecimal digits."""
        digest = blake2b(digest_size=16)
        for turn, time, facts in self.rows("journal"):
            digest.update(_ROW.pack(turn, time, len(facts)))
            digest.update(facts)
        return digest.hexdigest()


def open_reader(where: str) -> AbstractContextManager[StoreReader]:
    """Read a store; `UnknownName` when there is none."""
    return _postgres(where) if is_postgres(where) else _sqlite(where)


@contextmanager
def _sqlite(where: str) -> Iterator[StoreReader]:
    path = Path(where) / FILE
    if not path.is_file():
        raise UnknownName(f"there is no store in {where}: it would hold a {FILE}")
    with reported(str(path)):
        name = f"file:{quote(str(path.absolute()))}?mode=ro"
        database = sqlite3.connect(name, uri=True, timeout=10.0, isolation_level=None)
        try:
            database.execute("BEGIN")
            there = "SELECT max(name) FROM sqlite_master WHERE name = ?"
            yield StoreReader(where, database, lambda sql: iter(database.execute(sql)), there)
        finally:
            database.close()


@contextmanager
def _postgres(where: str) -> Iterator[StoreReader]:
    need_psycopg()
    from psycopg import sql

    from bough.stores.sql import pg_database as pg

    address = pg.read_address(where)
    with pg.reported(address.shown):
        database = pg.PostgresDatabase(address)
        connection = database.connection

        def copied(query: str) -> Iterator[tuple[Any, ...]]:
            types = next(list(columns.values()) for table, columns in DURABLE.items() if f"FROM {table} " in query)
            with (
                connection.cursor() as cursor,
                cursor.copy(sql.SQL(f"COPY ({query}) TO STDOUT (FORMAT BINARY)")) as copy,
            ):
                copy.set_types(types)
                yield from copy.rows()

        try:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if connection.execute("SELECT to_regclass('journal')").fetchone() == (None,):
                raise UnknownName(f"there is no store in {address.shown}: its schema {address.schema} has no journal")
            yield StoreReader(address.shown, database, copied, "SELECT to_regclass(?)::text")
        finally:
            database.close()


class Copied(msgspec.Struct, frozen=True):
    """What was copied."""

    source: str
    target: str
    turns: int
    blobs: int
    snapshots: int
    digest: str  # of the journal


def copy(source: str, target: str) -> Copied:
    """Copy a store that no process holds to a place where there is none, and compare the two."""
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


def _fill(store: SqlStore, reader: StoreReader) -> None:
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


def _compare(reader: StoreReader, target: str) -> Copied:
    with open_reader(target) as made:
        there, here = (_told(one, reader.where, made.where) for one in (made, reader))
    if there != here:
        raise StoreFailed(f"the copy in {made.where} differs from {reader.where}: remove it and copy again")
    return there


def _told(reader: StoreReader, source: str, target: str) -> Copied:
    turns, blobs, snapshots = (reader.count(table) for table in ("journal", "blobs", "snapshots"))
    return Copied(source, target, turns, blobs, snapshots, reader.digest())


class Checked(msgspec.Struct):
    """What was found."""

    store: str
    turns: int = 0
    last_turn: int = 0
    blobs: int = 0
    snapshots: int = 0
    unfolded: int = 0  # turns that the tables do not know yet: no problem
    set_aside: list[SetAside] = []  # without what they were: no problem either
    problems: list[str] = []


def check(where: str) -> Checked:
    """Read everything."""
    with open_reader(where) as reader:
        found = Checked(reader.where)
        if isinstance(reader.database, sqlite3.Connection):
            # not quick_check: SQLite 3.40 sees NULLs there in a key whose columns have another order
            rows = reader.database.execute(f"PRAGMA integrity_check({MOST})").fetchall()
            found.problems += [f"the file is damaged: {row[0]}" for row in rows if row[0] != "ok"]
        found.set_aside = [SetAside(*row[:5]) for row in reader.rows("quarantine")]
        wanted = _journal(reader, found)
        _blobs(reader, found, wanted)
        position, last, clean = reader.database.execute("SELECT turn, run, clean FROM position").fetchone()
        for run, turn, data in reader.rows("snapshots"):
            found.snapshots += 1
            if turn > found.last_turn:
                found.problems.append(f"the snapshot of run {run} is of turn {turn}, which is not there")
            elif run == last and not clean and (why := _not_restorable(data)):
                found.problems.append(f"the snapshot of run {run} cannot be restored: {why}; {_REPAIR}")
        found.unfolded = max(0, found.last_turn - position)
        if position > found.last_turn:
            found.problems.append(f"the tables know turn {position}, the journal ends with turn {found.last_turn}")
    return found


def _journal(reader: StoreReader, found: Checked) -> dict[bytes, int]:
    """Read all turns; the blobs they need, each with the first turn that does."""
    wanted: dict[bytes, int] = {}
    known = {(one.turn, one.position) for one in found.set_aside}
    shrunk = any(name == "highest" for name, _ in reader.rows("about"))
    for turn, _, data in reader.rows("journal"):
        found.turns += 1
        if turn != found.last_turn + 1 and not shrunk:
            found.problems.append(f"turns {found.last_turn + 1} to {turn - 1} are missing")
        found.last_turn = turn
        facts, bad = _read(turn, data)
        found.problems += [f"{one}; {_REPAIR}" for one in bad if (one.turn, one.position) not in known]
        for fact in facts:
            if isinstance(fact, Submitted):
                for item in fact.items:
                    for blob in _blobs_of(item) if isinstance(item, TaskSpec | ArraySpec) else ():
                        wanted.setdefault(blob, turn)
    return wanted


def _read(turn: int, data: bytes) -> tuple[list[Fact], list[SetAside]]:
    """What can be read of a turn, and what not."""
    try:
        return decode(data), []
    except Newer as error:
        return [], [SetAside(turn, -1, "of a newer version", "", str(error))]
    except Unreadable:
        good, bad = salvage(data)
        return good, spoilt(turn, bad)


def _not_restorable(data: bytes) -> str:
    """Why a snapshot cannot be restored; empty: it can."""
    try:
        Machine.restore(data, load_policies("fifo"))
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is what is looked for
        return f"{type(error).__name__}: {error}"
    return ""


def _blobs_of(item: TaskSpec | ArraySpec) -> list[bytes]:
    return [blob for blob in (item.body, item.table if isinstance(item, ArraySpec) else b"") if blob]


def _blobs(reader: StoreReader, found: Checked, wanted: dict[bytes, int]) -> None:
    for blob, data in reader.rows("blobs"):
        found.blobs += 1
        wanted.pop(blob, None)
        if not is_blob(blob, data):
            found.problems.append(f"the blob {blob.hex()} is not what its name says")
    for blob, turn in wanted.items():
        found.problems.append(f"the blob {blob.hex()}, which turn {turn} needs, is missing")
