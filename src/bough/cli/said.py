"""What running tasks say of themselves, as `bough status` and `bough watch` show it.

Rule: only a live server knows it; without one there is nothing to show.
"""

from __future__ import annotations

from bough.cli.database import Database
from bough.cli.rows import Fields
from bough.wire import questions

_WIDE = 100


def said_by_tasks(database: Database, run: int | None = None) -> list[Fields]:
    """What tasks of a run, or of all, say now."""
    if database.server is None:
        return []
    return [one for one in database.server.ask(questions.Said()) if run in {None, one["run"]}]


def phrase(one: Fields) -> str:
    """Its words, and how much of it is done."""
    share = one["progress"]
    parts = [str(one["text"]).replace("\n", " ")] if one["text"] else []
    if isinstance(share, float | int):
        parts.append(f"{share:.0%}")
    said = ", ".join(parts)
    return said if len(said) <= _WIDE else said[: _WIDE - 3] + "..."


def add_words(rows: list[Fields], said: list[Fields]) -> list[Fields]:
    """Put what tasks say into their rows, as text, or into those of their range, as a list; the latter are returned."""
    by_record: dict[object, list[Fields]] = {}
    for one in said:
        by_record.setdefault(one["record"], []).append(one)
    more: list[Fields] = []
    for row in rows:
        inside = [one for one in by_record.get(row["record"], ()) if _is_in(one, row)]
        if inside and inside[0]["id"] == row["id"]:
            row["said"] = phrase(inside[0])
        else:
            row["said"] = [{**one, "said": phrase(one)} for one in inside] or None
            more += inside
    return more


def _is_in(one: Fields, row: Fields) -> bool:
    """Whether a task is an element of what a row is about: an array, or a range such as 12.3-40."""
    _, _, part = str(row["id"]).partition(".")
    first, _, last = part.partition("-")
    index = one["index"]
    return not part or (isinstance(index, int) and int(first) <= index <= int(last or first))


def lines(said: list[Fields]) -> list[str]:
    """One line for each task."""
    return [f"task {one['id']}{_name(one)}: {phrase(one)}" for one in said]


def _name(one: Fields) -> str:
    return f" ({one['name']})" if one["name"] else ""
