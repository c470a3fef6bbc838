"""Waiting for what was submitted to a service, and watching it: the server is asked how it stands.

Rule: nobody need be attached to a workflow to watch it, and a server that goes away for a while is waited for.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from bough.cli.counts import group_counts
from bough.cli.database import Database, open_database
from bough.cli.display import choose_display
from bough.cli.output import Output, show_seconds
from bough.cli.picking import pick
from bough.cli.picture import ENDED, FailureNote, Picture, summary
from bough.cli.rows import task_rows, why
from bough.errors import PeerLost
from bough.model.selectors import All, Records, Selector

if TYPE_CHECKING:
    from bough.cli.submit import Submitted

LOOK = 0.5  # seconds between two questions
_RETRY = 1.0

Counts = dict[str, Counter[str]]


class Watching:
    """What a display looks at: counts that are asked for now and then."""

    def __init__(self, count: Callable[[], Counts], title: str, failed: Callable[[], list[FailureNote]]) -> None:
        self._count = count
        self._failed = failed
        self._title = title
        self._begun = time.monotonic()
        self._counts: Counts = {"": Counter()}
        self._first: tuple[float, int] | None = None
        self._told: set[str] = set()
        self.running: tuple[str, ...] = ()  # what tasks that run say of themselves
        self.notes: list[FailureNote] = []

    def look(self) -> Counter[str]:
        """Ask again; the counts of everything."""
        self._counts = self._count()
        total = self._counts.get("", Counter())
        ended = sum(total[state] for state in ENDED)
        if self._first is None:
            self._first = (time.monotonic(), ended)
        if total["failed"]:
            for note in self._failed():
                if note.task not in self._told:
                    self._told.add(note.task)
                    self.notes.append(note)
        return total

    def picture(self) -> Picture:
        """How things stood when it was asked last."""
        total = self._counts.get("", Counter())
        rate = 0.0
        if self._first is not None and (seconds := time.monotonic() - self._first[0]) > 0:
            rate = (sum(total[state] for state in ENDED) - self._first[1]) / seconds
        seconds = time.monotonic() - self._begun
        return Picture(dict(self._counts), self.running, seconds=seconds, rate=rate, title=self._title)

    def new_failures(self) -> list[FailureNote]:
        """Failures since the last time it was asked."""
        notes, self.notes = self.notes, []
        return notes


def failures(database: Database, selectors: list[Selector], run: int) -> list[FailureNote]:
    """What has failed, as a display tells it."""
    rows = task_rows(database, pick(database, selectors, frozenset({"failed"}), run)[:100])
    return [FailureNote(f"task {row['id']}", f"task {row['id']}: {why(row)}", str(row["host"] or "")) for row in rows]


def patiently(args: argparse.Namespace, look: Callable[[Database], bool]) -> None:
    """Look again and again until it is enough, with a new connection when the old one broke."""
    while True:
        with contextlib.suppress(PeerLost), open_database(args) as database:
            while not look(database):
                time.sleep(LOOK)
                database.refresh()
            return
        time.sleep(_RETRY)


def wait_for(args: argparse.Namespace, submitted: Submitted, output: Output) -> int:
    """Wait for what was submitted under a display; the exit code says whether all of it succeeded."""
    args.name, args.store = submitted.workflow, None
    chosen: list[Selector] = [Records(number, number) for number in submitted.ids] or [All()]
    current: list[Database] = []
    watching = Watching(
        lambda: {"": _counts_of(current[-1], submitted)},
        submitted.workflow,
        lambda: failures(current[-1], chosen, submitted.run),
    )
    begun = time.monotonic()
    counts: Counter[str] = Counter()

    def look(database: Database) -> bool:
        nonlocal counts
        current[:] = [database]
        counts = watching.look()
        return sum(counts[state] for state in ENDED) >= counts.total() > 0

    with choose_display(watching, silent=args.json or args.quiet):
        patiently(args, look)
    seconds = time.monotonic() - begun
    code = 0 if counts["done"] == counts.total() else 1
    if args.json:
        ends = {state: counts[state] for state in ENDED}
        value = {"workflow": submitted.workflow, "run": submitted.run, "ids": submitted.ids, **ends}
        output.answer(value | {"seconds": round(seconds, 3), "exit_code": code}, lambda: ())
    elif not args.quiet:
        print(summary(counts, 0, show_seconds(seconds)), file=sys.stderr)
    return code


def _counts_of(database: Database, submitted: Submitted) -> Counter[str]:
    """The tasks that were submitted, by state."""
    counts: Counter[str] = Counter()
    for at in range(0, len(submitted.ids), 500):
        some = submitted.ids[at : at + 500]
        marks = ", ".join("?" * len(some))
        rows = database.rows(
            f"select state, is_array, length, done, failed, notrun, cancelled from tasks where id in ({marks})", some
        )
        for row in rows:
            if not row["is_array"]:
                counts[str(row["state"])] += 1
                continue
            ends = {state: number for state in ENDED if isinstance(number := row[state], int)}
            counts.update(ends)
            length = row["length"]
            assert isinstance(length, int)
            counts["waiting"] += max(0, length - sum(ends.values()))
    return counts if submitted.ids else group_counts(database, submitted.run)[""]
