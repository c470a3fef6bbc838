"""Read-only access to the jobs database of a store in PostgreSQL, for people and tools.

Rows come by a cursor of the server, some at a time, so that a reader holds no more of them than it asked for. How much
a statement may write to temporary files is for the database's administrator to limit (`temp_file_limit`). Rule: every
statement is one read-only transaction, which is rolled back.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final, LiteralString

import psycopg

from bough.errors import UnknownName, UserError
from bough.stores.jobs.jobs_reader import CHUNK, Jobs, Parameters, Take, Value, too_slow
from bough.stores.sql.pg_database import connect, failed, read_address, reported, translated

_READS: Final = re.compile(r"\s*\(*\s*(select|with|values|table|explain|show)\b", re.IGNORECASE)
_SHORT: Final = frozenset({"explain", "show"})  # what no cursor can be declared for
_BOUNDS: Final = (
    "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false),"
    " set_config('client_connection_check_interval', '1s', false)"
)


class PostgresJobs(Jobs):
    """The jobs database of a store in PostgreSQL."""

    def __init__(self, url: str, seconds: float = 0.0) -> None:
        address = read_address(url)
        self.path = address.shown
        self._seconds = seconds
        with reported(self.path):
            self._connection = connect(address, flushed=False)
            if self._connection.execute("SELECT to_regclass('position')").fetchone() == (None,):
                self._connection.close()
                raise UnknownName(
                    f"there is no store in {self.path}: its schema {address.schema} has no tables of ours"
                )
            if seconds:
                limit = str(max(1, round(seconds * 1000)))
                self._connection.execute(_BOUNDS, (limit, limit))

    def read(self, sql: str, parameters: Parameters, take: Take) -> list[str]:
        """See `Jobs.read`."""
        found = _READS.match(sql)
        if found is None:
            raise UserError("the jobs database is read-only: only SELECT is allowed")
        text: LiteralString = translated(sql) if parameters else sql
        short = found[1].lower() in _SHORT
        try:
            self._connection.execute("BEGIN READ ONLY")
            with self._connection.cursor() if short else self._connection.cursor("asked") as cursor:
                # in binary form, because then the protocol takes one statement only
                cursor.execute(text, parameters or None, binary=True)
                if cursor.description is None:
                    raise UserError("the statement gives no rows: write a SELECT")
                columns = [column.name for column in cursor.description]
                while rows := cursor.fetchmany(CHUNK):
                    take([tuple(map(_value, row)) for row in rows])
                return columns
        except psycopg.Error as error:
            raise self._explained(error) from error
        finally:
            if not self._connection.closed:
                self._connection.execute("ROLLBACK")

    def _explained(self, error: psycopg.Error) -> Exception:
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            return UserError("the jobs database is read-only: only SELECT is allowed")
        if isinstance(error, psycopg.errors.QueryCanceled) and self._seconds:
            return too_slow(self._seconds)
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return failed(self.path, error)
        return UserError(f"the SQL cannot be run: {' '.join(str(error).split())}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _value(value: Any) -> Value:
    """A value of PostgreSQL as one of ours: its sums are decimal numbers, and it has other types."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value if isinstance(value, int | float | str | bytes | None) else str(value)
