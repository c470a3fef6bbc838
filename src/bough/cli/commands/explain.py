"""`bough explain`: why a task does not run, or why it failed.

A live server knows the reasons; without one the store knows how things ended. Rule: always at least one line.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable

from bough.cli.output import Output
from bough.cli.targets.jobs_database import OpenDatabase, open_database
from bough.cli.targets.live_server import ServerClient
from bough.cli.targets.locate import add_store_arguments
from bough.cli.targets.selection import Selected, add_selector_arguments, choose_run, element_states, pick, read_request
from bough.cli.targets.task_rows import Fields, record_rows, task_rows, why
from bough.model.ids import RecordId
from bough.wire import questions

EXAMPLES = ("bough explain last", "bough explain 12.3", "bough explain plot", "bough explain --failed")

MOST = 100  # tasks in one answer; a selector may mean millions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    add_selector_arguments(parser)
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Explain the tasks that are meant."""
    selectors, states = read_request(args)
    with open_database(args) as database:
        server = database.server
        tasks = pick(database, selectors, states, choose_run(database, args, selectors))

        def explain(part: Selected) -> list[str]:
            return _from_store(database, part) if server is None else _from_server(server, database, part)

        told = [_told(database, one, explain) for one in tasks[:MOST]]
    if len(tasks) > MOST:
        output.note(f"only the first {MOST} of {len(tasks)} tasks are explained; give a narrower selector")
    output.answer(told, lambda: _lines(told))
    return 0


def _told(database: OpenDatabase, one: Selected, explain: Callable[[Selected], list[str]]) -> Fields:
    lines, parts = _parts(database, one)
    for part in parts:
        lines += explain(part)
    index = parts[0].first if parts else one.first
    return {"id": one.label, "record": one.id, "index": index, "lines": lines or ["nothing is known of it"]}


def _parts(database: OpenDatabase, one: Selected) -> tuple[list[str], list[Selected]]:
    """A task itself. Of many elements: how many are in which state, and one of each state but done to be explained."""
    if not one.is_array or one.first == one.last:
        return [], [one]
    counts: Counter[str] = Counter()
    examples: dict[str, Selected] = {}
    for first, last, state in element_states(database, one) if one.first < one.last else ():
        counts[state] += last - first + 1
        examples.setdefault(state, Selected(one.id, first, first, is_array=True, whole=False))
    examples.pop("done", None)
    shown = ", ".join(f"{count} {state}" for state, count in counts.items()) or "none"
    return [f"{one.label} is an array of {counts.total()} tasks: {shown}"], list(examples.values())


def _lines(told: list[Fields]) -> list[str]:
    lines: list[str] = []
    for task in told:
        said = task["lines"]
        assert isinstance(said, list)
        if len(told) == 1:
            return [str(line) for line in said]
        lines += [f"{task['id']}:", *(f"  {line}" for line in said)]
    return lines


def _from_server(server: ServerClient, database: OpenDatabase, one: Selected) -> list[str]:
    if not database.is_service and record_rows(database, [one.id])[one.id]["run"] != server.run:
        return _from_store(database, one)  # a session's server knows the tasks of its own run alone
    return server.ask(questions.Explain(RecordId(one.id), one.first))


def _from_store(database: OpenDatabase, one: Selected) -> list[str]:
    lines: list[str] = []
    for row in task_rows(database, [one]):
        state = str(row["state"])
        name = f" ({row['name']})" if row["name"] else ""
        reason = why(row)
        lines.append(f"{row['id']}{name} is {state}" + (f": {reason}" if reason else ""))
        if row["host"] and state in {"done", "failed", "running"}:
            lines.append(f"attempt {row['attempt']} ran on {row['host']}")
        if state not in {"done", "failed"}:
            lines += _waits(database, one)
            lines.append("no session is running: run the workflow again to resume it")
    return lines


def _waits(database: OpenDatabase, one: Selected) -> list[str]:
    """The dependencies that did not succeed."""
    lines: list[str] = []
    for row in database.rows("select on_kind, on_id, on_idx from after where id = ?", [one.id]):
        if row["on_kind"] in {"group", "end"}:
            lines.append(f"it comes after the group {_group_path(database, row['on_id'])!r}")
            continue
        found = database.rows("select id, name, state, is_array from tasks where id = ?", [row["on_id"]])
        if found and found[0]["state"] != "done":
            other = found[0]
            label = f"{other['id']}.{row['on_idx']}" if other["is_array"] and row["on_kind"] == "task" else other["id"]
            name = f" ({other['name']})" if other["name"] else ""
            lines.append(f"it comes after {label}{name}, which is {other['state']}")
    return lines


def _group_path(database: OpenDatabase, group: object) -> str:
    rows = database.rows("select path from groups where id = ?", [group])
    return str(rows[0]["path"]) if rows else str(group)
