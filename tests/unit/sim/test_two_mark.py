"""2Mark: its rules on random traces, and what it pays in each phase beside the best that knows the future."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest

from bough.sim.models.two_mark import Request, TwoMark
from bough.sim.studies.two_mark_study import best_costs, run, trace


@pytest.mark.parametrize("seed", range(20))
def test_no_store_has_too_much_and_no_object_is_in_two(seed: int) -> None:
    dice = random.Random(seed)
    stores, room = dice.randint(1, 5), dice.randint(1, 6)
    system = TwoMark(stores, room)
    for item, store in trace(dice, stores, dice.randint(2, 40), 400):
        system.request(item, store)
        assert item in system.held[store]
        held = [one for objects in system.held for one in objects]
        assert len(held) == len(set(held))
        assert max(map(len, system.held)) <= room
    for phase in system.phases:
        assert len(phase.items) <= stores * room
        assert phase.loads <= stores * room


def test_one_store_is_the_marking_algorithm() -> None:
    system = TwoMark(1, 2)
    phases = system.run(Request(item, 0) for item in (1, 2, 1, 3, 4, 3))
    assert [(phase.loads, phase.moves) for phase in phases] == [(2, 0), (2, 0)]


@pytest.mark.parametrize("seed", range(12))
def test_what_a_phase_costs_is_bounded_by_what_the_best_pays_in_it(seed: int) -> None:
    dice = random.Random(seed)
    stores, room, storage = 2, 2, dice.choice([1.0, 2.0, 5.0])
    requests = trace(dice, stores, dice.randint(5, 7), 40)
    phases = TwoMark(stores, room).run(requests)
    paid = best_costs(requests, stores, room, storage)
    ends = [0, *accumulate(len(phase.requests) for phase in phases)]
    for phase, start, stop in zip(phases, ends, ends[1:], strict=False):
        exchanges = sum(moves for _, moves in paid[start:stop])
        bound = storage * stores * room + 2 * exchanges * room + stores * room
        assert phase.cost(storage) <= bound
    assert sum(phase.cost(storage) for phase in phases) >= sum(loads * storage + moves for loads, moves in paid)


def test_the_study_finds_no_phase_above_its_bound() -> None:
    rows = {row.subject: row for row in run(quick=True).rows}
    held = rows["phases within their bound"]
    assert held.ours == held.reference > 20
    assert rows["2Mark beside the best, in the mean"].ours >= 1.0
