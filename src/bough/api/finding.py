"""Finding tasks by selector, also those of earlier runs: futures that have ended, made from the journal.

A name or group is looked for in this run first, then in earlier ones, the newest first. Rule: a task of
this session that has not ended is the live one; everything else is as the store has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Protocol

import msgspec

from bough.api.array import Array
from bough.api.elements import Elements
from bough.api.past import Past
from bough.api.progress import Progress
from bough.api.task import FINISHED, Task
from bough.api.tasklist import TaskList
from bough.api.view import View
from bough.errors import UnknownName
from bough.model import selectors
from bough.model.ids import RecordId
from bough.model.outcomes import Cause, Failure
from bough.model.selectors import Selector, read_selectors, show_selector
from bough.model.tasks import Dep, On
from bough.wire.messages import Unsuccess

if TYPE_CHECKING:
    from bough.api.session import Session
    from bough.stores.jobs import Row, Value

_COLUMNS = "tasks.id, tasks.run, tasks.grp, tasks.name, tasks.kind, tasks.length, tasks.is_array, tasks.command, path"
_FROM = "tasks left join groups on groups.id = tasks.grp and groups.run = tasks.run"


class Jobs(Protocol):
    """A jobs database that answers questions."""

    def rows(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """The rows as dictionaries."""


class Found(msgspec.Struct, frozen=True):
    """A record of the jobs database, and which of its elements are meant."""

    id: int
    run: int
    name: str
    is_command: bool
    length: int
    is_array: bool
    command: str
    path: str  # of its group
    elements: range


def find(session: Session, text: str) -> Array:
    """The tasks that a selector names: one array as itself, anything else as a list of tasks."""
    with session.jobs() as database:
        runs = range(session.welcome.run, 0, -1)
        found = [row for selector in read_selectors(text) for row in look(database, selector, runs)]
        past = Past(database, [row for row in found if not _is_live(session, row)])
        if len(found) == 1 and found[0].is_array:
            row = found[0]
            whole = len(row.elements) == row.length
            return View(_elements(session, row, past), None if whole else row.elements)
        return TaskList(task for row in found for task in _tasks(session, row, past))


def targets_of(session: Session, text: str) -> Iterator[tuple[Dep, int]]:
    """What the server is told for a selector; only tasks of this run can be acted on."""
    run = session.welcome.run
    with session.jobs() as database:
        for selector in read_selectors(text):
            if isinstance(selector, selectors.All):
                yield Dep(On.GROUP, session.root), 0
                continue
            rows = [row for row in look(database, selector, [run]) if row.run == run]
            if not rows:
                raise UnknownName(f"{show_selector(selector)} names no task of this run")
            for row in rows:
                if not row.is_array:
                    yield Dep(On.TASK, RecordId(row.id)), 0
                else:
                    yield Dep(On.TASK, RecordId(row.id), row.elements.start), row.elements.stop


# --- from selectors to records --------------------------------------------------------------------------


def look(database: Jobs, selector: Selector, runs: Sequence[int]) -> list[Found]:
    """The records that a selector names, in the first of these runs or, by number, in any."""
    found: list[Found] = []
    match selector:
        case selectors.Records(first, last):
            found = _rows(database, "tasks.id between ? and ?", first, last)
        case selectors.Elements(record, first, last):
            rows = _rows(database, "tasks.id = ?", record)
            found = [
                msgspec.structs.replace(row, elements=range(first, last + 1))
                for row in rows
                if last < max(row.length, 1)
            ]
        case selectors.Last():
            found = _rows(database, "tasks.run = ?", runs[0])[-1:]
        case selectors.All():
            found = _rows(database, "tasks.run = ?", runs[0])
        case selectors.Within() | selectors.Named():
            found = next((rows for run in runs if (rows := _named(database, selector, run))), [])
    if not found and not isinstance(selector, selectors.All):
        raise UnknownName(f"{show_selector(selector)} names no task of this workflow; see bough status all")
    return found


def _named(database: Jobs, selector: selectors.Within | selectors.Named, run: int) -> list[Found]:
    rows = _rows(database, "tasks.run = ?", run)
    if isinstance(selector, selectors.Named):
        names = [row for row in rows if _is_called(row, selector.name)]
        if names:
            return names
    path = selector.path if isinstance(selector, selectors.Within) else selector.name
    return [row for row in rows if row.path == path or row.path.startswith(f"{path}/")]


def _is_called(row: Found, pattern: str) -> bool:
    full = f"{row.path}/{row.name}" if row.path else row.name
    return bool(row.name) and (fnmatchcase(row.name, pattern) or fnmatchcase(full, pattern))


def _rows(database: Jobs, condition: str, *values: int) -> list[Found]:
    rows = database.rows(f"select {_COLUMNS} from {_FROM} where {condition} order by tasks.id", values)
    return [
        Found(
            _int(row["id"]),
            _int(row["run"]),
            str(row["name"] or ""),
            row["kind"] == "command",
            _int(row["length"]),
            bool(row["is_array"]),
            str(row["command"] or ""),
            str(row["path"] or ""),
            range(_int(row["length"]) if row["is_array"] else 1),
        )
        for row in rows
    ]


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


# --- from records to tasks ------------------------------------------------------------------------------


def _is_live(session: Session, row: Found) -> bool:
    return row.id in session.ledger.tasks or row.id in session.ledger.arrays


def _tasks(session: Session, row: Found, past: Past) -> Iterable[Task]:
    if row.is_array:
        elements = _elements(session, row, past)
        return (elements.task(index) for index in row.elements)
    live = session.ledger.tasks.get(row.id)
    return (live if live is not None else _ended_task(session, row, past),)


def _ended_task(session: Session, row: Found, past: Past) -> Task:
    writes = past.writes(row.id, 0) if row.is_command else None
    task = Task(session.ledger, row.id, row.name, command=row.command if row.is_command else "", writes=writes)
    task._end(next(iter(past.messages(row.id)), None) or _never_ran(row, 0, 1), FINISHED)
    return task


def _elements(session: Session, row: Found, past: Past) -> Elements:
    live = session.ledger.arrays.get(row.id)
    if live is not None:
        return live
    rows = past.rows(row.id) if row.is_command else None
    elements = Elements(session.ledger, row.id, row.length, name=row.name, is_command=row.is_command, rows=rows)
    elements.progress = Progress()  # what it tells of the past changes no counts of the present
    for message in past.messages(row.id):
        elements.hear_end(message)
    elements.hear_end(_never_ran(row, 0, row.length))
    return elements


def _never_ran(row: Found, start: int, stop: int) -> Unsuccess:
    failure = Failure(Cause.CLOSED, f"run {row.run} ended before it could")
    return Unsuccess(RecordId(row.id), start, stop, 0, failure)
