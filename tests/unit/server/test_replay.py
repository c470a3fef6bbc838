"""A journal that lacks facts is replayed without what does not fit; a snapshot that is spoilt is passed over."""

from __future__ import annotations

import pytest
from server_fakes import FakeStore

from bough.core.invariants import check, picture
from bough.core.machine import Machine
from bough.errors import InvariantBroken, StoreFailed
from bough.model.events import facts
from bough.model.events.facts import ExecutorJoined, Fact, Placed, RunOpened, SpanEnded, Submitted
from bough.model.events.news import WorkSucceeded
from bough.model.events.orders import SendSpan
from bough.model.sites.resources import Needs
from bough.model.tasks import Dep, Kind, On, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.stores.maintenance import replay
from bough.stores.maintenance.replay import replay_run


def task(number: int, *after: int) -> TaskSpec:
    return TaskSpec(number, Kind.FUNCTION, b"f" * 16, b"", after=tuple(Dep(On.TASK, id_) for id_ in after))


def a_chain_that_ran() -> tuple[FakeStore, Machine]:
    """Three tasks, each after the one before, of which two are done and one is out."""
    store, machine = FakeStore(), Machine(load_policies("fifo"))
    out: list[SendSpan] = []

    def turn(*events: Fact) -> None:
        made = machine.turn(10.0 + machine.state.turn, events)
        store.append(made.number, 10.0 + made.number - 1, made.facts)
        out.extend(order for order in made.orders if isinstance(order, SendSpan))

    turn(RunOpened(1, "test", "here", 1))
    turn(ExecutorJoined(1, "local", "here", 5, Needs(1)))
    turn(Submitted([task(1), task(2, 1), task(3, 2)]))
    while len(out) < 3:
        turn(WorkSucceeded(out[-1].span, 0, 1, 0.5, b"r"))
    return store, machine


def drop(store: FakeStore, *kinds: type) -> None:
    for _, _, written in store.rows:
        written[:] = [fact for fact in written if not isinstance(fact, kinds)]


def replayed(store: FakeStore) -> Machine:
    machine = replay_run(store, 1, 0, load_policies("fifo"))
    check(machine.state)
    return machine


def test_a_whole_journal_is_replayed_as_it_is_and_costs_no_snapshot():
    store, machine = a_chain_that_ran()
    assert picture(replayed(store).state) == picture(machine.state)
    assert not store.snapshots
    assert not store.told


def test_what_is_finished_stays_so_although_its_executor_never_joined():
    store, _ = a_chain_that_ran()
    drop(store, ExecutorJoined)
    machine = replayed(store)
    assert machine.counts()["done"] == 2
    assert machine.counts()["ready"] == 1
    assert {one.kind for one in store.aside} == {"Placed"}
    turn = machine.turn(99.0, [ExecutorJoined(2, "local", "here", 6, Needs(1))])
    placed = next(fact for fact in turn.facts if isinstance(fact, Placed))
    assert placed.record == 3
    assert placed.span > 3  # the numbers of lost hand-outs are not given again: executors may still know them


def test_facts_about_a_submission_that_is_missing_are_passed_over():
    store, _ = a_chain_that_ran()
    drop(store, Submitted)
    machine = replayed(store)
    assert machine.is_idle
    assert {one.kind for one in store.aside} >= {"Placed", "SpanEnded"}
    assert all("there is no record" in one.reason or "no span" in one.reason for one in store.aside)


def test_a_success_that_is_missing_is_made_again_and_what_followed_from_it_stays():
    store, _ = a_chain_that_ran()
    first = next(fact for _, _, written in store.rows for fact in written if isinstance(fact, SpanEnded))
    for _, _, written in store.rows:
        written[:] = [fact for fact in written if fact is not first]
    machine = replayed(store)
    assert machine.state.records[1].state_of(0) != machine.state.records[2].state_of(0)
    assert machine.counts()["done"] == 1


def test_a_state_that_was_put_together_with_care_is_saved_and_the_next_start_is_quick():
    store, _ = a_chain_that_ran()
    drop(store, ExecutorJoined)
    once = replayed(store)
    assert [(turn, run) for turn, run, _ in store.snapshots] == [(store.last_turn, 1)]
    store.told.clear()
    assert picture(replayed(store).state) == picture(once.state)
    assert not store.told


def test_a_fact_that_raises_is_left_out_and_the_state_is_not_half_changed(monkeypatch):
    """Whatever it is that raises in the middle of being applied."""
    store, machine = a_chain_that_ran()
    before = picture(machine.state)
    store.append(store.last_turn + 1, 50.0, [facts.Prioritised(Dep(On.TASK, 3), 7), facts.Stopping()])

    from bough.core.apply import APPLY

    real = APPLY[facts.Prioritised]

    def breaks(state, effects, fact):
        real(state, effects, fact)
        raise ZeroDivisionError("in the middle")

    monkeypatch.setitem(APPLY, facts.Prioritised, breaks)
    found = replayed(store)
    assert found.state.records[3].priority == 0
    assert found.state.stopping
    assert [(one.kind, one.reason) for one in store.aside] == [("Prioritised", "ZeroDivisionError: in the middle")]
    found.state.stopping, found.state.turn, found.state.now = False, store.last_turn - 1, machine.state.now
    assert picture(found.state) == before


def test_a_snapshot_that_cannot_be_restored_gives_way_to_the_journal():
    store, machine = a_chain_that_ran()
    for data in (b"", b"no snapshot", machine.snapshot()[:-9]):
        store.snapshots[:] = [(2, 1, data)]
        store.told.clear()
        assert picture(replayed(store).state) == picture(machine.state)
        assert "cannot be restored" in store.told[0]
        assert store.snapshots[-1][0] == store.last_turn  # one that can


def test_a_snapshot_of_a_turn_that_is_not_there_gives_way_to_the_journal():
    store, machine = a_chain_that_ran()
    store.snapshots.append((store.last_turn + 5, 1, machine.snapshot()))
    assert picture(replayed(store).state) == picture(machine.state)


def test_a_store_that_cannot_be_read_is_not_taken_for_a_bad_journal():
    store, _ = a_chain_that_ran()

    def journal(after: int = 0):
        raise StoreFailed("the disk is gone")

    store.journal = journal
    with pytest.raises(StoreFailed, match="the disk is gone"):
        replayed(store)


def test_a_state_that_breaks_the_cores_laws_is_not_served_and_the_message_says_what_to_do(monkeypatch):
    store, _ = a_chain_that_ran()
    drop(store, ExecutorJoined)

    def broken(state):
        raise InvariantBroken("two and two make five")

    monkeypatch.setattr(replay, "check", broken)
    with pytest.raises(InvariantBroken, match=r"two and two make five\): see bough store check and bough store repair"):
        replay_run(store, 1, 0, load_policies("fifo"))
