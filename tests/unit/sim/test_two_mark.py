"""2Mark: its rules on random traces, and what it pays in each phase beside the best that knows the future."""

from __future__ import annotations

import random
from heapq import heappop, heappush
from itertools import accumulate

import pytest

from bough.sim.two_mark import Request, TwoMark

State = tuple[frozenset[int], ...]


def trace(dice: random.Random, stores: int, items: int, length: int) -> list[Request]:
    """Requests for objects, some dearer than others."""
    weights = [1 / (1 + number) for number in range(items)]
    return [Request(dice.choices(range(items), weights)[0], dice.randrange(stores)) for _ in range(length)]


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


def best(requests: list[Request], stores: int, room: int, storage: float) -> list[tuple[int, int]]:
    """What the best pays for each request, as (loads, exchanges): the cheapest way through all states."""
    start: State = tuple(frozenset() for _ in range(stores))
    heap: list[tuple[float, int, int, State, tuple[tuple[int, int], ...]]] = [(0.0, 0, 0, start, ())]
    seen: set[tuple[int, State]] = set()
    ticket = 0
    while heap:
        cost, at, _, state, paid = heappop(heap)
        if at == len(requests):
            return list(paid)
        if (at, state) in seen:
            continue
        seen.add((at, state))
        for after, loads, moves in _ways(state, requests[at], room):
            ticket += 1
            heappush(heap, (cost + loads * storage + moves, at + 1, ticket, after, (*paid, (loads, moves))))
    raise AssertionError("there is a way")


def _ways(state: State, request: Request, room: int) -> list[tuple[State, int, int]]:
    """States in which a request is served, by the fewest steps: nobody gains by doing something before its time."""
    item, store = request
    here = state[store]
    if item in here:
        return [(state, 0, 0)]
    ways = []
    victims = [None] if len(here) < room else sorted(here)
    source = next((number for number, held in enumerate(state) if item in held), None)
    for victim in victims:
        for loads in (0, 1):
            if loads == 0 and source is None:
                continue
            after = list(state)
            after[store] = (here - {victim}) | {item}
            if source is not None:
                after[source] = after[source] - {item}
                if loads == 0 and victim is not None:
                    after[source] |= {victim}
            ways.append((tuple(after), loads, 1 - loads))
    return ways


@pytest.mark.parametrize("seed", range(12))
def test_what_a_phase_costs_is_bounded_by_what_the_best_pays_in_it(seed: int) -> None:
    dice = random.Random(seed)
    stores, room, storage = 2, 2, dice.choice([1.0, 2.0, 5.0])
    requests = trace(dice, stores, dice.randint(5, 7), 40)
    phases = TwoMark(stores, room).run(requests)
    paid = best(requests, stores, room, storage)
    ends = [0, *accumulate(len(phase.requests) for phase in phases)]
    for phase, start, stop in zip(phases, ends, ends[1:], strict=False):
        exchanges = sum(moves for _, moves in paid[start:stop])
        bound = storage * stores * room + 2 * exchanges * room + stores * room
        assert phase.cost(storage) <= bound
    assert sum(phase.cost(storage) for phase in phases) >= sum(loads * storage + moves for loads, moves in paid)
