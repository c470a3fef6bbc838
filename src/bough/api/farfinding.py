"""Finding tasks of a service's workflow by selector: the server looks them up and tells how they ended.

Rule: what has not ended is a live task here from then on; what this session submitted is its own task.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from typing import TYPE_CHECKING, cast

from bough.api.elements import Elements
from bough.api.finding import Found, Jobs, look
from bough.api.progress import ASIDE
from bough.api.task import Task
from bough.api.tasklist import TaskList
from bough.api.view import View
from bough.model.ids import RecordId
from bough.model.selectors import read_selectors
from bough.stores.jobs import JobsDatabase
from bough.stores.sqlite import FILE
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.array import Array
    from bough.api.remote import RemoteSession
    from bough.stores.jobs import Row, Value

_PATIENCE = 10.0  # seconds in which the server tells what has ended
_ENDED = ("done", "failed", "notrun", "cancelled")


class FarJobs:
    """The jobs database of a service, asked through a session."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session

    def rows(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """The rows as dictionaries."""
        answer = self._session.ask(questions.Sql(sql, list(cast(Sequence[questions.SqlValue], parameters))))
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


@contextlib.contextmanager
def far_jobs(session: RemoteSession) -> Iterator[Jobs]:
    """The jobs database as it is now: read from its file if that can be seen from here, or asked for."""
    session.ask(questions.Project())
    if not session.is_near or not os.path.isfile(os.path.join(session.welcome.store, FILE)):
        yield FarJobs(session)
        return
    with JobsDatabase(session.welcome.store) as database:
        yield database


def find_far(session: RemoteSession, text: str) -> Array:
    """The tasks that a selector names: one array as itself, anything else as a list of tasks."""
    with far_jobs(session) as jobs:
        return _found(session, jobs, text)


def _found(session: RemoteSession, jobs: Jobs, text: str) -> Array:
    runs = jobs.rows("select run from runs where name = ? order by run desc", (session.name,))
    numbers = [session.welcome.run, *(int(row["run"] or 0) for row in runs if row["run"] != session.welcome.run)]
    found = [row for selector in read_selectors(text) for row in look(jobs, selector, numbers)]
    adopted: dict[int, Task | Elements] = {row.id: _adopted(session, row) for row in found}
    new = [row.id for row in found if row.id not in session.known]
    session.known.update((number, adopted[number]) for number in new)
    if new:
        session.ask(questions.Outcomes([(RecordId(number), 0) for number in new]))
        _await_ends(jobs, [(number, adopted[number]) for number in new])
    if len(found) == 1 and found[0].is_array:
        one, elements = found[0], adopted[found[0].id]
        assert isinstance(elements, Elements)
        return View(elements, None if len(one.elements) == one.length else one.elements)
    return TaskList(task for row in found for task in _tasks(adopted[row.id], row))


def _await_ends(jobs: Jobs, new: Sequence[tuple[int, Task | Elements]]) -> None:
    """What had ended is being told: wait for it, so that who looks at a state sees the right one."""
    deadline = time.monotonic() + _PATIENCE
    for number, thing in new:
        row = jobs.rows("select state, length, done, failed, notrun, cancelled from tasks where id = ?", (number,))[0]
        left = max(0.0, deadline - time.monotonic())
        if isinstance(thing, Task):
            if row["state"] in _ENDED:
                wait([thing], left)
        else:
            ended = sum(int(row[state] or 0) for state in _ENDED)
            with thing.condition:
                thing.condition.wait_for(lambda: len(thing.states) - thing.left >= ended, left)  # noqa: B023


def _tasks(thing: Task | Elements, row: Found) -> Iterator[Task]:
    if isinstance(thing, Task):
        yield thing
    else:
        yield from map(thing.task, row.elements)


def _adopted(session: RemoteSession, row: Found) -> Task | Elements:
    """A record as a task or array of this session."""
    ledger = session.ledger
    there = session.known.get(row.id) or ledger.tasks.get(row.id) or ledger.arrays.get(row.id)
    if there is not None:
        return there
    if row.is_array:
        elements = Elements(ledger, row.id, row.length, name=row.name, group=ASIDE, is_command=row.is_command)
        ledger.arrays[row.id] = elements
        ledger.progress.added(ASIDE, row.length)
        return elements
    writes: dict[str, str] | None = {} if row.is_command else None
    command = row.command if row.is_command else ""
    task = ledger.tasks[row.id] = Task(ledger, row.id, row.name, ASIDE, command=command, writes=writes)
    ledger.progress.added(ASIDE, 1)
    return task
