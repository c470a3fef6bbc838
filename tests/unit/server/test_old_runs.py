"""Old runs of a session's store: a hundred runs of a script leave no more than a few."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from bough.model.events.facts import ExecutorJoined, RunClosed, RunOpened, SpanEnded, Submitted
from bough.model.ids import BlobId, ExecutorId, MemoKey, RecordId, SpanId
from bough.model.reuse_scope import ReuseScope
from bough.model.sites.resources import Needs
from bough.model.tasks import Kind, TaskSpec
from bough.server.embedded import old_runs
from bough.server.embedded.old_runs import MOST, is_alive, remove_old_runs
from bough.stores.expendable_runs import ExpendableRuns, ScriptRun
from bough.stores.sql.sqlite import SqliteStore


def a_run(store: SqliteStore, run: int) -> None:
    """A run that did one task, with a result of its own, and ended well."""
    task = TaskSpec(RecordId(run), Kind.FUNCTION, BlobId(b"b%15d" % run), b"payload" * 100, key=MemoKey(b"k" * 16))
    done = SpanEnded(SpanId(run), 0, 1, 0.1, os.urandom(2000), record=RecordId(run), attempt=1, key=MemoKey(b"k" * 16))
    store.put_blob(task.body, os.urandom(1000))
    opened = RunOpened(run, "w", "h", 7, memos=True, reuse=ReuseScope.NONE, script=f"{run}.1")
    facts = ([opened, ExecutorJoined(ExecutorId(run), "local", "h", 8, Needs())], [Submitted([task])], [done])
    for some in (*facts, [RunClosed(run)]):
        store.append(store.last_turn + 1, 1000.0 + run, some)


def test_a_hundred_runs_leave_records_of_a_few_and_a_journal_of_that_size(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path))
    sizes = []
    for run in range(1, 4 * MOST):
        a_run(store, run)
        old = store.expendable_runs("now", lambda _: False, spare_last=False)
        assert len(old.runs) <= MOST
        remove_old_runs(store, store.last_turn, 2000.0, old)
        sizes.append(store.last_run())
        if run in {MOST, 4 * MOST - 1}:
            while not store.remove_runs():
                pass
            rows = sum(1 for _ in store.journal())
            assert rows <= 5 * MOST
            blobs = store._database.execute("SELECT count(*) FROM blobs").fetchone()[0]
            assert blobs <= MOST
    assert sizes[-1].run == 4 * MOST - 1
    assert sizes[-1].last_record == 4 * MOST - 1  # numbers are not given again
    store.close()


def test_files_go_by_the_numbers_in_their_names(tmp_path: Path) -> None:
    old = ExpendableRuns((1, 2), ((10, 19), (30, 39)), frozenset({4}), ((10, 39),))
    there = {
        "results": ["10-1-7-0.pickle", "25-1-7-0.pickle", "39-2-7-3.pickle", "40-1-1-0.pickle", "mine.txt"],
        "args": ["12.pickle", "12.inputs", "12.writes", "25.pickle", "25.inputs", "40.pickle"],
        "out": ["x4-0.out", "x4-1.3.err", "x44-0.out", "x5-0.hidden", "notes"],
    }
    for folder, names in there.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_text("")
    old_runs._delete_files(str(tmp_path), old)
    assert {folder: sorted(os.listdir(tmp_path / folder)) for folder in there} == {
        "results": ["25-1-7-0.pickle", "40-1-1-0.pickle", "mine.txt"],
        "args": ["12.writes", "25.inputs", "40.pickle"],
        "out": ["notes", "x44-0.out", "x5-0.hidden"],
    }


def test_a_script_lives_while_its_process_does_and_for_a_day_if_it_is_elsewhere() -> None:
    here = socket.gethostname()
    assert is_alive(ScriptRun(here, f"{os.getpid()}.1", 1.0))
    assert not is_alive(ScriptRun(here, "", 1.0))
    assert not is_alive(ScriptRun(here, f"{1 << 30}.1", time.time()))
    assert is_alive(ScriptRun("elsewhere", "1.1", time.time() - 60))
    assert not is_alive(ScriptRun("elsewhere", "1.1", 1.0))
