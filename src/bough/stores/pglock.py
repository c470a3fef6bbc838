"""Who holds a store in PostgreSQL: an advisory lock of a connection, with pid and host in the table `holder`.

The lock is the server's, so it is gone with the connection, however that ends. Rule: every holder has a new
number (`epoch`); one that lost its connection and finds another's number has lost the store.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Final, Self

import psycopg

from bough.errors import StoreHeld
from bough.stores.pgconnection import Address, connect, read_address, reported

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


class PostgresLock:
    """Held from construction to `release`; `StoreHeld` names who has it instead."""

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
        """Let others have the store: at once, and not when the database has noticed that the connection is gone."""
        with contextlib.suppress(psycopg.Error):  # it is gone already
            self._connection.execute("SELECT pg_advisory_unlock_all()")
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def make_schema(connection: psycopg.Connection[tuple[object, ...]], address: Address) -> None:
    """Make the store's schema; asking first, since somebody else may have made it for us."""
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
    """The message for the second to come."""
    who = "another process"
    if connection.execute("SELECT to_regclass('holder')").fetchone() != (None,):
        row = connection.execute("SELECT pid, host FROM holder").fetchone()
        who = f"pid {row[0]} on host {row[1]}" if row else who
    return f"the store {address.shown} is held by {who}; wait for it or end it"
