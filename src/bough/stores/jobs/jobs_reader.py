"""Read-only access to the jobs database for people and tools, also while a run is open.

A reader for other users' statements is opened with `seconds`: a statement that takes longer is stopped, and SQLite
refuses statements and values of unusual size. Rule: no statement changes the store or reads another file, whatever its
SQL says.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Final, Self
from urllib.parse import quote

from bough.errors import UnknownName, UserError
from bough.model.ids import number_of
from bough.stores.schema import FILE
from bough.stores.store_errors import failed, reported

Value = int | float | str | bytes | None
Row = dict[str, Value]
Parameters = Sequence[Value] | Mapping[str, Value]
Take = Callable[[list[tuple[Value, ...]]], None]  # is given rows as they are read

CHUNK: Final = 256  # rows read at a time
LARGEST: Final = 16 << 20  # bytes of one value or row in a limited reader

_READS: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_PRAGMAS: Final = frozenset({"table_info", "table_xinfo", "table_list", "index_list"})
_NOT_CALLED: Final = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})
_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: LARGEST,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 20,
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_STEPS: Final = 100_000  # of SQLite's machine between two looks at the clock: about a millisecond


def _allow(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION and second in _NOT_CALLED:
        return sqlite3.SQLITE_DENY
    if action in _READS or (action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS):
        return sqlite3.SQLITE_OK
    # how pragma_table_info() declares its columns; a real update of the schema fails on a read-only file
    if action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def is_hidden(path: str) -> bool:
    """Whether a group exists only for its dependencies."""
    return path.rpartition("/")[2].startswith(".")


def too_slow(seconds: float) -> UserError:
    """Why a statement was stopped."""
    return UserError(
        f"the statement took longer than {seconds:g} s, which is the server's limit (--query-time): ask for less,"
        " with where and limit"
    )


class Jobs(ABC):
    """Questions to a jobs database, wherever it is."""

    path: str  # how messages name it

    @abstractmethod
    def read(self, sql: str, parameters: Parameters, take: Take) -> list[str]:
        """Give the rows to `take`, some at a time as they are found; the names of the columns.

        A `UserError` says what is wrong with the SQL. What `take` raises ends the reading.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the database."""

    def query(self, sql: str, parameters: Parameters = ()) -> tuple[list[str], list[tuple[Value, ...]]]:
        """Names of the columns, and all rows; otherwise as `read`."""
        rows: list[tuple[Value, ...]] = []
        return self.read(sql, parameters, rows.extend), rows

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """The rows as dictionaries."""
        columns, rows = self.query(sql, parameters)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def last_run(self) -> Row | None:
        """The newest run's row."""
        found = self.rows("SELECT * FROM runs ORDER BY run DESC LIMIT 1")
        return found[0] if found else None

    def groups(self, run: int) -> list[Row]:
        """The groups of a run, each with the numbers of its own tasks (elements counted) by state.

        Groups whose names begin with a dot exist only for their dependencies, and are left out.
        """
        # the column `notrun` is in the tables of all versions
        rows = self.rows(
            """
            SELECT groups.id, groups.parent, groups.name, groups.path, groups.closed,
              coalesce(sum(length), 0) AS total, coalesce(sum(done), 0) AS done, coalesce(sum(failed), 0) AS failed,
              coalesce(sum(notrun), 0) AS skipped, coalesce(sum(cancelled), 0) AS cancelled,
              coalesce(sum(CASE WHEN is_array = 1 THEN (SELECT coalesce(sum(stop - start), 0) FROM spans
                WHERE spans.id = tasks.id AND spans.state = 'running')
                WHEN tasks.state = 'running' THEN 1 ELSE 0 END), 0) AS running,
              coalesce(sum(CASE WHEN is_array = 1 THEN (SELECT coalesce(sum(stop - start), 0) FROM spans
                WHERE spans.id = tasks.id AND spans.state = 'held')
                WHEN tasks.state = 'held' THEN 1 ELSE 0 END), 0) AS held
            FROM groups LEFT JOIN tasks ON tasks.run = groups.run AND tasks.grp = groups.id
            WHERE groups.run = ? GROUP BY groups.run, groups.id ORDER BY groups.path
            """,
            (run,),
        )
        return [row for row in rows if not is_hidden(str(row["path"]))]

    def task(self, record: int) -> Row:
        """One loose task or array; `UnknownName` when there is none."""
        found = self.rows("SELECT * FROM tasks WHERE id = ?", (record,))
        if not found:
            raise UnknownName(f"there is no task {number_of(record)} in {self.path}: see bough status")
        return found[0]

    def elements(self, record: int, start: int = 0, stop: int | None = None, state: str | None = None) -> list[Row]:
        """Elements of an array that have something of their own, in order."""
        sql = "SELECT * FROM elements WHERE id = :id AND idx >= :start"
        sql += (" AND idx < :stop" if stop is not None else "") + (" AND state = :state" if state is not None else "")
        return self.rows(f"{sql} ORDER BY idx", {"id": record, "start": start, "stop": stop, "state": state})

    def element(self, record: int, index: int) -> Row:
        """One element: its own row, or what its range says of it."""
        found = self.elements(record, index, index + 1)
        if found:
            return found[0]
        row = self.task(record)
        length = int(row["length"] or 0)
        if not 0 <= index < length:
            raise UnknownName(f"array {number_of(record)} has no element {index}: it has {length}")
        ranges = self.rows(
            "SELECT *, :idx AS idx FROM spans WHERE id = :id AND start <= :idx AND stop > :idx AND state != 'lost'"
            " ORDER BY start DESC LIMIT 1",
            {"id": record, "idx": index},
        )
        return ranges[0] if ranges else {"id": record, "idx": index, "state": "waiting", "attempt": 0}

    def attempts(self, record: int, index: int = 0) -> list[Row]:
        """The attempts at a task, in order."""
        sql = "SELECT * FROM attempts WHERE id = ? AND idx = ? ORDER BY attempt, placed, span"
        return self.rows(sql, (record, index))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class JobsDatabase(Jobs):
    """The jobs database of a store in a folder. `seconds`: how long a statement may take, 0: without limit."""

    def __init__(self, directory: Path | str, seconds: float = 0.0) -> None:
        self.path = str(Path(directory) / FILE)
        self._seconds = seconds
        self._until = 0.0
        if not Path(self.path).is_file():
            raise UnknownName(
                f"there is no store in {directory}: run something there first, or name another with --store"
            )
        with reported(self.path):
            where = f"file:{quote(str(Path(self.path).absolute()))}?mode=ro"
            self._database = sqlite3.connect(where, uri=True, timeout=10.0, isolation_level=None)
            try:
                self._database.execute("PRAGMA query_only = 1")
                self._database.execute("SELECT 1 FROM position").fetchone()
            except BaseException:
                self._database.close()
                raise
            self._database.set_authorizer(_allow)
            if seconds:
                for limit, value in _LIMITS.items():
                    self._database.setlimit(limit, value)
                self._database.set_progress_handler(lambda: monotonic() > self._until, _STEPS)

    def read(self, sql: str, parameters: Parameters, take: Take) -> list[str]:
        """See `Jobs.read`."""
        self._until = monotonic() + self._seconds
        cursor = self._database.cursor()
        try:
            cursor.execute(sql, parameters)
            if cursor.description is None:
                raise UserError("the statement gives no rows: write a SELECT")
            while rows := cursor.fetchmany(CHUNK):
                take(rows)
            return [column[0] for column in cursor.description]
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:  # the last: of a parameter above 63 bits
            raise self._explained(error) from error
        finally:
            cursor.close()  # so that the database is not read any longer

    def _explained(self, error: Exception) -> Exception:
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_INTERRUPT:
            return too_slow(self._seconds)
        if code == sqlite3.SQLITE_TOOBIG and self._seconds:
            return UserError(
                f"a value or the statement is larger than {LARGEST >> 20} MB: ask for less of it, with substr"
            )
        if code == sqlite3.SQLITE_IOERR_WRITE and self._seconds:  # the file that is read is not written here
            return UserError("the statement needs too much temporary space: ask for less, with where and limit")
        if code in {sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY}:
            return UserError("the jobs database is read-only: only SELECT is allowed")
        if isinstance(error, sqlite3.ProgrammingError | sqlite3.Warning) or code in {sqlite3.SQLITE_ERROR, None}:
            return UserError(f"the SQL cannot be run: {error}")
        return failed(self.path, error)

    def close(self) -> None:
        """Close the file."""
        self._database.close()
