"""What a store must not lose, as it was at one instant: read beside a server that goes on writing.

Rule: nothing is written, and all that is read through one reader belongs together.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from bough.errors import UnknownName
from bough.stores.database import Database
from bough.stores.faults import reported
from bough.stores.opening import is_postgres, need_psycopg
from bough.stores.sqlite import FILE

# durable tables: their columns, PostgreSQL's types for them; the first column is the key
DURABLE: Final = {
    "journal": {"turn": "int8", "time": "float8", "facts": "bytea"},
    "blobs": {"id": "bytea", "data": "bytea"},
    "snapshots": {"run": "int8", "turn": "int8", "data": "bytea"},
    "about": {"name": "text", "value": "text"},
    "quarantine": {
        "turn": "int8", "position": "int8", "scope": "text", "kind": "text", "reason": "text", "data": "bytea",
    },
}  # fmt: skip
_ROW: Final = struct.Struct("<QdQ")


class Reader:
    """One store at one instant."""

    def __init__(
        self, where: str, database: Database, rows: Callable[[str], Iterator[tuple[Any, ...]]], there: str
    ) -> None:
        self.where = where
        self.database = database
        self._rows = rows
        self._there = there  # asks whether a table is there

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


def open_reader(where: str) -> AbstractContextManager[Reader]:
    """Read a store; `UnknownName` when there is none."""
    return _postgres(where) if is_postgres(where) else _sqlite(where)


@contextmanager
def _sqlite(where: str) -> Iterator[Reader]:
    path = Path(where) / FILE
    if not path.is_file():
        raise UnknownName(f"there is no store in {where}: it would hold a {FILE}")
    with reported(str(path)):
        name = f"file:{quote(str(path.absolute()))}?mode=ro"
        database = sqlite3.connect(name, uri=True, timeout=10.0, isolation_level=None)
        try:
            database.execute("BEGIN")
            there = "SELECT max(name) FROM sqlite_master WHERE name = ?"
            yield Reader(where, database, lambda sql: iter(database.execute(sql)), there)
        finally:
            database.close()


@contextmanager
def _postgres(where: str) -> Iterator[Reader]:
    need_psycopg()
    from psycopg import sql

    from bough.stores import pgconnection as pg

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
            yield Reader(address.shown, database, copied, "SELECT to_regclass(?)::text")
        finally:
            database.close()
