from __future__ import annotations

from server_fakes import FakeStore

from bough.core.machine import Machine
from bough.model.events.facts import ExecutorJoined, RunClosed, RunOpened, SpanEnded, Submitted
from bough.model.events.news import WorkSucceeded
from bough.model.sites.resources import Needs
from bough.model.tasks import Kind, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.server.recovery import recover
from bough.stores.maintenance.replay import replay_run
from bough.stores.store import LastRun
from bough.wire.executor_messages import Report
from bough.wire.framing import frame

LAST = LastRun(1, False, 2, 1, 0, 1, 1)


def a_crashed_run() -> tuple[FakeStore, int]:
    """A store whose run ended in the middle of a task, and the span that was out."""
    store = FakeStore()
    machine = Machine(load_policies("fifo"))
    task = TaskSpec(1, Kind.FUNCTION, b"f" * 16, b"")
    joined = ExecutorJoined(1, "local", "here", 5, Needs(1))
    for events in ([RunOpened(1, "test", "here", 1)], [joined, Submitted([task])]):
        turn = machine.turn(10.0, events)
        store.append(turn.number, 10.0, turn.facts)
    return store, turn.orders[0].span


def test_late_reports_are_taken_in_and_the_run_is_closed_in_one_turn(tmp_path) -> None:
    store, span = a_crashed_run()
    late = [WorkSucceeded(span, 0, 1, 0.5, b"late")]
    (tmp_path / "1.spill").write_bytes(frame(Report(1, late)) + frame(Report(2, late)) + b"\0\0\0\x09torn")

    recover(store, LAST, load_policies("fifo"), spill_dir=str(tmp_path), mark="no such mark:", now=20.0)

    ended, closed = store.rows[-1][2]
    assert (ended.record, ended.results, ended.attempt) == (1, b"late", 1)
    assert closed == RunClosed(1, "crashed")
    assert len(store.rows) == 3
    assert not list(tmp_path.iterdir())


def test_nothing_is_placed_while_a_dead_run_is_closed(tmp_path) -> None:
    store, _ = a_crashed_run()

    recover(store, LAST, load_policies("fifo"), spill_dir=str(tmp_path), mark="no such mark:", now=20.0)

    assert store.rows[-1][2] == [RunClosed(1, "crashed")]


def test_replay_gives_the_machine_that_crashed() -> None:
    store, span = a_crashed_run()

    machine = replay_run(store, 1, 0, load_policies("fifo"))

    assert machine.counts()["placed"] == 1
    assert machine.state.last_span == span
    assert machine.state.turn == 2


def test_a_fact_that_does_not_fit_is_passed_over_and_late_reports_still_count(tmp_path) -> None:
    store, span = a_crashed_run()
    store.rows[-1][2].insert(0, SpanEnded(999, 0, 1, 0.5, record=1))  # of a span that never was
    (tmp_path / "1.spill").write_bytes(frame(Report(1, [WorkSucceeded(span, 0, 1, 0.5, b"late")])))

    recover(store, LAST, load_policies("fifo"), spill_dir=str(tmp_path), mark="no such mark:", now=20.0)

    ended, closed = store.rows[-1][2]
    assert (ended.results, closed) == (b"late", RunClosed(1, "crashed"))
    assert [(one.turn, one.position, one.scope) for one in store.aside] == [(2, 0, "without effect")]


def test_a_run_that_cannot_be_replayed_is_closed_all_the_same(tmp_path) -> None:
    store, span = a_crashed_run()
    spill = tmp_path / "1.spill"
    spill.write_bytes(frame(Report(1, [WorkSucceeded(span, 0, 1, 0.5, b"late")])))
    store.turns_of_run = lambda run: {}[run]  # nobody knows where it began

    recover(store, LAST, load_policies("fifo"), spill_dir=str(tmp_path), mark="no such mark:", now=20.0)

    assert store.rows[-1] == (3, 20.0, [RunClosed(1, "crashed")])
    assert spill.exists()
