"""What `bough status` shows of a service as a whole: its workflows, its executors, what it counts.

Rule: the server's own knowledge is shown, not the jobs database; a server with nothing to do says what to do with it.
"""

from __future__ import annotations

from collections import Counter

from bough.cli.counts import show_counts
from bough.cli.database import Database, Workflow
from bough.cli.figures import figure_lines
from bough.cli.output import Output, table_lines
from bough.cli.rows import COUNTED
from bough.errors import UnknownName, UserError
from bough.wire import questions

SHOWN = 20  # workflows that are over
_COUNTED = 1_000  # of the last workflows whose tasks are counted; of others only their names are told
_STATS = 60  # seconds of statistics


def show_service(database: Database, output: Output) -> None:
    """The workflows of a service, those that go on last."""
    assert database.server is not None
    workflows = database.workflows()
    _count_retired(database, workflows[-_COUNTED:])
    executors = _executors(database)
    value = {"server": database.label, "workflows": workflows, "executors": executors}
    output.answer(value, lambda: _lines(database.label, workflows, executors))


def _count_retired(database: Database, workflows: list[Workflow]) -> None:
    """Fill in the counts of workflows that the server has not in memory; all of their tasks have ended."""
    retired = {run: one for one in workflows if one["counts"] is None and isinstance(run := one["run"], int)}
    if not retired:
        return
    counts: dict[int, Counter[str]] = {run: Counter() for run in retired}
    between = f"from tasks where run between {min(retired)} and {max(retired)}"
    for row in database.rows(f"select run, state, count(*) as n {between} and is_array = 0 group by run, state"):
        if row["run"] in counts:
            counts[_int(row["run"])][str(row["state"])] += _int(row["n"])
    sums = ", ".join(f"sum({state}) as {state}" for state in COUNTED)
    for row in database.rows(f"select run, {sums} {between} and is_array = 1 group by run"):
        if row["run"] in counts:
            counts[_int(row["run"])].update({state: _int(row[state]) for state in COUNTED})
    for run, one in retired.items():
        one["counts"] = {state: count for state, count in counts[run].items() if count}


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _executors(database: Database) -> list[dict[str, object]]:
    assert database.server is not None
    return database.server.ask(questions.Executors())


def _lines(label: str, workflows: list[Workflow], executors: list[dict[str, object]]) -> list[str]:
    executors = [one for one in executors if one.get("state") != "hand"]
    cores = sum(number for one in executors if isinstance(number := one.get("cores"), int | float))
    lines = [f"{label}: {_count(len(workflows), 'workflow')}, {_count(len(executors), 'executor')}, {cores:g} cores"]
    if not workflows:
        lines.append("there is no workflow yet: bough submit FILE, bough submit -- COMMAND, or bough run FILE --server")
    if not executors:
        lines.append("nothing can run before an executor is there: bough executor start")
    over = [one for one in workflows if one["closed"]]
    going = [one for one in workflows if not one["closed"]]
    rows = [_row(one) for one in [*over[-SHOWN:], *going]]
    if rows:
        lines += ["", *table_lines(["WORKFLOW", "RUN", "USER", "STATE", "TASKS"], rows)]
    if len(over) > SHOWN:
        lines.append(f"and {len(over) - SHOWN} more that are over: bough status --json")
    return lines


def _row(one: Workflow) -> list[object]:
    client = one.get("client")
    state = "over" if one["closed"] else "attached" if client else "goes on"
    counts = one["counts"]
    return [one["name"], one["run"], one["user"], state, show_counts(counts if isinstance(counts, dict) else {})]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def show_stats(database: Database, output: Output) -> None:
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
