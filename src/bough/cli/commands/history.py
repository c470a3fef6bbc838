"""`bough history`: how a group, or a whole workflow, fared in the runs that the store knows of.

Rule: looks and changes nothing; a group is the one of the same path in every run.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from bough.api.display.surroundings import show_seconds
from bough.cli.output import Output, table_lines
from bough.cli.targets.jobs_database import OpenDatabase, open_database
from bough.cli.targets.locate import add_store_arguments
from bough.errors import UnknownName

EXAMPLES = ("bough history", "bough history align", "bough history align/sub --json")

Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("group", nargs="?", default="", metavar="GROUP", help="its path, as align/sub (default: all)")
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Show one line per run."""
    path = args.group.removesuffix("/*").strip("/")
    with open_database(args) as database:
        rows = history(database, path, args.name if database.is_service else None)
    if path and not rows:
        raise UnknownName(f"no run has a group {path!r}; see bough status")
    output.answer(rows, lambda: _table(rows))
    return 0


def history(database: OpenDatabase, path: str, name: str | None = None) -> list[Row]:
    """The runs that had such a group, the oldest first: tasks, times and hosts."""
    found: list[Row] = []
    for run in database.rows("select run, name, opened, closed from runs order by run"):
        if name is not None and run["name"] != name:
            continue
        where, values = "tasks.run = ?", [run["run"]]
        if path:
            below = path.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "/%"
            inside = "select id from groups where run = ? and (path = ? or path like ? escape '\\')"
            where, values = f"tasks.run = ? and grp in ({inside})", [run["run"], run["run"], path, below]
        row: Row = database.rows(
            "select count(*) as records, sum(length) as tasks, sum(done) as done, sum(failed) as failed,"
            " sum(reused) as reused, min(case when reused < length then started end) as started,"
            " max(case when reused < length then ended end) as ended,"
            " sum(case when reused < length then seconds end) as seconds"
            f" from tasks where {where}",
            values,
        )[0]
        if not row.pop("records"):
            continue
        hosts = database.rows(
            f"select distinct host from attempts where id in (select id from tasks where {where}) and host != ''"
            " union select distinct executors.host from spans join executors on executors.id = spans.executor"
            f" where spans.id in (select id from tasks where {where})",
            [*values, *values],
        )
        took = row["ended"] - row["started"] if row["ended"] is not None and row["started"] is not None else None
        names = sorted(str(one["host"]) for one in hosts)
        found.append({"run": run["run"], "workflow": run["name"], "group": path, **row, "took": took, "hosts": names})
    return found


def _table(rows: list[Row]) -> list[str]:
    if not rows:
        return ["there was no run yet"]
    body = []
    for row in rows:
        begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["started"])) if row["started"] else ""
        took = show_seconds(max(0.0, row["took"])) if row["took"] is not None else ""
        work = show_seconds(row["seconds"]) if row["seconds"] is not None else ""
        counts = [row[name] or 0 for name in ("tasks", "done", "failed", "reused")]
        body.append([row["run"], row["workflow"], begun, took, work, *counts, ", ".join(row["hosts"])])
    return table_lines(
        ["RUN", "WORKFLOW", "STARTED", "TOOK", "WORK", "TASKS", "DONE", "FAILED", "REUSED", "HOSTS"], body
    )
