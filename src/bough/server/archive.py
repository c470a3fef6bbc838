"""Retired workflows for who asks about them, or acts on them.

Who asks is answered from a copy beside the core, read from the store in a thread and forgotten after a while. Who acts
has the workflow back in the core first. Rule: asking writes nothing; whatever cannot be found is said to be unknown by
whoever answers the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from bough.core import retiring
from bough.core.state import State
from bough.model.facts import RunRevived
from bough.model.tasks import Dep
from bough.server.log import log
from bough.server.retiring import Retiring
from bough.server.shell import Shell
from bough.stores.jobs import Jobs
from bough.stores.opening import open_jobs

T = TypeVar("T")
MOST: Final = 64  # workflows that are looked at
MOST_RECORDS: Final = 200_000  # of these together; one alone may be bigger
KEPT_FOR: Final = 60.0  # seconds after the last question
_TOGETHER: Final = 500  # numbers in one statement
_RECORDS: Final = "SELECT DISTINCT abs(run) FROM tasks WHERE id IN ({})"
_GROUP: Final = "SELECT max(abs(run)) FROM groups WHERE id = ?"
_KEPT: Final = "SELECT data FROM snapshots WHERE run = ?"
_IS_RUN: Final = "SELECT 1 FROM runs WHERE run = ? AND grp != 0"


class Archive:
    """See the module. `where`: the store's folder or database."""

    def __init__(self, shell: Shell, where: str, leaving: Retiring) -> None:
        self._shell = shell
        self._machine = shell.machine
        self._where = where
        self._leaving = leaving
        self._beside: dict[int, State] = {}  # by run; who was asked for last comes last
        self._timer: asyncio.TimerHandle | None = None
        leaving.on_gone.append(self._drop)

    # --- asking ------------------------------------------------------------------------------------------

    def look_up(self, records: Iterable[int], then: Callable[[], None]) -> bool:
        """Have the workflows of records at hand, as far as there are such, then call back; False: they are."""
        missing = [record for record in dict.fromkeys(records) if self._machine.find(record) is None]
        if not missing:
            return False

        def load() -> dict[int, State]:
            with open_jobs(self._where) as jobs:
                found: dict[int, State] = {}
                for run in _runs_of(jobs, missing)[:MOST]:
                    if run not in self._beside and _weight(found) < MOST_RECORDS:
                        made = self._read(jobs, run)
                        found |= {run: made} if made is not None else {}
                return found

        def loaded(done: asyncio.Future[dict[int, State]]) -> None:
            self._put(_result(done, {}))
            then()

        self._in_thread(load, loaded)
        return True

    def _read(self, jobs: Jobs, run: int) -> State | None:
        kept = _kept(jobs, run)
        return retiring.aside(self._machine.state, kept) if kept else None

    def _put(self, found: dict[int, State]) -> None:
        self._beside.update(found)
        while len(self._beside) > MOST or (len(self._beside) > 1 and _weight(self._beside) > MOST_RECORDS):
            del self._beside[next(iter(self._beside))]
        self._tell()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._shell.loop.call_later(KEPT_FOR, self._clear)

    def _drop(self, run: int) -> None:
        if self._beside.pop(run, None) is not None:
            self._tell()

    def _clear(self) -> None:
        self._timer = None
        self._beside.clear()
        self._tell()

    def _tell(self) -> None:
        self._machine.asides = list(self._beside.values())

    # --- acting ------------------------------------------------------------------------------------------

    def revive(self, target: Dep, then: Callable[[], None]) -> bool:
        """Have the workflow of a record or a group in the core, then call back; False: it is there."""
        state = self._machine.state
        group = state.groups.get(target.id) if target.is_group else None
        if not target.is_group and (record := state.records.get(target.id)) is not None:
            group = record.group
        if group is not None and not self._leaving.is_leaving(group.workflow.run):
            return False

        def load() -> tuple[int, bytes]:
            with open_jobs(self._where) as jobs:
                if target.is_group:
                    runs = [run for row in jobs.query(_GROUP, (target.id,))[1] if isinstance(run := row[0], int)]
                else:
                    runs = _runs_of(jobs, [target.id])
                for run in runs:
                    if jobs.query(_IS_RUN, (run,))[1] and (kept := _kept(jobs, run)):
                        retiring.unpack(kept)  # so that it is known to be readable
                        return run, kept
            return 0, b""

        def loaded(done: asyncio.Future[tuple[int, bytes]]) -> None:
            run, kept = _result(done, (0, b""))
            if run and run not in state.workflows:
                log(f"run {run} is in memory again, because somebody acts on it")
                self._shell.news(RunRevived(run, kept), then=then)
                self._drop(run)
            else:
                then()

        self._shell.after_turn(lambda: self._in_thread(load, loaded))
        return True

    def _in_thread(self, load: Callable[[], T], then: Callable[[asyncio.Future[T]], None]) -> None:
        """Read when the tables have caught up."""
        loop = self._shell.loop
        self._shell.upkeep.when_folded(lambda: loop.run_in_executor(None, load).add_done_callback(then))


def _weight(states: dict[int, State]) -> int:
    return sum(len(state.records) for state in states.values())


def _runs_of(jobs: Jobs, records: Sequence[int]) -> list[int]:
    found: dict[int, None] = {}
    for at in range(0, len(records), _TOGETHER):
        some = records[at : at + _TOGETHER]
        rows = jobs.query(_RECORDS.format(", ".join("?" * len(some))), some)[1]
        found.update((run, None) for row in rows if isinstance(run := row[0], int))
    return list(found)


def _kept(jobs: Jobs, run: int) -> bytes:
    rows = jobs.query(_KEPT, (run,))[1]
    return bytes(data) if rows and isinstance(data := rows[0][0], bytes) else b""


def _result(done: asyncio.Future[T], nothing: T) -> T:
    error = done.exception()
    if error is None:
        return done.result()
    log(f"a workflow that was retired cannot be read: {type(error).__name__}: {error}")
    return nothing
