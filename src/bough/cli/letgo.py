"""Which groups are released: who waits for them may have started, although not all in them has ended.

That is so when a task that releases its group has succeeded, when a running task said so, and for a group without tasks
of its own when all its subgroups have ended or are released. Rule: the same as in the core, told by the jobs database;
a group that is over is not called released.
"""

from __future__ import annotations

from collections.abc import Mapping

from bough.cli.counts import Counts
from bough.cli.database import Database
from bough.stores.jobs import is_hidden

_ENDED = ("done", "failed", "notrun", "cancelled")


def released(database: Database, run: int, counts: Mapping[str, Counts]) -> set[str]:
    """The paths of released groups; `counts` are those of all groups."""
    rows = database.rows("select id, path, parent, closed, released from groups where run = ? order by id", [run])
    asked = "select distinct grp from tasks where run = ? and releases = 1 and is_array = 0 and state = 'done'"
    let_go = {row["grp"] for row in database.rows(asked, [run])}
    own = {row["grp"] for row in database.rows("select distinct grp from tasks where run = ?", [run])}
    held: set[object] = set()  # groups with a subgroup that has neither ended nor is released
    found: set[str] = set()
    for row in reversed(rows):  # those below come later
        number, path = row["id"], str(row["path"])
        if not path or is_hidden(path) or (row["closed"] and _is_over(counts.get(path))):
            continue
        whole = row["closed"] and number not in own and number not in held
        if row["released"] or number in let_go or whole:
            found.add(path)
        else:
            held.add(row["parent"])
    return found


def _is_over(counts: Counts | None) -> bool:
    return counts is None or not any(number for state, number in counts.items() if state not in _ENDED)
