"""The jobs database of a store, caught up and opened for reading.

The tables are folded from the journal when somebody asks: by the live server, or by this process when no
session is running. Rule: nothing here writes to a table.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Self, cast

from bough.cli.finding import Place, find_store
from bough.cli.live import connect
from bough.errors import StoreHeld, UnknownName
from bough.stores.jobs import JobsDatabase, Value

PROMISED = ("runs", "groups", "tasks", "elements", "spans", "attempts", "executors", "files", "after")


class Database:
    """Questions to the jobs database of one place."""

    def __init__(self, place: Place, *, live: bool = False) -> None:
        self.place = place
        self.live = live
        self._jobs = JobsDatabase(place.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._jobs.close()

    def select(self, statement: str) -> tuple[list[str], list[tuple[Value, ...]]]:
        """Answer a statement of the user's with column names and rows."""
        return self._jobs.query(statement)

    def rows(self, statement: str, arguments: Sequence[object] = ()) -> list[dict[str, object]]:
        """Rows by column name, for questions of our own."""
        return cast(list[dict[str, object]], self._jobs.rows(statement, cast(Sequence[Value], arguments)))

    def tables(self) -> list[str]:
        """The names of the tables people may rely on."""
        found = {row["name"] for row in self.rows("select name from sqlite_master where type = 'table'")}
        return [name for name in PROMISED if name in found]

    def columns(self, table: str) -> list[str]:
        """The columns of a table."""
        return self.select(f'select * from "{table}" limit 0')[0]

    def last_run(self) -> int:
        """The number of the latest run."""
        row = self._jobs.last_run()
        if row is None or not isinstance(row["run"], int):
            raise UnknownName(f"the store {self.place.folder} holds no run yet")
        return row["run"]


def open_database(args: argparse.Namespace) -> Database:
    """Find the store the options name, catch up, and open it."""
    place = find_store(args)
    return Database(place, live=catch_up(place))


def catch_up(place: Place) -> bool:
    """Fold what was journalled since into the tables; True when a live session's server did it."""
    server = connect(place)
    if server is not None:
        with server:
            server.ask("project")
        return True
    if not os.access(place.folder, os.W_OK):
        return False  # somebody else's store: what is folded already has to do
    from bough.stores.lock import StoreLock
    from bough.stores.sqlite import SqliteStore

    try:
        with StoreLock(place.folder):
            SqliteStore(place.folder).close()  # which catches up
    except StoreHeld:
        return True  # a session is just opening or closing: what is folded already has to do
    return False
