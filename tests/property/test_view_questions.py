"""A policy may ask anything, in any order and any number of times: the answers stay, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bough.core.invariants import check, picture
from bough.core.machine import Machine
from bough.core.records.array_record import READY
from bough.core.scheduling.view import StateView
from bough.model.events.facts import RunOpened
from bough.model.events.news import WorkFailed, WorkSucceeded
from bough.model.ids import GroupId
from bough.model.outcomes import Cause, Failure
from bough.model.sites.resources import Needs
from bough.model.tasks import GroupSpec, Limits, TaskExtras
from bough.policies.placement.fifo import Fifo
from bough.policies.placement.sjf import ShortestFirst
from bough.policy.interface import Offer, Policies, ReadyScan, ReadyWork, View
from bough.testing.builders import array, executor, needs, submit, task

SHAPES = [needs(), needs(2), needs(1, memory=500), needs(9)]
LOST = Failure(Cause.LOST, "the worker died")
NOW = 100.0


def world(dice: Random) -> Machine:
    """A machine in the middle of a run: limits, hosts, executors that leave, tasks that failed, two workflows."""
    machine = Machine(Policies(dice.choice([Fifo, ShortestFirst])()))
    machine.turn(0, [RunOpened(1, "a", "h", 1), RunOpened(2, "b", "h", 1, group=GroupId(1))])
    machine.turn(
        0, [submit(*(GroupSpec(GroupId(g), f"g{g}", GroupId(g % 2), limit=dice.choice([0, 1, 3])) for g in (2, 3)))]
    )
    for id_ in range(1, dice.randrange(1, 4)):
        until = dice.choice([0.0, 0.0, NOW + 50])
        machine.turn(0, [executor(id_, dice.choice([1, 2, 4]), until, memory=dice.choice([0, 1000]))])
    for id_ in range(1, dice.randrange(4, 40)):
        fields: dict[str, Any] = {
            "needs": dice.choice(SHAPES),
            "priority": dice.choice([0, 0, 0, 1]),
            "limits": Limits(walltime=dice.choice([0.0, 10.0, 90.0])),
            "group": GroupId(dice.randrange(4)),
            "template": dice.choice(["", "x"]),
        }
        if dice.random() < 0.3:
            fields["extras"] = TaskExtras(host=dice.choice(["host1", "host2", "elsewhere"]))
        machine.turn(0, [submit(array(id_, 5, **fields) if dice.random() < 0.2 else task(id_, **fields))])
        for span in dice.sample(list(machine.state.spans.values()), min(1, len(machine.state.spans))):
            end = (
                WorkSucceeded(span.id, span.start, span.stop, 0.01)
                if dice.random() < 0.5
                else WorkFailed(span.id, span.start, LOST)
            )
            machine.turn(NOW, [end] if dice.random() < 0.4 else [])
    return machine


def said(offer: Offer) -> tuple[int, int | None, bool, bool]:
    return offer.work.id, offer.executor.id if offer.executor else None, offer.fits_now, offer.barred


def answer(view: View, works: list[ReadyWork], question: str, dice: Random) -> object:
    """The answer to a question whose details follow from the dice."""
    executors = [one.id for one in view.executors()]
    if question == "executor_for" and works:
        hidden = set(dice.sample(executors, dice.randrange(len(executors) + 1)))
        return said(view.executor_for(dice.choice(works), hidden))
    if question == "most_free":
        found = view.most_free(dice.choice(SHAPES))
        return found.id if found is not None else None
    if question == "demand":
        return sorted((one.needs.cores, one.needs.memory, one.ready) for one in view.demand())
    return [(one.id, one.free("cores"), one.could_fit(SHAPES[2])) for one in view.executors()]


class Walk:
    """A scan with what was done to it, so that the same can be done to another one alone."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.scan: ReadyScan = view.ready()
        self.walk: Iterator[ReadyWork] = iter(self.scan)
        self.last: ReadyWork | None = None
        self.done: list[str] = []
        self.seen: list[int | None] = []

    def do(self, what: str) -> None:
        self.done.append(what)
        if what == "next":
            self.last = next(self.walk, None)
            self.seen.append(self.last.id if self.last is not None else None)
        elif what == "again":
            self.walk = iter(self.scan)
        elif self.last is not None:
            if what == "skip":
                self.scan.skip(self.last.needs)
            elif (offer := self.view.executor_for(self.last)).executor is None:
                self.scan.skip_like(offer)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_answers_depend_on_the_world_alone_and_asking_changes_nothing(seed: int, data: st.DataObject) -> None:
    machine = world(Random(seed))
    before = picture(machine.state)
    view = StateView(machine.state, NOW, Random(0))
    works = list(view.ready())
    recount: dict[Needs, int] = {}
    for record in machine.state.records.values():
        tasks = sum(record.state_of(index) == READY for index in range(record.length))
        recount[record.needs] = recount.get(record.needs, 0) + tasks
    assert {one.needs: one.ready for one in view.demand()} == {
        needs: tasks for needs, tasks in recount.items() if tasks
    }
    walks = [Walk(view) for _ in range(3)]
    asked: list[tuple[str, int, object]] = []
    for _ in range(data.draw(st.integers(1, 40))):
        if data.draw(st.booleans()):
            walks[data.draw(st.integers(0, 2))].do(
                data.draw(st.sampled_from(["next", "next", "next", "skip", "skip_like", "again"]))
            )
        else:
            question, die = (
                data.draw(st.sampled_from(["executor_for", "most_free", "executors", "demand"])),
                data.draw(st.integers(0, 9)),
            )
            asked.append((question, die, answer(view, works, question, Random(die))))
    view.give_back()
    check(machine.state)
    assert picture(machine.state) == before
    for walk in walks:  # each as if it had been the only one
        alone = StateView(machine.state, NOW, Random(0))
        other = Walk(alone)
        for what in walk.done:
            other.do(what)
        assert other.seen == walk.seen
        alone.give_back()
    for question, die, was in asked:  # each as if it had been the only question
        alone = StateView(machine.state, NOW, Random(0))
        assert answer(alone, works, question, Random(die)) == was
        alone.give_back()
    alone = StateView(machine.state, NOW, Random(0))
    assert [work.id for work in alone.ready()] == [work.id for work in works]
    alone.give_back()


def test_the_worlds_have_every_kind_of_answer() -> None:
    kinds = set()
    for seed in range(200):
        view = StateView(world(Random(seed)).state, NOW, Random(0))
        for work in view.ready():
            offer = view.executor_for(work)
            kinds.add((offer.executor is not None, offer.fits_now, offer.barred))
        view.give_back()
    assert {(False, False, True), (False, False, False), (True, False, False)} <= kinds
