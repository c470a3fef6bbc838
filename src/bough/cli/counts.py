"""Counts of tasks per group and state, read from a jobs database, and the tree they make.

Rule: a group's counts include those of the groups below it; an array counts as its elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from bough.cli.database import Database
from bough.cli.output import paint_state
from bough.cli.picking import STATES
from bough.cli.rows import COUNTED
from bough.stores.jobs import is_hidden

Counts = Counter[str]


def group_counts(database: Database, run: int) -> dict[str, Counts]:
    """The counts of every group by its path, the workflow's own being ""."""
    groups = database.rows("select id, path from groups where run = ? order by id", [run])
    paths = {row["id"]: path for row in groups if not is_hidden(path := str(row["path"]))}
    paths.setdefault(0, "")
    own: dict[str, Counts] = {path: Counter() for path in paths.values()}
    for row in database.rows(
        "select grp, state, count(*) as number from tasks where run = ? and is_array = 0 group by grp, state", [run]
    ):
        own[paths[row["grp"]]][str(row["state"])] += _int(row["number"])
    for row in database.rows(
        f"select id, grp, length, waits, {', '.join(COUNTED)} from tasks where run = ? and is_array = 1", [run]
    ):
        own[paths[row["grp"]]].update(_array_counts(database, row))
    return _summed(own)


def _array_counts(database: Database, row: Mapping[str, object]) -> Counts:
    counts: Counts = Counter({name: _int(row[name]) for name in COUNTED})
    spans = database.rows(
        "select state, sum(stop - start) as number from spans"
        " where id = ? and state in ('placed', 'running', 'held') group by state",
        [row["id"]],
    )
    counts.update({str(span["state"]): _int(span["number"]) for span in spans})
    counts["waiting" if row["waits"] else "ready"] += max(0, _int(row["length"]) - counts.total())
    return counts


def _summed(own: Mapping[str, Counts]) -> dict[str, Counts]:
    summed = {path: Counter(counts) for path, counts in own.items()}
    for path, counts in own.items():
        above = path
        while above:
            above = above.rpartition("/")[0]
            summed.setdefault(above, Counter()).update(counts)
    return summed


def show_counts(counts: Mapping[str, int]) -> str:
    """Counts as people read them, in the order of a task's life, without the states nothing is in."""
    return ", ".join(f"{counts[state]} {paint_state(state)}" for state in STATES if counts.get(state)) or "no tasks"


def as_json(counts: Mapping[str, int]) -> dict[str, int]:
    """Every state with its count, also those of none."""
    return {state: counts.get(state, 0) for state in STATES}


def tree_lines(name: str, counts: Mapping[str, Counts]) -> list[str]:
    """The groups as a tree, the workflow at its root."""
    children: dict[str, list[str]] = {}
    for path in counts:
        if path:
            children.setdefault(path.rpartition("/")[0], []).append(path)
    found = [(name, counts.get("", Counter()))]
    found += [(prefix + path.rpartition("/")[2], counts[path]) for prefix, path in _walk("", children, "")]
    width = max(len(label) for label, _ in found)
    return [f"{label:<{width}}  {show_counts(number)}" for label, number in found]


def _walk(path: str, children: Mapping[str, list[str]], indent: str) -> Iterable[tuple[str, str]]:
    below = children.get(path, [])
    for number, child in enumerate(below, start=1):
        is_last = number == len(below)
        yield indent + ("└─ " if is_last else "├─ "), child
        yield from _walk(child, children, indent + ("   " if is_last else "│  "))


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
