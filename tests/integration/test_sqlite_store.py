"""The SQLite store on real files: full disks, damage, locks, readers beside a writer, spilled reports."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import pytest

from bough.cli.main import main
from bough.errors import Clash, StoreFailed, StoreHeld, UnknownName, UserError
from bough.filesystems import is_network_filesystem
from bough.model.commands.command import CommandCall, CommandSettings, CommandTemplate, TemplateSlot, encode_call
from bough.model.events.facts import (
    Cancelled,
    ElementFailed,
    ExecutorJoined,
    ExecutorLost,
    Fact,
    Held,
    Killed,
    MemoLookedUp,
    Placed,
    Prioritised,
    Released,
    Retried,
    RetryDue,
    RunClosed,
    RunOpened,
    Skipped,
    SpanEnded,
    SpanReturned,
    SpanStarted,
    Submitted,
)
from bough.model.events.news import PagesAdded, WorkFailed, WorkReturned, WorkStarted, WorkSucceeded
from bough.model.outcomes import Cause, Detail, Failure, Output, Stream
from bough.model.sites.resources import Needs
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Kind, On, Page, TaskSpec
from bough.server.recovery import clear_spills, read_spills
from bough.stores.folder.store_lock import StoreLock, holder
from bough.stores.jobs.jobs_reader import JobsDatabase
from bough.stores.jobs.rows import AttemptRow, ElementRow, SpanRow, TaskRow
from bough.stores.maintenance.copies import backup, check, copy
from bough.stores.sql.sqlite import SqliteStore
from bough.testing.store_conformance import appending
from bough.wire.executor_messages import Report
from bough.wire.framing import frame

OPENED: list[Fact] = [RunOpened(1, "w", "here", 7), ExecutorJoined(1, "local", "node1", 8, Needs(cores=4))]


def a_task(number: int, **fields: object) -> TaskSpec:
    return TaskSpec(number, Kind.FUNCTION, b"b" * 16, b"", **{"template": "f", **fields})


def an_array(number: int, length: int, **fields: object) -> ArraySpec:
    return ArraySpec(number, Kind.FUNCTION, b"b" * 16, length, **fields)


def ended(span: int, record: int, start: int = 0, stop: int = 1, **fields: object) -> SpanEnded:
    return SpanEnded(span, start, stop, 0.5, **{"record": record, "attempt": 1, "executor": 1, **fields})


def failed(span: int, record: int, index: int = 0, cause: Cause = Cause.EXIT, **fields: object) -> ElementFailed:
    failure = Failure(cause, "it failed", exit_code=3)
    return ElementFailed(span, index, failure, **{"record": record, "attempt": 1, "executor": 1, **fields})


class Folding:
    """A store to which facts are told, and what its tables say then."""

    def __init__(self, directory: Path) -> None:
        self.store = SqliteStore(directory)
        self.turn = 0
        self.tell(*OPENED)

    def tell(self, *facts: Fact) -> None:
        self.turn += 1
        self.store.append(self.turn, float(self.turn), list(facts))
        self.store.project()

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        with JobsDatabase(self.store.directory) as jobs:
            return jobs.query(sql)[1]

    def state(self, record: int) -> str:
        return str(self.rows(f"SELECT state FROM tasks WHERE id = {record}")[0][0])

    def counts(self, record: int) -> tuple[object, ...]:
        return self.rows(f"SELECT state, done, failed, skipped, cancelled FROM tasks WHERE id = {record}")[0]


@pytest.fixture
def folding(tmp_path: Path) -> Iterator[Folding]:
    found = Folding(tmp_path / "store")
    yield found
    found.store.close()


# --- the jobs database ------------------------------------------------------------------------------


def test_the_rows_have_the_columns_of_the_tables(folding):
    for table, row in {"tasks": TaskRow, "elements": ElementRow, "attempts": AttemptRow, "spans": SpanRow}.items():
        names = [name for (name,) in folding.rows(f"SELECT name FROM pragma_table_info('{table}')")]
        assert tuple(names) == row.__struct_fields__


def test_a_loose_task_goes_through_its_states(folding):
    folding.tell(Submitted([a_task(1, name="one", priority=3), a_task(2, after=(Dep(On.TASK, 1),))]))
    assert (folding.state(1), folding.state(2)) == ("ready", "waiting")
    folding.tell(Placed(1, 1, 0, 1, 1, 1))
    assert folding.state(1) == "ready"
    folding.tell(SpanStarted(1, 0, 1, 1))
    assert folding.state(1) == "running"
    folding.tell(failed(1, 1, retry_at=9.0))
    assert folding.state(1) == "waiting"
    folding.tell(RetryDue(1, 0), Placed(2, 1, 0, 1, 2, 1))
    folding.tell(ended(2, 1, attempt=2))
    assert folding.rows("SELECT name, state, attempt, host, cause, done, turn FROM tasks WHERE id = 1") == [
        ("one", "done", 2, "node1", None, 1, 7)
    ]
    assert folding.rows("SELECT attempt, state, cause, exit_code, host FROM attempts WHERE id = 1") == [
        (1, "failed", "exit", 3, "node1"),
        (2, "done", None, None, "node1"),
    ]
    assert folding.rows("SELECT id, on_kind, on_id FROM after") == [(2, "task", 1)]


def test_a_command_shows_its_text_its_streams_and_its_files(folding, tmp_path):
    settings = CommandSettings(str(tmp_path))
    shell = CommandCall(
        settings, ["sort in > ", TemplateSlot("o", mode="w"), " # ", TemplateSlot("cores")], writes={"o": "/a b"}
    )
    words = CommandCall(
        settings, argv=[["touch"], [TemplateSlot("o", mode="w"), ".x"], [TemplateSlot("attempt")]], writes={"o": "/a b"}
    )
    template = CommandTemplate(
        settings,
        ["blast ", TemplateSlot("q", mode="r"), " ", TemplateSlot("e", format=".3f"), TemplateSlot("q", "stem")],
        ("q", "e"),
    )
    folding.store.put_blob(b"t" * 16, encode_call(template))
    detail = Detail(0, 0, 1.0, 3.0, 1.5, 4096, Stream("/out", 5, 6), None, (Output("o", "/a b", 7, 8),))
    folding.tell(
        Submitted(
            [
                TaskSpec(1, Kind.COMMAND, b"", encode_call(shell)),
                TaskSpec(2, Kind.COMMAND, b"", encode_call(words)),
                TaskSpec(3, Kind.COMMAND, b"", b"nonsense", template="fallback"),
                ArraySpec(4, Kind.COMMAND, b"t" * 16, 5),
                ArraySpec(5, Kind.COMMAND, b"unknown", 5, name="fallback"),
            ]
        ),
        Placed(1, 1, 0, 1, 1, 1),
        ended(1, 1, details=(detail,)),
    )
    assert folding.rows("SELECT command FROM tasks ORDER BY id") == [
        ("sort in > '/a b' # 1",),
        ("touch '/a b.x' '{attempt}'",),
        ("fallback",),
        ("blast {q:r} {e:.3f}{q.stem}",),
        ("fallback",),
    ]
    assert folding.rows("SELECT * FROM files") == [(1, 0, "o", "/a b", 7, 8)]
    assert folding.rows(
        "SELECT exit_code, seconds, cpu, memory, stdout_path, stdout_offset, stdout_length, stderr_path FROM tasks"
        " WHERE id = 1"
    ) == [(0, 2.0, 1.5, 4096, "/out", 5, 6, None)]


def test_an_array_counts_its_elements(folding):
    folding.tell(Submitted([an_array(1, 10)]), Placed(1, 1, 0, 6, 1, 1), Placed(2, 1, 6, 10, 1, 1))
    assert folding.counts(1) == ("running", 0, 0, 0, 0)
    folding.tell(SpanStarted(1, 0, 2, 1), ended(1, 1, 0, 2), failed(1, 1, 2))
    assert folding.counts(1) == ("running", 2, 1, 0, 0)
    assert folding.rows("SELECT start, stop, state FROM spans ORDER BY start") == [
        (0, 2, "done"),
        (3, 6, "placed"),
        (6, 10, "placed"),
    ]
    folding.tell(SpanReturned(2, 8, 10, 1), ended(1, 1, 3, 6), ended(2, 1, 6, 8))
    assert folding.counts(1) == ("ready", 7, 1, 0, 0)
    folding.tell(Cancelled(Dep(On.ARRAY, 1)))
    assert folding.counts(1) == ("failed", 7, 1, 0, 2)
    assert folding.rows("SELECT start, stop, state, cause FROM spans WHERE state = 'cancelled'") == [
        (8, 10, "cancelled", "cancelled")
    ]
    folding.tell(Retried(Dep(On.ARRAY, 1, 2), 9))
    assert folding.counts(1) == ("ready", 7, 0, 0, 1)
    folding.tell(Placed(3, 1, 2, 3, 2, 1), Placed(4, 1, 8, 9, 1, 1), ended(3, 1, 2, 3, attempt=2), ended(4, 1, 8, 9))
    assert folding.counts(1) == ("cancelled", 9, 0, 0, 1)
    assert folding.rows("SELECT idx, state, attempt, cause FROM elements") == [(2, "done", 2, None)]
    assert folding.rows("SELECT idx, attempt, state FROM attempts") == [(2, 1, "failed")]
    folding.tell(Retried(Dep(On.TASK, 1, 9)), Placed(5, 1, 9, 10, 1, 1), ended(5, 1, 9, 10))
    assert folding.counts(1) == ("done", 10, 0, 0, 0)
    assert folding.rows("SELECT ended, seconds FROM tasks WHERE id = 1") == [(8.0, 3.0)]


def test_a_lost_executor_gives_its_work_back(folding):
    folding.tell(Submitted([a_task(1), an_array(2, 4)]), Placed(1, 1, 0, 1, 1, 1), Placed(2, 2, 0, 4, 1, 1))
    folding.tell(ended(2, 2, 0, 1), ExecutorLost(1, "no heartbeat"))
    assert folding.state(1) == "ready"
    assert folding.counts(2) == ("ready", 1, 0, 0, 0)
    assert folding.rows("SELECT state, cause, message FROM attempts") == [("lost", "lost", "no heartbeat")]
    assert folding.rows("SELECT start, stop, state FROM spans ORDER BY start") == [(0, 1, "done"), (1, 4, "lost")]
    assert folding.rows("SELECT left, reason FROM executors") == [(3.0, "no heartbeat")]
    # the attempt that the loss cost is told after it
    folding.tell(failed(1, 1, cause=Cause.LOST, retry_at=5.0), failed(2, 2, 1, cause=Cause.LOST, retry_at=5.0))
    assert folding.state(1) == "waiting"
    assert folding.rows("SELECT id, idx, state FROM attempts") == [(1, 0, "lost"), (2, 1, "lost")]


def test_the_first_result_counts_also_of_an_executor_that_was_given_up(folding):
    folding.tell(Submitted([a_task(1), an_array(2, 4)]), Placed(1, 1, 0, 1, 1, 1), Placed(2, 2, 0, 4, 1, 1))
    folding.tell(ExecutorLost(1, "no heartbeat"), ExecutorJoined(2, "local", "node2", 9, Needs(cores=4)))
    folding.tell(Placed(3, 1, 0, 1, 2, 2), Placed(4, 2, 0, 4, 2, 2), SpanStarted(3, 0, 1, 1), SpanStarted(4, 0, 4, 2))
    folding.tell(ExecutorJoined(1, "local", "node1", 8, Needs(cores=4)), ended(1, 1), ended(2, 2, 0, 2))
    assert folding.rows("SELECT state, attempt, host FROM tasks WHERE id = 1") == [("done", 1, "node1")]
    assert folding.rows("SELECT attempt, state FROM attempts ORDER BY attempt") == [(1, "done"), (2, "superseded")]
    assert folding.counts(2) == ("running", 2, 0, 0, 0)
    running = "SELECT start, stop, span FROM spans WHERE state = 'running'"
    assert folding.rows(running) == [(2, 4, 4)]
    folding.tell(ended(4, 2, 2, 4, attempt=2, executor=2))
    assert folding.counts(2) == ("done", 4, 0, 0, 0)
    assert folding.rows('SELECT id, "left" FROM executors') == [(1, None), (2, None)]


def test_what_was_given_back_unstarted_leaves_no_attempt(folding):
    folding.tell(Submitted([a_task(1)]), Placed(1, 1, 0, 1, 1, 1))
    folding.tell(SpanReturned(1, 0, 1, 1))
    assert folding.state(1) == "ready"
    assert folding.rows("SELECT * FROM attempts") == []


def test_holding_releasing_and_priorities_reach_groups_and_what_is_inside(folding):
    items = [GroupSpec(1, "a"), GroupSpec(2, "b", 1), a_task(1, group=2), an_array(2, 5, group=1), a_task(3)]
    folding.tell(Submitted(items), Placed(1, 2, 0, 2, 1, 1))
    folding.tell(Held(Dep(On.GROUP, 1)), Prioritised(Dep(On.GROUP, 1), 9))
    assert [folding.state(record) for record in (1, 2, 3)] == ["held", "running", "ready"]
    assert folding.rows("SELECT priority FROM tasks ORDER BY id") == [(9,), (9,), (0,)]
    folding.tell(ended(1, 2, 0, 2))
    assert folding.state(2) == "held"
    with JobsDatabase(folding.store.directory) as jobs:
        groups = {group["path"]: (group["total"], group["done"], group["held"]) for group in jobs.groups(1)}
    assert groups == {"": (1, 0, 0), "a": (5, 2, 3), "a/b": (1, 0, 1)}
    folding.tell(Released(Dep(On.GROUP, 1)))
    assert [folding.state(record) for record in (1, 2, 3)] == ["ready", "ready", "ready"]
    assert folding.rows("SELECT count(*) FROM spans WHERE state = 'held'") == [(0,)]


def test_killing_fails_what_runs_and_leaves_the_rest(folding):
    folding.tell(Submitted([a_task(1), a_task(2), an_array(3, 4)]), Placed(1, 1, 0, 1, 1, 1), Placed(2, 3, 0, 2, 1, 1))
    folding.tell(*(Killed(Dep(on, record)) for on, record in ((On.TASK, 1), (On.TASK, 2), (On.ARRAY, 3))))
    assert (folding.state(1), folding.state(2)) == ("failed", "ready")
    assert folding.counts(3) == ("ready", 0, 2, 0, 0)
    # an executor's own word on it changes nothing
    folding.tell(failed(1, 1, cause=Cause.KILLED), failed(2, 3, 0, cause=Cause.KILLED))
    assert folding.state(1) == "failed"
    assert folding.counts(3) == ("ready", 0, 2, 0, 0)


def test_what_cannot_run_names_its_cause_and_a_closed_run_leaves_nothing_open(folding):
    because = Failure(Cause.DEPENDENCY, "task 1 failed", source=1)
    folding.tell(
        Submitted([a_task(1), a_task(2), an_array(3, 4), a_task(4), an_array(5, 0, open=True)]),
        Placed(1, 1, 0, 1, 1, 1),
        Placed(2, 3, 0, 1, 1, 1),
        Skipped(2, 0, 1, because),
        Skipped(3, 2, 4, because),
        PagesAdded(5, [Page(0, 2, b"")]),
    )
    assert folding.counts(3) == ("running", 0, 0, 2, 0)
    folding.tell(RunClosed(1, "crashed"))
    assert folding.rows("SELECT id, state, cause, skipped FROM tasks ORDER BY id") == [
        (1, "skipped", "closed", 1),
        (2, "skipped", "dependency", 1),
        (3, "skipped", None, 4),
        (4, "skipped", "closed", 1),
        (5, "skipped", None, 2),
    ]
    assert folding.rows("SELECT start, stop, cause FROM spans WHERE id = 3 ORDER BY start") == [
        (0, 2, "closed"),
        (2, 4, "dependency"),
    ]
    assert folding.rows("SELECT count(*) FROM attempts WHERE state IN ('placed', 'running')") == [(0,)]
    assert folding.rows("SELECT closed, reason FROM runs") == [(3.0, "crashed")]


def test_reused_work_says_so_and_shows_what_the_first_run_knew(folding):
    out = Detail(3, 0, 1.0, 2.0, stdout=Stream("/out", 0, 9), outputs=(Output("o", "/x", 1, 2),))
    array = ArraySpec(1, Kind.COMMAND, b"unknown", 5)
    folding.tell(Submitted([array, a_task(2)]), ended(1, 1, 0, 5, details=(out,)), ended(2, 2), RunClosed(1))
    folding.tell(RunOpened(2, "w", "here", 9), Submitted([ArraySpec(3, Kind.COMMAND, b"unknown", 5), a_task(4)]))
    folding.tell(
        MemoLookedUp(3, 1, 4, True, 1, 2, 1, 2), MemoLookedUp(3, 4, 5, False), MemoLookedUp(4, 0, 1, True, 2, 0, 1, 2)
    )
    assert folding.rows("SELECT id, state, reused, done, turn FROM tasks WHERE run = 2") == [
        (3, "ready", 3, 3, 0),
        (4, "done", 1, 1, 2),
    ]
    assert folding.rows("SELECT id, idx, state, stdout_path, reused FROM elements WHERE id = 3") == [
        (3, 2, "done", "/out", 1)
    ]
    assert folding.rows("SELECT id, idx, path FROM files WHERE id = 3") == [(3, 2, "/x")]


# --- reading beside a writer ------------------------------------------------------------------------


def test_readers_see_new_rows_while_the_store_is_written(folding):
    with JobsDatabase(folding.store.directory) as jobs:
        for number in range(1, 20):
            folding.tell(Submitted([a_task(number)]))
            assert jobs.query("SELECT count(*) FROM tasks")[1] == [(number,)]
        assert jobs.last_run()["name"] == "w"
        assert jobs.task(3)["command"] == "f"
        with pytest.raises(UnknownName):
            jobs.task(99)


def test_single_elements_are_found_with_or_without_a_row_of_their_own(folding):
    folding.tell(Submitted([an_array(1, 10)]), Placed(1, 1, 0, 5, 1, 1), ended(1, 1, 0, 4), failed(1, 1, 4))
    with JobsDatabase(folding.store.directory) as jobs:
        assert [jobs.element(1, index)["state"] for index in (3, 4, 7)] == ["done", "failed", "waiting"]
        assert [row["idx"] for row in jobs.elements(1, state="failed")] == [4]
        assert [row["attempt"] for row in jobs.attempts(1, 4)] == [1]
        with pytest.raises(UnknownName):
            jobs.element(1, 10)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM tasks",
        "CREATE TABLE x(y)",
        "ATTACH '/tmp/x' AS y",
        "PRAGMA journal_mode = DELETE",
        "SELECT 1; DELETE FROM tasks",
        "BEGIN IMMEDIATE",
        "SELECT nonsense",
        "VACUUM",
        "UPDATE sqlite_master SET name = 'x'",
        "SELECT load_extension('x')",
        "",
    ],
)
def test_only_reads_are_let_through(folding, sql):
    with JobsDatabase(folding.store.directory) as jobs, pytest.raises(UserError):
        jobs.query(sql)


def test_a_directory_without_a_store_is_said_to_have_none(tmp_path):
    with pytest.raises(UnknownName, match="no store"):
        JobsDatabase(tmp_path)


# --- when the disk or the file fails ----------------------------------------------------------------


def fill(store: SqliteStore) -> int:
    """Append until it fails; the number of turns that were acknowledged."""
    written: list[int] = []

    def append() -> None:
        for turn in range(1, 10_000):
            store.append(turn, 1.0, [Submitted([a_task(turn, payload_path="x" * 5000)])])
            written.append(turn)

    with pytest.raises(StoreFailed, match="is full: free some space and run again; nothing acknowledged") as caught:
        append()
    assert caught.value.transient
    return len(written)


def test_a_file_that_may_not_grow_loses_nothing_acknowledged(tmp_path):
    store = SqliteStore(tmp_path)
    store._database.execute("PRAGMA max_page_count = 200")
    written = fill(store)
    store.put_blob(b"b" * 16, b"x" * 10_000)
    with pytest.raises(StoreFailed):
        store.append(written + 1, 1.0, [])
    with pytest.raises(StoreFailed):
        store.project()
    store._database.execute("PRAGMA max_page_count = 100000")
    store.append(written + 1, 1.0, [RunOpened(1, "w", "here", 7)])
    assert store.project()
    assert store.last_run().last_record == written
    store.close()
    store = SqliteStore(tmp_path)
    assert [turn for turn, _, _ in store.journal()] == list(range(1, written + 2))
    assert store.blob(b"b" * 16) == b"x" * 10_000
    store.close()


def test_a_full_disk_loses_nothing_acknowledged(tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", mount], capture_output=True, check=False)
    if made.returncode:
        problem = made.stderr.decode().strip()
        pytest.skip(f"a small file system cannot be mounted ({problem}): root, where mounting is allowed, includes it")
    try:
        (mount / "ballast").write_bytes(b"x" * 1_000_000)
        store = SqliteStore(mount / "store")
        written = fill(store)
        assert written
        (mount / "ballast").unlink()
        store.append(written + 1, 1.0, [])
        store.sync()
        assert [turn for turn, _, _ in store.journal()] == list(range(1, written + 2))
        store._database.close()
        os.close(store._log)
    finally:
        subprocess.run(["umount", "-l", mount], check=True)


def test_a_damaged_file_is_said_to_be_damaged(tmp_path):
    (tmp_path / "journal.db").write_bytes(b"this is not a database at all" * 100)
    with pytest.raises(StoreFailed, match="is damaged"):
        SqliteStore(tmp_path)


def test_a_store_that_cannot_be_made_says_why(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreFailed):
        SqliteStore(tmp_path / "file" / "store")


def test_a_store_of_a_newer_version_is_refused(tmp_path):
    store = SqliteStore(tmp_path)
    store._database.execute("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(StoreFailed, match="newer version"):
        SqliteStore(tmp_path)


def test_sync_may_run_in_another_thread_while_turns_are_appended(tmp_path):
    store = SqliteStore(tmp_path)
    store.append(1, 1.0, [])
    problems: list[BaseException] = []

    def sync() -> None:
        try:
            for _ in range(20):
                store.sync()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    for turn in range(2, 500):
        store.append(turn, 1.0, [])
    thread.join()
    store.close()
    assert not problems


# --- copies ------------------------------------------------------------------------------------------


def test_a_backup_is_consistent_while_another_process_appends(tmp_path):
    with appending(str(tmp_path / "store")) as turns:
        turns(200)
        with pytest.raises(StoreHeld):
            copy(str(tmp_path / "store"), str(tmp_path / "copy"))
        first = backup(str(tmp_path / "store"), str(tmp_path / "first"))
        turns(400)
        second = backup(str(tmp_path / "store"), str(tmp_path / "second"))
    assert 200 <= first.turns < second.turns
    for made in (first, second):
        assert sorted(os.listdir(made.target)) == ["journal.db"]
        store = SqliteStore(made.target)
        assert [turn for turn, _, _ in store.journal()] == list(range(1, made.turns + 1))
        assert store.last_run().last_record == made.turns - 1
        store.close()
    with pytest.raises(Clash, match="choose another folder"):
        backup(str(tmp_path / "store"), str(tmp_path / "first"))


def test_a_copy_is_equal_and_is_not_made_over_another_store(tmp_path):
    store = SqliteStore(tmp_path / "one")
    content = b"a function"
    blob = blake2b(content, digest_size=16).digest()
    store.put_blob(blob, content)
    for turn, facts in enumerate([OPENED, [Submitted([TaskSpec(1, Kind.FUNCTION, blob, b"")])], [RunClosed(1)]], 1):
        store.append(turn, turn / 3, facts)
    store.save_snapshot(2, 1, b"core")
    store.close()
    made = copy(str(tmp_path / "one"), str(tmp_path / "two"))
    assert (made.turns, made.blobs, made.snapshots) == (3, 1, 1)
    assert check(made.target).problems == []
    with JobsDatabase(tmp_path / "two") as jobs:
        assert jobs.task(1)["state"] == "ready"
    with pytest.raises(Clash, match="is not empty"):
        copy(str(tmp_path / "one"), str(tmp_path / "two"))
    with pytest.raises(UnknownName, match="there is no store"):
        copy(str(tmp_path / "none"), str(tmp_path / "three"))
    assert not (tmp_path / "none").exists()


def test_a_check_finds_what_is_damaged_or_missing(tmp_path):
    store = SqliteStore(tmp_path)
    store.put_blob(b"x" * 16, b"not what the name says")
    for turn, facts in enumerate([OPENED, [Submitted([a_task(1)])], [], []], 1):
        store.append(turn, 1.0, facts)
    store.save_snapshot(9, 1, b"")
    store.project()
    store._database.execute("UPDATE journal SET facts = x'01c1' WHERE turn = 4")
    store._database.execute("DELETE FROM journal WHERE turn = 3")
    store._database.close()
    found = check(str(tmp_path))
    assert (found.turns, found.last_turn, found.blobs, found.snapshots) == (3, 4, 1, 1)
    assert [problem.split(":")[0] for problem in found.problems] == [
        "turns 3 to 3 are missing",
        "turn 4 cannot be read",
        f"the blob {(b'x' * 16).hex()} is not what its name says",
        f"the blob {(b'b' * 16).hex()}, which turn 2 needs, is missing",
        "the snapshot of run 1 is of turn 9, which is not there",
    ]


def test_a_check_finds_nothing_wrong_with_dependencies(tmp_path):
    """SQLite 3.40's quick_check reports NULLs in the key of this table that are not there."""
    store = SqliteStore(tmp_path)
    store.append(1, 1.0, OPENED)
    store.project()
    store._database.execute("INSERT INTO after(id, on_kind, on_id, on_idx, idx) VALUES (2, 'task', 1, 0, -1)")
    store._database.close()
    assert check(str(tmp_path)).problems == []


def test_the_command_line_backs_up_checks_and_copies(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(tmp_path / "home"))
    store = SqliteStore(tmp_path / ".bough" / "w")
    store.append(1, 1.0, [*OPENED, RunClosed(1)])
    store.close()
    assert main(["store", "backup", "saved", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["turns"] == 1
    assert main(["store", "copy", "saved", "copied", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"]
    assert main(["store", "check", "--store", "copied"]) == 0
    assert "nothing is wrong with it" in capsys.readouterr().out
    with sqlite3.connect("copied/journal.db") as database:
        database.execute("UPDATE journal SET facts = x'01c1'")
    database.close()
    assert main(["store", "check", "--store", "copied", "--json"]) == 3
    assert "turn 1 cannot be read" in json.loads(capsys.readouterr().out)["problems"][0]
    assert main(["store", "copy", "nowhere", "x"]) == 2


# --- locks, file systems, spills --------------------------------------------------------------------

HOLD = """
import sys
from bough.stores.folder.store_lock import StoreLock
lock = StoreLock(sys.argv[1])
print("held", flush=True)
input()
"""


def test_a_second_process_is_told_who_holds_the_store(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(StoreHeld, match=f"the store {tmp_path} is held by pid {child.pid} on host .*; wait for it"):
            StoreLock(tmp_path)
        child.kill()
    with StoreLock(tmp_path):
        assert holder(tmp_path)[0] == os.getpid()
        with pytest.raises(StoreHeld):
            StoreLock(tmp_path)
    StoreLock(tmp_path).release()


def test_network_file_systems_are_known_by_their_mounts(tmp_path):
    mounts = "/dev/a / ext4 rw 0 0\nserver:/x /home nfs4 rw 0 0\n"
    mounts += "scratch /my\\040scratch lustre rw 0 0\nt /home/t tmpfs rw 0 0\n"
    assert is_network_filesystem("/home/me/.bough", mounts)
    assert is_network_filesystem("/my scratch/x", mounts)
    assert not is_network_filesystem("/homely", mounts)
    assert not is_network_filesystem("/home/t/x", mounts)
    assert not is_network_filesystem(tmp_path / "x", "")
    assert isinstance(is_network_filesystem(tmp_path), bool)


def test_spilled_reports_of_the_version_before_are_read(tmp_path):
    former = [
        SpanStarted(1, 0, 1, host="h"),
        SpanEnded(1, 0, 1, 0.5, b"r", host="h"),
        SpanReturned(2, 3, 4),
        ElementFailed(3, 0, Failure(Cause.EXIT, "boom"), Detail(0), host="h"),
    ]
    (tmp_path / "12.spill").write_bytes(b"".join([frame(Report(1, former)), frame(Report(2, [WorkReturned(5, 0, 1)]))]))
    assert read_spills(tmp_path) == [
        (
            12,
            [
                WorkStarted(1, 0, 1, "h"),
                WorkSucceeded(1, 0, 1, 0.5, b"r", host="h"),
                WorkReturned(2, 3, 4),
                WorkFailed(3, 0, Failure(Cause.EXIT, "boom"), Detail(0), "h"),
                WorkReturned(5, 0, 1),
            ],
        )
    ]


def test_spilled_reports_are_read_in_order_and_a_torn_tail_is_tolerated(tmp_path):
    spill = tmp_path / "spill"
    spill.mkdir()
    first, second, third = (WorkSucceeded(n, 0, 1, 0.5, b"r") for n in (1, 2, 3))
    frames = [frame(Report(2, [second])), frame(Report(1, [first]), Report(2, [second])), frame(Report(3, [third]))]
    (spill / "12.spill").write_bytes(b"".join(frames)[:-1])
    (spill / "3.spill").write_bytes(bytes(frames[2]) + b"\0\0\0\4\xc1\xc1\xc1\xc1" + bytes(frames[0]))
    (spill / "4.spill").write_bytes(b"")
    assert read_spills(tmp_path) == [(3, [third]), (4, []), (12, [first, second])]
    assert read_spills(spill) == read_spills(tmp_path)
    clear_spills(tmp_path)
    assert read_spills(tmp_path) == []
    assert read_spills(tmp_path / "nowhere") == []


def test_the_queries_of_the_documentation_run(folding):
    page = Path(__file__).parents[2] / "docs" / "reference" / "jobs-database.md"
    queries = [part.split("```")[0] for part in page.read_text().split("```sql")[1:]]
    assert len(queries) >= 6
    for query in queries:
        folding.rows(query)


def test_every_column_of_the_jobs_database_is_documented(folding):
    page = (Path(__file__).parents[2] / "docs" / "reference" / "jobs-database.md").read_text()
    sections = {part.split("\n")[0]: part for part in page.split("### ")[1:]}
    assert {"runs", "groups", "tasks", "elements", "spans", "attempts", "executors", "files", "after"} <= set(sections)
    for table, text in sections.items():
        for (name,) in folding.rows(f"SELECT name FROM pragma_table_info('{table}')"):
            assert f"`{name}`" in text, f"{table}.{name}"
