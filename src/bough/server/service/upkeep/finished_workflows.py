"""Finished workflows leave the memory of the server, the oldest first, and are read again when they are asked for.

The last few stay, since people ask about what has just ended. A workflow that leaves is written into the store, in
slices if it is big, and then removed from the core by a fact. A question about a retired workflow is answered from a
copy that is read in a thread and dropped after a while; an action brings the workflow back into the core first. Rule:
what finished workflows take is bounded; one that has a client, or that an action names, stays; a question writes
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Final, TypeVar

from bough import logs
from bough.core.queries.answers import RetiredCopy
from bough.core.queries.facade import Queries
from bough.errors import StoreFailed
from bough.model.events.facts import Fact, RunClosed, RunRemoved, RunRetired, RunRevived
from bough.model.events.news import (
    AddMonitors,
    Amend,
    Cancel,
    DeclareDone,
    Hold,
    Kill,
    Prioritise,
    Release,
    Reset,
    Retry,
)
from bough.model.ids import ROOT
from bough.model.tasks import Dep
from bough.server.turns.shell import Shell
from bough.stores.jobs.jobs_reader import Jobs
from bough.stores.open import open_jobs

KEPT = 20  # finished workflows that stay
KEPT_RECORDS = 10_000  # tasks, arrays and groups of these together; a task of an array counts as a 64th
KEPT_FOR = 600.0  # seconds
_SOON = 0.5  # seconds after something ended
_AGAIN = 10.0  # seconds until a store that could not be written is tried again
_SLICE = 0.01  # seconds of work between two turns
_PAUSE = 0.005
_ELEMENTS = 64
_DEEDS = frozenset({AddMonitors, Amend, Cancel, DeclareDone, Hold, Kill, Prioritise, Release, Reset, Retry})
_HEARD = _DEEDS | {RunClosed, RunRemoved, RunRetired, RunRevived}
T = TypeVar("T")
MOST: Final = 64  # workflows that are looked at
MOST_RECORDS: Final = 200_000  # of these together; one alone may be bigger
_LOOKED_AT_FOR: Final = 60.0  # seconds after the last question
_TOGETHER: Final = 500  # numbers in one statement
_RECORDS: Final = "SELECT DISTINCT abs(run) FROM tasks WHERE id IN ({})"
_GROUP: Final = "SELECT max(abs(run)) FROM groups WHERE id = ?"
_KEPT: Final = "SELECT data FROM snapshots WHERE run = ?"
_IS_RUN: Final = "SELECT 1 FROM runs WHERE run = ? AND grp != 0"


class _Leaving:
    """A workflow on its way out."""

    def __init__(self, run: int, queries: Queries) -> None:
        self.run = run
        self.pieces = queries.retired_pieces(run)
        self.kept: list[bytes] = []


class FinishedWorkflows:
    """Decides which finished workflows leave the core, and writes them into the store.

    `is_owed`: whether a run's client is still to hear something.
    """

    def __init__(self, shell: Shell, is_owed: Callable[[int], bool]) -> None:
        self._shell = shell
        self._queries = shell.queries
        self._is_owed = is_owed
        self.on_gone: list[Callable[[int], None]] = []  # told of runs that left, or were removed
        self._over: dict[int, tuple[float, int]] = {}  # by run: when it ended and what it weighs; the oldest first
        self._weight = 0
        self._leaving: _Leaving | None = None  # one that takes longer than a slice
        self._said: set[int] = set()  # runs that are forgotten by the next turn
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = 0.0
        self._stopped = False
        shell.on_facts.append(self._hear)
        for workflow in self._queries.workflows():
            if workflow.closed:
                self._note(workflow.run)

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def is_leaving(self, run: int) -> bool:
        """Whether a workflow is forgotten by the next turn."""
        return run in self._said

    # --- what has finished ---------------------------------------------------------------------------------

    def _hear(self, facts: Sequence[Fact]) -> None:
        if _HEARD.isdisjoint(map(type, facts)):
            return
        for fact in facts:
            if isinstance(fact, RunClosed | RunRevived):
                workflow = self._queries.workflow(fact.run)
                if workflow is not None and workflow.group != ROOT:
                    self._note(fact.run)
            elif isinstance(fact, RunRetired | RunRemoved):
                self._gone(fact.run)
            elif type(fact) in _DEEDS:
                self._leaving = None  # it may be about that one, which is not any more as it was

    def _note(self, run: int) -> None:
        self._forget(run)
        weight = sum(1 + records + tasks // _ELEMENTS for records, tasks in self._queries.group_sizes(run))
        self._over[run] = (self._shell.loop.time(), weight)
        self._weight += weight
        self._look_in(_SOON)

    def _forget(self, run: int) -> None:
        known = self._over.pop(run, None)
        if known is not None:
            self._weight -= known[1]

    def _gone(self, run: int) -> None:
        self._forget(run)
        self._said.discard(run)
        for tell in self.on_gone:
            tell(run)

    # --- which leave -------------------------------------------------------------------------------------

    def _look_in(self, seconds: float) -> None:
        """Look again then, at the latest."""
        loop = self._shell.loop
        if self._stopped or (self._timer is not None and self._look_at <= loop.time() + seconds):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._look_at = loop.time() + seconds
        self._timer = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Let go for a slice of time, and come again while there is more to do."""
        self._timer = None
        if self._stopped or self._said:
            return
        if self._shell.awaits(_DEEDS):  # what is about to be done may be done to one of these
            self._look_in(_PAUSE)
            return
        until = monotonic() + _SLICE
        try:
            while (leaving := self._leaving or self._next()) is not None:
                self._leaving = leaving if self._keep(leaving, until) else None
                if monotonic() >= until:
                    break
        except StoreFailed as error:
            logs.warning("workflows-not-retired", f"finished workflows stay in memory: {error}")
            self._leaving = None
            self._look_in(_AGAIN)
        if self._said:
            self._shell.after_turn(self._turned)
        elif self._over:
            self._look_in(_PAUSE if self._leaving is not None else _AGAIN)

    def _next(self) -> _Leaving | None:
        """The oldest that can leave, if too many are here, or it has been here for too long."""
        many, weight, now = len(self._over) - len(self._said), self._weight, self._shell.loop.time()
        for run, (ended, own) in self._over.items():
            if run in self._said:
                weight -= own
                continue
            if many <= KEPT and weight <= KEPT_RECORDS and now - ended < KEPT_FOR:
                return None
            if self._queries.may_retire(run) and not self._shell.peers.of_run(run) and not self._is_owed(run):
                return _Leaving(run, self._queries)
        return None

    # --- how they leave ----------------------------------------------------------------------------------

    def _keep(self, leaving: _Leaving, until: float) -> bool:
        """Keep one, or a slice of it; whether there is more of it."""
        for piece in leaving.pieces:
            leaving.kept.append(piece)
            if monotonic() >= until:
                return True
        run, queries = leaving.run, self._queries
        self._shell.results.forget_all(queries.records_of(run))
        self._shell.store.save_snapshot(queries.turn, run, queries.pack_retired(leaving.kept))
        self._shell.news(RunRetired(run))
        self._said.add(run)
        return False

    def _turned(self) -> None:
        """The turn is made; of what is still here something was tried again in that turn."""
        self._said.clear()
        self._look_in(0.0)


class RetiredWorkflows:
    """Retired workflows for questions and actions. `where`: the store's folder or database."""

    def __init__(self, shell: Shell, where: str, leaving: FinishedWorkflows) -> None:
        self._shell = shell
        self._queries = shell.queries
        self._where = where
        self._leaving = leaving
        self._beside: dict[int, RetiredCopy] = {}  # by run; the one that was asked for last comes last
        self._timer: asyncio.TimerHandle | None = None
        leaving.on_gone.append(self._drop)

    # --- asking ------------------------------------------------------------------------------------------

    def look_up(self, records: Iterable[int], then: Callable[[], None]) -> bool:
        """Have the workflows of records at hand, as far as there are such, then call back; False: they are."""
        missing = [record for record in dict.fromkeys(records) if not self._queries.can_find(record)]
        if not missing:
            return False

        def load() -> dict[int, RetiredCopy]:
            with open_jobs(self._where) as jobs:
                found: dict[int, RetiredCopy] = {}
                for run in _runs_of(jobs, missing)[:MOST]:
                    if run not in self._beside and _weight(found) < MOST_RECORDS:
                        made = self._read(jobs, run)
                        found |= {run: made} if made is not None else {}
                return found

        def loaded(done: asyncio.Future[dict[int, RetiredCopy]]) -> None:
            self._put(_result(done, {}))
            then()

        self._in_thread(load, loaded)
        return True

    def _read(self, jobs: Jobs, run: int) -> RetiredCopy | None:
        kept = _kept(jobs, run)
        return self._queries.read_retired(kept) if kept else None

    def _put(self, found: dict[int, RetiredCopy]) -> None:
        self._beside.update(found)
        while len(self._beside) > MOST or (len(self._beside) > 1 and _weight(self._beside) > MOST_RECORDS):
            del self._beside[next(iter(self._beside))]
        self._tell()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._shell.loop.call_later(_LOOKED_AT_FOR, self._clear)

    def _drop(self, run: int) -> None:
        if self._beside.pop(run, None) is not None:
            self._tell()

    def _clear(self) -> None:
        self._timer = None
        self._beside.clear()
        self._tell()

    def _tell(self) -> None:
        self._queries.look_at(self._beside.values())

    # --- acting ------------------------------------------------------------------------------------------

    def revive(self, target: Dep, then: Callable[[], None]) -> bool:
        """Have the workflow of a record or a group in the core, then call back; False: it is there."""
        known = self._queries.run_named_by(target)
        if known is not None and not self._leaving.is_leaving(known):
            return False

        def load() -> tuple[int, bytes]:
            with open_jobs(self._where) as jobs:
                if target.is_group:
                    runs = [run for row in jobs.query(_GROUP, (target.id,))[1] if isinstance(run := row[0], int)]
                else:
                    runs = _runs_of(jobs, [target.id])
                for run in runs:
                    if jobs.query(_IS_RUN, (run,))[1] and (kept := _kept(jobs, run)):
                        self._queries.check_retired(kept)  # so that it is known to be readable
                        return run, kept
            return 0, b""

        def loaded(done: asyncio.Future[tuple[int, bytes]]) -> None:
            run, kept = _result(done, (0, b""))
            if run and not self._queries.has_run(run):
                logs.info("workflow-restored", f"run {run} is in memory again, because a command acts on it")
                self._shell.news(RunRevived(run, kept), then=then)
                self._drop(run)
            else:
                then()

        self._shell.after_turn(lambda: self._in_thread(load, loaded))
        return True

    def _in_thread(self, load: Callable[[], T], then: Callable[[asyncio.Future[T]], None]) -> None:
        """Read when the tables have caught up."""
        loop = self._shell.loop
        self._shell.background.when_folded(lambda: loop.run_in_executor(None, load).add_done_callback(then))


def _weight(copies: dict[int, RetiredCopy]) -> int:
    return sum(copy.record_count for copy in copies.values())


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
    logs.error("workflow-unreadable", f"a finished workflow cannot be read: {type(error).__name__}: {error}")
    return nothing
