"""A replay asks no policy and gives no order: it applies facts and does nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bough.core import lifecycle
from bough.core.effects import Effects
from bough.core.graph import dependencies, readiness
from bough.core.invariants import check, picture
from bough.core.machine import Machine
from bough.model.events import arriving, facts, news
from bough.model.events.orders import LookUpMemo, SendSpan, StopSpan, TellGroupFinished
from bough.model.ids import ExecutorId, GroupId
from bough.model.tasks import Dep, GroupSpec, On
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Place, Policies, ReadyWork, View
from bough.testing.builders import array, executor, submit, task


class Asked(Exception):
    """A policy was asked."""


class Unaskable:
    """A policy that must not be asked."""

    def rank(self, work: ReadyWork, /) -> float:
        raise Asked

    def place(self, view: View, /) -> Iterable[Place]:
        raise Asked


class LastFirst(Fifo):
    """What was submitted last goes first."""

    def __init__(self) -> None:
        self.ranked: list[int] = []

    def rank(self, work: ReadyWork, /) -> float:
        self.ranked.append(work.id)
        return -float(work.id)


IN_GROUP = [task(4, group=GroupId(1)), task(5, group=GroupId(1))]
NEWS = [
    facts.RunOpened(1, "run", "h", 1),
    submit(
        GroupSpec(GroupId(1), "g", limit=1),
        task(1),
        task(2),
        array(3, 5),
        task(4, group=GroupId(1)),
        task(5, group=GroupId(1)),
    ),
]


def journal(policy: Fifo) -> tuple[Machine, list[tuple[int, list[facts.Fact]]]]:
    """A machine in which work is queued, and the facts that made it so."""
    machine = Machine(Policies(policy))
    turns = [machine.turn(0.0, [news]) for news in NEWS]
    return machine, [(turn.number, turn.facts) for turn in turns]


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_a_policy_that_raises_does_not_disturb_a_replay(by_snapshot: bool) -> None:
    machine, written = journal(Fifo())
    if by_snapshot:
        replayed = Machine.restore(machine.snapshot(), Policies(Unaskable()))
    else:
        replayed = Machine(Policies(Unaskable()))
        for number, some in written:
            replayed.replay(number, 0.0, some)
    check(replayed.state)
    assert picture(replayed.state) == picture(machine.state)
    assert not replayed.state.complaints


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_the_first_turn_ranks_what_is_queued_once(by_snapshot: bool) -> None:
    machine, written = journal(LastFirst())
    policy = LastFirst()
    if by_snapshot:
        again = Machine.restore(machine.snapshot(), Policies(policy))
    else:
        again = Machine(Policies(policy))
        for number, some in written:
            again.replay(number, 0.0, some)
    assert policy.ranked == []
    again.turn(1.0, [])
    assert sorted(policy.ranked) == [1, 2, 3, 4, 5]
    sent = [
        [order.spec.id for order in one.turn(2.0, [executor(1, 8)]).orders if isinstance(order, SendSpan)]
        for one in (machine, again)
    ]
    assert sent[0] == sent[1]
    assert sent[1][0] == 5
    check(again.state)


def test_a_replay_makes_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(Policies(Fifo()))
    several: list[list[arriving.News]] = [
        [facts.RunOpened(1, "run", "h", 1, memos=True), executor(1, 2), executor(2, 2)],
        [submit(GroupSpec(GroupId(1), "g"), task(1, group=GroupId(1)), task(2, 1), task(3, key=b"k" * 16))],
        [news.GroupClosed(GroupId(1)), facts.ExecutorLost(ExecutorId(1), "gone")],
        [news.Kill(Dep(On.TASK, 1))],
    ]
    turns = [machine.turn(float(at), some) for at, some in enumerate(several)]
    kinds = {type(order) for turn in turns for order in turn.orders}
    assert kinds >= {SendSpan, StopSpan, LookUpMemo, TellGroupFinished}
    assert any(isinstance(fact, facts.Skipped) for turn in turns for fact in turn.facts)

    def refuse(*values: object) -> None:
        raise AssertionError("a replay made an order")

    monkeypatch.setattr(lifecycle, "StopSpan", refuse)
    monkeypatch.setattr(readiness, "LookUpMemo", refuse)
    monkeypatch.setattr(dependencies, "TellGroupFinished", refuse)
    replayed = Machine(Policies(Unaskable()))
    monkeypatch.setattr(Effects, "__init__", refuse)
    for at, turn in enumerate(turns):
        replayed.replay(turn.number, float(at), turn.facts)
    assert picture(replayed.state) == picture(machine.state)
