"""Rows of the jobs database as people and programs see tasks.

Rule: the keys of a row's JSON object are stable; an array is one row with counts, an element with
something of its own is a row, and neighbours without are one row for the range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bough.cli.database import Database
from bough.cli.picking import Pick, element_states

Fields = dict[str, object]

_OWN = ("state", "attempt", "started", "ended", "seconds", "host", "exit_code", "signal", "cause", "message", "reused")
_STREAMS = tuple(f"{name}_{part}" for name in ("stdout", "stderr") for part in ("path", "offset", "length"))
_AT_ONCE = 500  # records in one question
COUNTED = ("done", "failed", "notrun", "cancelled")


def task_rows(database: Database, picks: list[Pick]) -> Iterator[Fields]:
    """One row per loose task, whole array, element or range of elements."""
    for one, record in _with_records(database, picks):
        if one.whole:
            yield _whole_row(record, one)
        else:
            yield from _element_rows(database, record, one)


def stream_rows(database: Database, picks: list[Pick]) -> Iterator[Fields]:
    """One row per task that may have written something, with where it lies."""
    columns = ", ".join(("state", "executor", *_STREAMS))
    for one, record in _with_records(database, picks):
        name = record["name"]
        if not one.is_array:
            yield {"id": one.label, "name": name} | {key: record[key] for key in ("state", "executor", *_STREAMS)}
            continue
        for row in database.rows(
            f"select idx, {columns} from elements where id = ? and idx between ? and ? order by idx",
            [one.id, one.first, one.last],
        ):
            index = row.pop("idx")
            yield {"id": f"{one.id}.{index}", "name": name, **row}


def record_rows(database: Database, records: Sequence[int]) -> dict[int, Fields]:
    """Rows of the table of tasks by their id, with the path of their group."""
    marks = ", ".join("?" * len(records))
    rows = database.rows(
        "select tasks.*, coalesce(groups.path, '') as path from tasks"
        f" left join groups on groups.id = tasks.grp and groups.run = tasks.run where tasks.id in ({marks})",
        records,
    )
    return {record: row for row in rows if isinstance(record := row["id"], int)}


def _with_records(database: Database, picks: Sequence[Pick]) -> Iterator[tuple[Pick, Fields]]:
    """Picks with their records, looked up many at a time."""
    for start in range(0, len(picks), _AT_ONCE):
        some = picks[start : start + _AT_ONCE]
        records = record_rows(database, [one.id for one in some])
        for one in some:
            yield one, records[one.id]


def _base(record: Fields, label: str, index: int | None) -> Fields:
    return {
        "id": label,
        "record": record["id"],
        "index": index,
        "name": record["name"],
        "group": record["path"],
        "kind": record["kind"],
        "run": record["run"],
    }


def _whole_row(record: Fields, one: Pick) -> Fields:
    row = _base(record, one.label, None if one.is_array else 0)
    row |= {name: record[name] for name in _OWN}
    row |= {"reused": record["reused"] if one.is_array else bool(record["reused"])}
    row |= {"command": record["command"], "length": record["length"], "is_array": one.is_array}
    if one.is_array:
        row["counts"] = {name: record[name] or 0 for name in COUNTED}
    return row


def _element_rows(database: Database, record: Fields, one: Pick) -> Iterator[Fields]:
    own = database.rows(
        f"select idx, {', '.join(_OWN)} from elements where id = ? and idx between ? and ? order by idx",
        [one.id, one.first, one.last],
    )
    at = one.first
    for element in own:
        index = element.pop("idx")
        assert isinstance(index, int)
        if index > at:
            yield from _plain_rows(database, record, one, at, index - 1)
        element["reused"] = bool(element["reused"])
        yield _base(record, f"{one.id}.{index}", index) | element | {"command": record["command"]}
        at = index + 1
    if at <= one.last:
        yield from _plain_rows(database, record, one, at, one.last)


def _plain_rows(database: Database, record: Fields, one: Pick, first: int, last: int) -> Iterator[Fields]:
    part = Pick(one.id, first, last, is_array=True, whole=False)
    for begin, end, state in element_states(database, part):
        label = Pick(one.id, begin, end, is_array=True, whole=False).label
        row = _base(record, label, begin if begin == end else None)
        yield row | dict.fromkeys(_OWN) | {"state": state, "reused": False, "command": record["command"]}


def why(row: Fields) -> str:
    """One line that says why a task did not succeed; empty when it did."""
    said = str(row["message"] or "")
    if row["exit_code"] and str(row["exit_code"]) not in said:
        said = f"exit code {row['exit_code']}" + (f", {said}" if said else "")
    elif row["signal"] and not said:
        said = f"signal {row['signal']}"
    return said or str(row["cause"] or "")
