"""`bough explain`: why a task does not run, or why it failed.

A live server knows the reasons; without one the store knows how things ended. What monitors saw is in the store.
Rule: always at least one line.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence

from bough.cli.output import Output
from bough.cli.targets.jobs_database import OpenDatabase, as_int
from bough.cli.targets.live_server import ServerClient
from bough.cli.targets.locate import add_store_arguments
from bough.cli.targets.seen_rows import seen_json, seen_of
from bough.cli.targets.selection import (
    Selected,
    add_selector_arguments,
    element_states,
    open_selected,
    pick,
    read_request,
)
from bough.cli.targets.task_rows import Fields, failure_texts, record_rows, task_rows, why
from bough.cli.targets.task_streams import read_streams
from bough.model.arrays.array_indices import index_label
from bough.model.ids import RecordId, number_of
from bough.model.monitoring.observations import SeenTask, seen_lines
from bough.model.states import UNSUCCESSFUL, labels_of, says
from bough.model.texts.plurals import counted
from bough.wire import questions

EXAMPLES = ("bough explain last", "bough explain 12.3", "bough explain plot", "bough explain --failed")

MOST = 100  # tasks in one answer; a selector may mean millions
_STDERR = 10  # lines
_WROTE = "the last lines of its stderr:"
_BAD = labels_of(UNSUCCESSFUL)
_FAILED = 10  # elements of an array that failed, each with its cause
_DEPENDENCIES = 20  # tasks and arrays that are named


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    add_selector_arguments(parser)
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Explain the tasks that are meant."""
    selectors, states = read_request(args)
    with open_selected(args, selectors, output) as (database, number):
        server = database.server
        tasks = pick(database, selectors, states, number)

        def explain(part: Selected) -> list[str]:
            return _from_store(database, part) if server is None else _from_server(server, database, part)

        told = [_told(database, one, explain) for one in tasks[:MOST]]
    if len(tasks) > MOST:
        output.note(f"only the first {MOST} of {len(tasks)} tasks are explained; give a narrower selector")
    output.answer(told, lambda: _lines(told))
    return 0


def _told(database: OpenDatabase, one: Selected, explain: Callable[[Selected], list[str]]) -> Fields:
    lines, parts = _parts(database, one)
    seen: list[SeenTask] = []
    for part in parts:
        lines += explain(part)
        if len(parts) == 1:
            seen = seen_of(database, part)
            lines += seen_lines(seen)
    index = None if one.is_array and one.first != one.last else index_label(one.indices, one.first)
    shown = {"id": one.label, "record": number_of(one.id), "index": index}
    return {**shown, "lines": lines or ["nothing is known of it"], "seen": seen_json(seen)}


def _parts(database: OpenDatabase, one: Selected) -> tuple[list[str], list[Selected]]:
    """A task itself. Of many elements: how many are in which state, and one of each state but done to be explained."""
    if not one.is_array or one.first == one.last:
        return [], [one]
    counts: Counter[str] = Counter()
    examples: dict[str, Selected] = {}
    failed: list[str] = []
    for first, last, state in element_states(database, one) if one.first < one.last else ():
        counts[state] += last - first + 1
        examples.setdefault(state, one.part(first, first))
        if state == "failed" and len(failed) <= _FAILED:
            failed += [one.label_of(index) for index in range(first, min(last, first + _FAILED) + 1)]
    examples.pop("done", None)
    shown = ", ".join(f"{count} {state}" for state, count in counts.items()) or "none"
    lines = [f"{one.label} is an array of {counted(counts.total(), 'task')}: {shown}"]
    if counts["failed"] > 1:
        more = ", ..." if counts["failed"] > _FAILED else ""
        lines.append(f"failed: {', '.join(failed[:_FAILED])}{more}")
    return lines, list(examples.values())


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
    lines = server.ask(questions.Explain(RecordId(one.id), one.first))
    if any(line.startswith(_WROTE) for line in lines):
        return lines
    return lines + [
        line for row in task_rows(database, [one]) if row["state"] in _BAD for line in _stderr(database, one)
    ]


def _from_store(database: OpenDatabase, one: Selected) -> list[str]:
    lines: list[str] = []
    for row in task_rows(database, [one]):
        state = str(row["state"])
        name = f" ({row['name']})" if row["name"] else ""
        reason = why(row)
        lines.append(f"{row['id']}{name} {says(state)}" + (f": {reason}" if reason not in {"", state} else ""))
        if row["host"] and state in {"done", "failed", "running", "cancelled"}:
            lines.append(f"attempt {row['attempt']} ran on {row['host']}")
        if state == "failed":
            lines += _failure(database, one)
        elif state in _BAD:  # it was cancelled, or the session ended
            lines += _stderr(database, one)
        if state not in {"done", "failed"}:
            lines += [*_waits(database, one), *_holds(database, one)]
            lines.append("no session is running: run the workflow again to resume it")
    return lines


def _failure(database: OpenDatabase, one: Selected) -> list[str]:
    """What is kept of a failure beyond its cause: parameters, the end of stderr, the traceback."""
    said = failure_texts(database, one)
    lines = [f"its parameters: {said.parameters}"] if said.parameters else []
    lines += _stderr(database, one)
    if said.traceback:
        lines += ["its traceback:", *(f"  {line}" for line in said.traceback.splitlines())]
    return lines


def _stderr(database: OpenDatabase, one: Selected) -> list[str]:
    """The end of what a task wrote to standard error, also of one that was ended from outside."""
    lines: list[str] = []
    for wrote in read_streams(database, [one], ["stderr"], _STDERR):
        tail = str(wrote["stderr"]).splitlines()
        lines += [_WROTE, *(f"  {line}" for line in tail)] if tail else []
    return lines


def _holds(database: OpenDatabase, one: Selected) -> list[str]:
    """The groups around a task that are disabled."""
    task = record_rows(database, [one.id])[one.id]
    path = str(task["path"])
    above = ["", *(path[:at] for at, letter in enumerate(path) if letter == "/"), *([path] if path else [])]
    marks = ", ".join("?" * len(above))
    rows = database.rows(
        f"select path from groups where run = ? and disabled = 1 and path in ({marks})", [task["run"], *above]
    )
    return [
        f"its group {row['path'] or 'the workflow'} is disabled; let it start with: bough enable {row['path'] or 'all'}"
        for row in rows
    ]


def _waits(database: OpenDatabase, one: Selected) -> list[str]:
    """The dependencies that did not succeed: of an array the elements that failed, each with its cause."""
    lines: list[str] = []
    wanted: dict[int, set[int] | None] = {}  # by record: the elements that it waits for; None: all
    for row in _dependencies(database, one):
        if row["on_kind"] in {"group", "end"}:
            lines.append(f"it comes after the group {_group_path(database, row['on_id'])!r}")
            continue
        record = as_int(row["on_id"])
        elements = wanted.setdefault(record, set())
        if row["on_kind"] != "task":
            wanted[record] = None
        elif elements is not None:
            elements.add(as_int(row["on_idx"]))
    rows = record_rows(database, list(wanted)) if wanted else {}
    left = _DEPENDENCIES
    for record, elements in wanted.items():
        other = rows.get(record)
        if other is None or other["state"] == "done":
            continue
        said = _array_waits(database, other, elements) if other["is_array"] else _loose_waits(other)
        if said and not left:
            return [*lines, "and others; see bough status --failed"]
        left -= bool(said)
        lines += said
    return lines


def _dependencies(database: OpenDatabase, one: Selected) -> list[Fields]:
    """What a task comes after, by itself and by the groups around it."""
    found = database.rows(
        "select on_kind, on_id, on_idx from after where id = ? and idx in (-1, ?)", [one.id, one.first]
    )
    task = record_rows(database, [one.id])[one.id]
    group: object = task["grp"]
    while group:
        where = [task["run"], group]
        found += database.rows("select on_kind, on_id, on_idx from group_after where run = ? and id = ?", where)
        above = database.rows("select parent from groups where run = ? and id = ?", where)
        group = above[0]["parent"] if above else None
    return found


def _loose_waits(other: Fields) -> list[str]:
    name = f" ({other['name']})" if other["name"] else ""
    reason = why(other) if other["state"] == "failed" else ""
    number = number_of(as_int(other["id"]))
    return [f"it comes after {number}{name}, which {says(str(other['state']))}{f': {reason}' if reason else ''}"]


def _array_waits(database: OpenDatabase, other: Fields, elements: set[int] | None) -> list[str]:
    """How the elements of an array stand that a task comes after, and those that failed."""
    record, length = as_int(other["id"]), as_int(other["length"])
    if not length:
        return []
    indices = str(other.get("indices") or "")
    whole = Selected(record, 0, length - 1, is_array=True, whole=False, indices=indices)
    counts: Counter[str] = Counter()
    failed: list[int] = []
    for first, last, state in element_states(database, whole):
        if elements is None:
            mine: Sequence[int] = range(first, last + 1)
        else:
            mine = sorted(index for index in elements if first <= index <= last)
        counts[state] += len(mine)
        if state == "failed":
            failed += mine[:_FAILED]
    if counts.total() == counts["done"]:
        return []
    name = f" ({other['name']})" if other["name"] else ""
    shown = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    lines = [f"it comes after {number_of(record)}{name}: {shown}"]
    for index in failed[:_FAILED]:
        part = whole.part(index, index)
        parameters = failure_texts(database, part).parameters
        said = f" with {parameters}" if parameters else ""
        lines += [f"  {part.label}{said} failed: {why(row)}" for row in task_rows(database, [part])]
    if counts["failed"] > _FAILED:
        lines.append(f"  and {counts['failed'] - _FAILED} more; see bough status --failed")
    return lines


def _group_path(database: OpenDatabase, group: object) -> str:
    rows = database.rows("select path from groups where id = ?", [group])
    return str(rows[0]["path"]) if rows else str(group)
