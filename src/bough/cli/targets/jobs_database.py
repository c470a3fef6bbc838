"""The jobs database of a store or a service, caught up and opened for reading.

The tables are folded from the journal when a command asks: by the live server, or by this process when no
session is running. Rule: nothing here writes to a table.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Self, cast

from bough.cli.targets.live_server import ServerClient, connect, connect_client
from bough.cli.targets.locate import JOURNAL, ServerLocation, ServiceAddress, find_target
from bough.errors import StoreHeld, UnknownName, UserError
from bough.stores.jobs.jobs_reader import JobsDatabase, Value
from bough.wire import questions
from bough.wire.questions import SqlValue

PROMISED = ("runs", "groups", "tasks", "elements", "spans", "attempts", "executors", "files", "after")
_HOURS = 3600.0

Workflow = dict[str, object]
_FINISHED = """select run, name, grp as "group", owner as "user", directory from runs
  where grp != 0 and closed is not null"""


class OpenDatabase:
    """Questions to the jobs database of one place; `server`: the live one, if there is one."""

    def __init__(
        self, place: ServerLocation | ServiceAddress, *, live: bool = False, server: ServerClient | None = None
    ) -> None:
        self.place = place
        self.live = live or server is not None
        self.server = server
        folder = place.folder if isinstance(place, ServerLocation) else _near(server)
        self._jobs = JobsDatabase(folder) if folder else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._jobs is not None:
            self._jobs.close()
        if self.server is not None:
            self.server.__exit__(kind, error, trace)

    @property
    def label(self) -> str:
        """Where this is, for people."""
        return self.place.label if isinstance(self.place, ServiceAddress) else self.place.folder

    @property
    def is_service(self) -> bool:
        """Whether it holds the workflows of a service."""
        return isinstance(self.place, ServiceAddress)

    def refresh(self) -> None:
        """Catch up with what happened since."""
        if self.server is not None:
            self.server.ask(questions.Project())
        elif self.live and isinstance(self.place, ServerLocation):
            self.live = catch_up(self.place)

    def leave_server(self) -> None:
        """The session has ended, and its server with it: from now on its store is read."""
        assert self.server is not None
        self.server.__exit__(None, None, None)
        self.server = None
        self.refresh()

    def select(self, statement: str, arguments: Sequence[object] = ()) -> tuple[list[str], list[tuple[Value, ...]]]:
        """Answer a statement with column names and rows."""
        if self._jobs is not None:
            return self._jobs.query(statement, cast(Sequence[Value], arguments))
        assert self.server is not None
        answer = self.server.ask(questions.Sql(statement, list(cast(Sequence[SqlValue], arguments))))
        return answer.columns, [tuple(row) for row in answer.rows]

    def rows(self, statement: str, arguments: Sequence[object] = ()) -> list[dict[str, object]]:
        """Rows by column name, for questions of our own."""
        columns, rows = self.select(statement, arguments)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def tables(self) -> list[str]:
        """The names of the tables people may rely on."""
        return [name for name in PROMISED if self._has(name)]

    def _has(self, table: str) -> bool:
        try:
            self.columns(table)
        except UserError:
            return False
        return True

    def columns(self, table: str) -> list[str]:
        """The columns of a table."""
        return self.select(f'select * from "{table}" limit 0')[0]

    def usage(self, run: int) -> list[dict[str, object]]:
        """Core-hours of a workflow by site: {"site", "used", "wasted"}; none in a store of an older version."""
        asked = "select site, sum(used) as used, sum(wasted) as wasted from usage_parts where run = ? group by site"
        try:
            found = self.rows(f"{asked} order by site", [run])
        except UserError:
            return []
        return [
            {"site": row["site"], **{name: cast(float, row[name] or 0.0) / _HOURS for name in ("used", "wasted")}}
            for row in found
        ]

    def workflows(self) -> list[Workflow]:
        """The workflows of a service in the order of their runs; those that left its memory come without counts."""
        assert self.server is not None
        known = {one["run"]: one for one in self.server.ask(questions.Workflows()) if one["group"]}
        for row in self.rows(_FINISHED):
            retired = {**row, "closed": True, "counts": None, "unsaved": 0, "missing_sites": [], "client": None}
            known.setdefault(row["run"], retired)
        return [known[run] for run in sorted(known)]

    def workflow(self, run: int) -> Workflow | None:
        """One workflow of a service."""
        return next((one for one in self.workflows() if one["run"] == run), None)

    def last_run(self) -> int:
        """The number of the latest run."""
        rows = self.rows("select max(run) as run from runs")
        run = rows[0]["run"] if rows else None
        if not isinstance(run, int):
            raise UnknownName(f"the store {self.label} holds no run yet")
        return run

    def root(self, run: int) -> int:
        """The workflow's own group."""
        rows = self.rows("select id from groups where run = ? and path = ''", [run])
        return root if rows and isinstance(root := rows[0]["id"], int) else 0


def as_int(value: object) -> int:
    """A number of a row; 0 when there is none."""
    return value if isinstance(value, int) else 0


def _near(server: ServerClient | None) -> str:
    """The folder of a service's store, if it can be read from here: one elsewhere may have the same path."""
    if server is None or not server.is_near or not os.path.isfile(os.path.join(server.store, JOURNAL)):
        return ""
    return server.store


def open_database(args: argparse.Namespace, *, acts: bool = False) -> OpenDatabase:
    """Find the store or service the options name, catch up, and open it; `acts`: to do something to its tasks."""
    return open_place(find_target(args), acts=acts)


def open_place(place: ServerLocation | ServiceAddress, *, acts: bool = False) -> OpenDatabase:
    """Catch up with a store or a service, and open it."""
    if isinstance(place, ServiceAddress):
        return _caught_up(place, connect_client(place.address or None, "submit" if acts else "read"))
    server = connect(place)
    return _caught_up(place, server) if server is not None else OpenDatabase(place, live=catch_up(place))


def _caught_up(place: ServerLocation | ServiceAddress, server: ServerClient) -> OpenDatabase:
    try:
        server.ask(questions.Project())
        return OpenDatabase(place, server=server)
    except BaseException as error:
        server.__exit__(type(error), error, None)
        raise


def catch_up(place: ServerLocation) -> bool:
    """Fold what was journalled since into the tables; True when a live session's server did it."""
    server = connect(place)
    if server is not None:
        with server:
            server.ask(questions.Project())
        return True
    if not os.access(place.folder, os.W_OK):
        return False  # another user's store: what is folded already has to do
    from bough.stores.folder.store_lock import StoreLock
    from bough.stores.sql.sqlite import SqliteStore

    try:
        with StoreLock(place.folder):
            SqliteStore(place.folder).close()  # which catches up
    except StoreHeld:
        return True  # a session is just opening or closing: what is folded already has to do
    return False
