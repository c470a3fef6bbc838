"""Facts of a journal that were set aside, so that the rest of the store can be used: which, why, and their bytes.

`unreadable` facts are damaged or out of bounds, and nothing uses them. Facts `without effect` are those that the core
passed over when it replayed the journal, mostly because they are about an unreadable one. Facts `not in the tables`
could not be folded: the core knows them, the jobs database does not. Rule: the journal itself stays as it is; the table
`quarantine` tells people, and keeps the fold from trying the same fact again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from bough.journal.codec import Spoilt
from bough.stores.database import Database

UNREADABLE: Final = "unreadable"
WITHOUT_EFFECT: Final = "without effect"
NOT_IN_TABLES: Final = "not in the tables"

COLUMNS: Final = "turn, position, scope, kind, reason, data"
_INSERT: Final = "INSERT INTO quarantine VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
MOST_TOLD: Final = 20  # facts that are named one by one
_HIGHEST: Final = 1 << 60  # no id is above it


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


class Quarantine:
    """What one store has set aside since it was opened."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.tell: Callable[[str], None] = lambda _: None  # called with a line for the operator
        self.spoilt: dict[int, list[SetAside]] = {}  # by turn, facts that could not be read
        self._unwritten: list[SetAside] = []  # those of them that are not in the table yet
        self._explained = False

    def unreadable(self, turn: int, found: Iterable[Spoilt]) -> None:
        """Note that facts of a turn cannot be read."""
        if turn not in self.spoilt:
            self.spoilt[turn] = spoilt(turn, found)
            self._unwritten += self.spoilt[turn]

    def write_down(self) -> None:
        """Write the noted facts into the table; not inside of a transaction, which may be rolled back."""
        if self._unwritten:
            insert(self._database, self._unwritten)
            found, self._unwritten = self._unwritten, []
            self.say(found)

    def passed_over(self, found: Sequence[SetAside], after: int) -> None:
        """Write, in a transaction, what the core passed over in turns after one, in place of an earlier answer."""
        self._database.execute("DELETE FROM quarantine WHERE scope = ? AND turn > ?", (WITHOUT_EFFECT, after))
        insert(self._database, found)

    def try_again(self) -> None:
        """Delete the rows of facts that could not be folded, so that they are folded again."""
        self._database.execute("DELETE FROM quarantine WHERE scope = ?", (NOT_IN_TABLES,))

    def all(self) -> list[SetAside]:
        """Everything that was ever set aside, in the order of the journal."""
        self.write_down()
        rows = self._database.execute(f"SELECT {COLUMNS} FROM quarantine ORDER BY turn, position, scope").fetchall()
        return [SetAside(turn, at, scope, kind, why, bytes(data)) for turn, at, scope, kind, why, data in rows]

    def say(self, found: Sequence[SetAside]) -> None:
        """Tell the operator what was set aside, and once what to do about it."""
        for one in found[:MOST_TOLD]:
            self.tell(f"set aside, {one}")
        if len(found) > MOST_TOLD:
            self.tell(f"set aside, {len(found) - MOST_TOLD} more")
        if found and not self._explained:
            self._explained = True
            self.tell("the rest of the store serves; bough store check names what is set aside")


def spoilt(turn: int, found: Iterable[Spoilt]) -> list[SetAside]:
    """What cannot be read of a turn."""
    return [SetAside(turn, one.position, UNREADABLE, one.kind, one.reason, one.data) for one in found]


def insert(database: Database, found: Sequence[SetAside]) -> None:
    """Write facts into the table; harmless for those that are there already."""
    rows = [(one.turn, one.position, one.scope, one.kind, one.reason, one.data) for one in found]
    for row in rows:  # one by one: there are few, and none twice
        database.execute(_INSERT, row)


def not_in_tables(database: Database) -> dict[int, set[int]]:
    """The positions by turn of facts that are not folded."""
    found: dict[int, set[int]] = {}
    for turn, position in database.execute(
        "SELECT turn, position FROM quarantine WHERE scope = ?", (NOT_IN_TABLES,)
    ).fetchall():
        found.setdefault(turn, set()).add(position)
    return found


def numbers_in(data: bytes) -> dict[str, int]:
    """The highest ids that a fact gave, whatever is wrong with it: they must not be given again."""
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
