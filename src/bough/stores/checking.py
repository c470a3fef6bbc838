"""Look whether a store is sound: every turn can be read, every blob is what its name says, nothing is missing.

Rule: looking changes nothing and may be done beside a running server.
"""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from bough.journal.codec import Unreadable, decode
from bough.model.blobs import is_blob
from bough.model.facts import Submitted
from bough.model.tasks import ArraySpec, TaskSpec
from bough.stores.reading import Reader, open_reader

MOST: Final = 20  # problems told


class Checked(msgspec.Struct):
    """What was found."""

    store: str
    turns: int = 0
    last_turn: int = 0
    blobs: int = 0
    snapshots: int = 0
    unfolded: int = 0  # turns that the tables do not know yet: no problem
    problems: list[str] = []


def check(where: str) -> Checked:
    """Read everything."""
    with open_reader(where) as reader:
        found = Checked(reader.where)
        if isinstance(reader.database, sqlite3.Connection):
            # not quick_check: SQLite 3.40 sees NULLs there in a key whose columns have another order
            rows = reader.database.execute(f"PRAGMA integrity_check({MOST})").fetchall()
            found.problems += [f"the file is damaged: {row[0]}" for row in rows if row[0] != "ok"]
        wanted = _journal(reader, found)
        _blobs(reader, found, wanted)
        for run, turn, _ in reader.rows("snapshots"):
            found.snapshots += 1
            if turn > found.last_turn:
                found.problems.append(f"the snapshot of run {run} is of turn {turn}, which is not there")
        position = int(reader.database.execute("SELECT turn FROM position").fetchone()[0])
        found.unfolded = max(0, found.last_turn - position)
        if position > found.last_turn:
            found.problems.append(f"the tables know turn {position}, the journal ends with turn {found.last_turn}")
    return found


def _journal(reader: Reader, found: Checked) -> dict[bytes, int]:
    """Read all turns; the blobs they need, each with the first turn that does."""
    wanted: dict[bytes, int] = {}
    shrunk = any(name == "highest" for name, _ in reader.rows("about"))
    for turn, _, data in reader.rows("journal"):
        found.turns += 1
        if turn != found.last_turn + 1 and not shrunk:
            found.problems.append(f"turns {found.last_turn + 1} to {turn - 1} are missing")
        found.last_turn = turn
        try:
            facts = decode(data)
        except Unreadable as error:
            found.problems.append(f"turn {turn} cannot be read: {error}")
            continue
        for fact in facts:
            if isinstance(fact, Submitted):
                for item in fact.items:
                    for blob in _blobs_of(item) if isinstance(item, TaskSpec | ArraySpec) else ():
                        wanted.setdefault(blob, turn)
    return wanted


def _blobs_of(item: TaskSpec | ArraySpec) -> list[bytes]:
    return [blob for blob in (item.body, item.table if isinstance(item, ArraySpec) else b"") if blob]


def _blobs(reader: Reader, found: Checked, wanted: dict[bytes, int]) -> None:
    for blob, data in reader.rows("blobs"):
        found.blobs += 1
        wanted.pop(blob, None)
        if not is_blob(blob, data):
            found.problems.append(f"the blob {blob.hex()} is not what its name says")
    for blob, turn in wanted.items():
        found.problems.append(f"the blob {blob.hex()}, which turn {turn} needs, is missing")
