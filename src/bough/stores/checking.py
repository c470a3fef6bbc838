"""Look whether a store is sound: every turn can be read, every blob is what its name says, nothing is missing.

What was set aside is told, and is no problem: the rest of the store serves. Rule: looking changes nothing and may be
done beside a running server.
"""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from bough.core.machine import Machine
from bough.journal.codec import Newer, Unreadable, decode, salvage
from bough.model.blobs import is_blob
from bough.model.facts import Fact, Submitted
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policies.registry import load_placement
from bough.stores.quarantine import SetAside, spoilt
from bough.stores.reading import Reader, open_reader

MOST: Final = 20  # problems told
_REPAIR: Final = "bough store repair puts it right"


class Checked(msgspec.Struct):
    """What was found."""

    store: str
    turns: int = 0
    last_turn: int = 0
    blobs: int = 0
    snapshots: int = 0
    unfolded: int = 0  # turns that the tables do not know yet: no problem
    set_aside: list[SetAside] = []  # without what they were: no problem either
    problems: list[str] = []


def check(where: str) -> Checked:
    """Read everything."""
    with open_reader(where) as reader:
        found = Checked(reader.where)
        if isinstance(reader.database, sqlite3.Connection):
            # not quick_check: SQLite 3.40 sees NULLs there in a key whose columns have another order
            rows = reader.database.execute(f"PRAGMA integrity_check({MOST})").fetchall()
            found.problems += [f"the file is damaged: {row[0]}" for row in rows if row[0] != "ok"]
        found.set_aside = [SetAside(*row[:5]) for row in reader.rows("quarantine")]
        wanted = _journal(reader, found)
        _blobs(reader, found, wanted)
        position, last, clean = reader.database.execute("SELECT turn, run, clean FROM position").fetchone()
        for run, turn, data in reader.rows("snapshots"):
            found.snapshots += 1
            if turn > found.last_turn:
                found.problems.append(f"the snapshot of run {run} is of turn {turn}, which is not there")
            elif run == last and not clean and (why := _not_restorable(data)):
                found.problems.append(f"the snapshot of run {run} cannot be restored: {why}; {_REPAIR}")
        found.unfolded = max(0, found.last_turn - position)
        if position > found.last_turn:
            found.problems.append(f"the tables know turn {position}, the journal ends with turn {found.last_turn}")
    return found


def _journal(reader: Reader, found: Checked) -> dict[bytes, int]:
    """Read all turns; the blobs they need, each with the first turn that does."""
    wanted: dict[bytes, int] = {}
    known = {(one.turn, one.position) for one in found.set_aside}
    shrunk = any(name == "highest" for name, _ in reader.rows("about"))
    for turn, _, data in reader.rows("journal"):
        found.turns += 1
        if turn != found.last_turn + 1 and not shrunk:
            found.problems.append(f"turns {found.last_turn + 1} to {turn - 1} are missing")
        found.last_turn = turn
        facts, bad = _read(turn, data)
        found.problems += [f"{one}; {_REPAIR}" for one in bad if (one.turn, one.position) not in known]
        for fact in facts:
            if isinstance(fact, Submitted):
                for item in fact.items:
                    for blob in _blobs_of(item) if isinstance(item, TaskSpec | ArraySpec) else ():
                        wanted.setdefault(blob, turn)
    return wanted


def _read(turn: int, data: bytes) -> tuple[list[Fact], list[SetAside]]:
    """What can be read of a turn, and what not."""
    try:
        return decode(data), []
    except Newer as error:
        return [], [SetAside(turn, -1, "of a newer version", "", str(error))]
    except Unreadable:
        good, bad = salvage(data)
        return good, spoilt(turn, bad)


def _not_restorable(data: bytes) -> str:
    """Why a snapshot cannot be restored; empty: it can."""
    try:
        Machine.restore(data, load_placement("fifo"))
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is what is looked for
        return f"{type(error).__name__}: {error}"
    return ""


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
