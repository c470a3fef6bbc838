"""What `bough status` shows of one group or one run in detail: `--tree` and `--analyse`.

`--tree` shows a group level by level, when it is expected to end, what depends on it and why it waits. The end is
foreseen from the measured times of like tasks and the cores there are. `--analyse` shows what a run took, the least it
could have taken, and draws it. Rule: it looks and changes nothing but the picture that was asked for. What was not
measured yet is said to be unknown, not guessed. Only these two load `analysis`, which loads the simulator.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bough.analysis import Analysis, analyse
from bough.analysis.run_report import Recorded, minimal
from bough.api.display.surroundings import show_seconds
from bough.cli.output import Output, table_lines
from bough.cli.targets.jobs_database import OpenDatabase, as_int
from bough.cli.targets.selection import choose_run
from bough.cli.targets.task_rows import as_json, group_counts, released, tree_lines
from bough.errors import UnknownName, UserError
from bough.model.ids import number_of
from bough.model.states import ENDED, labels_of, says
from bough.model.texts.plurals import counted
from bough.stores.jobs.jobs_reader import is_hidden

Row = dict[str, Any]

_ENDED = labels_of(ENDED)
_SHOWN = 5  # reasons for waiting
_LONGEST = 40  # tasks of a critical path that are shown; JSON has all


def show_tree(database: OpenDatabase, run: int, path: str, output: Output) -> None:
    """Show one group, or with an empty path the workflow."""
    groups = database.rows("select id, parent, path, disabled from groups where run = ? order by id", [run])
    chosen = [row for row in groups if row["path"] == path]
    if not chosen:
        raise UnknownName(f"run {run} has no group {path!r}; see bough status")
    counts = group_counts(database, run)
    inside = {one: number for one, number in counts.items() if not path or one == path or one.startswith(path + "/")}
    cut = {one.removeprefix(path).strip("/"): number for one, number in inside.items()}
    disabled = [str(row["path"]) for row in groups if row["disabled"] and _is_within(str(row["path"]), path)]
    released_groups = sorted(one for one in released(database, run, counts) if _is_within(one, path))
    left = expected(database, run, path)
    dependents = _dependents(database, run, chosen[0]["id"], groups)
    waits = _why(database, run, chosen[0]["id"], groups)
    value = {
        "run": run,
        "group": path,
        "counts": as_json(counts[path]),
        "groups": [{"path": one, "counts": as_json(number)} for one, number in inside.items() if one != path],
        "disabled": disabled,
        "released": released_groups,
        "expected_seconds": left,
        "dependents": dependents,
        "waits_for": waits,
    }
    output.answer(value, lambda: _tree_lines(path or "workflow", cut, value))


def _tree_lines(name: str, cut: Any, value: Row) -> list[str]:
    lines = tree_lines(name, cut)
    left = value["expected_seconds"]
    if left is None:
        lines.append("expected end: unknown, nothing like what is left has been measured")
    elif left > 0:
        when = time.strftime("%H:%M:%S", time.localtime(time.time() + left))
        lines.append(f"expected end: in {show_seconds(left)}, at {when}")
    lines += [f"disabled: {one}; bough enable {one}" for one in value["disabled"]]
    if value["released"]:
        lines.append(f"released: {', '.join(value['released'])}")
    lines += [f"waits for {one}" for one in value["waits_for"]]
    if value["dependents"]:
        lines.append(f"what depends on it: {', '.join(value['dependents'])}")
    return lines


def _is_within(path: str, above: str) -> bool:
    return not above or path == above or path.startswith(above + "/")


def expected(database: OpenDatabase, run: int, path: str) -> float | None:
    """Seconds until all in a group has ended, if nothing fails; None if nothing like what is left was measured."""
    recorded = Recorded(database.rows, run)
    paths = {row["id"]: str(row["path"]) for row in database.rows("select id, path from groups where run = ?", [run])}
    likes = _measured(recorded)
    work = 0.0
    for row in recorded.tasks.values():
        node = recorded.nodes["array" if row["is_array"] else "task", row["id"], 0]
        left = _left(row)
        node.seconds = 0.0
        if not left or not _is_within(paths.get(row["grp"], ""), path):
            continue
        like = likes.get(_like(row), likes.get(("", "")))
        if like is None:
            return None
        node.seconds = like
        work += left * like * float(row["cores"] or 1)
    found: list[Row] = database.rows('select sum(cores) as cores from executors where "left" is null')
    cores = float(found[0]["cores"] or 0)
    for key, node in recorded.nodes.items():  # elements that are done take no more time; arrays stand for the rest
        if key[0] == "task" and recorded.tasks[key[1]]["is_array"]:
            node.seconds = 0.0
    return max(minimal(recorded.nodes).makespan, work / cores if cores else 0.0)


def _left(row: Row) -> int:
    """How many tasks of a record have not ended."""
    if not row["is_array"]:
        return int(row["state"] not in _ENDED)
    return max(0, int(row["length"] or 0) - sum(int(row[state] or 0) for state in _ENDED))


def _like(row: Row) -> tuple[str, str]:
    return (str(row["name"] or ""), "array" if row["is_array"] else "task")


def _measured(recorded: Recorded) -> dict[tuple[str, str], float]:
    """The mean time of tasks by name, and of all under no name."""
    sums: dict[tuple[str, str], tuple[float, int]] = {}
    for row in recorded.tasks.values():
        count = 1 if not row["is_array"] else max(1, int(row["length"] or 1))
        if row["seconds"] and (row["is_array"] or row["state"] == "done"):
            for key in (_like(row), ("", "")):
                total, number = sums.get(key, (0.0, 0))
                sums[key] = total + row["seconds"], number + count
    return {key: total / number for key, (total, number) in sums.items()}


def _named(database: OpenDatabase, row: Row, groups: Sequence[Row]) -> str:
    if row["on_kind"] in {"group", "end"}:
        found = [str(one["path"]) for one in groups if one["id"] == row["on_id"]]
        return f"group {found[0]}" if found else f"group {row['on_id']}"
    found = [str(one["name"]) for one in database.rows("select name from tasks where id = ?", [row["on_id"]])]
    return f"task {number_of(as_int(row['on_id']))}" + (f" ({found[0]})" if found and found[0] else "")


def _dependents(database: OpenDatabase, run: int, group: object, groups: Sequence[Row]) -> list[str]:
    """Groups and tasks that wait for a group; through a group that is only there for that, what waits for it."""
    found: list[str] = []
    todo, seen = [group], {group}
    while todo:
        at = todo.pop()
        asked = "on_kind in ('group', 'end') and on_id = ?"
        for row in database.rows(f"select distinct id from group_after where run = ? and {asked}", [run, at]):
            path = next((str(one["path"]) for one in groups if one["id"] == row["id"]), "")
            if not is_hidden(path):
                found.append(f"group {path}")
            elif row["id"] not in seen:
                seen.add(row["id"])
                todo.append(row["id"])
        joined = "after join tasks on tasks.id = after.id"
        rows = database.rows(f"select distinct after.id as id, name from {joined} where run = ? and {asked}", [run, at])
        found += [f"task {number_of(as_int(row['id']))}" + (f" ({row['name']})" if row["name"] else "") for row in rows]
    return sorted(set(found))


def _why(database: OpenDatabase, run: int, group: object, groups: Sequence[Row]) -> list[str]:
    """What a group, or one above it, depends on and has not finished."""
    above = {row["id"]: row["parent"] for row in groups}
    at: object | None = group
    found: list[str] = []
    while at is not None and len(found) < _SHOWN:
        for row in database.rows("select on_kind, on_id from group_after where run = ? and id = ?", [run, at]):
            if row["on_kind"] in {"group", "end"}:
                path = next((str(one["path"]) for one in groups if one["id"] == row["on_id"]), "")
                if is_hidden(path):
                    found += _why(database, run, row["on_id"], groups)
                    continue
                counts = group_counts(database, run).get(path, Counter())
                open_ones = sum(number for state, number in counts.items() if state not in _ENDED)
                if open_ones:
                    found.append(f"{_named(database, row, groups)} ({open_ones} not ended)")
            else:
                state = database.rows("select state from tasks where id = ?", [row["on_id"]])
                if state and state[0]["state"] != "done":
                    found.append(f"{_named(database, row, groups)}, which {says(str(state[0]['state']))}")
        at = above.get(at)
    return list(dict.fromkeys(found))[:_SHOWN]


def show_analysis(database: OpenDatabase, args: argparse.Namespace, output: Output) -> int:
    """Analyse a run, and perhaps another one."""
    if args.first < 0:
        raise UserError(f"--first {args.first:g}: say how many seconds, above 0")
    one = _analysed(database, choose_run(database, args))
    other = _analysed(database, args.other) if args.other is not None else None
    if args.plot:
        from bough.analysis.pictures import draw  # with matplotlib

        draw(args.plot, one, other, args.first)
    value = one.as_json()
    if other is not None:
        value["other"] = other.as_json()
    output.answer(value, lambda: _analysis_lines(one, other))
    if args.plot:
        output.note(f"drawn: {args.plot}")
    return 0


def _analysed(database: OpenDatabase, run: int) -> Analysis:
    if not database.rows("select run from runs where run = ?", [run]):
        raise UnknownName(f"there is no run {run} in {database.label}; the latest is {database.last_run()}")
    return analyse(database.rows, run)


def _analysis_lines(one: Analysis, other: Analysis | None) -> list[str]:
    lines = _figures(one)
    if other is not None:
        lines += ["", *_figures(other)]
    if one.path:
        longest = sorted(one.path, key=lambda step: -step.seconds)[:_LONGEST]
        shown = [step for step in one.path if step in longest]
        left = len(one.path) - len(shown)
        more = f", the {len(shown)} longest of {len(one.path)}" if left else ""
        lines += ["", f"critical path{more}:"]
        rows = [[step.label, step.name, round(step.start, 3), round(step.seconds, 3)] for step in shown]
        lines += table_lines(["TASK", "NAME", "START", "SECONDS"], rows)
    return lines


def _figures(one: Analysis) -> list[str]:
    ratio = f", {one.over_bound:.2f} times the lower bound" if one.over_bound is not None else ""
    at = ", ".join(f"{degree}: {show_seconds(seconds)}" for degree, seconds in one.measured.at.items())
    return [
        f"run {one.run}: {show_seconds(one.makespan)} from the first start to the last end{ratio}",
        f"minimal schedule: {show_seconds(one.minimal)} on any number of cores, at most {one.model.highest} at once",
        f"work: {show_seconds(one.work)} on {counted(one.cores, 'core')}, at least {show_seconds(one.bound)}",
        f"running at once: {one.measured.mean:.2f} on average, {one.measured.highest} at most; {at or 'nothing ran'}",
    ]
