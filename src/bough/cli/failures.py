"""How runs that are over ended, told from their stores, for `bough run`.

A session counts what it was told, but a task that failed may have been tried again by hand since (`bough
retry`). Rule: what is said here is what `bough status` would say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from bough.cli.counts import group_counts
from bough.cli.database import Database, catch_up
from bough.cli.finding import Place
from bough.cli.log import read_streams
from bough.cli.picking import pick
from bough.cli.rows import Fields, task_rows
from bough.errors import BoughError
from bough.model.selectors import All, read_selectors

MOST = 1000  # failures in one answer
_TOLD = ("id", "name", "group", "attempt", "host", "exit_code", "signal", "cause", "message")
_LINES = 10  # of stderr


def failures_of(runs: Iterable[tuple[Place, int]]) -> list[Fields]:
    """What failed in these runs of these stores; nothing of a store that cannot be read."""
    found: list[Fields] = []
    for place, run in runs:
        try:
            catch_up(place)
            with Database(place) as database:
                found += _failed(database, run)
        except BoughError:
            continue  # the counts were told; the run itself is not spoiled by it
    return found[:MOST]


def counts_of(runs: Iterable[tuple[Place, int]]) -> Counter[str] | None:
    """Tasks of these runs by state; None when a store cannot be read."""
    total: Counter[str] = Counter()
    try:
        for place, run in runs:
            catch_up(place)
            with Database(place) as database:
                total.update(group_counts(database, run)[""])
    except BoughError:
        return None
    return total


def _failed(database: Database, run: int) -> list[Fields]:
    picks = pick(database, [All()], frozenset({"failed"}), run)[:MOST]
    found: list[Fields] = []
    for row in task_rows(database, picks):
        selector = read_selectors(str(row["id"]))
        said = read_streams(database, pick(database, selector, frozenset(), run), ["stderr"], _LINES)
        stderr = said[0]["stderr"] if said else ""
        found.append({key: row[key] for key in _TOLD} | {"stderr": stderr})
    return found
