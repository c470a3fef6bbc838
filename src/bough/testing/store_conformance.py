"""What every store must do: subclass `StoreSuite` and say how the store is opened.

    class TestMine(StoreSuite):
        @staticmethod
        def open_store(directory: Path) -> MyStore:
            return MyStore(directory)

        def size(self, store: MyStore) -> int: ...        # bytes on the disk
        def fold_anew(self, store: MyStore) -> None: ...  # forget that the tables are folded

The suite is for stores that keep journal and tables by SQL (`bough.stores.sql.sql_store.SqlStore`): it reads the
tables, and it writes damaged rows past the store. `pytest.register_assert_rewrite("bough.testing")` in `conftest.py`
makes pytest show the values of an assertion that fails.

Rule: pytest is imported only where a test runs or a suite is subclassed.
"""

from __future__ import annotations

import inspect
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bough.errors import InvariantBroken, StoreFailed, UserError
from bough.model.events.facts import (
    VERSION,
    Amended,
    Cancelled,
    ElementFailed,
    ExecutorJoined,
    ExecutorLost,
    Fact,
    Held,
    MemoLookedUp,
    MonitorsAdded,
    Observed,
    OutputKept,
    PilotAsked,
    PilotEnded,
    PilotQueued,
    PilotReleased,
    Placed,
    Prioritised,
    Released,
    Replicated,
    Retried,
    RetryDue,
    RunClosed,
    RunOpened,
    RunRemoved,
    RunRetired,
    RunRevived,
    SiteDefined,
    Skipped,
    SpanEnded,
    SpanReturned,
    SpanStarted,
    Submitted,
)
from bough.model.events.news import GroupClosed, PagesAdded
from bough.model.files import FileSpec
from bough.model.ids import BlobId, FileId, MemoKey, RecordId
from bough.model.monitoring.observations import Fired, Observation, Points, Trouble
from bough.model.outcomes import Cause, Detail, Failure, Output, ResultFile, Stream
from bough.model.reuse_scope import ReuseScope
from bough.model.sites.resources import Needs
from bough.model.sites.site_specs import SiteSpec
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Kind, On, Page, Reuse, TaskExtras, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.stores.core_hours import DAY, HOUR, MINUTE
from bough.stores.jobs.rows import TaskRow
from bough.stores.maintenance.copies import check, copy
from bough.stores.maintenance.repair import repair
from bough.stores.maintenance.replay import replay_run
from bough.stores.sql.sql_store import SqlStore
from bough.stores.store import KeptStreams, LastRun, Store

if TYPE_CHECKING:
    import pytest

Opened = Callable[[], SqlStore]  # the fixture `opened`: opens the store of this test, as a fresh process would
BODY = b"b" * 16
KEY = b"k" * 16


def a_task(number: int, **fields: Any) -> TaskSpec:
    """A loose task, with a body that no test runs."""
    return TaskSpec(number, Kind.FUNCTION, **{"body": BODY, "payload": b"payload", "template": "f", **fields})


def an_array(number: int, length: int, **fields: Any) -> ArraySpec:
    """An array of the same body."""
    return ArraySpec(number, Kind.FUNCTION, BODY, length, **{"template": "f", **fields})


def ended(span: int, record: int, start: int = 0, stop: int = 1, **fields: Any) -> SpanEnded:
    """The success of some elements, or of a task."""
    return SpanEnded(span, start, stop, 0.5, **{"record": record, "attempt": 1, "executor": 1, **fields})


def failed(span: int, record: int, index: int = 0, **fields: Any) -> ElementFailed:
    """The failure of one element, or of a task."""
    failure = Failure(Cause.EXIT, "it exited with 3", exit_code=3)
    return ElementFailed(span, index, **{"failure": failure, "record": record, "attempt": 1, "executor": 1, **fields})


def output_of(path: Path, slot: str = "o") -> Output:
    """A file as an output that a task made."""
    made = path.stat()
    return Output(slot, str(path), made.st_size, made.st_mtime_ns)


SEEN: list[Observation] = [
    Points("score", ((1, 10.0, -3.5), (2, 11.0, -4.0)), 300),
    Fired(11.5, "converged", 0, "plateau", "finish", "std 0.00007 < 0.0001", 0.00007, count=143, total=300),
    Fired(11.5, "hot", 1, "regex", "tag", text="T=90\0", name="warm"),
    Trouble(12.0, "broken", "its function raised ValueError"),
]
OPENED: list[Fact] = [RunOpened(1, "w", "here", 7), ExecutorJoined(1, "local", "here", 8, Needs(cores=4))]

A_HISTORY: list[list[Fact]] = [
    OPENED,
    [
        Submitted(
            [GroupSpec(1, "align"), GroupSpec(2, "sub", 1), a_task(1, group=2), a_task(2, after=(Dep(On.TASK, 1),))]
        )
    ],
    [Submitted([an_array(3, 100, key=KEY), an_array(4, 10, pages=(Page(0, 10, b"p"),), open=True, key=KEY)])],
    [Placed(1, 1, 0, 1, 1, 1), Placed(2, 3, 0, 50, 1, 1), Placed(3, 3, 50, 100, 1, 1, True)],
    [SpanStarted(2, 0, 50, 3), SpanStarted(1, 0, 1, 1)],
    [Observed(1, 1, 0, 1, SEEN), Observed(2, 3, 7, 1, SEEN[:1]), MonitorsAdded(Dep(On.ARRAY, 4), BlobId(b"p" * 16))],
    [failed(1, 1, retry_at=9.0), ended(2, 3, 0, 20, key=KEY), failed(2, 3, 20, retry_at=9.0), failed(2, 3, 21)],
    [PagesAdded(4, [Page(10, 30, b"q")]), RetryDue(1, 0)],
    [SpanReturned(3, 75, 100, 3), Placed(4, 1, 0, 1, 2, 1), Held(Dep(On.ARRAY, 4))],
    [ended(2, 3, 22, 50, key=KEY), ended(4, 1, attempt=2), Placed(5, 3, 20, 21, 2, 1)],
    [ended(5, 3, 20, 21, attempt=2, key=KEY), Cancelled(Dep(On.ARRAY, 3, 60), 80)],
    [Placed(6, 2, 0, 1, 1, 1), ExecutorLost(1, "it was killed"), ExecutorJoined(2, "local", "here", 9, Needs())],
    [failed(6, 2), Skipped(4, 5, 9, Failure(Cause.DEPENDENCY, "task 2 failed"))],
    [Retried(Dep(On.GROUP, 0)), PagesAdded(4, [], last=True)],
    [Placed(7, 3, 50, 60, 2, 2), ended(7, 3, 50, 55, attempt=2, executor=2, key=KEY)],
    [RunClosed(1, "interrupted")],
]

# run 2 and run 3 are two runs of one workflow in a service; the second reuses a task of the first
A_SERVICE: list[list[Fact]] = [
    [RunOpened(1, "bough", "here", 7), ExecutorJoined(1, "local", "here", 8, Needs(cores=4))],
    [RunOpened(2, "w", "there", 9, group=5, directory="/d", user="me")],
    [Submitted([GroupSpec(6, "sub", 5), a_task(1, group=5, writes=("/a",), key=KEY)])],
    [Submitted([an_array(2, 2, group=6, key=KEY, pages=(Page(0, 2, b"p"),)), a_task(3, group=6, body=b"c" * 16)])],
    [Placed(1, 1, 0, 1, 1, 1), Placed(2, 2, 0, 2, 1, 1), Placed(3, 3, 0, 1, 1, 1)],
    [SpanStarted(2, 0, 2, 2)],
    [ended(1, 1, key=b"l" * 16, results=b"r"), ended(2, 2, 0, 2, key=KEY), failed(3, 3)],
    [GroupClosed(5), RunClosed(2)],
    [RunOpened(3, "w", "there", 9, group=7)],
    [Submitted([GroupSpec(8, "sub", 7), a_task(4, group=8), a_task(5, group=8, after=(Dep(On.TASK, 4),))])],
    [MemoLookedUp(4, 0, 1, True, 1, 0, 1, 7)],
    [Placed(5, 5, 0, 1, 1, 1)],
    [SpanReturned(5, 0, 1, 5), Held(Dep(On.GROUP, 7)), Released(Dep(On.GROUP, 7))],
]

# a workflow of five tasks, the description of which is changed while it runs
AN_AMENDED: list[list[Fact]] = [
    [RunOpened(1, "bough", "here", 7), ExecutorJoined(1, "local", "here", 8, Needs(cores=4))],
    [RunOpened(2, "w", "there", 9, group=5)],
    [
        Submitted(
            [
                GroupSpec(6, "g", 5),
                a_task(1, group=6, name="done", key=KEY),
                a_task(2, group=6, name="gone"),
                a_task(3, group=5, name="runs"),
                a_task(4, group=5, name="waits", after=(Dep(On.TASK, 1), Dep(On.TASK, 3))),
                GroupSpec(7, "old", 5, (Dep(On.TASK, 1),)),
                a_task(5, group=7, name="old"),
            ]
        )
    ],
    [GroupClosed(6), GroupClosed(7), GroupClosed(5)],
    [Placed(1, 1, 0, 1, 1, 1), Placed(2, 2, 0, 1, 1, 1), Placed(3, 3, 0, 1, 1, 1)],
    [ended(1, 1, key=b"m" * 16), SpanStarted(2, 0, 1, 2), SpanStarted(3, 0, 1, 3)],
    [Placed(4, 5, 0, 1, 1, 1), ended(4, 5)],
    [
        Amended(
            2,
            [GroupSpec(8, "new", 5, (Dep(On.GROUP, 6),)), a_task(6, group=8, name="new", after=(Dep(On.TASK, 3),))],
            [
                GroupSpec(6, "g", 5, (Dep(On.TASK, 3),)),
                a_task(1, group=6, name="done", needs=Needs(cores=2), key=KEY),
                a_task(3, group=5, name="runs", priority=3),
                a_task(4, group=5, name="waits", after=(Dep(On.TASK, 3),)),
            ],
            removed=(2, 5),
            removed_groups=(7,),
            parts=((1, 0, 1), (3, 0, 1)),
        )
    ],
    [Placed(5, 3, 0, 1, 2, 1), ended(5, 3, attempt=2)],
]


HUGE = 2**64 - 1

# facts of stores of earlier versions that no database can hold, and that no store is given any more
POISONS: dict[str, Fact] = {
    "priority": Submitted([a_task(9, priority=2**63)]),
    "id": Submitted([a_task(HUGE)]),
    "array": Submitted([an_array(9, 3, priority=2**63)]),
    "cancelled": Cancelled(Dep(On.TASK, HUGE)),
    "prioritised": Prioritised(Dep(On.TASK, 1), 2**63),
    "executor": ExecutorJoined(9, "local", "here", HUGE, Needs()),
    "memory": ExecutorJoined(9, "local", "here", 7, Needs(memory=HUGE)),
    "exit code": failed(1, 1, retry_at=9.0, detail=Detail(0, exit_code=1, memory=HUGE)),
    "offset": ended(1, 1, details=(Detail(0, stdout=Stream("/o", HUGE, 1)),)),
}


def raises(kind: type[Exception], match: str | None = None) -> AbstractContextManager[Any]:
    """`pytest.raises`, imported when a test runs."""
    import pytest

    return pytest.raises(kind, match=match)


def as_it_was(facts: list[Fact]) -> bytes:
    """A row of the journal as an earlier version wrote it."""
    return bytes((VERSION,)) + msgspec.msgpack.encode(facts)


class StoreSuite:
    """The suite; `open_store` is called with a directory as often as a test wants a fresh process's view."""

    open_store: Callable[[Path], SqlStore]

    def __init_subclass__(cls, **options: Any) -> None:
        """The fixtures of the tests. Made here, so that this module is imported without pytest."""
        import pytest

        super().__init_subclass__(**options)

        def opened(self: StoreSuite, tmp_path: Path) -> Iterator[Opened]:
            stores: list[SqlStore] = []

            def open_again() -> SqlStore:
                while stores:
                    stores.pop().close()
                stores.append(type(self).open_store(tmp_path / "store"))
                return stores[-1]

            yield open_again
            while stores:
                stores.pop().close()

        def poison(self: StoreSuite, request: pytest.FixtureRequest) -> str:
            return str(request.param)

        cls.opened = pytest.fixture(opened)  # type: ignore[attr-defined]
        cls.poison = pytest.fixture(params=list(POISONS))(poison)  # type: ignore[attr-defined]

    def write(self, store: Store, *turns: list[Fact]) -> int:
        turn = store.last_run().last_turn
        for facts in turns:
            turn += 1
            store.append(turn, 100.0 + turn, facts)
        return turn

    def place(self, directory: Path) -> str:
        """Where the store of a directory is, in the words of a user."""
        return str(directory)

    def smuggle(self, store: SqlStore, row: bytes) -> int:
        """Write a row past all checks."""
        turn = store.last_turn + 1
        store._database.execute("INSERT INTO journal VALUES (?, ?, ?)", (turn, 100.0 + turn, row))
        store.reopened()
        return turn

    def tables(self, store: SqlStore) -> dict[str, list[tuple[object, ...]]]:
        names = ["runs", "groups", "tasks", "elements", "spans", "attempts", "executors", "files", "after"]
        names += ["pilots"]
        names += ["memo", "arrays", "array_pages", "borrowed", "blob_uses", "declared", "group_after"]
        read = store._database.execute
        return {name: sorted(read(f"SELECT * FROM {name}").fetchall(), key=repr) for name in names}

    # --- the journal ---

    def test_a_new_store_is_empty_and_clean(self, opened: Opened) -> None:
        assert opened().last_run() == LastRun(0, True, 0, 0, 0, 0, 0)

    def test_what_was_appended_is_read_back_equal_and_in_order(self, opened: Opened) -> None:
        store = opened()
        self.write(store, *A_HISTORY)
        store = opened()
        read = list(store.journal())
        assert [turn for turn, _, _ in read] == list(range(1, len(A_HISTORY) + 1))
        assert [facts for _, _, facts in read] == A_HISTORY
        assert [time for _, time, _ in read] == [100.0 + turn for turn in range(1, len(A_HISTORY) + 1)]
        assert [turn for turn, _, _ in store.journal(after=12)] == list(range(13, len(A_HISTORY) + 1))
        assert store.turn(3) == A_HISTORY[2]

    def test_a_store_that_is_closed_in_no_time_is_brought_up_to_date_by_who_opens_it_next(self, opened: Opened) -> None:
        store = opened()
        tasks = [[Submitted([a_task(number, writes=(f"/{number}",))])] for number in range(1, 41)]
        self.write(store, OPENED, *tasks, [RunClosed(1)])
        store.close(within=0)
        store = opened()
        read = store._database.execute
        assert 0 < read("SELECT turn FROM position").fetchone()[0] < 42  # it began, and left the rest
        assert store.last_run() == LastRun(1, True, 42, 40, 0, 1, 0, 1)
        assert read("SELECT count(*) FROM tasks").fetchone()[0] == 40
        assert len(store.declared_paths()) == 40

    def test_a_turn_out_of_order_is_refused(self, opened: Opened) -> None:
        store = opened()
        self.write(store, OPENED)
        for wrong in (1, 3):
            with raises(InvariantBroken):
                store.append(wrong, 1.0, [])

    def test_the_last_run_tells_the_highest_ids_and_whether_it_was_closed(self, opened: Opened) -> None:
        store = opened()
        self.write(store, *A_HISTORY[:-1])
        assert store.last_run() == LastRun(1, False, 15, 4, 2, 2, 7, 1)
        self.write(store, A_HISTORY[-1], [RunOpened(2, "w", "here", 7)], [RunClosed(2)])
        assert opened().last_run() == LastRun(2, True, 18, 4, 2, 2, 7, 2)

    def test_a_run_is_found_by_the_turn_that_opened_it(self, opened: Opened) -> None:
        store = opened()
        self.write(store, OPENED, [], [RunClosed(1)], [], [RunOpened(2, "w", "here", 7)])
        assert (store.turns_of_run(1), store.turns_of_run(2)) == (1, 5)
        with raises(KeyError):
            store.turns_of_run(3)

    def test_sync_may_be_called_at_any_time(self, opened: Opened) -> None:
        store = opened()
        store.sync()
        self.write(store, OPENED)
        store.sync()

    # --- blobs and snapshots ---

    def test_blobs_are_there_at_once_and_kept_with_the_next_turn(self, opened: Opened) -> None:
        store = opened()
        store.put_blob(BODY, b"content")
        assert store.blob(BODY) == b"content"
        self.write(store, OPENED)
        store.put_blob(BODY, b"content")
        self.write(store, [])
        assert opened().blob(BODY) == b"content"
        store = opened()
        with raises(KeyError):
            store.blob(b"x" * 16)

    def test_the_newest_snapshot_of_a_run_is_kept(self, opened: Opened) -> None:
        store = opened()
        self.write(store, OPENED, [], [])
        assert store.snapshot(1) is None
        store.save_snapshot(2, 1, b"two")
        store.save_snapshot(3, 1, b"three")
        store.save_snapshot(3, 2, b"other")
        assert opened().snapshot(1) == (3, b"three")

    # --- memos ---

    def test_a_loose_task_of_an_earlier_run_is_recalled_by_its_key(self, opened: Opened) -> None:
        store = opened()
        done = ended(1, 1, key=KEY, results=b"r")
        self.write(store, OPENED, [Submitted([a_task(1)]), Placed(1, 1, 0, 1, 1, 1)], [done], [RunClosed(1)])
        self.write(store, [RunOpened(2, "w", "here", 7)])
        assert store.look_up(9, 0, 1, KEY, ()) == [MemoLookedUp(9, 0, 1, True, 1, 0, 1, 3)]
        assert store.look_up(9, 0, 1, b"other", ()) == [MemoLookedUp(9, 0, 1, False)]
        assert store.success(3, 1, 0) == done
        assert store.success(3, 1, 1) is None
        assert store.success(99, 1, 0) is None

    def test_the_newest_of_two_successes_is_recalled(self, opened: Opened) -> None:
        store = opened()
        self.write(store, OPENED, [Submitted([a_task(1)])], [ended(1, 1, key=KEY)], [RunClosed(1)])
        self.write(store, [RunOpened(2, "w", "h", 7), Submitted([a_task(2)]), ended(2, 2, key=KEY)], [RunClosed(2)])
        self.write(store, [RunOpened(3, "w", "h", 7)])
        assert store.look_up(9, 0, 1, KEY, ())[0].source == 2

    def opened_by(self, store: SqlStore, run: int, script: str, key: bytes, closed: RunClosed | None) -> None:
        """A run of a script that did one task."""
        done = ended(run, run, key=key)
        begun = RunOpened(run, "w", "h", 7, memos=True, reuse=ReuseScope.UNFINISHED, script=script)
        self.write(store, [begun], [Submitted([a_task(run)]), done], *([[closed]] if closed else []))

    def test_only_unfinished_runs_since_the_last_good_script_run_count_unless_all_do(self, opened: Opened) -> None:
        keys = [bytes([number]) * 16 for number in range(6)]
        store = opened()
        self.opened_by(store, 1, "old", keys[1], RunClosed(1, "interrupted"))
        self.opened_by(store, 2, "good", keys[2], RunClosed(2))
        self.opened_by(store, 3, "bad", keys[3], RunClosed(3))
        self.opened_by(store, 4, "bad", keys[4], RunClosed(4, "done", unfinished=True))
        assert store.unfinished_runs("new") == {4}
        self.opened_by(store, 5, "new", keys[5], RunClosed(5, "crashed"))
        assert store.unfinished_runs("new") == {4, 5}
        assert store.completed_runs("bad") == [3]
        self.write(store, [RunClosed(3, "done", unfinished=True)])
        assert store.unfinished_runs("new") == {3, 4, 5}
        self.write(store, [RunOpened(6, "w", "h", 7, script="newest")])

        def found(always: bool) -> list[bool]:
            alone = [store.look_up(9, 0, 1, key, (), always=always)[0].found for key in keys]
            together = store.look_up_tasks([(RecordId(9), MemoKey(key)) for key in keys], always=always)
            assert [answer.found for answer in together] == alone
            return alone

        assert found(always=True) == [False, True, True, True, True, True]
        assert found(always=False) == [False, False, False, True, True, True]

    def test_what_a_run_that_ended_well_has_used_does_not_count_as_unfinished(self, opened: Opened) -> None:
        store = opened()
        self.opened_by(store, 1, "one", KEY, RunClosed(1, "interrupted"))
        used = MemoLookedUp(2, 0, 1, True, 1, 0, 1, 2)
        again = RunOpened(2, "w", "h", 7, memos=True, script="one")
        self.write(store, [again], [Submitted([a_task(2)])], [used], [RunClosed(2)])
        self.write(store, [RunOpened(3, "w", "h", 7, script="one")])
        assert store.look_up(9, 0, 1, KEY, (), always=True)[0].found
        assert not store.look_up(9, 0, 1, KEY, (), always=False)[0].found

    def test_arrays_of_runs_that_ended_well_count_only_for_who_looks_everywhere(self, opened: Opened) -> None:
        store = opened()
        for run, closed in ((1, RunClosed(1)), (2, RunClosed(2, "interrupted"))):
            begun = RunOpened(run, "w", "h", 7, script=f"script {run}")
            array = Submitted([an_array(run, 2, key=KEY, pages=(Page(0, 2, b"p"),))])
            self.write(store, [begun], [array, ended(run, run, 0, 2, key=KEY)], [closed])
        self.write(store, [RunOpened(3, "w", "h", 7, script="now")])
        assert [old.record for old in store.old_arrays(KEY)] == [2, 1]
        assert [old.record for old in store.old_arrays(KEY, always=False)] == [2]
        assert [store.old_feeds(KEY), store.old_feeds(KEY, always=False)] == [[2, 1], [2]]
        reuse = (Reuse(0, 2, 1, 0),)
        assert store.look_up(9, 0, 2, KEY, reuse) == [MemoLookedUp(9, 0, 2, True, 1, 0, 1, 2)]
        assert store.look_up(9, 0, 2, KEY, reuse, always=False) == [MemoLookedUp(9, 0, 2, False)]

    def test_runs_are_expendable_that_nothing_can_ask_for(self, opened: Opened) -> None:
        store = opened()
        keys = [bytes([number]) * 16 for number in range(9)]
        self.opened_by(store, 1, "gone", keys[1], RunClosed(1))
        self.opened_by(store, 2, "alive", keys[2], RunClosed(2))
        lasting = [Submitted([a_task(3, always=True)]), ended(3, 3, key=keys[3])]
        self.write(store, [RunOpened(3, "w", "h", 7, reuse=ReuseScope.NONE, script="3")], lasting, [RunClosed(3)])
        everything = [Submitted([a_task(4)]), ended(4, 4, key=keys[4])]
        self.write(store, [RunOpened(4, "w", "h", 7, script="4")], everything, [RunClosed(4)])
        again = [Submitted([a_task(5)]), ended(5, 5, key=keys[4])]  # the same work: only the latest counts
        self.write(store, [RunOpened(5, "w", "h", 7, script="5")], again, [RunClosed(5)])
        self.opened_by(store, 6, "6", keys[6], RunClosed(6))
        used = [Submitted([a_task(7)]), MemoLookedUp(7, 0, 1, True, 6, 0, 1, 18)]
        self.write(store, [RunOpened(7, "w", "h", 7, script="7")], used, [RunClosed(7, "interrupted")])
        found = store.expendable_runs("new", lambda one: one.script == "alive", spare_last=False)
        assert found.runs == (1, 4)  # 6 has what 7 uses, which is unfinished
        assert (found.records, found.ended) == (((1, 1), (4, 4)), tuple((n, n) for n in (1, 3, 4, 5, 6, 7)))
        self.opened_by(store, 8, "8", keys[8], RunClosed(8))
        assert store.expendable_runs("new", lambda _: False, spare_last=True).runs == (1, 2, 4, 6, 7)
        assert store.expendable_runs("new", lambda _: False, spare_last=False).runs == (1, 2, 4, 6, 7, 8)
        self.write(store, [RunOpened(9, "w", "h", 7, script="new")])
        assert not store.look_up(9, 0, 1, keys[1], ())[0].found  # its files may be gone
        assert store.look_up(9, 0, 1, keys[3], ())[0].found

    def test_runs_of_a_session_are_removed_and_their_numbers_are_not_given_again(self, opened: Opened) -> None:
        store = opened()
        keys = [bytes([number]) * 16 for number in range(9)]
        for run in range(1, 6):
            self.opened_by(store, run, f"{run}", keys[run], RunClosed(run))
        before = store.last_run()
        self.write(store, [RunRemoved(1), RunRemoved(3)])
        while not store.remove_runs((1, 3)):
            pass
        assert [store.has_run(run) for run in range(1, 6)] == [False, True, False, True, True]
        left = [fact for _, _, facts in store.journal() for fact in facts]
        assert [fact.record for fact in left if isinstance(fact, SpanEnded)] == [2, 4, 5]
        assert store.last_run() == msgspec.structs.replace(before, last_turn=store.last_turn)
        self.write(store, [RunOpened(6, "w", "h", 7)])
        assert [store.look_up(9, 0, 1, key, ())[0].found for key in keys[1:6]] == [False, True, False, True, True]

    def test_many_loose_tasks_recalled_together_get_what_each_gets_alone(self, opened: Opened, tmp_path: Path) -> None:
        path = tmp_path / "made"
        path.write_text("content")
        keys = [number.to_bytes(16, "big") for number in range(1, 601)]
        store = opened()
        tasks = [ended(n, n, key=key, results=b"r") for n, key in enumerate(keys, 1) if n % 3]
        tasks.append(ended(700, 700, key=b"checked", details=(Detail(0, outputs=(output_of(path),)),)))
        self.write(store, OPENED, [Submitted([a_task(done.record) for done in tasks])], tasks, [RunClosed(1)])
        newer = ended(701, 701, key=keys[0])
        self.write(store, [RunOpened(2, "w", "h", 7), Submitted([a_task(701)]), newer], [RunClosed(2)])
        self.write(store, [RunOpened(3, "w", "h", 7)])
        wanted = [(record, key) for record, key in enumerate([*keys, b"checked", b"unheard of"], 1000)]
        alone = [store.look_up(record, 0, 1, key, ())[0] for record, key in wanted]
        assert store.look_up_tasks(wanted) == alone
        assert [found.found for found in alone[:3]] == [True, True, False]
        assert [found.found for found in alone[-2:]] == [True, False]
        path.unlink()
        assert not store.look_up_tasks(wanted)[-2].found
        assert store.look_up_tasks([]) == []

    def test_nothing_is_shared_within_a_run(self, opened: Opened) -> None:
        store = opened()
        self.write(store, OPENED, [Submitted([a_task(1)])], [ended(1, 1, key=KEY)])
        store.project()
        assert store.look_up(2, 0, 1, KEY, ()) == [MemoLookedUp(2, 0, 1, False)]

    def test_a_success_without_a_key_is_never_recalled(self, opened: Opened) -> None:
        store = opened()
        self.write(store, OPENED, [Submitted([a_task(1)])], [ended(1, 1)], [RunClosed(1)], [RunOpened(2, "w", "h", 7)])
        assert not store.look_up(9, 0, 1, b"", ())[0].found

    def test_a_success_whose_output_changed_or_is_gone_does_not_count(self, opened: Opened, tmp_path: Path) -> None:
        path = tmp_path / "made"
        path.write_text("content")
        detail = Detail(0, outputs=(output_of(path),))
        store = opened()
        self.write(store, OPENED, [Submitted([a_task(1)])], [ended(1, 1, key=KEY, details=(detail,))], [RunClosed(1)])
        assert store.look_up(9, 0, 1, KEY, ())[0].found
        os.utime(path, ns=(1, 1))
        assert not store.look_up(9, 0, 1, KEY, ())[0].found
        path.unlink()
        assert not store.look_up(9, 0, 1, KEY, ())[0].found

    def test_a_success_whose_result_file_is_gone_does_not_count(self, opened: Opened, tmp_path: Path) -> None:
        path = tmp_path / "result"
        path.write_bytes(b"12345")
        store = opened()
        done = ended(1, 1, key=KEY, results=ResultFile(str(path), 5))
        self.write(store, OPENED, [Submitted([a_task(1)])], [done], [RunClosed(1)])
        assert store.look_up(9, 0, 1, KEY, ())[0].found
        path.unlink()
        assert not store.look_up(9, 0, 1, KEY, ())[0].found

    def test_elements_of_arrays_are_recalled_piece_by_piece(self, opened: Opened, tmp_path: Path) -> None:
        paths = [tmp_path / f"made{index}" for index in range(3)]
        for path in paths:
            path.write_text("x")
        details = tuple(Detail(30 + n, outputs=(output_of(path),)) for n, path in enumerate(paths))
        store = opened()
        facts: list[Fact] = [
            ended(1, 1, 0, 10, key=KEY),
            ended(2, 1, 10, 20, key=KEY),
            ended(3, 1, 25, 30, key=KEY, attempt=2),
            ended(4, 1, 30, 33, key=KEY, details=details),
        ]
        self.write(store, OPENED, [Submitted([an_array(1, 40, key=KEY)])], facts[:1], facts[1:], [RunClosed(1)])
        paths[1].unlink()
        assert store.look_up(9, 100, 145, KEY, [Reuse(102, 142, 1, 0)]) == [
            MemoLookedUp(9, 100, 102, False),
            MemoLookedUp(9, 102, 112, True, 1, 0, 1, 3),
            MemoLookedUp(9, 112, 122, True, 1, 10, 1, 4),
            MemoLookedUp(9, 122, 127, False),
            MemoLookedUp(9, 127, 132, True, 1, 25, 2, 4),
            MemoLookedUp(9, 132, 133, True, 1, 30, 1, 4),
            MemoLookedUp(9, 133, 134, False),
            MemoLookedUp(9, 134, 135, True, 1, 32, 1, 4),
            MemoLookedUp(9, 135, 145, False),
        ]
        # the middle of a success, one that continues another, and a second candidate for what the first lacks
        assert store.look_up(9, 3, 6, KEY, [Reuse(0, 40, 1, 0)]) == [MemoLookedUp(9, 3, 6, True, 1, 3, 1, 3)]
        assert store.look_up(9, 0, 6, KEY, [Reuse(0, 6, 1, 20), Reuse(0, 6, 1, 4)]) == [
            MemoLookedUp(9, 0, 5, True, 1, 4, 1, 3),
            MemoLookedUp(9, 5, 6, True, 1, 25, 2, 4),
        ]
        assert store.look_up(9, 0, 6, b"other", [Reuse(0, 40, 1, 0)]) == [MemoLookedUp(9, 0, 6, False)]

    def test_pieces_of_one_turn_that_continue_each_other_are_one(self, opened: Opened) -> None:
        store = opened()
        facts: list[Fact] = [ended(1, 1, start, start + 5, key=KEY) for start in range(0, 20, 5)]
        self.write(store, OPENED, [Submitted([an_array(1, 20, key=KEY)])], facts, [RunClosed(1)])
        assert store.look_up(9, 0, 20, KEY, [Reuse(0, 20, 1, 0)]) == [MemoLookedUp(9, 0, 20, True, 1, 0, 1, 3)]

    def test_old_arrays_come_with_their_table_or_pages_and_what_is_done(self, opened: Opened) -> None:
        store = opened()
        table = b"t" * 16
        store.put_blob(table, pickle.dumps(range(10)))
        arrays = [an_array(1, 10, key=KEY, table=table), an_array(2, 2, key=KEY, pages=(Page(0, 2, b"p"),), open=True)]
        self.write(store, OPENED, [Submitted([*arrays, an_array(3, 5, key=KEY), an_array(4, 5, key=b"other")])])
        self.write(store, [PagesAdded(2, [Page(2, 4, b"q")])])
        self.write(store, [ended(1, 1, 0, 3, key=b"full"), ended(2, 1, 3, 5, key=b"full"), ended(3, 2, 2, 4, key=b"f")])
        assert store.old_arrays(KEY) == []
        self.write(
            store, [RunClosed(1, "crashed")], [RunOpened(2, "w", "here", 7), Submitted([an_array(5, 1, key=KEY)])]
        )
        found = {array.record: array for array in store.old_arrays(KEY)}
        assert list(found) == [2, 1]
        assert (found[1].length, found[1].table, found[1].pages) == (10, pickle.dumps(range(10)), [])
        assert found[1].done == [(0, 5)]
        assert (found[2].length, found[2].pages, found[2].done) == (4, [(0, 2, b"p"), (2, 4, b"q")], [(2, 4)])

    def test_what_was_fed_is_read_again_piece_by_piece(self, opened: Opened) -> None:
        store = opened()
        self.write(store, OPENED, [Submitted([an_array(1, 0, key=KEY, open=True, fed=True)])])
        for at in range(0, 200, 2):
            done = [ended(at + 1, 1, at, at + 2, key=b"full")] if at != 100 else []
            self.write(store, [PagesAdded(1, [Page(at, at + 2, b"p%d" % at)])], done)
        assert store.old_feeds(KEY) == []
        self.write(store, [RunClosed(1, "crashed")], [RunOpened(2, "w", "here", 7)])
        assert store.old_feeds(KEY) == [1]
        first = store.fed_pages(1, 0)
        assert first.pages == [(at, at + 2, b"p%d" % at) for at in range(0, 128, 2)]
        assert first.done == [(0, 100), (102, 128)]
        second = store.fed_pages(1, first.turn)
        assert second.pages == [(at, at + 2, b"p%d" % at) for at in range(128, 200, 2)]
        assert (second.done, second.turn) == ([(128, 200)], 0)
        assert store.fed_pages(9, 0).pages == []

    def test_a_success_is_found_though_nobody_knows_its_turn(self, opened: Opened) -> None:
        store = opened()
        self.write(store, OPENED, [Submitted([an_array(1, 0, key=KEY, open=True, fed=True)])])
        self.write(
            store, [PagesAdded(1, [Page(0, 9, b"p")])], [ended(1, 1, 0, 4)], [ended(2, 1, 6, 9), ended(3, 1, 4, 5)]
        )
        found = [store.success(0, 1, index) for index in (0, 3, 4, 5, 8)]
        assert [one and (one.start, one.stop) for one in found] == [(0, 4), (0, 4), (4, 5), None, (6, 9)]

    def test_declared_paths_are_those_asked_for_and_those_made(self, opened: Opened, tmp_path: Path) -> None:
        path = tmp_path / "made"
        path.write_text("x")
        store = opened()
        done = ended(1, 2, key=KEY, details=(Detail(0, outputs=(output_of(path),)),))
        self.write(store, OPENED, [Submitted([a_task(1, writes=("/a", "/b")), a_task(2)])], [done])
        assert sorted(store.declared_paths()) == sorted(["/a", "/b", str(path)])

    def test_declared_paths_are_those_that_the_core_numbered(self, opened: Opened) -> None:
        store = opened()
        tasks = [a_task(1, writes=(FileId(1),), reads=(FileId(2),)), a_task(2, writes=(FileId(1),))]
        files = (FileSpec(FileId(1), "/a", written=True), FileSpec(FileId(2), "/in"))
        self.write(store, OPENED, [Submitted(tasks, 0, files)], [Submitted([a_task(3, reads=(FileId(1),))])])
        assert store.declared_paths() == ["/a"]
        assert [fact.files for fact in store.turn(2) if isinstance(fact, Submitted)] == [files]

    def test_what_ended_attempts_wrote_is_found_by_task_and_attempt(self, opened: Opened) -> None:
        store = opened()
        wrote = [Stream("/out/x1-0.out", at, 5) for at in (0, 5, 10)]
        self.write(store, OPENED, [Submitted([a_task(1), a_task(2), an_array(3, 4)])])
        self.write(store, [Placed(1, 1, 0, 1, 1, 1), Placed(2, 3, 0, 4, 1, 1)], [Cancelled(Dep(On.ARRAY, 3))])
        self.write(store, [Cancelled(Dep(On.TASK, 1))], [OutputKept(1, 1, 0, 1, Detail(0, stdout=wrote[0]))])
        kept = [OutputKept(2, 3, 2, 1, Detail(2, stderr=wrote[1]), executor=1), OutputKept(9, 9, 0, 1, Detail(0))]
        self.write(store, kept)  # the last is of a task that nobody knows
        assert store.output_of(1, 0) == KeptStreams(wrote[0], None, 1, 1)
        assert store.output_of(3, 2) == KeptStreams(None, wrote[1], 1, 1)
        assert store.output_of(2, 0) == KeptStreams(None, None, 0, 0)
        assert (store.output_of(3, 1), store.output_of(9, 0)) == (None, None)
        self.write(store, [Retried(Dep(On.TASK, 1)), Placed(3, 1, 0, 1, 2, 1)])
        assert store.output_of(1, 0) == KeptStreams(wrote[0], None, 1, 1)  # of the attempt before the one that runs
        self.write(store, [OutputKept(1, 1, 0, 1, Detail(0, stdout=wrote[2]))])  # of an attempt that is past
        assert store.output_of(1, 0) == KeptStreams(wrote[0], None, 1, 1)

    def test_attempts_that_run_at_the_same_time_have_rows_and_the_ended_ones_are_superseded(
        self, opened: Opened
    ) -> None:
        """A replica of a task, one of an element, and one of an element that goes on when the first attempt failed."""
        store = opened()
        self.write(store, OPENED, [Submitted([a_task(1), an_array(2, 3)])])
        self.write(store, [Placed(1, 1, 0, 1, 1, 1), Placed(2, 2, 0, 3, 1, 1)])
        self.write(store, [SpanStarted(1, 0, 1, 1), SpanStarted(2, 0, 3, 2)])
        self.write(store, [Replicated(3, 1, 0, 2, 2), Replicated(4, 2, 0, 2, 2), Replicated(5, 2, 1, 2, 2)])
        self.write(store, [SpanStarted(3, 0, 1, 1), failed(2, 2, 1, retry_at=9.0)])
        store = opened()
        self.write(store, [ended(3, 1, attempt=2, executor=2), ended(2, 2, 0, 1), ended(5, 2, 1, 2, attempt=2)])
        store.project()
        tables = self.tables(store)
        assert sorted((*row[:3], row[8]) for row in tables["attempts"]) == [
            (1, 0, 1, "superseded"),
            (1, 0, 2, "done"),
            (2, 0, 2, "superseded"),
            (2, 1, 1, "failed"),
        ]
        assert sorted(row[1:5] for row in tables["spans"]) == [
            (0, 1, "done", 1),
            (1, 2, "done", 2),
            (2, 3, "running", 1),
        ]

    # --- a service: many workflows in one journal ---

    def test_what_was_seen_of_tasks_is_kept_in_order(self, opened: Opened) -> None:
        store = opened()
        self.write(store, *A_HISTORY[:6])
        more = Points("score", ((3, 13.0, -4.5),))
        self.write(store, [Observed(1, 1, 0, 2, [more]), Observed(1, 1, 0, 2, [more]), Observed(9, 9, 0, 1, [more])])
        for is_new in (False, True):  # also from a store that is opened again
            each = opened() if is_new else store
            first, again = each.observations(1, 0, 1)
            assert (first.index, first.attempt, first.totals) == (0, 1, {"score": 300})
            assert first.metrics == {"score": [(1, 10.0, -3.5), (2, 11.0, -4.0)]}
            assert first.fired[0] == SEEN[1]
            assert (first.fired[1].name, first.fired[1].text, first.tags) == ("warm", "T=90\ufffd", ["warm"])
            assert first.troubles == [SEEN[3]]
            assert (again.attempt, again.metrics) == (2, {"score": [(3, 13.0, -4.5), (3, 13.0, -4.5)]})
            assert [seen.index for seen in each.observations(3, 0, 100)] == [7]
            assert each.observations(3, 0, 7) == each.observations(3, 8, 100) == each.observations(9, 0, 1) == []
        self.write(opened(), [RunClosed(1)], [RunRemoved(1)])
        store = opened()
        while not store.remove_runs([1]):
            pass
        assert store.observations(1, 0, 1) == []

    def test_workflows_of_a_service_have_runs_of_their_own(self, opened: Opened) -> None:
        store = opened()
        store.claim("service")
        self.write(store, *A_SERVICE)
        assert store.last_run() == LastRun(1, False, len(A_SERVICE), 5, 8, 1, 5, 3, True)
        tables = self.tables(store)
        assert [(row[0], row[1], row[9]) for row in tables["runs"]] == [(1, "bough", 0), (2, "w", 5), (3, "w", 7)]
        assert [(row[0], row[1], row[4]) for row in tables["groups"]] == [(0, 1, ""), (5, 2, ""), (6, 2, "sub"),
                                                                         (7, 3, ""), (8, 3, "sub")]  # fmt: skip
        assert [(row[0], row[1], row[2], row[7]) for row in tables["tasks"]] == [
            (1, 2, 5, "done"), (2, 2, 6, "done"), (3, 2, 6, "failed"), (4, 3, 8, "done"), (5, 3, 8, "waiting"),
        ]  # fmt: skip
        assert sorted((row[1], row[6]) for row in tables["memo"]) == [(1, 2), (2, 2)]
        assert [row[1] for row in tables["executors"]] == [1]
        closed = {row[0]: (row[5] is not None, row[6]) for row in tables["runs"]}
        assert closed == {1: (False, None), 2: (True, "done"), 3: (False, None)}
        assert store.turns_of_run(1) == 1
        self.write(store, [Held(Dep(On.GROUP, 7))])
        store.project()
        assert [row[7] for row in self.tables(store)["tasks"]] == ["done", "done", "failed", "done", "held"]
        self.write(store, [RunClosed(1, "interrupted")])
        assert store.last_run().clean
        assert [row[6] for row in self.tables(store)["runs"]] == ["interrupted", "done", "interrupted"]

    def test_pilots_have_a_row_each_with_what_became_of_them(self, opened: Opened, tmp_path: Path) -> None:
        history: list[list[Fact]] = [
            [RunOpened(1, "bough", "here", 7), SiteDefined("a", SiteSpec(ssh="h", max_pilots=4))],
            [PilotAsked(1, "a", "2 tasks are ready", 1, 2.0), PilotAsked(2, "a", "\0", 1), PilotAsked(3, "a")],
            [PilotQueued(1, "77"), ExecutorJoined(1, "a", "n1", 8, Needs(cores=4), pilot=1)],
            [
                ExecutorJoined(2, "a", "n2", 8, Needs(cores=2), pilot=1),
                ExecutorJoined(3, "b", "x", 9, Needs(), pilot=3),
            ],
            [PilotReleased(1, "idle"), PilotEnded(2, "no python", failed=True)],
            [PilotEnded(1, "released", usage=(40.0, 4.0, 30.0, 5.0))],
        ]
        store = opened()
        store.claim("service")
        self.write(store, *history)
        store.project()
        columns = "id, run, site, state, allocation, cores, executors, asked, queued, started, ended, handle"
        read = store._database.execute
        assert [tuple(row) for row in read(f"SELECT {columns} FROM pilots ORDER BY id").fetchall()] == [
            (1, 1, "a", "ended", 1, 6.0, 2, 102.0, 103.0, 103.0, 106.0, "77"),
            (2, 1, "a", "failed", 1, None, 0, 102.0, None, None, 105.0, None),
            (3, 1, "a", "asked", 3, None, 0, 102.0, None, None, None, None),
        ]
        texts = "reason, released, message, core_seconds, startup, used, wasted"
        assert tuple(read(f"SELECT {texts} FROM pilots WHERE id = 1").fetchone()) == (
            *("2 tasks are ready", "idle", "released"),
            *(40.0, 4.0, 30.0, 5.0),
        )
        assert self.tables_of_slices(tmp_path / "restarted", history)["pilots"] == self.tables(store)["pilots"]

    def test_core_hours_of_sites_are_counted_once_and_thinned(self, opened: Opened) -> None:
        store = opened()
        store.claim("service")
        begin = 20_000 * DAY + 10.0
        store.note_core_seconds(begin, {"a": (10.0, 4.0, 5.0, 0.0), "b": (1.0, 1.0, 0.0, 0.0)})
        store.note_core_seconds(begin + 20, {"a": (30.0, 4.0, 25.0, 1.0), "b": (1.0, 1.0, 0.0, 0.0)})
        store.close()
        store = opened()  # as after a restart
        store.note_core_seconds(begin + 60, {"a": (40.0, 4.0, 30.0, 1.0), "b": (1.0, 1.0, 0.0, 0.0)})
        store.rebuild()  # what is folded anew changes nothing of it
        minutes = [(one.site, one.period, one.start, one.core_seconds, one.used) for one in store.core_hours(begin)]
        first = 20_000 * DAY
        assert minutes == [
            ("b", MINUTE, first, 1.0, 0.0),
            ("a", MINUTE, first, 30.0, 25.0),
            ("a", MINUTE, first + 60, 10.0, 5.0),
        ]
        store.note_core_seconds(begin + 3 * DAY, {"a": (45.0, 4.0, 35.0, 1.0)})  # b is not known any more
        hours = [(one.site, one.period, one.start, one.core_seconds, one.used) for one in store.core_hours(begin)]
        assert hours == [
            ("b", HOUR, first, 1.0, 0.0),
            ("a", HOUR, first, 40.0, 30.0),
            ("a", MINUTE, first + 3 * DAY, 5.0, 5.0),
        ]
        store.note_core_seconds(begin + 200 * DAY, {"a": (2.0, 0.0, 0.0, 0.0), "b": (7.0, 0.0, 0.0, 0.0)})
        days = [(one.site, one.period, one.start, one.core_seconds) for one in store.core_hours(begin)]
        assert days == [
            ("b", DAY, first, 1.0),
            ("a", DAY, first, 40.0),
            ("a", DAY, first + 3 * DAY, 5.0),
            ("b", MINUTE, first + 200 * DAY, 7.0),  # both began anew
            ("a", MINUTE, first + 200 * DAY, 2.0),
        ]
        assert len(store.core_hours(begin + 100 * DAY)) == 2
        store.note_core_seconds(begin + 5000 * DAY, {})
        assert store.core_hours(0.0) == []

    def test_core_hours_of_a_workflow_are_summed_up_by_site(self, opened: Opened) -> None:
        store = opened()
        store.claim("service")
        tasks = [a_task(one, group=7, needs=Needs(cores=2)) for one in (1, 2, 3)]
        self.write(
            store,
            [RunOpened(1, "bough", "here", 7), RunOpened(2, "w", "h", 7, group=7)],
            [ExecutorJoined(1, "a", "n1", 8, Needs(cores=4)), ExecutorJoined(2, "b", "n1", 8, Needs(cores=4))],
            [Submitted([*tasks, an_array(4, 4, group=7)])],
            [Placed(1, 1, 0, 1, 1, 1), Placed(2, 2, 0, 1, 1, 2), Placed(3, 3, 0, 1, 1, 2), Placed(4, 4, 0, 4, 1, 2)],
            [SpanStarted(1, 0, 1, 1), SpanStarted(2, 0, 1, 2), SpanStarted(3, 0, 1, 3)],
            [],
            [ended(1, 1), failed(2, 2, retry_at=-1.0, executor=2)],
            [ended(4, 4, 0, 3, executor=2), Cancelled(Dep(On.TASK, 3))],
        )
        store.project()
        read = store._database.execute
        found = [tuple(row) for row in read("SELECT * FROM workflow_usage ORDER BY run, site").fetchall()]
        assert found == [(2, "a", 4.0, 0.0), (2, "b", 0.5, 4.0 + 6.0)]
        store.rebuild()
        store.project()
        assert [tuple(row) for row in read("SELECT * FROM workflow_usage ORDER BY run, site").fetchall()] == found

    def test_a_workflow_sees_memos_of_its_name_only(self, opened: Opened) -> None:
        store = opened()
        self.write(store, *A_SERVICE)
        others: list[Fact] = [RunOpened(4, "other", "h", 7, group=9), RunOpened(5, "w", "h", 7, group=10)]
        self.write(store, others)
        array, loose = KEY, b"l" * 16
        assert [store.look_up(9, 0, 1, loose, (), run)[0].found for run in (2, 3, 4, 5)] == [False, True, False, True]
        assert [store.look_up_tasks([(9, loose)], run)[0].found for run in (2, 3, 4, 5)] == [False, True, False, True]
        reuse = [Reuse(0, 2, 2, 0)]
        assert [store.look_up(9, 0, 2, array, reuse, run)[0].found for run in (2, 3, 4, 5)] == [
            False, True, False, True,
        ]  # fmt: skip
        assert [[old.record for old in store.old_arrays(KEY, run)] for run in (2, 3, 4, 5)] == [[], [2], [], [2]]
        assert [sorted(store.declared_paths(run)) for run in (2, 4, 5)] == [["/a"], [], ["/a"]]

    def tables_of_slices(self, directory: Path, history: list[list[Fact]]) -> dict[str, list[tuple[object, ...]]]:
        """The tables of a store that was closed, and so folded, after every turn."""
        for turn, facts in enumerate(history, 1):
            again = type(self).open_store(directory)
            again.append(turn, 100.0 + turn, facts)
            again.close()
        again = type(self).open_store(directory)
        tables = self.tables(again)
        again.close()
        return tables

    def test_projection_of_a_service_in_slices_equals_projection_at_once(self, opened: Opened, tmp_path: Path) -> None:
        store = opened()
        history = [*A_SERVICE, [RunClosed(3)], [RunRemoved(2)], [Submitted([a_task(9, group=7)])]]
        self.write(store, *history)
        store.project()
        whole = self.tables(store)
        assert self.tables_of_slices(tmp_path / "restarted", history) == whole

    def test_a_store_is_a_sessions_or_a_services(self, opened: Opened) -> None:
        store = opened()
        assert store.kind == ""
        store.claim("service")
        store.claim("service")
        with raises(UserError, match="is a service's, not a session's"):
            store.claim("session")
        assert opened().last_run().service

    def test_a_store_that_a_session_used_is_not_a_services(self, opened: Opened) -> None:
        store = opened()
        self.write(store, OPENED)
        assert store.kind == "session"
        with raises(UserError, match="is a session's"):
            store.claim("service")

    def test_a_changed_description_changes_the_rows_and_what_is_gone_leaves_its_run(
        self, opened: Opened, tmp_path: Path
    ) -> None:
        store = opened()
        self.write(store, *AN_AMENDED)
        store.project()
        whole = self.tables(store)
        columns = TaskRow.__struct_fields__
        rows = {row[0]: dict(zip(columns, row, strict=False)) for row in whole["tasks"]}
        assert {id_: (row["run"], row["state"], row["attempt"]) for id_, row in rows.items()} == {
            1: (2, "waiting", 1),
            2: (-2, "cancelled", 1),
            3: (2, "done", 2),
            4: (2, "waiting", 0),
            5: (-2, "done", 1),
            6: (2, "waiting", 0),
        }
        assert rows[2]["message"] == "the workflow's description no longer has it"
        assert (rows[1]["cores"], rows[3]["priority"]) == (2, 3)
        assert sorted(row[:4] for row in whole["after"]) == [(4, "task", 3, 0), (6, "task", 3, 0)]
        assert {row[:2] for row in whole["groups"]} == {(0, 1), (5, 2), (6, 2), (7, -2), (8, 2)}
        assert sorted(row[:4] for row in whole["group_after"]) == [
            (6, 2, "task", 3), (7, -2, "task", 1), (8, 2, "group", 6),
        ]  # fmt: skip
        assert [(row[0], row[2], row[8]) for row in whole["attempts"] if row[0] == 3] == [
            (3, 1, "cancelled"), (3, 2, "done"),
        ]  # fmt: skip
        assert self.tables_of_slices(tmp_path / "restarted", AN_AMENDED) == whole

    # --- removal ---

    def test_a_removed_run_takes_along_what_had_left_it(self, opened: Opened) -> None:
        store = opened()
        self.write(store, *AN_AMENDED, [RunClosed(2)], [RunRemoved(2)])
        store.project()
        tables = self.tables(store)
        for name in ("tasks", "attempts", "after", "memo", "group_after"):
            assert tables[name] == [], name
        store.save_snapshot(store.last_run().last_turn, 1, b"the core")
        self.swept(store, 2)
        kept = [fact for _, _, facts in opened().journal() for fact in facts]
        assert {type(fact) for fact in kept} == {RunOpened, ExecutorJoined}
        assert [fact.run for fact in kept if isinstance(fact, RunOpened)] == [1]

    def swept(self, store: Store, *runs: int, at_most: int = 2) -> None:
        calls = 0
        while not store.remove_runs(runs, at_most):
            calls += 1
            assert calls < 10_000

    def test_a_removed_run_leaves_nothing_but_what_others_use(self, opened: Opened) -> None:
        store = opened()
        for blob in (BODY, b"c" * 16):
            store.put_blob(blob, b"content")
        self.write(store, *A_SERVICE, [RunClosed(3)], [RunRemoved(2)])
        store.project()
        tables = self.tables(store)
        for name, column in {"runs": 0, "groups": 1, "tasks": 1, "memo": 6, "arrays": 1, "declared": 1}.items():
            assert 2 not in {row[column] for row in tables[name]}, name
        for name in ("elements", "spans", "attempts", "files", "after", "array_pages"):
            assert not {row[0] for row in tables[name]} & {1, 2, 3}, name
        last = store.last_run()
        store.save_snapshot(last.last_turn, 1, b"the core")
        self.swept(store, 2)
        store = opened()
        assert store.last_run() == last
        kept = [fact for _, _, facts in store.journal() for fact in facts]
        about = [fact for fact in kept if 1 <= getattr(fact, "record", 0) <= 3]
        assert about == [A_SERVICE[6][0]]  # what run 3 reuses
        assert [item.id for fact in kept if isinstance(fact, Submitted) for item in fact.items] == [8, 4, 5]
        assert [fact.run for fact in kept if isinstance(fact, RunOpened)] == [1, 3]
        assert store.success(7, 1, 0) == A_SERVICE[6][0]
        assert store.blob(BODY) == b"content"  # run 3 has tasks with this body
        with raises(KeyError):
            store.blob(b"c" * 16)
        assert store.look_up(9, 0, 1, b"l" * 16, (), 3) == [MemoLookedUp(9, 0, 1, False)]
        assert store.snapshot(1) == (last.last_turn, b"the core")
        # the tables made anew from what is left say the same
        whole = self.tables(store)
        self.fold_anew(store)
        store = opened()
        assert store.last_run() == last
        assert self.tables(store) == whole

    def test_what_only_removed_runs_use_goes_with_the_last_of_them(self, opened: Opened) -> None:
        store = opened()
        self.write(store, *A_SERVICE, [RunClosed(3)], [RunRemoved(2)])
        store.save_snapshot(store.last_run().last_turn, 1, b"")
        self.swept(store, 2)
        turn = self.write(store, [RunRemoved(3)], [])
        store.save_snapshot(turn, 1, b"")
        self.swept(store, 3)
        kept = [fact for _, _, facts in store.journal() for fact in facts]
        assert {type(fact) for fact in kept} == {RunOpened, ExecutorJoined}
        assert store.last_run().last_turn == turn
        store.append(turn + 1, 1.0, [])
        assert opened().last_run().last_record == 5

    def test_nothing_is_removed_from_what_a_replay_would_read(self, opened: Opened) -> None:
        store = opened()
        self.write(store, *A_SERVICE)
        with raises(InvariantBroken, match="append RunRemoved first"):
            store.remove_runs([2])
        self.write(store, [RunRemoved(2)])
        with raises(InvariantBroken, match="save one first"):
            store.remove_runs([2])
        self.swept(store)
        assert [facts for _, _, facts in store.journal()][:-1] == A_SERVICE

    def test_what_a_retired_run_was_kept_as_goes_with_it_and_with_nothing_else(self, opened: Opened) -> None:
        store = opened()
        turn = self.write(store, *A_SERVICE, [RunClosed(2)], [RunClosed(3)])
        for run in (2, 3):
            store.save_snapshot(turn, run, b"kept %d" % run)
        turn = self.write(store, [RunRetired(2)], [RunRetired(3)], [RunRevived(2, b"kept 2")])
        store.project()
        assert store.snapshot(2) is None, "it is in the core again"
        store.save_snapshot(turn, 2, b"kept again")
        turn = self.write(store, [RunRetired(2)], [RunRemoved(2)])
        store.save_snapshot(turn, 1, b"the core")
        self.swept(store, 2)
        assert store.snapshot(2) is None
        assert store.snapshot(3)[1] == b"kept 3"
        assert store.snapshot(1)[1] == b"the core"
        kept = [fact for _, _, facts in opened().journal() for fact in facts]
        assert [fact.run for fact in kept if isinstance(fact, RunOpened | RunRetired | RunRevived)] == [1, 3, 3]
        assert not any(isinstance(fact, RunRemoved) for fact in kept)

    def test_overlapping_ranges_of_removed_runs_are_looked_at_once(self, opened: Opened) -> None:
        store = opened()
        self.write(store, [RunOpened(1, "bough", "h", 1)])
        many = range(2, 42)
        for run in many:
            self.write(store, [RunOpened(run, f"w{run}", "h", 1, group=run)], [Submitted([a_task(run, group=run)])])
        turn = self.write(store, *([RunClosed(run)] for run in many), *([RunRemoved(run)] for run in many), [])
        store.save_snapshot(turn, 1, b"")
        store.project()
        read = store.rows_read
        self.swept(store, *many, at_most=500)
        assert store.rows_read - read < 4 * turn
        assert [fact for _, _, facts in store.journal() for fact in facts] == [RunOpened(1, "bough", "h", 1)]

    def test_files_of_removed_runs_are_told_once(self, opened: Opened) -> None:
        store = opened()
        self.write(store, [RunOpened(1, "bough", "h", 1)], [RunOpened(2, "w", "h", 1, group=1)])
        self.write(store, [Submitted([a_task(1, group=1, payload_path="/args/1")])])
        self.write(store, [ended(1, 1, results=ResultFile("/results/1", 5)), RunClosed(2)], [RunRemoved(2)])
        store.save_snapshot(5, 1, b"")
        self.swept(store, 2)
        assert sorted(store.forgotten_files()) == ["/args/1", "/results/1"]
        assert store.forgotten_files() == []

    def test_removal_gives_space_back(self, opened: Opened) -> None:
        store = opened()
        store.claim("service")
        self.write(store, [RunOpened(1, "bough", "h", 1)], [RunOpened(2, "w", "h", 1, group=1)])
        store.put_blob(BODY, os.urandom(500_000))
        for record in range(1, 400):
            results = os.urandom(10_000)
            self.write_one(store, [Submitted([a_task(record, group=1)]), ended(record, record, results=results)])
        turn = self.write(store, [RunClosed(2)], [RunRemoved(2)], [])
        store.save_snapshot(turn, 1, b"")
        before = self.size(store)
        self.swept(store, 2, at_most=100)
        assert self.size(store) < before / 4
        assert opened().last_run().last_record == 399

    def write_one(self, store: SqlStore, facts: list[Fact]) -> None:
        store.append(store._last + 1, 1.0, facts)

    def size(self, store: SqlStore) -> int:
        """Bytes on the disk."""
        raise NotImplementedError

    def fold_anew(self, store: SqlStore) -> None:
        """Make the tables forget that they are folded, as a change of their shape does."""
        raise NotImplementedError

    # --- the projection ---

    def test_projection_in_slices_equals_projection_at_once(self, opened: Opened, tmp_path: Path) -> None:
        store = opened()
        self.write(store, *A_HISTORY)
        store.project()
        whole = self.tables(store)
        assert whole["tasks"]
        for step in (1, 2, 5):
            sliced = type(self).open_store(tmp_path / f"sliced{step}")
            for turn, facts in enumerate(A_HISTORY, 1):
                sliced.append(turn, 100.0 + turn, facts)
            while not sliced.project(step):
                pass
            assert self.tables(sliced) == whole
            sliced.close()

    def test_projection_goes_on_in_a_fresh_process_as_if_nothing_happened(self, opened: Opened, tmp_path: Path) -> None:
        store = opened()
        self.write(store, *A_HISTORY)
        store.project()
        whole = self.tables(store)
        directory = tmp_path / "restarted"
        for turn, facts in enumerate(A_HISTORY, 1):
            again = type(self).open_store(directory)
            again.append(turn, 100.0 + turn, facts)
            again.close()
        again = type(self).open_store(directory)
        assert self.tables(again) == whole
        again.close()

    def test_project_says_when_it_has_caught_up(self, opened: Opened) -> None:
        store = opened()
        self.write(store, OPENED, [], [], [])
        store.project()
        store.append(5, 1.0, [])
        store.append(6, 1.0, [])
        assert [store.project(1), store.project(1), store.project(1)] == [False, True, True]

    def test_nul_characters_are_shown_alike_by_every_store(self, opened: Opened) -> None:
        """PostgreSQL has none in its texts; what people and programs say may hold some all the same."""
        zero, loss = "ze\0ro", Failure(Cause.LOST, "ze\0ro")
        store = opened()
        self.write(
            store,
            [RunOpened(1, zero, zero, 7, user=zero), ExecutorJoined(1, zero, zero, 8, Needs())],
            [Submitted([GroupSpec(1, zero, attributes=(("a", zero),)), a_task(1, name=zero)])],
            [Submitted([an_array(2, 9, name=zero, template=zero, extras=TaskExtras(attributes=(("a", zero),)))])],
            [Placed(1, 1, 0, 1, 1, 1), Placed(2, 2, 0, 4, 1, 1), failed(1, 1, failure=loss, retry_at=9.0)],
            [ElementFailed(2, 0, Failure(Cause.EXIT, zero, stderr=zero), record=2, attempt=1, executor=1)],
            [Skipped(2, 5, 9, Failure(Cause.DEPENDENCY, zero)), ExecutorLost(1, zero)],
            [RunClosed(1, zero)],
        )
        assert store.project()
        assert store.quarantined() == []
        cells = [cell for rows in self.tables(store).values() for row in rows for cell in row if isinstance(cell, str)]
        assert not any("\0" in cell for cell in cells)
        assert cells.count("ze\ufffdro") == 21  # nothing was lost

    # --- what cannot be folded ---

    def test_a_fact_that_cannot_be_folded_is_set_aside_and_the_rest_of_the_store_serves(
        self, opened: Opened, tmp_path: Path, poison: str
    ) -> None:
        before = [OPENED, [Submitted([a_task(1)]), Placed(1, 1, 0, 1, 1, 1)]]
        around: tuple[list[Fact], list[Fact]] = ([Submitted([a_task(2)])], [Placed(2, 2, 0, 1, 1, 1)])
        after = [[ended(2, 2)], [SpanStarted(1, 0, 1, 1), Submitted([a_task(3)])]]
        whole = type(self).open_store(tmp_path / "whole")
        self.write(whole, *before, [*around[0], *around[1]], *after)
        whole.project()
        expected = self.tables(whole)
        whole.close()

        store = opened()
        told: list[str] = []
        store.tell = told.append
        self.write(store, *before)
        turn = self.smuggle(store, as_it_was([*around[0], POISONS[poison], *around[1]]))
        self.write(store, *after)
        assert store.project()
        assert self.tables(store) == expected
        if poison == "cancelled" and not store.quarantined():
            return  # a database that has greater numbers finds nothing under this one, and that is all
        (aside,) = store.quarantined()
        assert (aside.turn, aside.position, aside.kind) == (turn, 1, type(POISONS[poison]).__name__)
        assert f"set aside, turn {turn}: {aside.kind} is" in told[0]

        store = opened()
        told.clear()
        store.tell = told.append
        assert store.project()
        assert store.quarantined() == [aside]
        assert not told  # once is enough
        self.fold_anew(store)
        store = opened()
        assert store.project(1) is False
        while not store.project(1):
            pass
        assert self.tables(store) == expected
        assert store.last_run().last_record in {3, 9}  # numbers that were given away are not given again

    def test_a_turn_of_which_nothing_can_be_read_is_set_aside(self, opened: Opened) -> None:
        store = opened()
        self.write(store, OPENED, [Submitted([a_task(1)])])
        damaged = [self.smuggle(store, row) for row in (b"", b"\x01\xc1", b"\x81 not compressed", b"\x01\x93\x01")]
        self.write(store, [Placed(1, 1, 0, 1, 1, 1)], [ended(1, 1)])
        store = opened()
        assert store.project()
        assert [row[7] for row in self.tables(store)["tasks"]] == ["done"]
        found = store.quarantined()
        assert [(one.turn, one.position, one.scope) for one in found] == [(turn, -1, "unreadable") for turn in damaged]
        assert [facts for turn, _, facts in store.journal() if turn in damaged] == [[]] * 4

    def test_turns_of_a_newer_version_are_not_taken_for_damaged_ones(self, opened: Opened) -> None:
        store = opened()
        self.write(store, OPENED)
        self.smuggle(store, b"\x7f" + b"whatever that may mean")
        with raises(StoreFailed, match="use a newer one"):
            store.project()
        assert store.quarantined() == []
        store._database.execute("DELETE FROM journal WHERE turn = 2")
        store.reopened()

    def test_many_facts_that_cannot_be_folded_cost_no_more_than_themselves(self, opened: Opened) -> None:
        store = opened()
        self.write(store, OPENED)
        poison = [POISONS["priority"], POISONS["executor"]]
        turns = [self.smuggle(store, as_it_was([*poison * 50, Submitted([a_task(n)])])) for n in range(1, 4)]
        assert store.project()
        assert [row[0] for row in self.tables(store)["tasks"]] == [1, 2, 3]
        assert Counter(one.turn for one in store.quarantined()) == dict.fromkeys(turns, 100)

    def test_a_rebuilt_jobs_database_is_the_one_that_was(self, opened: Opened) -> None:
        store = opened()
        self.write(store, *A_SERVICE)
        self.smuggle(store, as_it_was([POISONS["priority"], Submitted([a_task(6, group=8)])]))
        store.project()
        whole, last = self.tables(store), store.last_run()
        store.rebuild()
        assert store.folded == 0
        assert store.project()
        assert self.tables(store) == whole
        assert store.last_run() == last
        assert len(store.quarantined()) == 1

    def test_what_is_set_aside_survives_the_removal_of_its_run(self, opened: Opened) -> None:
        store = opened()
        self.write(store, *A_SERVICE)
        self.smuggle(store, as_it_was([POISONS["priority"], Placed(6, 5, 0, 1, 2, 1), Cancelled(Dep(On.TASK, HUGE))]))
        turn = self.write(store, [RunClosed(3)], [RunRemoved(2)], [RunRemoved(3)], [])
        store.save_snapshot(turn, 1, b"the core")
        assert store.project()
        self.swept(store, 2, 3)
        self.fold_anew(store)
        store = opened()
        assert store.project()
        assert store.last_run().last_turn == turn
        assert self.tables(store)["tasks"] == []

    def test_a_repair_sets_aside_what_is_wrong_and_saves_a_state_to_go_on_with(
        self, opened: Opened, tmp_path: Path
    ) -> None:
        where = self.place(tmp_path / "store")
        store = opened()
        self.write(store, OPENED, [Submitted([a_task(1, body=b""), a_task(2, body=b"")])])
        self.smuggle(store, as_it_was([POISONS["executor"], Placed(1, 1, 0, 1, 1, 9)]))  # an executor that never was
        self.smuggle(store, b"\x01\xc1")
        self.write(store, [ended(1, 1, executor=9)])
        store.save_snapshot(2, 1, b"no snapshot")
        store.close()
        (problem,) = check(where).problems
        assert problem.startswith("the snapshot of run 1 cannot be restored")
        done = repair(where)
        assert (done.problems, done.resnapshot) == ([], True)
        after = check(where)
        assert after.problems == []
        assert {(3, "ExecutorJoined"), (4, "")} <= {(one.turn, one.kind) for one in after.set_aside}
        again = repair(where)
        assert (again.set_aside, again.problems, again.resnapshot) == ([], [], False)
        machine = replay_run(opened(), 1, 0, load_policies("fifo"))
        assert machine.counts()["done"] == 1  # although nobody is known who ran it
        opened().close()
        rebuilt = repair(where, rebuild=True)
        assert (rebuilt.rebuilt, rebuilt.problems) == (True, [])

    def test_what_nobody_has_met_yet_is_a_problem_until_it_is_repaired(self, opened: Opened, tmp_path: Path) -> None:
        where = self.place(tmp_path / "store")
        store = opened()
        self.write(store, OPENED, [Submitted([a_task(1, body=b"")])], [RunClosed(1)])
        store.project()
        row = b"\x01" + msgspec.msgpack.encode([["rr", "three"], ["xl", 1, "gone"], ["unheard of", 1]])
        store._database.execute("UPDATE journal SET facts = ? WHERE turn = 2", (row,))
        store.close()
        problems = check(where).problems
        assert problems[0].startswith("turn 2: RunRemoved is unreadable: Expected `int`")
        assert problems[1].startswith("turn 2: a fact is unreadable: Invalid value 'unheard of'")
        done = repair(where)
        assert [(one.position, one.kind, one.scope) for one in done.set_aside] == [
            (0, "RunRemoved", "unreadable"), (2, "", "unreadable"),
        ]  # fmt: skip
        assert check(where).problems == []

    def test_what_is_set_aside_is_copied_with_the_store(self, opened: Opened, tmp_path: Path) -> None:
        store = opened()
        self.write(store, OPENED)
        self.smuggle(store, b"\x01\xc1")
        self.write(store, [Submitted([a_task(1, body=b"")])], [RunClosed(1)])
        store.project()
        aside = store.quarantined()
        store.close()
        copy(self.place(tmp_path / "store"), str(tmp_path / "copied"))
        copied = check(str(tmp_path / "copied"))
        assert [msgspec.structs.replace(one, data=b"") for one in aside] == copied.set_aside
        assert copied.problems == []
        opened()

    # --- crashes ---

    def test_everything_that_append_returned_for_survives_kill_9(self, opened: Opened, tmp_path: Path) -> None:
        store = opened()
        store.close()
        child = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _APPEND_AS,
                inspect.getfile(type(self)),
                type(self).__name__,
                str(tmp_path / "store"),
            ],
            stdout=subprocess.PIPE,
            env=_with_our_path(),
        )
        assert child.stdout is not None
        said = 0
        try:
            while said < 500:
                said = int(child.stdout.readline())
        finally:
            os.kill(child.pid, signal.SIGKILL)
            said = max([said, *map(int, child.stdout.read().split(b"\n")[:-1])])
            child.stdout.close()
            child.wait()
        store = opened()
        turns = [turn for turn, _, _ in store.journal()]
        assert turns == list(range(1, len(turns) + 1))
        assert len(turns) >= said
        assert store.last_run().last_turn == len(turns)
        assert store.project()
        assert len(self.tables(store)["tasks"]) == store.last_run().last_record

    def test_reopening_reads_no_more_than_what_was_not_folded(self, opened: Opened) -> None:
        store = opened()
        self.write(store, OPENED)
        turn = 1
        for first in range(1, 100_001, 1000):
            turn += 1
            ends = [ended(n, n, key=n.to_bytes(16, "big")) for n in range(first, first + 1000)]
            places = [Placed(n, n, 0, 1, 1, 1) for n in range(first, first + 1000)]
            store.append(turn, 2.0, [Submitted([a_task(n) for n in range(first, first + 1000)]), *places, *ends])
        array = 100_001
        store.append(turn + 1, 3.0, [Submitted([an_array(array, 1_000_000, key=KEY)])])
        ends = [ended(array + n, array, n * 1000, n * 1000 + 1000, key=KEY) for n in range(1000)]
        for at in range(0, 1000, 10):
            store.append(turn + 2 + at // 10, 3.0, ends[at : at + 10])
        self.write(store, [RunClosed(1)])
        store = opened()
        assert store.last_run().last_record == array
        assert store.look_up(array + 1, 0, 1_000_000, KEY, [Reuse(0, 1_000_000, array, 0)])[0].found
        assert store.look_up(array + 2, 0, 1, (5).to_bytes(16, "big"), ())[0].source == 5
        assert [old.done for old in store.old_arrays(KEY)] == [[(0, 1_000_000)]]
        assert store.rows_read == 0


def append_for_ever(store: Store) -> None:
    """What the child process does until it is killed."""
    store.append(1, 1.0, OPENED)
    turn = 1
    while True:
        turn += 1
        store.append(turn, 1.0, [Submitted([a_task(turn - 1)])])
        os.write(1, b"%d\n" % turn)
        if turn % 50 == 0:
            store.project(20)


_APPEND_AS = """
import runpy
import sys
from pathlib import Path
from bough.testing.store_conformance import append_for_ever
suite = runpy.run_path(sys.argv[1])[sys.argv[2]]
append_for_ever(suite.open_store(Path(sys.argv[3])))
"""

_APPEND = """
import sys
from bough.stores.open import lock_store, open_store
from bough.testing.store_conformance import append_for_ever
lock = lock_store(sys.argv[1])
append_for_ever(open_store(sys.argv[1]))
"""


def _with_our_path() -> dict[str, str]:
    """The environment of a child process that imports what this process can import."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@contextmanager
def appending(where: str) -> Iterator[Callable[[int], None]]:
    """Another process that holds a store and appends to it; waits until it has reached a turn."""
    child = subprocess.Popen([sys.executable, "-c", _APPEND, where], stdout=subprocess.PIPE, env=_with_our_path())
    assert child.stdout is not None

    def reach(turn: int) -> None:
        assert child.stdout is not None
        while int(child.stdout.readline()) < turn:
            pass

    try:
        yield reach
    finally:
        child.kill()
        child.stdout.close()
        child.wait()
