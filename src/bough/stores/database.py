"""The small part of SQL that folding, memos and removal use, as a protocol that SQLite and PostgreSQL share.

Statements are written for SQLite, with `?` and `:name` for values, and use only what PostgreSQL knows too
(`ON CONFLICT`, no `OR REPLACE`). Rule: a `sqlite3.Connection` fits as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

Values = Sequence[Any] | Mapping[str, Any]
MOST_VALUES = 500  # in one IN (...)
HIGHEST_VALUE = (1 << 63) - 1  # that a column holds


class Rows(Protocol):
    """What a statement found."""

    def fetchone(self) -> Any:
        """The next row, or None."""

    def fetchall(self) -> list[Any]:
        """All rows that are left."""

    def __iter__(self) -> Iterator[Any]:
        """The rows that are left, one by one."""


class Database(Protocol):
    """One connection; statements outside of a transaction are one by themselves."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction was begun and not ended."""

    def execute(self, sql: str, parameters: Values = (), /) -> Rows:
        """Run one statement."""

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run one statement for many rows."""


def found_in(database: Database, sql: str, values: Iterable[int]) -> set[int]:
    """Which of many numbers a statement with one `{}` for `?, ?, ...` finds."""
    wanted = [value for value in values if value <= HIGHEST_VALUE]
    found: set[int] = set()
    for at in range(0, len(wanted), MOST_VALUES):
        some = wanted[at : at + MOST_VALUES]
        found.update(row[0] for row in database.execute(sql.format(", ".join("?" * len(some))), some))
    return found
