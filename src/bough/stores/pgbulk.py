"""Many rows at once into PostgreSQL: COPY into a table on the side, then one statement for all of them.

Rule: the outcome is that of running the statement for each row in turn; of rows with one key the last counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import psycopg
from psycopg import sql

FEWEST: Final = 50  # rows below which this does not pay
_INSERT: Final = re.compile(r"\s*INSERT INTO (\w+)(?: \(([^)]*)\))? VALUES \([?, ]*\)(.*)", re.DOTALL)
_KEY: Final = re.compile(r"ON CONFLICT \(([^)]*)\) DO UPDATE")

Connection = psycopg.Connection[tuple[Any, ...]]


class Plan(msgspec.Struct, frozen=True):
    """What to do with the rows of one statement."""

    table: str
    columns: list[str]  # empty: all
    clause: str  # ON CONFLICT ...
    key: list[int]  # places of the key's columns; empty: rows cannot meet

    @property
    def aside(self) -> str:
        """The table that rows are copied into first."""
        return f"incoming_{self.table}"


def plan(statement: str) -> Plan | None:
    """How to run an INSERT for many rows; None for other statements."""
    found = _INSERT.fullmatch(statement)
    if found is None:
        return None
    columns = [name.strip() for name in (found[2] or "").split(",") if name.strip()]
    key = _KEY.search(found[3])
    places = [columns.index(name.strip()) for name in key[1].split(",")] if key and columns else []
    return Plan(found[1], columns, found[3].strip(), places)


def insert(connection: Connection, how: Plan, rows: Sequence[Sequence[Any]]) -> None:
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


def _make_aside(cursor: psycopg.Cursor[tuple[Any, ...]], how: Plan) -> None:
    made = f"CREATE TEMPORARY TABLE IF NOT EXISTS {how.aside} (LIKE {how.table} INCLUDING DEFAULTS)"
    cursor.execute(sql.SQL(made))
