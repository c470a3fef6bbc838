"""`bough watch`: groups and tasks by state, live, of a session or a service; also the waiting of `bough submit --wait`.

The server is asked how things stand. Rule: it looks and changes nothing; it ends with what it watches, or with Ctrl-C.
No session need be attached to a workflow to watch it, and a server that is away for a while is waited for.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bough.api.display.progress_display import ENDED_STATES, FailureNote, Picture, choose_display, summary, with_parents
from bough.api.display.surroundings import show_seconds
from bough.cli.option_values import count
from bough.cli.output import Output
from bough.cli.runs.command_texts import own_code
from bough.cli.targets.jobs_database import OpenDatabase, open_database, open_place
from bough.cli.targets.locate import ServiceAddress, add_store_arguments
from bough.cli.targets.selection import choose_run, pick
from bough.cli.targets.task_rows import (
    as_json,
    group_counts,
    missing_site_lines,
    said_by_tasks,
    said_lines,
    task_rows,
    why,
)
from bough.errors import PeerLost, UserError
from bough.model.outcomes import Cause
from bough.model.texts.selectors import All, Records, Selector
from bough.model.texts.terminal_text import harmless_name

if TYPE_CHECKING:
    from bough.cli.runs.submit_files import SubmittedWork

EXAMPLES = ("bough watch", "bough watch --name nightly", "bough watch --json")
BARS = 16  # letters of the picture of a metric
LOOK = 0.5  # seconds between two questions
_RETRY = 1.0

Counts = dict[str, Counter[str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("--run", type=count, metavar="N", help="watch run N of the workflow (default: the latest)")
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Watch until it has ended."""
    with open_database(args) as database:
        if not database.live:
            raise UserError(f"nothing runs in {database.label}; see bough status")
        whole = database.is_service and not args.name and not args.run
        number = 0 if whole else choose_run(database, args)
    current: list[OpenDatabase] = []

    def count() -> Counts:
        return _all(current[-1]) if whole else group_counts(current[-1], number)

    watching = WatchedCounts(
        count,
        "server" if whole else args.name or "",
        lambda: [] if whole else failures(current[-1], [All()], number),
    )
    last: Counter[str] = Counter()

    def look(database: OpenDatabase) -> bool:
        nonlocal last
        current[:] = [database]
        counts = watching.look()
        watching.running = tuple(said_lines(said_by_tasks(database, None if whole else number), BARS))
        watching.warn(_missing_sites(database, None if whole else number))
        if args.json and counts != last:
            output.answer({"counts": as_json(counts), "groups": _groups(watching)}, lambda: ())
            sys.stdout.flush()
        last = counts
        return not whole and _has_ended(database, number)

    with choose_display(watching, silent=args.json or args.quiet):
        retry_while_away(lambda: open_database(args), look)
    if not args.json and not args.quiet:
        print(summary(last, 0, f"run {number}"), file=sys.stderr)
    return 0 if last["done"] == sum(last[state] for state in ENDED_STATES) else 1


def _all(database: OpenDatabase) -> Counts:
    """The running workflows of a service, each as a group."""
    going = [one for one in database.workflows() if not one["closed"]]
    return with_parents((str(one["name"]), c if isinstance(c := one["counts"], dict) else {}) for one in going)


def _missing_sites(database: OpenDatabase, run: int | None) -> list[str]:
    """Lines about sites that tasks wait for and that are not there, of one run or of all."""
    if not database.is_service:
        return []
    return missing_site_lines(one for one in database.workflows() if run is None or one["run"] == run)


def _groups(watching: WatchedCounts) -> list[dict[str, object]]:
    groups = watching.picture().groups
    return [{"path": path, "counts": as_json(counts)} for path, counts in groups.items() if path]


def _has_ended(database: OpenDatabase, run: int) -> bool:
    rows = database.rows("select closed from runs where run = ?", [run])
    return not rows or rows[0]["closed"] is not None


# --- waiting for what was submitted -------------------------------------------------------------------


def wait_for(args: argparse.Namespace, submitted: SubmittedWork, output: Output, *, is_command: bool = False) -> int:
    """Wait for what was submitted, and for its files, under a display; the exit code says whether all of it succeeded.

    `is_command`: what was submitted is a single command, and the exit code is its own.
    """
    args.name, args.store = submitted.workflow, None
    chosen: list[Selector] = [Records(number, number) for number in submitted.ids] or [All()]
    current: list[OpenDatabase] = []
    watching = WatchedCounts(
        lambda: {"": _counts_of(current[-1], submitted)},
        submitted.workflow,
        lambda: failures(current[-1], chosen, submitted.run),
    )
    begun = time.monotonic()
    counts: Counter[str] = Counter()
    own = 1

    def look(database: OpenDatabase) -> bool:
        nonlocal counts, own
        current[:] = [database]
        counts = watching.look()
        watching.warn(_missing_sites(database, submitted.run))
        has_ended = sum(counts[state] for state in ENDED_STATES) >= counts.total() > 0
        if has_ended and is_command and counts["failed"]:
            own = _own_code(database, submitted.records[0])
        return has_ended

    with choose_display(watching, silent=args.json or args.quiet):
        # at the service that has it, and not in a store of the same name that a run left in this folder
        server = ServiceAddress(args.server or os.environ.get("BOUGH_SERVER") or "")
        retry_while_away(lambda: open_place(server), look)
        if submitted.is_far and submitted.ids:
            retry_while_away(
                lambda: open_place(server, acts=True), lambda database: _bring(database, chosen, submitted)
            )
    seconds = time.monotonic() - begun
    code = 0 if counts["done"] == counts.total() else own
    if args.json:
        ends = {state: counts[state] for state in ENDED_STATES}
        value = {"workflow": submitted.workflow, "run": submitted.run, "ids": submitted.ids, **ends}
        output.answer(value | {"seconds": round(seconds, 3), "exit_code": code}, lambda: ())
    elif not args.quiet:
        print(summary(counts, 0, show_seconds(seconds)), file=sys.stderr)
        if counts["failed"]:
            print(harmless_name(_advice(args, submitted)), file=sys.stderr)
    return code


def _advice(args: argparse.Namespace, submitted: SubmittedWork) -> str:
    """How to see more of what failed."""
    which = str(submitted.ids[0]) if len(submitted.ids) == 1 and submitted.tasks == 1 else "--failed"
    which += f" --name {shlex.quote(submitted.workflow)}"
    which += f" --server {shlex.quote(args.server)}" if args.server else ""
    return f"why: bough explain {which}; what it printed: bough log {which}"


def _bring(database: OpenDatabase, chosen: Sequence[Selector], submitted: SubmittedWork) -> bool:
    """Bring what the tasks made to its places: the server does not see these."""
    from bough.cli.commands.fetch import bring  # only who waits for far tasks needs it

    bring(database, pick(database, chosen, frozenset(), submitted.run))
    return True


def _own_code(database: OpenDatabase, record: int) -> int:
    """How the command of a task left, as an exit code."""
    rows = database.rows("select exit_code, signal, cause from tasks where id = ?", [record])
    code, signal, cause = (rows[0][name] for name in ("exit_code", "signal", "cause")) if rows else (None, None, None)
    return own_code(
        code if isinstance(code, int) else None,
        signal if isinstance(signal, int) else None,
        is_started=cause != Cause.NOT_STARTED,
    )


def _counts_of(database: OpenDatabase, submitted: SubmittedWork) -> Counter[str]:
    """The tasks that were submitted, by state."""
    counts: Counter[str] = Counter()
    for at in range(0, len(submitted.records), 500):
        some = submitted.records[at : at + 500]
        marks = ", ".join("?" * len(some))
        rows = database.rows(
            f"select state, is_array, length, {', '.join(ENDED_STATES)} from tasks where id in ({marks})", some
        )
        for row in rows:
            if not row["is_array"]:
                counts[str(row["state"])] += 1
                continue
            ends = {state: number for state in ENDED_STATES if isinstance(number := row[state], int)}
            counts.update(ends)
            length = row["length"]
            assert isinstance(length, int)
            counts["waiting"] += max(0, length - sum(ends.values()))
    return counts if submitted.records else group_counts(database, submitted.run)[""]


# --- looking again and again --------------------------------------------------------------------------


class WatchedCounts:
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
        ended = sum(total[state] for state in ENDED_STATES)
        if self._first is None:
            self._first = (time.monotonic(), ended)
        if total["failed"]:
            for note in self._failed():
                if note.task not in self._told:
                    self._told.add(note.task)
                    self.notes.append(note)
        return total

    def warn(self, lines: Sequence[str]) -> None:
        """Tell of what keeps tasks from running, each line once."""
        for line in lines:
            if line not in self._told:
                self._told.add(line)
                self.notes.append(FailureNote("", line))

    def picture(self) -> Picture:
        """How things stood when it was asked last."""
        total = self._counts.get("", Counter())
        rate = 0.0
        if self._first is not None and (seconds := time.monotonic() - self._first[0]) > 0:
            rate = (sum(total[state] for state in ENDED_STATES) - self._first[1]) / seconds
        seconds = time.monotonic() - self._begun
        return Picture(dict(self._counts), self.running, seconds=seconds, rate=rate, title=self._title)

    def new_failures(self) -> list[FailureNote]:
        """Failures since the last time it was asked."""
        notes, self.notes = self.notes, []
        return notes


def failures(database: OpenDatabase, selectors: list[Selector], run: int) -> list[FailureNote]:
    """What has failed, as a display tells it."""
    rows = task_rows(database, pick(database, selectors, frozenset({"failed"}), run)[:100])
    return [FailureNote(f"task {row['id']}", f"task {row['id']}: {why(row)}", str(row["host"] or "")) for row in rows]


def retry_while_away(opened: Callable[[], OpenDatabase], look: Callable[[OpenDatabase], bool]) -> None:
    """Look again and again until it is enough, with a new connection when the server was away."""
    while True:
        with contextlib.suppress(PeerLost), opened() as database:
            while not look(database):
                time.sleep(LOOK)
                database.refresh()
            return
        time.sleep(_RETRY)
