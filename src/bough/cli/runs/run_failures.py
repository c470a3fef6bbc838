"""How runs ended, read from their stores; loaded by `bough run` when something failed.

A session counts what its server told it, but a task that failed may have been retried since (`bough retry`).
Rule: what is said here is what `bough status` would say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from bough.cli.targets.jobs_database import OpenDatabase, catch_up
from bough.cli.targets.locate import ServerLocation
from bough.cli.targets.selection import pick
from bough.cli.targets.task_rows import FailureTexts, Fields, failure_texts, group_counts, task_rows
from bough.cli.targets.task_streams import read_streams
from bough.errors import BoughError
from bough.model.texts.selectors import All, read_selectors

MOST = 1000  # failures in one answer
_TOLD = ("id", "name", "group", "attempt", "host", "exit_code", "signal", "cause", "message")
_LINES = 10  # of stderr


def failures_of(runs: Iterable[tuple[ServerLocation, int]]) -> list[Fields]:
    """What failed in these runs of these stores; nothing of a store that cannot be read."""
    found: list[Fields] = []
    for place, run in runs:
        try:
            catch_up(place)
            with OpenDatabase(place) as database:
                found += _failed(database, run)
        except BoughError:
            continue  # the counts were told; the run itself is not spoiled by it
    return found[:MOST]


def counts_of(runs: Iterable[tuple[ServerLocation, int]]) -> Counter[str] | None:
    """Tasks of these runs by state; None when a store cannot be read."""
    total: Counter[str] = Counter()
    try:
        for place, run in runs:
            catch_up(place)
            with OpenDatabase(place) as database:
                total.update(group_counts(database, run)[""])
    except BoughError:
        return None
    return total


def _failed(database: OpenDatabase, run: int) -> list[Fields]:
    picks = pick(database, [All()], frozenset({"failed"}), run)[:MOST]
    found: list[Fields] = []
    for row in task_rows(database, picks):
        selector = read_selectors(str(row["id"]))
        mine = pick(database, selector, frozenset(), run)
        said = read_streams(database, mine, ["stderr"], _LINES)
        texts = failure_texts(database, mine[0]) if mine else FailureTexts()
        told = {"stderr": said[0]["stderr"] if said else "", "parameters": texts.parameters}
        found.append({key: row[key] for key in _TOLD} | told | {"traceback": texts.traceback})
    return found
