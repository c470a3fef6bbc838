"""Finds tasks by selector, of this run and of earlier ones, here or at a service.

A name or group is looked for in this run first, then in earlier ones, the newest first. An embedded session makes
futures of earlier runs from the journal. A service looks tasks up in its jobs database and tells how they ended.

Rules: a task of this session that has not ended is the live one. At a service a task that has not ended is a live
task here from then on. An ended task is as the server told, or would have told, its client then.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from bough.api.futures.array import Array, TaskList
from bough.api.futures.array_view import ArrayView
from bough.api.futures.elements import ArrayElements
from bough.api.futures.progress import ASIDE, Progress
from bough.api.futures.task import FINISHED, Task
from bough.errors import StoreFailed, UnknownName, UserError
from bough.journal.codec import Unreadable, decode
from bough.model.arrays.array_indices import positions
from bough.model.commands.command import decode_call
from bough.model.events.facts import ElementFailed, Fact, MemoLookedUp, Skipped, SpanEnded
from bough.model.ids import RecordId
from bough.model.outcomes import Cause, Detail, Failure
from bough.model.states import ENDED, labels_of
from bough.model.tasks import Dep, On
from bough.model.texts import selectors
from bough.model.texts.selectors import Selector, read_selectors, show_selector
from bough.server.turns.result_parts import part
from bough.stores.jobs.jobs_reader import JobsDatabase
from bough.stores.jobs.numbers import numbered
from bough.stores.places import FormerPlaces
from bough.stores.schema import FILE
from bough.wire import questions
from bough.wire.client_messages import TasksFailed, TasksSucceeded

if TYPE_CHECKING:
    from bough.api.submit.context import SessionLike
    from bough.stores.jobs.jobs_reader import Row, Value

_OUTCOMES_TIME = 10.0  # seconds in which a service tells what has ended
_ENDED = labels_of(ENDED)
_COLUMNS = (
    "tasks.id, tasks.run, tasks.grp, tasks.name, tasks.kind, tasks.length, tasks.is_array, tasks.indices,"
    " tasks.command, path"
)
_FROM = "tasks left join groups on groups.id = tasks.grp and groups.run = tasks.run"


class Wanted(Protocol):
    """A record to be looked for."""

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def run(self) -> int:
        """The run it belongs to."""


class JobsQuery(Protocol):
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
    indices: str = ""  # of an array: as its submitter wrote them


def find(session: SessionLike, text: str) -> Array:
    """The tasks that a selector names: one array as itself, anything else as a list of tasks."""
    if session.is_remote:
        with open_jobs(session) as jobs:
            return _found(session, jobs, text)
    with open_jobs(session) as database:
        assert isinstance(database, JobsDatabase)
        runs = range(session.welcome.run, 0, -1)
        found = [row for selector in read_selectors(text) for row in look(database, selector, runs)]
        past = EarlierRuns(database, [row for row in found if not _is_live(session, row)], session.store)
        if len(found) == 1 and found[0].is_array:
            row = found[0]
            whole = len(row.elements) == row.length
            return ArrayView(_elements(session, row, past), None if whole else row.elements)
        return TaskList(task for row in found for task in _tasks(session, row, past))


@contextlib.contextmanager
def open_jobs(session: SessionLike) -> Iterator[JobsQuery]:
    """The jobs database as it is now: read from its file, or asked for if that cannot be seen from here."""
    session.ask(questions.Project())
    store = session.welcome.store
    if not session.is_remote or (session.is_near and os.path.isfile(os.path.join(store, FILE))):
        with JobsDatabase(store) as database:
            yield database
    else:
        yield RemoteJobsQuery(session)


def targets_of(session: SessionLike, text: str) -> Iterator[tuple[Dep, int]]:
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


def look(database: JobsQuery, selector: Selector, runs: Sequence[int]) -> list[Found]:
    """The records that a selector names, in the first of these runs that has some or, by number, in any."""
    found: list[Found] = []
    match selector:
        case selectors.Records(first, last):
            found = _numbered(database, runs[0], first, last)
        case selectors.Elements(record, first, last):
            for row in _numbered(database, runs[0], record, record):
                start, stop = positions(row.indices, first, last)
                if start < stop <= max(row.length, 1):
                    found.append(msgspec.structs.replace(row, elements=range(start, stop)))
        case selectors.Last():
            found = next((rows[-1:] for run in runs if (rows := _rows(database, "tasks.run = ?", run))), [])
        case selectors.All():
            found = next((rows for run in runs if (rows := _rows(database, "tasks.run = ?", run))), [])
        case selectors.Within() | selectors.Named():
            found = next((rows for run in runs if (rows := _named(database, selector, run))), [])
    if not found and not isinstance(selector, selectors.All):
        raise UnknownName(f"{show_selector(selector)} names no task of this workflow; see bough status all")
    return found


def _named(database: JobsQuery, selector: selectors.Within | selectors.Named, run: int) -> list[Found]:
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


def _numbered(database: JobsQuery, run: int, first: int, last: int) -> list[Found]:
    condition, values = numbered(database.rows, run, first, last)
    return _rows(database, condition, *values)


def _rows(database: JobsQuery, condition: str, *values: int) -> list[Found]:
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
            str(row["indices"] or ""),
        )
        for row in rows
    ]


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


# --- from records to tasks ------------------------------------------------------------------------------


def _is_live(session: SessionLike, row: Found) -> bool:
    return row.id in session.registry.tasks or row.id in session.registry.arrays


def _tasks(session: SessionLike, row: Found, past: EarlierRuns) -> Iterable[Task]:
    if row.is_array:
        elements = _elements(session, row, past)
        return (elements.task(index) for index in row.elements)
    live = session.registry.tasks.get(row.id)
    return (live if live is not None else _ended_task(session, row, past),)


def _ended_task(session: SessionLike, row: Found, past: EarlierRuns) -> Task:
    writes = past.writes(row.id, 0) if row.is_command else None
    task = Task(session.registry, row.id, row.name, command=row.command if row.is_command else "", writes=writes)
    task._end(next(iter(past.messages(row.id)), None) or _never_ran(row, 0, 1), FINISHED)
    return task


def _elements(session: SessionLike, row: Found, past: EarlierRuns) -> ArrayElements:
    live = session.registry.arrays.get(row.id)
    if live is not None:
        return live
    rows = past.rows(row.id) if row.is_command else None
    elements = ArrayElements(session.registry, row.id, row.length, name=row.name, is_command=row.is_command, rows=rows)
    elements.indices = row.indices
    elements.progress = Progress()  # what it tells of the past changes no counts of the present
    for message in past.messages(row.id):
        elements.on_ended(message)
    elements.on_ended(_never_ran(row, 0, row.length))
    return elements


def _never_ran(row: Found, start: int, stop: int) -> TasksFailed:
    failure = Failure(Cause.CLOSED, f"run {row.run} ended before it could")
    return TasksFailed(RecordId(row.id), start, stop, 0, failure)


class RemoteJobsQuery:
    """The jobs database of a service, asked through a session."""

    def __init__(self, session: SessionLike) -> None:
        self._session = session

    def rows(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """The rows as dictionaries."""
        answer = self._session.ask(questions.Sql(sql, list(cast(Sequence[questions.SqlValue], parameters))))
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def _found(session: SessionLike, jobs: JobsQuery, text: str) -> Array:
    runs = jobs.rows("select run from runs where name = ? order by run desc", (session.name,))
    numbers = [session.welcome.run, *(int(row["run"] or 0) for row in runs if row["run"] != session.welcome.run)]
    found = [row for selector in read_selectors(text) for row in look(jobs, selector, numbers)]
    adopted: dict[int, Task | ArrayElements] = {row.id: _adopted(session, row) for row in found}
    new = [row.id for row in found if row.id not in session.known]
    session.known.update((number, adopted[number]) for number in new)
    if new:
        session.leave_files([row.id for row in found if row.run != session.welcome.run])
        session.ask(questions.Outcomes([(RecordId(number), 0) for number in new]))
        _await_ends(jobs, [(number, adopted[number]) for number in new])
    if len(found) == 1 and found[0].is_array:
        one, elements = found[0], adopted[found[0].id]
        assert isinstance(elements, ArrayElements)
        return ArrayView(elements, None if len(one.elements) == one.length else one.elements)
    return TaskList(task for row in found for task in _elements_of(adopted[row.id], row))


def _await_ends(jobs: JobsQuery, new: Sequence[tuple[int, Task | ArrayElements]]) -> None:
    """What had ended is being told: wait for it, so that a caller that looks at a state sees the right one."""
    deadline = time.monotonic() + _OUTCOMES_TIME
    for number, thing in new:
        row = jobs.rows("select state, length, done, failed, skipped, cancelled from tasks where id = ?", (number,))[0]
        left = max(0.0, deadline - time.monotonic())
        if isinstance(thing, Task):
            if row["state"] in _ENDED:
                wait([thing], left)
        else:
            ended = sum(int(row[state] or 0) for state in _ENDED)
            with thing.condition:
                thing.condition.wait_for(lambda: len(thing.states) - thing.left >= ended, left)  # noqa: B023


def _elements_of(thing: Task | ArrayElements, row: Found) -> Iterator[Task]:
    if isinstance(thing, Task):
        yield thing
    else:
        yield from map(thing.task, row.elements)


def _adopted(session: SessionLike, row: Found) -> Task | ArrayElements:
    """A record as a task or array of this session."""
    registry = session.registry
    there = session.known.get(row.id) or registry.tasks.get(row.id) or registry.arrays.get(row.id)
    if there is not None:
        return there
    if row.is_array:
        rows = RemoteRows(session, row.id, row.command) if row.is_command else None
        elements = ArrayElements(
            registry, row.id, row.length, name=row.name, group=ASIDE, is_command=row.is_command, rows=rows
        )
        elements.indices = row.indices
        registry.arrays[row.id] = elements
        registry.progress.added(ASIDE, row.length)
        return elements
    writes = RemoteWrites(session, row.id) if row.is_command else None
    command = row.command if row.is_command else ""
    task = registry.tasks[row.id] = Task(registry, row.id, row.name, ASIDE, command=command, writes=writes)
    registry.progress.added(ASIDE, 1)
    return task


class RemoteWrites(Mapping[str, str]):
    """The outputs that a loose command of a service declares, by slot; the service is asked when somebody looks."""

    def __init__(self, session: SessionLike, record: int) -> None:
        self._session = session
        self._record = RecordId(record)

    @cached_property
    def _found(self) -> Mapping[str, str]:
        try:
            payload = self._session.ask(questions.Task(self._record))["payload"]
            return decode_call(payload).writes if isinstance(payload, bytes) else {}
        except UserError:  # it is not in memory any more: what it made is in the tables
            return _made(RemoteJobsQuery(self._session), self._record, 0)

    def __getitem__(self, slot: str) -> str:
        return self._found[slot]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class RemoteRows:
    """The outputs of an array of commands at a service, as far as they were made."""

    def __init__(self, session: SessionLike, record: int, command: str) -> None:
        self._session = session
        self._record = record
        self._command = command

    def text(self, index: int) -> str:
        """The template of its commands."""
        return self._command if index >= 0 else ""

    def writes(self, index: int) -> dict[str, str]:
        """The outputs that an element made."""
        return _made(RemoteJobsQuery(self._session), self._record, index)


def _made(jobs: JobsQuery, record: int, index: int) -> dict[str, str]:
    rows = jobs.rows("select slot, path from files where id = ? and idx = ?", (record, index))
    return {str(row["slot"]): str(row["path"]) for row in rows}


class EarlierRuns:
    """The ends of some records."""

    def __init__(self, database: JobsDatabase, wanted: Iterable[Wanted], store: str = "") -> None:
        self._database = database
        self._places = FormerPlaces(store)
        self._messages: dict[int, list[TasksSucceeded | TasksFailed]] = {}
        runs: dict[int, set[int]] = {}
        for record in wanted:
            runs.setdefault(record.run, set()).add(record.id)
        for run, records in runs.items():
            for facts in self._turns(run):
                for fact in facts:
                    self._take(fact, records)

    def messages(self, record: int) -> list[TasksSucceeded | TasksFailed]:
        """What was told of a record's ends, the latest of a retried task first."""
        return self._messages.get(record, [])[::-1]

    def writes(self, record: int, index: int) -> dict[str, str]:
        """Declared outputs that were made, by slot."""
        return {slot: self._places.now(path) for slot, path in _made(self._database, record, index).items()}

    def rows(self, record: int) -> EarlierRows:
        """The outputs of an array's elements, as far as they were made."""
        found: dict[int, dict[str, str]] = {}
        for row in self._database.rows("select idx, slot, path from files where id = ?", (record,)):
            if isinstance(row["idx"], int):
                found.setdefault(row["idx"], {})[str(row["slot"])] = self._places.now(str(row["path"]))
        command = self._database.rows("select command from tasks where id = ?", (record,))
        return EarlierRows(str(command[0]["command"] or "") if command else "", found)

    def _turns(self, run: int) -> Iterator[list[Fact]]:
        bounds = self._database.rows("select run, turn from runs where run in (?, ?) order by run", (run, run + 1))
        first = bounds[0]["turn"] if bounds else 0
        last = bounds[1]["turn"] if len(bounds) > 1 else None
        at = first if isinstance(first, int) else 0
        while True:  # in pieces, because the server writes meanwhile
            rows = self._database.rows(
                "select turn, facts from journal where turn >= ? and (? is null or turn < ?) order by turn limit 500",
                (at, last, last),
            )
            if not rows:
                return
            for row in rows:
                yield _decode(row["facts"])
            at = _int(rows[-1]["turn"]) + 1

    def _take(self, fact: Fact, records: set[int]) -> None:
        if isinstance(fact, SpanEnded) and fact.record in records:
            fact = self._places.success(fact) if self._places else fact
            self._add(TasksSucceeded(fact.record, fact.start, fact.stop, fact.attempt, "", fact.results, fact.details))
        elif isinstance(fact, ElementFailed) and fact.record in records and fact.retry_at < 0:
            index, detail = fact.index, self._places.detail(fact.detail) if fact.detail is not None else None
            self._add(TasksFailed(fact.record, index, index + 1, fact.attempt, fact.failure, "", detail))
        elif isinstance(fact, Skipped) and fact.record in records:
            self._add(TasksFailed(fact.record, fact.start, fact.stop, 0, fact.failure))
        elif isinstance(fact, MemoLookedUp) and fact.record in records and fact.found:
            for message in self._recalled(fact):
                self._add(message)

    def _recalled(self, fact: MemoLookedUp) -> Iterator[TasksSucceeded]:
        rows = self._database.rows("select facts from journal where turn = ?", (fact.turn,))
        shift = fact.start - fact.source_start
        for old in _decode(rows[0]["facts"]) if rows else []:
            if isinstance(old, SpanEnded) and old.record == fact.source:
                old = self._places.success(old) if self._places else old  # noqa: PLW2901 - the same, as it is now
                start, stop = max(fact.start, old.start + shift), min(fact.stop, old.stop + shift)
                if start < stop:
                    details = tuple(_moved(detail, shift) for detail in old.details)
                    results = part(old, start - shift, stop - shift)
                    yield TasksSucceeded(fact.record, start, stop, old.attempt, "", results, details, reused=True)

    def _add(self, message: TasksSucceeded | TasksFailed) -> None:
        self._messages.setdefault(message.record, []).append(message)


class EarlierRows:
    """What an array of the past wrote."""

    def __init__(self, command: str, files: dict[int, dict[str, str]]) -> None:
        self._command = command
        self._files = files

    def text(self, index: int) -> str:
        """The template of its commands; elements' own texts are not kept."""
        return self._command if index >= 0 else ""

    def writes(self, index: int) -> dict[str, str]:
        """The outputs that an element made."""
        return self._files.get(index, {})


def _decode(data: object) -> list[Fact]:
    try:
        return decode(data if isinstance(data, bytes) else b"")
    except Unreadable as error:
        raise StoreFailed(f"the journal cannot be read: {error}") from error


def _moved(detail: Detail, shift: int) -> Detail:
    return msgspec.structs.replace(detail, index=detail.index + shift) if shift else detail
