"""`bough status`: the groups of a workflow with their tasks by state, a table of tasks, or what a service has.

Rule: it looks and changes nothing. A live session's server is asked to bring the jobs database up to date first; what
is shown of a service as a whole is the server's own knowledge. A server with nothing to do says what to do with it.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

from bough.api.display.surroundings import show_seconds
from bough.cli.commands.stats import figure_lines
from bough.cli.option_values import amount, count
from bough.cli.output import Output, table_lines
from bough.cli.replica_waste import replica_waste, waste_line
from bough.cli.targets.jobs_database import OpenDatabase, Workflow, as_int, open_database
from bough.cli.targets.locate import add_store_arguments
from bough.cli.targets.selection import add_selector_arguments, choose_run, open_selected, pick, read_request
from bough.cli.targets.task_rows import (
    ENDED_STATES,
    Fields,
    add_words,
    as_json,
    group_counts,
    missing_site_lines,
    said_by_tasks,
    said_lines,
    show_counts,
    task_rows,
    tree_lines,
    why,
)
from bough.errors import UnknownName, UserError
from bough.model.texts.plurals import counted
from bough.model.texts.selectors import All
from bough.wire import questions

EXAMPLES = (
    "bough status",
    "bough status --failed",
    "bough status 12.3-40 --json",
    "bough status --name nightly --state running",
    "bough status align --tree",
    "bough status --analyse --plot run.png",
)

SHOWN = 20  # tasks below the tree: those that say something, and those that failed
_DAY = 86400.0  # seconds
_WIDE = 100  # letters of a command or a reason in a table
_SHOWN_RUNS = 20  # workflows that have finished
_COUNTED = 1_000  # of the last workflows whose tasks are counted; of others only their names are told
_STATS = 60  # seconds of statistics


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    add_selector_arguments(parser)
    parser.add_argument("--tree", action="store_true", help="a group: its subgroups, its end, why it waits, what waits")
    _add_analysis_arguments(parser)
    parser.add_argument("--stats", action="store_true", help="what the server counts: clients, executors, queues, pace")
    add_store_arguments(parser)


def _add_analysis_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--analyse", action="store_true", help="critical path, lower bound, degree of concurrency")
    parser.add_argument("--plot", metavar="FILE", help="with --analyse: draw it, as FILE.png, FILE.svg or FILE.pdf")
    parser.add_argument(
        "--with", dest="other", type=count, metavar="RUN", help="with --analyse: draw another run over it"
    )
    parser.add_argument(
        "--first", type=amount, default=0.0, metavar="SECONDS", help="with --plot: only so much of the beginning"
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Show one run as a whole, or some of its tasks."""
    if args.analyse or args.plot or args.other is not None:
        args.name, args.selector = args.name or args.selector, None
        from bough.cli.status_details import show_analysis

        with open_database(args) as database:
            return show_analysis(database, args, output)
    if args.tree:
        return _show_tree(args, output)
    selectors, states = read_request(args, needed=False)
    if args.stats or (args.selector is None and not states):
        return _show_whole(args, output)
    with open_selected(args, selectors, output) as (database, number):
        rows = list(task_rows(database, pick(database, selectors, states, number)))
        more = add_words(rows, said_by_tasks(database, number))
    output.answer(rows, lambda: [*_table(rows), *said_lines(more)] if rows else ["no such tasks"])
    return 0


def _show_whole(args: argparse.Namespace, output: Output) -> int:
    """What a store or a service has as a whole, or its statistics."""
    with open_database(args) as database:
        if args.stats:
            show_stats(database, output)
        elif database.is_service and not args.name and not args.run:
            show_service(database, output)
        else:
            _overview(database, choose_run(database, args), output)
    return 0


def _show_tree(args: argparse.Namespace, output: Output) -> int:
    from bough.cli.status_details import show_tree

    workflow, colon, rest = (args.group or args.selector or "").rpartition(":")
    if colon:
        args.name = workflow
    path = "" if rest == "all" else rest.removesuffix("/*").strip("/")
    with open_database(args) as database:
        show_tree(database, choose_run(database, args), path, output)
    return 0


def _overview(database: OpenDatabase, number: int, output: Output) -> None:
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
    usage = database.usage(number)
    own = database.workflow(number) if live and database.is_service else None
    unsaved = 0 if own is None else as_int(own["unsaved"])
    missing = [] if own is None else missing_site_lines([own])
    value: Fields = {
        **runs[0],
        "live": live,
        "store": database.label,
        "counts": as_json(counts[""]),
        "groups": [{"path": path, "counts": as_json(counts[path])} for path in counts if path],
        "failed": rows,
        "said": said,
        "core_hours": usage,
        "unsaved": unsaved,
        "missing_sites": [] if own is None else own["missing_sites"],
    }
    waste = replica_waste(database, number)
    if waste is not None:
        value["replication"] = waste

    def text() -> list[str]:
        lines = [_headline(runs[0], live=live), *tree_lines(str(runs[0]["name"] or "workflow"), counts)]
        lines += [unsaved_text(unsaved)] if unsaved else []
        lines += missing
        lines += [_usage_line(one) for one in usage]
        if waste is not None:
            lines.append(waste_line(waste))
        if said:
            lines += ["", *said_lines(said[:SHOWN])]
        if rows:
            lines += ["", *_table(rows)]
        if total > len(rows) > 0:
            lines.append(f"and {total - len(rows)} more: bough status --failed")
        return lines

    output.answer(value, text)


def unsaved_text(tasks: int) -> str:
    """How many tasks are done for those that depend on them, and not yet for others."""
    return f"outputs of {counted(tasks, 'task')} are on their way"


def _usage_line(one: Fields) -> str:
    """What a workflow took at a site: core-hours at lab: 1.25 used, 0.1 wasted."""
    wasted = f", {one['wasted']:.3g} wasted" if one["wasted"] else ""
    return f"core-hours at {one['site']}: {one['used']:.3g} used{wasted}"


def _headline(run: Fields, *, live: bool) -> str:
    opened, closed = run["opened"], run["closed"]
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(opened)) if isinstance(opened, float) else "?"
    if isinstance(opened, float) and isinstance(closed, float):
        how = {"done": "ended", "interrupted": "was interrupted", "crashed": "crashed"}.get(str(run["reason"]), "ended")
        return f"run {run['run']} of {begun} {how} after {show_seconds(max(0.0, closed - opened))}"
    if live and isinstance(opened, float):
        return f"run {run['run']} has been running since {begun} ({show_seconds(max(0.0, time.time() - opened))})"
    return f"run {run['run']} of {begun} did not end properly; bough run FILE again resumes it"


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
        said = f"{counted(as_int(row['length']), 'task')}: {ended or 'none ended'}"
    else:
        said = why(row) or str(row["command"] or "")
    return said if len(said) <= _WIDE else said[: _WIDE - 3] + "..."


# --- a service as a whole -----------------------------------------------------------------------------


def show_service(database: OpenDatabase, output: Output) -> None:
    """The workflows of a service, those that go on last."""
    assert database.server is not None
    workflows = database.workflows()
    _count_retired(database, workflows[-_COUNTED:])
    executors = _executors(database)
    value = {"server": database.label, "workflows": workflows, "executors": executors}
    output.answer(value, lambda: _service_lines(database.label, workflows, executors))


def _count_retired(database: OpenDatabase, workflows: list[Workflow]) -> None:
    """Fill in the counts of workflows that the server has not in memory; all of their tasks have ended."""
    retired = {run: one for one in workflows if one["counts"] is None and isinstance(run := one["run"], int)}
    if not retired:
        return
    counts: dict[int, Counter[str]] = {run: Counter() for run in retired}
    between = f"from tasks where run between {min(retired)} and {max(retired)}"
    for row in database.rows(f"select run, state, count(*) as n {between} and is_array = 0 group by run, state"):
        if row["run"] in counts:
            counts[as_int(row["run"])][str(row["state"])] += as_int(row["n"])
    sums = ", ".join(f"sum({state}) as {state}" for state in ENDED_STATES)
    for row in database.rows(f"select run, {sums} {between} and is_array = 1 group by run"):
        if row["run"] in counts:
            counts[as_int(row["run"])].update({state: as_int(row[state]) for state in ENDED_STATES})
    for run, one in retired.items():
        one["counts"] = {state: count for state, count in counts[run].items() if count}


def _executors(database: OpenDatabase) -> list[dict[str, object]]:
    assert database.server is not None
    return database.server.ask(questions.Executors())


def _service_lines(label: str, workflows: list[Workflow], executors: list[dict[str, object]]) -> list[str]:
    executors = [one for one in executors if one.get("state") != "manual"]
    cores = sum(number for one in executors if isinstance(number := one.get("cores"), int | float))
    there = ((len(workflows), "workflow"), (len(executors), "executor"), (cores, "core"))
    lines = [f"{label}: {', '.join(counted(number, noun) for number, noun in there)}"]
    if not workflows:
        lines.append("there is no workflow yet: bough submit FILE, bough submit -- COMMAND, or bough run FILE --server")
    lines += missing_site_lines(workflows)
    if not executors:
        lines.append("nothing can run before an executor is there: bough executor start")
    over = [one for one in workflows if one["closed"]]
    going = [one for one in workflows if not one["closed"]]
    rows = [_workflow_row(one) for one in [*over[-_SHOWN_RUNS:], *going]]
    if rows:
        lines += ["", *table_lines(["WORKFLOW", "RUN", "USER", "STATE", "TASKS"], rows)]
    if len(over) > _SHOWN_RUNS:
        lines.append(f"and {len(over) - _SHOWN_RUNS} more that have finished: bough status --json")
    return lines


def _workflow_row(one: Workflow) -> list[object]:
    state = "finished" if one["closed"] else "running"
    counts, unsaved = one["counts"], as_int(one["unsaved"])
    tasks = show_counts(counts if isinstance(counts, dict) else {})
    tasks += f" ({unsaved_text(unsaved)})" if unsaved else ""
    return [one["name"], one["run"], one["user"], state, tasks]


def show_stats(database: OpenDatabase, output: Output) -> None:
    """What the server counts."""
    if database.server is None:
        raise UserError("--stats: no server runs here; see bough server start")
    try:
        samples = database.server.ask(questions.Statistics(_STATS))
    except UnknownName:  # a session's own server keeps no statistics
        stats = database.server.ask(questions.Status())
        output.answer(stats, lambda: list(_flat("", stats)))
        return
    output.answer(samples, lambda: figure_lines(samples))


def _flat(prefix: str, value: object) -> list[str]:
    """Nested figures as lines, each with the path to it."""
    if isinstance(value, dict):
        return [
            line for key, inner in value.items() for line in _flat(f"{prefix}.{key}" if prefix else str(key), inner)
        ]
    if isinstance(value, list):
        return [line for at, inner in enumerate(value) for line in _flat(f"{prefix}.{at}", inner)]
    return [f"{prefix}: {value}"]
