"""A connection to PostgreSQL that speaks as `database.Database` asks, with bulk inserts, and its errors.

Statements come in SQLite's words and are translated once each. Many rows are copied into a temporary table and inserted
by one statement. Rule: a lost connection is reported once, as a transient `StoreFailed`; the next statement connects
again, and `on_connect` writes again what may have been lost. A bulk insert has the outcome of running the statement for
each row in turn: of rows with one key the last counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final, LiteralString

import msgspec
import psycopg
from psycopg import conninfo, errors, pq, sql
from psycopg.abc import Buffer
from psycopg.types.string import StrDumper

from bough.errors import StoreFailed, UserError
from bough.stores.database import Values

SCHEMA: Final = "bough"
PREFIXES: Final = ("postgresql://", "postgres://")
_NAMED = re.compile(r"(?<![:\w]):([a-z_][a-z_0-9]*)")
_SEARCH_PATH = re.compile(r"-c\s*search_path=([^\s,]+)")
_BUSY_STATES: Final = frozenset(
    {pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR, pq.TransactionStatus.ACTIVE}
)
FEWEST: Final = 50  # rows from which a bulk insert pays
_INSERT: Final = re.compile(r"\s*INSERT INTO (\w+)(?: \(([^)]*)\))? VALUES \([?, ]*\)(.*)", re.DOTALL)
_KEY: Final = re.compile(r"ON CONFLICT \(([^)]*)\) DO UPDATE")

Connection = psycopg.Connection[tuple[Any, ...]]


class Address(msgspec.Struct, frozen=True):
    """Where a store in PostgreSQL is."""

    conninfo: str
    schema: str
    shown: str  # without the password

    @property
    def key(self) -> int:
        """The number of the lock, within its database."""
        return int.from_bytes(blake2b(f"bough {self.schema}".encode(), digest_size=8).digest(), "big", signed=True)


def read_address(url: str) -> Address:
    """Understand `postgresql://USER@HOST:PORT/DATABASE?options=-csearch_path%3DSCHEMA`."""
    try:
        parts = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise UserError(f"{url!r} is no address of a PostgreSQL database: {_line(error)}") from None
    found = _SEARCH_PATH.search(str(parts.get("options") or ""))
    schema = found[1].strip('"') if found else SCHEMA
    shown = re.sub(r"(?<=//)([^:@/]*):[^@/]*@", r"\1@", re.sub(r"([?&]password=)[^&]*", r"\1...", url))
    return Address(conninfo.make_conninfo(url, application_name="bough"), schema, shown)


def failed(where: str, error: Exception) -> StoreFailed:
    """The `StoreFailed` for an exception of psycopg."""
    if isinstance(error, errors.DiskFull | errors.ConfigurationLimitExceeded | errors.OutOfMemory):
        text = f"the disk of the database {where} is full: free some space; nothing acknowledged is lost"
        return StoreFailed(text, transient=True)
    if isinstance(error, errors.LockNotAvailable | errors.DeadlockDetected | errors.QueryCanceled):
        return StoreFailed(f"the store {where} is busy with another process: try again", transient=True)
    if isinstance(error, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction):
        return StoreFailed(f"the store {where} cannot be written: {_line(error)}")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreFailed(f"the database {where} cannot be reached: {_line(error)}", transient=True)
    return StoreFailed(f"the store {where} cannot be used: {_line(error)}")


@contextmanager
def reported(where: str) -> Iterator[None]:
    """Turn exceptions of psycopg into `StoreFailed`."""
    try:
        yield
    except psycopg.Error as error:
        raise failed(where, error) from error


def connect(address: Address, *, flushed: bool) -> psycopg.Connection[tuple[Any, ...]]:
    """A new connection, in the store's schema; `flushed` when commits shall wait for the disk."""
    connection = psycopg.connect(address.conninfo, autocommit=True, connect_timeout=10)
    connection.adapters.register_dumper(str, _Text)
    connection.execute(
        "SELECT set_config('search_path', %s, false), set_config('synchronous_commit', %s, false),"
        " set_config('client_min_messages', 'warning', false)",
        (f'"{address.schema}"', "on" if flushed else "off"),
    )
    return connection


class PostgresDatabase:
    """One connection to PostgreSQL as a `database.Database`."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.on_connect: Callable[[], None] = lambda: None
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._translated: dict[str, LiteralString] = {}
        self._plans: dict[str, BulkInsert | None] = {}

    @property
    def connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        """The connection, made anew after it was lost."""
        if self._connection is None:
            self._connection = connect(self.address, flushed=False)
            try:
                self.on_connect()
            except BaseException:
                self.close()
                raise
        return self._connection

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction was begun and not ended."""
        connection = self._connection
        return connection is not None and connection.info.transaction_status in _BUSY_STATES

    def execute(self, sql: str, parameters: Values = (), /) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run one statement."""
        connection = self.connection
        try:
            return connection.execute(self._translate(sql), parameters, binary=True)
        except psycopg.Error:
            self._look(connection)
            raise

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> None:
        """Run one statement for many rows, without waiting for each."""
        connection, rows = self.connection, list(rows)
        try:
            how = self._plan(sql) if len(rows) >= FEWEST and self.in_transaction else None
            if how is not None:
                insert(connection, how, rows)
            elif rows:
                with connection.cursor() as cursor:
                    cursor.executemany(self._translate(sql), rows)
        except psycopg.Error:
            self._look(connection)
            raise

    def _plan(self, sql: str) -> BulkInsert | None:
        if sql not in self._plans:
            self._plans[sql] = plan(sql)
        return self._plans[sql]

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Drop a connection that is lost."""
        if connection.closed and connection is self._connection:
            self._connection = None

    def _translate(self, sql: str) -> LiteralString:
        found = self._translated.get(sql)
        if found is None:
            found = self._translated[sql] = translated(sql)
        return found


def translated(sql: str) -> LiteralString:
    """A statement for SQLite with the placeholders of psycopg."""
    text = sql.replace("BEGIN IMMEDIATE", "BEGIN").replace("%", "%%").replace("?", "%s")
    return _NAMED.sub(r"%(\1)s", text)


class _Text(StrDumper):
    """Texts, in which PostgreSQL allows no NUL."""

    def dump(self, obj: str) -> Buffer | None:
        """NULs become the replacement character."""
        return super().dump(obj.replace("\0", "\ufffd"))


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# --- bulk inserts ---


class BulkInsert(msgspec.Struct, frozen=True):
    """How the rows of one INSERT are written: COPY into a table on the side, then one statement for all."""

    table: str
    columns: list[str]  # empty: all
    clause: str  # ON CONFLICT ...
    key: list[int]  # places of the key's columns; empty: rows cannot meet

    @property
    def aside(self) -> str:
        """The table that rows are copied into first."""
        return f"incoming_{self.table}"


def plan(statement: str) -> BulkInsert | None:
    """How to run an INSERT for many rows; None for other statements."""
    found = _INSERT.fullmatch(statement)
    if found is None:
        return None
    columns = [name.strip() for name in (found[2] or "").split(",") if name.strip()]
    key = _KEY.search(found[3])
    places = [columns.index(name.strip()) for name in key[1].split(",")] if key and columns else []
    return BulkInsert(found[1], columns, found[3].strip(), places)


def insert(connection: Connection, how: BulkInsert, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows; a transaction is open."""
    if how.key:
        rows = list({tuple(row[at] for at in how.key): row for row in rows}.values())
    names = ", ".join(how.columns)
    listed = f"({names})" if names else ""
    with connection.cursor() as cursor:
        if how.clause:
            _make_aside(cursor, how)
        target = how.aside if how.clause else how.table
        with cursor.copy(sql.SQL(f"COPY {target} {listed} FROM STDIN")) as copy:
            for row in rows:
                copy.write_row(row)
        if how.clause:
            moved = f"INSERT INTO {how.table} {listed} SELECT {names or '*'} FROM {how.aside} {how.clause}"
            cursor.execute(sql.SQL(moved))
            cursor.execute(sql.SQL(f"TRUNCATE {how.aside}"))


def _make_aside(cursor: psycopg.Cursor[tuple[Any, ...]], how: BulkInsert) -> None:
    made = f"CREATE TEMPORARY TABLE IF NOT EXISTS {how.aside} (LIKE {how.table} INCLUDING DEFAULTS)"
    cursor.execute(sql.SQL(made))
