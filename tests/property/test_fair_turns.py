"""Whose turn it is, found by the index, beside looking at every queue."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from bough.core.invariants import check
from bough.core.machine import Machine
from bough.core.records.group_record import Bid
from bough.core.records.indexes.ready_queue import LimitTree, ReadyQueue
from bough.core.scheduling.view import StateView
from bough.core.state import State
from bough.model.events import news
from bough.model.events.facts import QueueDefined, RunOpened
from bough.model.ids import GroupId
from bough.model.sites.queue_specs import QueueSpec
from bough.model.tasks import GroupSpec, TaskExtras
from bough.policies.placement.fifo import Fifo
from bough.policies.placement.sjf import ShortestFirst
from bough.policy.interface import Policies
from bough.testing.builders import array, executor, needs, submit, task

WORKFLOWS = 6
SHAPES = [needs(), needs(2), needs(1, memory=500), needs(1, queue="q1"), needs(2, queue="q1"), needs(1, queue="q2")]
QUEUES = {"q1": QueueSpec(max_cores=3, share=2.0), "q2": QueueSpec(min_cores=1, share=0.5)}


def world(dice: Random, steps: int) -> Machine:
    """A machine in the middle of a run of several workflows, some of them with limits."""
    machine = Machine(Policies(dice.choice([Fifo, ShortestFirst])()))
    machine.turn(0, [RunOpened(1, "a", "h", 1)])
    machine.turn(0, [RunOpened(run, f"w{run}", "h", 1, group=GroupId(run)) for run in range(2, 2 + WORKFLOWS)])
    limited = [GroupSpec(GroupId(20 + run), "g", GroupId(run), limit=1 + run % 3) for run in range(2, 2 + WORKFLOWS)]
    machine.turn(0, [submit(*limited), executor(1, 4, memory=1000), executor(2, 2)])
    if dice.random() < 0.5:
        machine.turn(0, [QueueDefined(name, spec) for name, spec in QUEUES.items()])
    shapes = [shape for shape in SHAPES if machine.state.named_queues.several or not shape.queue]
    for number in range(1, steps):
        run = 2 + dice.randrange(WORKFLOWS)
        group = GroupId(run if dice.random() < 0.7 else 20 + run)
        extras = TaskExtras(host="host1") if dice.random() < 0.1 else TaskExtras()
        make = array(100 + number, 5, group=group, needs=dice.choice(shapes)) if dice.random() < 0.2 else None
        one = make or task(
            100 + number,
            group=group,
            needs=dice.choice(shapes),
            priority=dice.choice([0, 0, 1]),
            template=dice.choice(["", "x"]),
            extras=extras,
        )
        machine.turn(number, [submit(one)])
        for span in dice.sample(list(machine.state.spans.values()), min(dice.randrange(3), len(machine.state.spans))):
            machine.turn(number, [news.WorkSucceeded(span.id, span.start, span.stop, dice.choice([0.01, 5.0]))])
        check(machine.state)
    return machine


def order(state: State, root: ReadyQueue | LimitTree) -> tuple[tuple[float, float], Bid] | None:
    """By what a queue goes before others; None: nothing of it may go."""
    head, share = root.head(), root.share
    if head is None or (share.named.bounded and not share.named.spare(root.needs.cores)):
        return None
    return state.named_queues.standing(share.named), (share.cores, *head[:3], share.served, head[3])


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), steps=st.integers(2, 40))
def test_the_index_finds_what_a_look_at_everything_finds(seed: int, steps: int) -> None:
    dice = Random(seed)
    machine = world(dice, steps)
    state = machine.state
    view = StateView(state, float(steps), dice)
    skipped = set(dice.sample(SHAPES, dice.randrange(3)))
    scan = view.ready()
    for shape in skipped:
        scan.skip(shape)
    walk = iter(scan)
    while True:
        orders = {
            found: root
            for root in list(state.waiting)
            if root.needs not in skipped and (found := order(state, root)) is not None
        }
        expected = orders[min(orders)].head() if orders else None
        work = next(walk, None)
        assert (work.id if work is not None else None) == (expected[3] if expected is not None else None)
        if work is None:
            break
    view.give_back()
    check(state)
    for number in range(200):  # nobody starves: all that is out ends, and in the end everything has run
        if not state.spans:
            break
        ends = [news.WorkSucceeded(span.id, span.start, span.stop, 1.0) for span in state.spans.values()]
        machine.turn(float(steps + number), ends)
        check(state)
    assert machine.is_idle
