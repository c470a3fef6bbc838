"""What each policy promises beyond the common promises: its order, and what it keeps room for."""

from __future__ import annotations

import pytest

from bough.core.machine import Machine
from bough.errors import UnknownName
from bough.model.events.news import WorkSucceeded
from bough.model.events.orders import SendSpan
from bough.policies.placement.fifo import Fifo
from bough.policies.placement.sjf import ShortestFirst
from bough.policies.policy_registry import load_policies
from bough.policy.interface import PlacementPolicy, Policies
from bough.testing.builders import array, executor, limits, needs, submit, task


def order_of(policy: PlacementPolicy, *items: object) -> list[int]:
    """In which order one core serves the items, all of which are there from the start."""
    machine = Machine(Policies(policy))
    machine.turn(0.0, [submit(*items)])  # type: ignore[arg-type]
    turn = machine.turn(1.0, [executor(1, 1)])
    served = []
    while turn.orders:
        (order,) = [order for order in turn.orders if isinstance(order, SendSpan)]
        served.append(order.spec.id)
        turn = machine.turn(2.0, [WorkSucceeded(order.span, order.start, order.stop, 60.0)])
    return served


def estimated(id_: int, seconds: float, **fields: object) -> object:
    return task(id_, limits=limits(walltime=seconds), **fields)


def test_fifo_serves_in_the_order_of_submission() -> None:
    assert order_of(Fifo(), estimated(1, 9), array(2, 2), estimated(3, 1)) == [1, 2, 2, 3]


def test_sjf_serves_the_shortest_first_and_the_unknown_before_all() -> None:
    items = (estimated(1, 9), estimated(2, 3), estimated(3, 5), task(4), estimated(5, 3))
    assert order_of(ShortestFirst(), *items) == [4, 2, 5, 3, 1]


def test_sjf_prefers_what_was_measured_to_what_was_estimated() -> None:
    machine = Machine(Policies(ShortestFirst()))
    machine.turn(0.0, [executor(1, 1), submit(task(1, template="x"), task(2, template="y"))])
    machine.turn(1.0, [WorkSucceeded(1, 0, 1, 10.0)])  # type: ignore[arg-type]
    machine.turn(2.0, [submit(estimated(3, 1.0, template="x"), estimated(4, 5.0, template="z"))])  # type: ignore[arg-type]
    machine.turn(3.0, [WorkSucceeded(2, 0, 1, 10.0)])  # type: ignore[arg-type]
    (span,) = machine.state.spans.values()
    assert span.record.id == 4


@pytest.mark.parametrize("policy", [Fifo(), ShortestFirst()])
def test_a_higher_priority_beats_every_rank(policy: PlacementPolicy) -> None:
    assert order_of(policy, estimated(1, 1), estimated(2, 99, priority=1)) == [2, 1]


def placed(machine: Machine) -> dict[int, int]:
    return {span.record.id: span.executor.id for span in machine.state.spans.values()}


def test_the_executor_that_had_room_the_longest_is_served_first() -> None:
    machine = Machine(Policies(Fifo()))
    machine.turn(0.0, [executor(2, 1), executor(1, 1), submit(task(1), task(2))])
    assert placed(machine) == {1: 2, 2: 1}


def test_a_big_task_keeps_the_executor_with_most_free_cores_and_the_others_go_on() -> None:
    machine = Machine(Policies(Fifo()))
    machine.turn(0.0, [executor(1, 4), executor(2, 2), submit(task(1), task(2), task(3), task(4))])
    machine.turn(1.0, [submit(task(5, needs=needs(4)), task(6), task(7), task(8))])
    assert 5 not in placed(machine)
    assert {placed(machine).get(id_) for id_ in (6, 7)} <= {2, None}
    first = next(span for span in machine.state.spans.values() if span.executor.id == 1)
    machine.turn(2.0, [WorkSucceeded(first.id, 0, 1, 1.0)])
    assert all(where != 1 for id_, where in placed(machine).items() if id_ in {6, 7, 8})


def test_policies_are_found_by_name() -> None:
    assert isinstance(load_policies("fifo").placement, Fifo)
    assert isinstance(load_policies("sjf").placement, ShortestFirst)


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=r"there is no placement policy 'best'; known are: .*fifo.*sjf"):
        load_policies("best")
