"""`bough status`: the groups of a workflow with their tasks by state, a table of tasks, or what a service has.

Rule: it looks and changes nothing; a live session's server is asked to bring the jobs database up to date first.
"""

from __future__ import annotations

import argparse
import time

from bough.cli.analysing import add_analysis_arguments, show_analysis
from bough.cli.counts import as_json, group_counts, tree_lines
from bough.cli.database import Database, open_database
from bough.cli.finding import add_store_arguments
from bough.cli.output import Output, show_seconds, table_lines
from bough.cli.picking import add_selector_arguments, choose_run, pick, read_request
from bough.cli.rows import Fields, task_rows, why
from bough.cli.said import add_words, said_by_tasks
from bough.cli.said import lines as said_lines
from bough.cli.serverstatus import show_service, show_stats
from bough.errors import UnknownName
from bough.model.selectors import All

EXAMPLES = (
    "bough status",
    "bough status --failed",
    "bough status 12.3-40 --json",
    "bough status --queue nightly --state running",
    "bough status align --tree",
    "bough status --analyse --plot run.png",
)

SHOWN = 20  # tasks below the tree: those that say something, and those that failed
_DAY = 86400.0  # seconds
_WIDE = 100  # letters of a command or a reason in a table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    add_selector_arguments(parser)
    parser.add_argument("--tree", action="store_true", help="a group: its subgroups, its end, why it waits, who waits")
    add_analysis_arguments(parser)
    parser.add_argument("--stats", action="store_true", help="what the server counts: clients, executors, queues, pace")
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Show one run as a whole, or some of its tasks."""
    if args.analyse or args.plot or args.other is not None:
        args.name, args.selector = args.name or args.selector, None
        with open_database(args) as database:
            return show_analysis(database, args, output)
    if args.tree:
        return _show_tree(args, output)
    selectors, states = read_request(args, needed=False)
    with open_database(args) as database:
        if args.stats:
            show_stats(database, output)
            return 0
        if args.selector is None and not states:
            if database.is_service and not args.name and not args.run:
                show_service(database, output)
            else:
                _overview(database, choose_run(database, args), output)
            return 0
        number = choose_run(database, args, selectors)
        rows = list(task_rows(database, pick(database, selectors, states, number)))
        more = add_words(rows, said_by_tasks(database, number))
    output.answer(rows, lambda: [*_table(rows), *said_lines(more)] if rows else ["no such tasks"])
    return 0


def _show_tree(args: argparse.Namespace, output: Output) -> int:
    from bough.cli.grouptree import show_tree

    workflow, colon, rest = (args.group or args.selector or "").rpartition(":")
    if colon:
        args.name = workflow
    path = "" if rest == "all" else rest.removesuffix("/*").strip("/")
    with open_database(args) as database:
        show_tree(database, choose_run(database, args), path, output)
    return 0


def _overview(database: Database, number: int, output: Output) -> None:
    runs = database.rows(
        "select run, name, host, pid, opened, closed, reason, policy from runs where run = ?", [number]
    )
    if not runs:
        raise UnknownName(f"there is no run {number} in {database.label}; the latest is {database.last_run()}")
    live = database.live and (runs[0]["closed"] is None if database.is_service else number == database.last_run())
    counts = group_counts(database, number)
    total = counts[""].get("failed", 0)
    failed = pick(database, [All()], frozenset({"failed"}), number) if total else []
    rows = list(task_rows(database, failed[:SHOWN]))[:SHOWN]
    said = said_by_tasks(database, number) if live else []
    value: Fields = {
        **runs[0],
        "live": live,
        "store": database.label,
        "counts": as_json(counts[""]),
        "groups": [{"path": path, "counts": as_json(counts[path])} for path in counts if path],
        "failed": rows,
        "said": said,
    }

    def text() -> list[str]:
        lines = [_headline(runs[0], live=live), *tree_lines(str(runs[0]["name"] or "workflow"), counts)]
        if said:
            lines += ["", *said_lines(said[:SHOWN])]
        if rows:
            lines += ["", *_table(rows)]
        if total > len(rows) > 0:
            lines.append(f"and {total - len(rows)} more: bough status --failed")
        return lines

    output.answer(value, text)


def _headline(run: Fields, *, live: bool) -> str:
    opened, closed = run["opened"], run["closed"]
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(opened)) if isinstance(opened, float) else "?"
    if isinstance(opened, float) and isinstance(closed, float):
        how = {"done": "ended", "interrupted": "was interrupted", "crashed": "crashed"}.get(str(run["reason"]), "ended")
        return f"run {run['run']} of {begun} {how} after {show_seconds(max(0.0, closed - opened))}"
    if live and isinstance(opened, float):
        return f"run {run['run']} has been going on since {begun} ({show_seconds(max(0.0, time.time() - opened))})"
    return f"run {run['run']} of {begun} did not end properly; bough run FILE again goes on with it"


def _table(rows: list[Fields]) -> list[str]:
    columns = ("id", "state", "name", "group", "attempt", "since", "seconds", "host", "exit", "says", "what")
    body = [
        [
            *(row[key] for key in ("id", "state", "name", "group", "attempt")),
            _since(row),
            *(row[key] for key in ("seconds", "host", "exit_code")),
            _says(row),
            _what(row),
        ]
        for row in rows
    ]
    kept = [i for i in range(len(columns)) if any(line[i] not in {None, ""} for line in body)]
    return table_lines([columns[i].upper() for i in kept], [[line[i] for i in kept] for line in body])


def _since(row: Fields) -> str:
    """When something that runs was begun."""
    started = row["started"]
    if row["state"] != "running" or not isinstance(started, float):
        return ""
    day = "" if time.time() - started < _DAY else "%Y-%m-%d "
    return time.strftime(f"{day}%H:%M:%S", time.localtime(started))


def _says(row: Fields) -> str:
    """What it says of itself."""
    words = row.get("said")
    return words if isinstance(words, str) else ""


def _what(row: Fields) -> str:
    """Why it did not succeed, or what an array has come to, or the command."""
    counts = row.get("counts")
    if isinstance(counts, dict):
        ended = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
        said = f"{row['length']} tasks: {ended or 'none ended'}"
    else:
        said = why(row) or str(row["command"] or "")
    return said if len(said) <= _WIDE else said[: _WIDE - 3] + "..."
