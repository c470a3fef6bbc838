"""2Mark on random traces: what it pays in each global phase, beside the best that knows the future.

The thesis proves a bound and measures nothing, so there is no figure to meet but the bound itself: in each phase 2Mark
pays at most s N M + 2 v M + N M, where the best makes v exchanges. The best is found by searching all states, so that
stores and traces are small.
Source: I. Raicu, 6.3.2; `spec/falkon.md` 3.5, which also says why the printed ratio is not what is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate
from random import Random
from statistics import fmean
from typing import NamedTuple

from bough.sim.models.two_mark import Request, TwoMark
from bough.sim.studies.study_rows import Curve, Reference, StudyFigure, StudyResult, StudyRow

State = tuple[frozenset[int], ...]
STORES, ROOM = 2, 2


class TraceCosts(NamedTuple):
    """One trace: what each phase cost with 2Mark and its bound, and all of it with 2Mark and the best."""

    phases: Sequence[tuple[float, float]]
    paid: float
    best: float


def run_trace(seed: int, storage: float) -> TraceCosts:
    """A random trace; `storage` is what a load from persistent storage costs, in exchanges."""
    dice = Random(seed)
    requests = trace(dice, STORES, dice.randint(5, 7), 40)
    phases = TwoMark(STORES, ROOM).run(requests)
    paid = best_costs(requests, STORES, ROOM, storage)
    ends = [0, *accumulate(len(phase.requests) for phase in phases)]
    found = []
    for phase, start, stop in zip(phases, ends, ends[1:], strict=False):
        exchanges = sum(moves for _, moves in paid[start:stop])
        bound = storage * STORES * ROOM + 2 * exchanges * ROOM + STORES * ROOM
        found.append((phase.cost(storage), bound))
    total = sum(loads * storage + moves for loads, moves in paid)
    return TraceCosts(found, sum(cost for cost, _ in found), total)


def trace(dice: Random, stores: int, items: int, length: int) -> list[Request]:
    """Requests for objects, some dearer than others."""
    weights = [1 / (1 + number) for number in range(items)]
    return [Request(dice.choices(range(items), weights)[0], dice.randrange(stores)) for _ in range(length)]


def best_costs(requests: Sequence[Request], stores: int, room: int, storage: float) -> list[tuple[int, int]]:
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


def run(*, quick: bool) -> StudyResult:
    """Traces with several costs of persistent storage."""
    ratios: dict[float, float] = {}
    found: list[TraceCosts] = []
    for storage in (1.0, 2.0, 5.0) if quick else (1.0, 2.0, 5.0, 10.0, 20.0):
        some = [run_trace(seed, storage) for seed in range(5 if quick else 40)]
        ratios[storage] = fmean(one.paid / one.best for one in some)
        found += some
    phases = [phase for one in found for phase in one.phases]
    within = sum(cost <= bound for cost, bound in phases)
    safe = STORES * ROOM + 2 * ROOM + STORES * ROOM
    rows = [
        StudyRow("phases within their bound", float(within), float(len(phases)), "phases", f"of {len(found)} traces",
                 Reference.IDEAL),
        StudyRow("the largest part of its bound that a phase cost", max(a / b for a, b in phases), unit=""),
        StudyRow("2Mark beside the best, in the mean", fmean(one.paid / one.best for one in found), unit="times",
                 note=f"the proof allows up to {safe}"),
        StudyRow("2Mark beside the best, at worst", max(one.paid / one.best for one in found), unit="times"),
    ]  # fmt: skip
    title = f"2Mark beside the best: {STORES} stores of {ROOM} objects, random traces"
    curve = Curve("2Mark", list(ratios.items()))
    return StudyResult(
        rows, [StudyFigure("ratio", title, "cost of persistent storage, in exchanges", "times the best", [curve])]
    )
