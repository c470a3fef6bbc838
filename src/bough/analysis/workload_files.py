"""Workloads from files: whatever `bough simulate` takes, from Python.

    work = bough.analysis.read_workload("montage.json")
    bough.sim.simulate(work, bough.sim.one_site(hosts=4, cores=8), "fifo,sjf")

A path is that of a workflow file (description script, Makefile, flat list, DAGMan, WfFormat), of the folder of a store,
or of its journal. Rule: nothing runs and no server is asked. Of a session that still runs, a store tells what had
happened when somebody last looked, by `bough status` for example.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from bough.analysis.recorded_workloads import workload_of
from bough.analysis.run_records import read_record
from bough.describe.task_graph import TaskGraph, of_plan
from bough.describe.workflow_files import File, is_script
from bough.errors import StoreHeld, UnknownName, UserError
from bough.model.bounds import Count, Duration, check_path, shown, within
from bough.sim.workload import Workload
from bough.stores.jobs.jobs_reader import JobsDatabase
from bough.stores.schema import FILE


def read_workload(
    path: str | os.PathLike[str], args: Sequence[str] = (), *, seconds: float | None = None, run: int = 0
) -> Workload:
    """The tasks of a workflow file, or of a run in a store; `args`: arguments of a description script.

    `seconds`: what tasks take of which nothing is known; None: such a task is an error. `run`: which run of a store, 0
    for the last one.
    """
    where = _path_text(path)
    unknown = None if seconds is None else within("seconds", seconds, Duration)
    if is_store(where):
        return workload_of(stored_graph(where, within("run", run, Count)), unknown=unknown)
    if run:
        raise UserError(f"run {run}: {where} is no store of a run; leave run out")
    return workload_of(described_graph(where, args), unknown=unknown)


def _path_text(path: object) -> str:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise UserError(f"{shown(path)} is no path of a workflow file or of the store of a run")
    return check_path("the path", text)


def is_store(path: str) -> bool:
    """Whether this is the journal of a run, or the folder that holds one."""
    return os.path.basename(path) == FILE or os.path.isfile(os.path.join(path, FILE))


def described_graph(path: str, args: Sequence[str] = ()) -> TaskGraph:
    """What a workflow file says."""
    if is_script(path):
        raise UserError(
            f"{path} is a Python script that submits by itself; run it once, and simulate its store: .bough/NAME"
        )
    file = File(path, args)
    return of_plan(file.plan(args), file.stem)


def stored_graph(path: str, run: int = 0) -> TaskGraph:
    """A run in the store of a session, 0: its last one."""
    folder = os.path.dirname(path) or "." if os.path.basename(path) == FILE else path
    _catch_up(folder)
    with JobsDatabase(folder) as database:
        last = database.last_run()
        if last is None:
            raise UnknownName(f"the store {folder} holds no run yet")
        return read_record(database, run or int(last["run"] or 0), f"the store {folder}")


def _catch_up(folder: str) -> None:
    """Fold what was journalled since into the tables, unless a session has the store, or it is another user's."""
    if not os.access(folder, os.W_OK):
        return
    from bough.stores.folder.store_lock import StoreLock
    from bough.stores.sql.sqlite import SqliteStore

    try:
        with StoreLock(folder):
            SqliteStore(folder).close()
    except StoreHeld:
        pass
