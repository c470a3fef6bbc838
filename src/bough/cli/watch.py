"""`bough watch`: groups and tasks by state, live, of a session or a service.

Rule: it looks and changes nothing; it ends with what it watches, or with Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from bough.cli.counts import as_json, group_counts
from bough.cli.database import Database, open_database
from bough.cli.display import choose_display
from bough.cli.finding import add_store_arguments
from bough.cli.numbers import count
from bough.cli.output import Output
from bough.cli.picking import choose_run
from bough.cli.picture import ENDED, summary, with_parents
from bough.cli.said import lines as said_lines
from bough.cli.said import said_by_tasks
from bough.cli.waiting import Counts, Watching, failures, patiently
from bough.errors import UserError
from bough.model.selectors import All

EXAMPLES = ("bough watch", "bough watch --queue nightly", "bough watch --json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("--run", type=count, metavar="N", help="watch run N of the workflow (default: the latest)")
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Watch until it is over."""
    with open_database(args) as database:
        if not database.live:
            raise UserError(f"nothing runs in {database.label}; see bough status")
        whole = database.is_service and not args.name and not args.run
        number = 0 if whole else choose_run(database, args)
    current: list[Database] = []

    def count() -> Counts:
        return _all(current[-1]) if whole else group_counts(current[-1], number)

    watching = Watching(
        count,
        "server" if whole else args.name or "",
        lambda: [] if whole else failures(current[-1], [All()], number),
    )
    last: Counter[str] = Counter()

    def look(database: Database) -> bool:
        nonlocal last
        current[:] = [database]
        counts = watching.look()
        watching.running = tuple(said_lines(said_by_tasks(database, None if whole else number)))
        if args.json and counts != last:
            output.answer({"counts": as_json(counts), "groups": _groups(watching)}, lambda: ())
            sys.stdout.flush()
        last = counts
        return not whole and _is_over(database, number)

    with choose_display(watching, silent=args.json or args.quiet):
        patiently(args, look)
    if not args.json and not args.quiet:
        print(summary(last, 0, f"run {number}"), file=sys.stderr)
    return 0 if last["done"] == sum(last[state] for state in ENDED) else 1


def _all(database: Database) -> Counts:
    """The workflows of a service that go on, each as a group."""
    going = [one for one in database.workflows() if not one["closed"]]
    return with_parents((str(one["name"]), c if isinstance(c := one["counts"], dict) else {}) for one in going)


def _groups(watching: Watching) -> list[dict[str, object]]:
    groups = watching.picture().groups
    return [{"path": path, "counts": as_json(counts)} for path, counts in groups.items() if path]


def _is_over(database: Database, run: int) -> bool:
    rows = database.rows("select closed from runs where run = ?", [run])
    return not rows or rows[0]["closed"] is not None
