"""Tasks as people and programs see them: rows, counts by group, released groups, and what running tasks say.

An array is one row with counts; an element with something of its own is a row, and neighbours without are one row for
the range. A group's counts include those of the groups below it, and an array counts as its elements. A group is
released when what waits for it may have started although not all in it has ended: a task that releases its group has
succeeded, a running task said so, or it has no tasks of its own and all its subgroups have ended or are released.
Rule: the keys of a row's JSON object are stable. All comes from the jobs database, except what running tasks say of
themselves, which only a live server knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bough.api.display.sparkline import sparkline
from bough.cli.output import paint_state
from bough.cli.targets.jobs_database import OpenDatabase, Workflow, as_int
from bough.cli.targets.selection import Selected, element_states, span_word
from bough.model.arrays.array_indices import index_label
from bough.model.ids import number_of
from bough.model.states import ENDED, WORDS, labels_of
from bough.stores.jobs.jobs_reader import is_hidden
from bough.wire import questions

Fields = dict[str, object]

_OWN = ("state", "attempt", "started", "ended", "seconds", "host", "exit_code", "signal", "cause", "message", "reused")
_STREAMS = tuple(f"{name}_{part}" for name in ("stdout", "stderr") for part in ("path", "offset", "length"))
_AT_ONCE = 500  # records in one question
ENDED_STATES = labels_of(ENDED)  # of which the database keeps a count for each array
_WIDE = 100  # letters of what a task says

Counts = Counter[str]


def task_rows(database: OpenDatabase, picks: list[Selected]) -> Iterator[Fields]:
    """One row per loose task, whole array, element or range of elements."""
    for one, record in _with_records(database, picks):
        if one.whole:
            yield _whole_row(record, one)
        else:
            yield from _element_rows(database, record, one)


def stream_rows(database: OpenDatabase, picks: list[Selected]) -> Iterator[Fields]:
    """One row per task that may have written something, with where it lies."""
    own = ("state", "executor", "attempt", *_STREAMS)
    columns = ", ".join(own)
    for one, record in _with_records(database, picks):
        name = record["name"]
        if not one.is_array:
            place = {"id": one.label, "record": one.id, "position": 0, "name": name}
            yield place | {key: record[key] for key in own}
            continue
        for row in database.rows(
            f"select idx, {columns} from elements where id = ? and idx between ? and ? order by idx",
            [one.id, one.first, one.last],
        ):
            index = row.pop("idx")
            assert isinstance(index, int)
            yield {"id": one.label_of(index), "record": one.id, "position": index, "name": name, **row}


def record_rows(database: OpenDatabase, records: Sequence[int]) -> dict[int, Fields]:
    """Rows of the table of tasks by their id, with the path of their group."""
    marks = ", ".join("?" * len(records))
    rows = database.rows(
        "select tasks.*, coalesce(groups.path, '') as path from tasks"
        f" left join groups on groups.id = tasks.grp and groups.run = tasks.run where tasks.id in ({marks})",
        records,
    )
    return {record: row for row in rows if isinstance(record := row["id"], int)}


def _with_records(database: OpenDatabase, picks: Sequence[Selected]) -> Iterator[tuple[Selected, Fields]]:
    """Picks with their records, looked up many at a time."""
    for start in range(0, len(picks), _AT_ONCE):
        some = picks[start : start + _AT_ONCE]
        records = record_rows(database, [one.id for one in some])
        for one in some:
            yield one, records[one.id]


def _base(record: Fields, label: str, index: int | None) -> Fields:
    return {
        "id": label,
        "record": number_of(as_int(record["id"])),
        "index": index,
        "name": record["name"],
        "group": record["path"],
        "kind": record["kind"],
        "run": record["run"],
    }


def _whole_row(record: Fields, one: Selected) -> Fields:
    row = _base(record, one.label, None if one.is_array else 0)
    row |= {name: record[name] for name in _OWN}
    row |= {"reused": record["reused"] if one.is_array else bool(record["reused"])}
    row |= {"command": record["command"], "length": record["length"], "is_array": one.is_array}
    if one.is_array:
        row["counts"] = {name: record[name] or 0 for name in ENDED_STATES}
    return row


def _element_rows(database: OpenDatabase, record: Fields, one: Selected) -> Iterator[Fields]:
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
        shown = index_label(one.indices, index)
        yield _base(record, one.label_of(index), shown) | element | {"command": record["command"]}
        at = index + 1
    if at <= one.last:
        yield from _plain_rows(database, record, one, at, one.last)


def _plain_rows(database: OpenDatabase, record: Fields, one: Selected, first: int, last: int) -> Iterator[Fields]:
    for begin, end, state in element_states(database, one.part(first, last)):
        row = _base(record, one.part(begin, end).label, index_label(one.indices, begin) if begin == end else None)
        yield row | dict.fromkeys(_OWN) | {"state": state, "reused": False, "command": record["command"]}


class FailureTexts(NamedTuple):
    """What is kept of a failure beyond its cause; empty where nothing is known."""

    parameters: str = ""
    traceback: str = ""


def failure_texts(database: OpenDatabase, one: Selected) -> FailureTexts:
    """The parameters and the traceback of one task that failed."""
    if one.is_array:
        rows = database.rows("select * from elements where id = ? and idx = ?", [one.id, one.first])
    else:
        rows = database.rows("select * from tasks where id = ?", [one.id])
    if not rows or rows[0]["state"] != "failed":
        return FailureTexts()
    return FailureTexts(str(rows[0].get("parameters") or ""), str(rows[0].get("traceback") or ""))


def why(row: Fields) -> str:
    """One line that says why a task did not succeed; empty when it did."""
    if row["state"] == "done":
        return ""  # also of one that was ended early, whatever its exit code
    said = str(row["message"] or "")
    if row["exit_code"] and str(row["exit_code"]) not in said:
        said = f"exit code {row['exit_code']}" + (f", {said}" if said else "")
    elif row["signal"] and not said:
        said = f"signal {row['signal']}"
    return said or str(row["cause"] or "")


# --- counts by group ----------------------------------------------------------------------------------


def group_counts(database: OpenDatabase, run: int) -> dict[str, Counts]:
    """The counts of every group by its path, the workflow's own being ""."""
    groups = database.rows("select id, path from groups where run = ? order by id", [run])
    paths = {row["id"]: path for row in groups if not is_hidden(path := str(row["path"]))}
    paths.setdefault(0, "")
    own: dict[str, Counts] = {path: Counter() for path in paths.values()}
    for row in database.rows(
        "select grp, state, count(*) as number from tasks where run = ? and is_array = 0 group by grp, state", [run]
    ):
        own[paths[row["grp"]]][str(row["state"])] += as_int(row["number"])
    for row in database.rows(
        f"select id, grp, length, waits, {', '.join(ENDED_STATES)} from tasks where run = ? and is_array = 1", [run]
    ):
        own[paths[row["grp"]]].update(_array_counts(database, row))
    return _summed(own)


def _array_counts(database: OpenDatabase, row: Mapping[str, object]) -> Counts:
    counts: Counts = Counter({name: as_int(row[name]) for name in ENDED_STATES})
    spans = database.rows(
        "select state, sum(stop - start) as number from spans"
        " where id = ? and state in ('placed', 'ready', 'running', 'held') group by state",
        [row["id"]],
    )
    for span in spans:
        counts[span_word(span["state"])] += as_int(span["number"])
    retried = "select count(*) as number from elements where id = ? and state = 'waiting'"  # whose time has not come
    counts["waiting"] += 0 if row["waits"] else as_int(database.rows(retried, [row["id"]])[0]["number"])
    counts["waiting" if row["waits"] else "ready"] += max(0, as_int(row["length"]) - counts.total())
    return counts


def _summed(own: Mapping[str, Counts]) -> dict[str, Counts]:
    summed = {path: Counter(counts) for path, counts in own.items()}
    for path, counts in own.items():
        above = path
        while above:
            above = above.rpartition("/")[0]
            summed.setdefault(above, Counter()).update(counts)
    return summed


def show_counts(counts: Mapping[str, int]) -> str:
    """Counts as people read them, in the order of a task's life, without the states nothing is in."""
    return ", ".join(f"{counts[state]} {paint_state(state)}" for state in WORDS if counts.get(state)) or "no tasks"


def as_json(counts: Mapping[str, int]) -> dict[str, int]:
    """Every state with its count, also those of none."""
    return {state: counts.get(state, 0) for state in WORDS}


def tree_lines(name: str, counts: Mapping[str, Counts]) -> list[str]:
    """The groups as a tree, the workflow at its root."""
    children: dict[str, list[str]] = {}
    for path in counts:
        if path:
            children.setdefault(path.rpartition("/")[0], []).append(path)
    found = [(name, counts.get("", Counter()))]
    found += [(prefix + path.rpartition("/")[2], counts[path]) for prefix, path in _walk("", children, "")]
    width = max(len(label) for label, _ in found)
    return [f"{label:<{width}}  {show_counts(number)}" for label, number in found]


def _walk(path: str, children: Mapping[str, list[str]], indent: str) -> Iterable[tuple[str, str]]:
    below = children.get(path, [])
    for number, child in enumerate(below, start=1):
        is_last = number == len(below)
        yield indent + ("└─ " if is_last else "├─ "), child
        yield from _walk(child, children, indent + ("   " if is_last else "│  "))


# --- released groups ----------------------------------------------------------------------------------


def released(database: OpenDatabase, run: int, counts: Mapping[str, Counts]) -> set[str]:
    """The paths of released groups; `counts` are those of all groups."""
    rows = database.rows("select id, path, parent, closed, released from groups where run = ? order by id", [run])
    asked = "select distinct grp from tasks where run = ? and releases = 1 and is_array = 0 and state = 'done'"
    released_by_task = {row["grp"] for row in database.rows(asked, [run])}
    own = {row["grp"] for row in database.rows("select distinct grp from tasks where run = ?", [run])}
    held: set[object] = set()  # groups with a subgroup that has neither ended nor is released
    found: set[str] = set()
    for row in reversed(rows):  # those below come later
        number, path = row["id"], str(row["path"])
        if not path or is_hidden(path) or (row["closed"] and _has_ended(counts.get(path))):
            continue
        whole = row["closed"] and number not in own and number not in held
        if row["released"] or number in released_by_task or whole:
            found.add(path)
        else:
            held.add(row["parent"])
    return found


def _has_ended(counts: Counts | None) -> bool:
    return counts is None or not any(number for state, number in counts.items() if state not in ENDED_STATES)


# --- what running tasks say ---------------------------------------------------------------------------


def said_by_tasks(database: OpenDatabase, run: int | None = None) -> list[Fields]:
    """What tasks of a run, or of all, say now."""
    if database.server is None:
        return []
    return [one for one in database.server.ask(questions.Said()) if run in {None, one["run"]}]


def phrase(one: Fields, bars: int = 0) -> str:
    """Its words, how much of it is done, its metrics, as a picture of so many bars too, and its tags."""
    share = one["progress"]
    parts = [str(one["text"]).replace("\n", " ")] if one["text"] else []
    if isinstance(share, float | int):
        parts.append(f"{share:.0%}")
    metrics, tags = one.get("metrics"), one.get("tags")
    for name, metric in metrics.items() if isinstance(metrics, dict) else ():
        picture = sparkline(metric["recent"], bars, from_zero=False) if bars else ""
        parts.append(f"{name} {metric['value']:g}{f' {picture}' if picture else ''}")
    parts += [f"#{tag}" for tag in tags] if isinstance(tags, list) else []
    said = ", ".join(parts)
    return said if len(said) <= _WIDE else said[: _WIDE - 3] + "..."


def add_words(rows: list[Fields], said: list[Fields]) -> list[Fields]:
    """Put what tasks say into their rows, as text, or into those of their range, as a list; the latter are returned."""
    by_record: dict[object, list[Fields]] = {}
    for one in said:
        by_record.setdefault((one["run"], one["record"]), []).append(one)
    more: list[Fields] = []
    for row in rows:
        inside = [one for one in by_record.get((row["run"], row["record"]), ()) if _is_in(one, row)]
        if inside and inside[0]["id"] == row["id"]:
            row["said"] = phrase(inside[0])
        else:
            row["said"] = [{**one, "said": phrase(one)} for one in inside] or None
            more += inside
    return more


def _is_in(one: Fields, row: Fields) -> bool:
    """Whether a task is an element of what a row is about: an array, or a range such as 12.3-40."""
    _, _, part = str(row["id"]).partition(".")
    first, _, last = part.partition("-")
    index = one["index"]
    return not part or (isinstance(index, int) and int(first) <= index <= int(last or first))


def said_lines(said: list[Fields], bars: int = 0) -> list[str]:
    """One line for each task."""
    return [f"task {one['id']}{_name(one)}: {phrase(one, bars)}" for one in said]


def _name(one: Fields) -> str:
    return f" ({one['name']})" if one["name"] else ""


def missing_site_lines(workflows: Iterable[Workflow]) -> list[str]:
    """Sites that ready tasks of some workflows name and that are not there, a line for each."""
    lists = (names for one in workflows if isinstance(names := one.get("missing_sites"), list))
    names = sorted({str(name) for some in lists for name in some})
    return [f"tasks wait for site {name}, which is not there: add it with bough site add {name}" for name in names]
