"""Workflows removed on request or by age, and the space they took given back.

The core forgets the workflow, a snapshot without it is saved, then its facts are taken out of the journal, a slice at a
time between turns; what an ending server leaves, the next one does. Files with the output of tasks are shared by the
tasks of a slot. Rule: a workflow that is running is not removed; a file with output is deleted only when the jobs
database names it no more, the executor that made it is gone, and it has not changed for longer than executors look for
their server.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bough import logs
from bough.core.queries.answers import WorkflowInfo
from bough.errors import BoughError, InternalError, UnknownName, UserError
from bough.model.events.facts import RunRemoved
from bough.model.events.news import Cancel, GroupClosed
from bough.model.ids import Seconds
from bough.model.tasks import Dep, On
from bough.model.texts.plurals import counted
from bough.server.peers import DeferredRequest
from bough.server.service.upkeep.memory_use import give_back
from bough.server.turns.shell import Shell
from bough.stores.jobs.jobs_reader import Value
from bough.stores.open import open_jobs
from bough.wire import questions

_MADE_BY = re.compile(r"x(\d+)-")  # how executors name their output files
AGE = 2 * 86400.0  # seconds
_NAMED_FILES = " UNION ".join(
    f"SELECT {stream}_path FROM {table} WHERE {stream}_path IS NOT NULL"
    for table in ("tasks", "elements")
    for stream in ("stdout", "stderr")
)
_LENT = "SELECT 1 FROM borrowed WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = borrowed.source) LIMIT 1"
_SLICE = 200  # turns of the journal looked at between two turns
_PAUSE = 0.005  # seconds between two slices
_AGAIN = 60.0  # seconds until a store that could not be cleaned is tried again
_TURNS = 20  # that a workflow which is told to end is waited for
_LOOK = 3600.0  # seconds between looks for old workflows, at the most
_LOOK_LEAST = 1.0  # and at the least
_LOOKS = 5  # in the time for which they are kept
_BEGIN = 1.0  # seconds after the start: first of all the server serves
_FIRST_LOOK = 5.0
_OLD = "SELECT run, name, closed FROM runs WHERE grp != 0 AND closed IS NOT NULL AND closed < ? ORDER BY run"
_NAMED = "SELECT run, name FROM runs WHERE grp != 0 AND (name = ? OR (name = ? AND run = ?) OR run = ?) ORDER BY run"
_NAMES = "SELECT DISTINCT name FROM runs WHERE grp != 0 ORDER BY name LIMIT 50"
_TOLD = 5  # names in the log
_DIGITS = 19  # of a number of a run
T = TypeVar("T")


class Retention:
    """See the module. `where`: the store's folder or database; `keep`: seconds after which workflows go, 0: never."""

    def __init__(self, shell: Shell, where: str, keep: Seconds = 0.0) -> None:
        self._shell = shell
        self._queries = shell.queries
        self._where = where
        self._keep = keep
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prune")
        self._sweeping = False
        self._removed = False  # since the last time that outputs were looked through
        self._stopped = False

    def start(self) -> None:
        """Go on with what an earlier server left, and look for old workflows now and then."""
        self._shell.loop.call_later(_BEGIN, self._shell.background.when_folded, self._sweep)
        if self._keep:
            self._shell.loop.call_later(_FIRST_LOOK, self._look)

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopped = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    # --- by name -----------------------------------------------------------------------------------------

    def remove(self, deferred: DeferredRequest[questions.Remove]) -> None:
        """Remove the workflows that are named; those that are running only if they are to be killed."""
        names, kill = deferred.question.workflows, deferred.question.kill

        def found(runs: dict[int, str]) -> None:
            for one in self._known(runs):
                if not kill and (why := self._why_running(one)):
                    raise UserError(
                        f"workflow {one.name}, run {one.run}, is running: {why}; wait for it, or say --kill to end it"
                    )
            self._remove(runs, deferred.answer)

        def answered(done: asyncio.Future[dict[int, str]]) -> None:
            error = done.exception()
            if error is not None:
                deferred.refuse(_told(error))
            else:
                deferred.attempt(lambda _: found(done.result()))

        self._ask(lambda: self._named([str(name) for name in names]), answered)

    def _named(self, names: Sequence[str]) -> dict[int, str]:
        """The runs that are meant, each with its name, by the jobs database, which knows the retired ones, too.

        A run by its number, a run as name#number, or all runs of a name.
        """
        found: dict[int, str] = {}
        with open_jobs(self._where) as jobs:
            for name in names:
                wanted, _, number = name.rpartition("#")
                run = int(number) if number.isdecimal() and len(number) < _DIGITS else -1
                rows = jobs.query(_NAMED, (name, wanted, run, -1 if wanted else run))[1]
                if not rows:
                    known = ", ".join(str(row[0]) for row in jobs.query(_NAMES)[1]) or "none"
                    raise UnknownName(f"there is no workflow {name!r}; there are: {known}")
                by_number = [row for row in rows if row[0] == run]
                found.update((int(str(row[0])), str(row[1])) for row in by_number or rows)
        return found

    def _known(self, runs: Iterable[int]) -> list[WorkflowInfo]:
        """Those of some runs that are in the core."""
        found = (self._queries.workflow(run) for run in runs)
        return [workflow for workflow in found if workflow is not None]

    def _why_running(self, workflow: WorkflowInfo) -> str:
        """Why a workflow has not finished; empty when it has. A queue in which all has ended has finished, too."""
        counts = self._queries.counts([workflow.group])
        if counts.unfinished:
            return str(counts)
        unsaved = self._queries.count_unsaved(workflow.run)
        if unsaved:
            return f"outputs of {counted(unsaved, 'task')} are on their way"
        if self._shell.peers.of_run(workflow.run):
            return "it has a client"
        return "an array of it takes more tasks" if self._queries.is_fed(workflow.run) else ""

    # --- by age ------------------------------------------------------------------------------------------

    def prune(self, deferred: DeferredRequest[questions.Prune]) -> None:
        """Remove the workflows that ended so many seconds ago, or only say which."""
        seconds, dry = deferred.question.seconds, deferred.question.dry_run

        def found(old: list[dict[str, object]]) -> None:
            self._remove({} if dry else _runs(old), lambda _: deferred.answer(old))

        self._find_old(seconds, found, deferred.refuse)

    def _look(self) -> None:
        if self._stopped:
            return
        self._shell.loop.call_later(max(_LOOK_LEAST, min(_LOOK, self._keep / _LOOKS)), self._look)
        if self._sweeping:
            return  # one thing after the other

        def found(old: list[dict[str, object]]) -> None:
            self._remove(_runs(old), lambda _: None)

        self._find_old(
            self._keep,
            found,
            lambda error: logs.warning("retention-failed", f"old workflows could not be looked for: {error}"),
        )

    def _find_old(
        self, age: Seconds, then: Callable[[list[dict[str, object]]], None], failed: Callable[[BoughError], None]
    ) -> None:
        """The workflows that ended before a time, by the jobs database, which is asked in a thread."""
        before = self._shell.clock.now() - age

        def query() -> Sequence[Sequence[Value]]:
            with open_jobs(self._where) as jobs:
                return jobs.query(_OLD, [before])[1]

        def answered(done: asyncio.Future[Sequence[Sequence[Value]]]) -> None:
            error = done.exception()
            if error is not None:
                failed(_told(error))
                return
            stay = {one.run for one in self._queries.workflows() if not one.closed or self._why_running(one)}
            rows = done.result()
            then([{"run": run, "name": name, "closed": closed} for run, name, closed in rows if run not in stay])

        self._ask(query, answered)

    def _ask(self, query: Callable[[], T], then: Callable[[asyncio.Future[T]], None]) -> None:
        """Ask the jobs database in a thread, when it has caught up."""

        def ask() -> None:
            if not self._stopped:
                self._shell.loop.run_in_executor(self._thread, query).add_done_callback(answered)

        def answered(done: asyncio.Future[T]) -> None:
            if not self._stopped:  # else it may have been cancelled, and no client waits for it
                then(done)

        self._shell.background.when_folded(ask)

    # --- how ---------------------------------------------------------------------------------------------

    def _remove(self, names: dict[int, str], then: Callable[[object], None]) -> None:
        """Remove runs, each of which has a name; those that are not here were retired."""
        for one in self._known(names):
            self._shell.results.forget_all(self._queries.records_of(one.run))
            if self._queries.counts([one.group]).unfinished or self._queries.is_fed(one.run):
                self._shell.news(Cancel(Dep(On.GROUP, one.group)))
            for group in self._queries.subtree(one.group):
                if not group.closed:
                    self._shell.news(GroupClosed(group.id))
        for run in names:
            if not self._queries.has_run(run):
                self._shell.news(RunRemoved(run))
        if not names:
            then([])
            return

        def gone() -> None:
            removed = [{"run": run, "name": name} for run, name in names.items() if not self._queries.has_run(run)]
            said = [f"{one['name']} (run {one['run']})" for one in removed[:_TOLD]]
            more = [f"and {len(removed) - _TOLD} more"] if len(removed) > _TOLD else []
            logs.info("workflows-removed", f"workflows removed: {', '.join(said + more) or 'none'}")
            self._shell.background.when_synced(lambda: then(removed))

        self._shell.after_turn(lambda: self._forget(set(names), _TURNS, gone))

    def _forget(self, runs: set[int], tries: int, then: Callable[[], None]) -> None:
        """Forget those that are settled and closed; the others are about to be."""
        left = self._known(runs)
        if left and tries:
            for one in left:
                if one.finished and one.closed:
                    self._shell.news(RunRemoved(one.run))
            self._shell.after_turn(lambda: self._forget({one.run for one in left}, tries - 1, then))
            return
        self._removed = True
        self._shell.background.save_snapshot(self._queries.turn)
        then()
        self._sweep()

    def _sweep(self) -> None:
        if not self._sweeping and not self._stopped:
            self._sweeping = True
            self._clean()

    def _clean(self) -> None:
        """Give back a slice of the space, and come again while there is more."""
        if self._stopped:
            return
        wait = _PAUSE
        try:
            done = self._shell.store.remove_runs((), _SLICE)
            _delete(self._shell.store.forgotten_files(), self._shell.info.store_dir)
        except BoughError as error:
            logs.warning("retention-failed", f"the space of removed workflows could not be given back: {error}")
            done, wait = False, _AGAIN
        if done:
            self._sweeping = False
            give_back()
            if self._removed:
                self._removed = False
                self._shell.background.when_folded(self._delete_outputs)
        else:
            self._shell.loop.call_later(wait, self._clean)

    def _delete_outputs(self) -> None:
        """Look through what tasks wrote, in a thread."""
        if self._stopped:
            return
        working = {*self._queries.executor_numbers(), *self._shell.peers.executors}
        folder, now = self._shell.info.folder("out"), self._shell.clock.now()
        asked = self._shell.loop.run_in_executor(self._thread, lambda: delete_unused(self._where, folder, working, now))
        asked.add_done_callback(_say_outputs)


def _runs(old: list[dict[str, object]]) -> dict[int, str]:
    return {run: str(one["name"]) for one in old if isinstance(run := one["run"], int)}


def _told(error: BaseException) -> BoughError:
    return error if isinstance(error, BoughError) else InternalError(f"{type(error).__name__}: {error}")


def _say_outputs(done: asyncio.Future[int]) -> None:
    if done.cancelled():
        return
    error = done.exception()
    if error is not None:
        logs.warning("retention-failed", f"outputs of removed workflows could not be deleted: {error}")
    elif done.result():
        logs.info("outputs-removed", f"{done.result()} files with outputs of removed workflows were deleted")


def _delete(paths: Iterable[str], folder: str) -> None:
    """Delete files of results and arguments, nothing outside of the store."""
    inside = os.path.realpath(folder) + os.sep
    for path in paths:
        if os.path.realpath(path).startswith(inside):
            try:
                os.unlink(path)
            except OSError:
                continue  # it is gone, or will be found as a leftover


def delete_unused(where: str, folder: str, working: Container[int], now: float) -> int:
    """Delete outputs in a folder that are not needed any more; how many. `working`: executors that may still write."""
    old = [path for path in _files(folder, working) if now - os.stat(path).st_mtime > AGE]
    if not old:
        return 0
    with open_jobs(where) as jobs:
        if jobs.query(_LENT)[1]:  # a run uses results of one that is gone, and what they wrote
            return 0
        named = {os.path.realpath(str(row[0])) for row in jobs.query(_NAMED_FILES)[1]}
    gone = [path for path in old if os.path.realpath(path) not in named]
    for path in gone:
        os.unlink(path)
    return len(gone)


def _files(folder: str, working: Container[int]) -> list[str]:
    found = []
    for entry in os.scandir(folder):
        made = _MADE_BY.match(entry.name)
        if made and int(made[1]) not in working and entry.is_file(follow_symlinks=False):
            found.append(entry.path)
    return found
