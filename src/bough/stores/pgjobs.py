"""The jobs database of a store in PostgreSQL as readers see it.

Rule: every statement is one read-only transaction, which is rolled back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, LiteralString

import psycopg

from bough.errors import UnknownName, UserError
from bough.stores.jobs import Jobs, Value
from bough.stores.pgconnection import connect, failed, read_address, reported, translated

_READS: Final = re.compile(r"\s*\(*\s*(select|with|values|table|explain|show)\b", re.IGNORECASE)


class PostgresJobs(Jobs):
    """See the module."""

    def __init__(self, url: str) -> None:
        address = read_address(url)
        self.path = address.shown
        with reported(self.path):
            self._connection = connect(address, flushed=False)
            if self._connection.execute("SELECT to_regclass('position')").fetchone() == (None,):
                self._connection.close()
                raise UnknownName(
                    f"there is no store in {self.path}: its schema {address.schema} has no tables of ours"
                )

    def query(
        self, sql: str, parameters: Sequence[Value] | Mapping[str, Value] = ()
    ) -> tuple[list[str], list[tuple[Value, ...]]]:
        """Names of the columns, and the rows; a `UserError` says what is wrong with the SQL."""
        if not _READS.match(sql):
            raise UserError("the jobs database is read-only: only SELECT is allowed")
        # in binary form, because then the protocol takes one statement only
        text: LiteralString = translated(sql) if parameters else sql
        try:
            self._connection.execute("BEGIN READ ONLY")
            cursor = self._connection.execute(text, parameters or None, binary=True)
            rows = cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise self._explained(error) from error
        finally:
            if not self._connection.closed:
                self._connection.execute("ROLLBACK")
        if cursor.description is None:
            raise UserError("the statement gives no rows: write a SELECT")
        return [column.name for column in cursor.description], [tuple(map(_value, row)) for row in rows]

    def _explained(self, error: psycopg.Error) -> Exception:
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            return UserError("the jobs database is read-only: only SELECT is allowed")
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return failed(self.path, error)
        return UserError(f"the SQL cannot be run: {' '.join(str(error).split())}")

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


def _value(value: Any) -> Value:
    """PostgreSQL's sums are decimal numbers, and it has types that we have not."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value if isinstance(value, int | float | str | bytes | None) else str(value)
