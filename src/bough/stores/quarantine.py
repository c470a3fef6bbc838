"""Facts of a journal that were set aside, so that the rest of the store serves: which, why, and what they were.

`unreadable` facts are damaged or out of bounds, and nobody uses them. Facts `without effect` are those that the core
passed over when it replayed the journal, mostly because they are about an unreadable one. Facts `not in the tables`
could not be folded: the core knows them, the jobs database does not. Rule: the journal itself is left as it is; what is
written here tells people, and keeps the fold from trying in vain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from bough.journal.codec import Spoilt
from bough.stores.database import Database

UNREADABLE: Final = "unreadable"
WITHOUT_EFFECT: Final = "without effect"
NOT_IN_TABLES: Final = "not in the tables"

COLUMNS: Final = "turn, position, scope, kind, reason, data"
_INSERT: Final = "INSERT INTO quarantine VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_HIGHEST: Final = 1 << 60  # a number above it was never given


class SetAside(msgspec.Struct, frozen=True):
    """One fact."""

    turn: int
    position: int  # in its turn; -1: all of it
    scope: str
    kind: str  # the fact's type, empty if that cannot be told
    reason: str
    data: bytes = b""  # of an unreadable one: what it was

    def __str__(self) -> str:
        """Read as in "turn 5: Submitted is unreadable: ..."."""
        if self.position < 0:
            return f"turn {self.turn} cannot be read: {self.reason}"
        return f"turn {self.turn}: {self.kind or 'a fact'} is {self.scope}: {self.reason}"


def spoilt(turn: int, found: Iterable[Spoilt]) -> list[SetAside]:
    """What cannot be read of a turn."""
    return [SetAside(turn, one.position, UNREADABLE, one.kind, one.reason, one.data) for one in found]


def all_in(database: Database) -> list[SetAside]:
    """Everything that was set aside, in the order of the journal."""
    rows = database.execute(f"SELECT {COLUMNS} FROM quarantine ORDER BY turn, position, scope").fetchall()
    return [SetAside(turn, at, scope, kind, why, bytes(data)) for turn, at, scope, kind, why, data in rows]


def insert(database: Database, found: Sequence[SetAside]) -> None:
    """Keep what was found; harmless for what is there already."""
    rows = [(one.turn, one.position, one.scope, one.kind, one.reason, one.data) for one in found]
    for row in rows:  # one by one: there are few, and none twice
        database.execute(_INSERT, row)


def forget(database: Database, scope: str, after: int = 0) -> None:
    """Let all of one scope be found again, in turns after one."""
    database.execute("DELETE FROM quarantine WHERE scope = ? AND turn > ?", (scope, after))


def not_in_tables(database: Database) -> dict[int, set[int]]:
    """The positions by turn of facts that the fold leaves out."""
    found: dict[int, set[int]] = {}
    for turn, position in database.execute(
        "SELECT turn, position FROM quarantine WHERE scope = ?", (NOT_IN_TABLES,)
    ).fetchall():
        found.setdefault(turn, set()).add(position)
    return found


def numbers_in(data: bytes) -> dict[str, int]:
    """The highest numbers that a fact gave away, whatever is wrong with it: they are not to be given again."""
    try:
        said = msgspec.msgpack.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    given: list[tuple[str, object]] = []
    match said:
        case ["sub", [*items], *_] | ["amd", _, [*items], *_]:
            given = [("group" if item[0] == "g" else "record", item[1]) for item in items if _is_item(item)]
        case ["ro", run, *rest]:
            given = [("last", run), ("group", rest[6] if len(rest) > 6 else 0)]  # as in `RunOpened`
        case ["xj", number, *_]:
            given = [("executor", number)]
        case ["p", number, *_]:
            given = [("span", number)]
    highest: dict[str, int] = {}
    for name, number in given:
        if isinstance(number, int) and 0 < number < _HIGHEST:
            highest[name] = max(number, highest.get(name, 0))
    return highest


def _is_item(item: object) -> bool:
    return isinstance(item, list) and len(item) > 1 and item[0] in {"t", "a", "g"}
