"""The shape of Trellis Driver's measurements (Lamb 2005, chapter 5) in virtual time: acceptance item 6.

The real driver cuts jobs into bundles; a model of the thesis' metacomputer runs those. P placeholders each ask for a
bundle, run it to its end and report; both are calls of 0.70 s, of which 0.26 s keep the one server to itself. Times are
those of the real experiment; they are added up, not waited for.
"""

from __future__ import annotations

import heapq
import random
from functools import cache
from statistics import fmean
from typing import Any

import pytest

from bough.driver import Driver
from tests.unit.driver.driver_sessions import FakeArray, FakeSession

JOBS = 3916  # proteins
FACTORS = (2, 4, 8, 16, 32, 64)
PLACEHOLDERS = (2, 4, 8, 16)
SEEDS = range(10)
CALL, SERVICE = 0.70, 0.26

Bundles = list[list[str]]  # names of jobs
Times = dict[str, float]


class Notebook(FakeSession):
    """Notes what each submission holds."""

    def __init__(self) -> None:
        super().__init__()
        self.bundles: Bundles = []

    def sweep(self, text: str, space: Any, **options: Any) -> FakeArray:
        self.bundles.append([row[0][0] for row in space])
        return super().sweep(text, space, **options)

    def map(self, function: Any, rows: Any, *options: Any) -> FakeArray:
        self.bundles += [[stage.words[0] for stage in row] for row in rows]
        return super().map(function, rows, *options)


@cache
def bundles(factor: int, jobs: int = JOBS, kind: str = "blast") -> Bundles:
    """What the driver submits for jobs of one kind."""
    session = Notebook()
    with Driver(session) as made:  # type: ignore[arg-type]
        made.set_group("phase", factor, timeout=600)
        for number in range(jobs):
            made.exec_async([f"{kind}{number}"], group="phase")
    return session.bundles


@cache
def chains() -> Bundles:
    """What it submits for pipelines of two stages."""
    session = Notebook()
    with Driver(session) as made:  # type: ignore[arg-type]
        for number in range(JOBS):
            made.create_pipeline(f"p{number}", 2)
            for kind in ("blast", "parse"):
                made.exec_async([f"{kind}{number}"], group=f"p{number}")
    return session.bundles


def makespan(work: Bundles, times: Times, placeholders: int) -> float:
    """How long the metacomputer of the thesis takes: every call waits for the server, which serves one at a time."""
    way = (CALL - SERVICE) / 2
    coming = [(way, number, False) for number in range(placeholders)]  # calls that reach the server
    queue, free, end = list(reversed(work)), 0.0, 0.0
    while coming:
        at, number, is_report = heapq.heappop(coming)
        free = max(at, free) + SERVICE
        back = free + way
        if is_report:
            end = max(end, back)
            heapq.heappush(coming, (back + way, number, False))
        elif queue:
            heapq.heappush(coming, (back + sum(times[name] for name in queue.pop()) + way, number, True))
    return end


@cache
def drawn() -> list[Times]:
    """How long the jobs run, as fitted to the published figures."""
    found: list[Times] = []
    for dice in map(random.Random, SEEDS):
        found.append({f"blast{number}": 2 + 6 * dice.random() ** 1.45 for number in range(JOBS)})
        found[-1] |= {f"parse{number}": dice.uniform(0.5, 0.71) for number in range(JOBS)}
    return found


def mean_time(work: Bundles, placeholders: int) -> float:
    return fmean(makespan(work, times, placeholders) for times in drawn())


def both_phases(factor: int, placeholders: int) -> float:
    return sum(mean_time(bundles(factor, kind=kind), placeholders) for kind in ("blast", "parse"))


def test_the_best_factor_falls_as_placeholders_are_added() -> None:
    best = [min(FACTORS, key=lambda factor: mean_time(bundles(factor), number)) for number in PLACEHOLDERS]
    assert best == sorted(best, reverse=True)
    assert best[0] >= 4 * best[-1]


@pytest.mark.parametrize("placeholders", PLACEHOLDERS)
def test_one_by_one_is_slower_than_chains_which_are_like_pairs_and_more_at_a_time_is_faster(placeholders: int) -> None:
    none, hetero = both_phases(1, placeholders), mean_time(chains(), placeholders)
    pairs, fours, eights = (both_phases(factor, placeholders) for factor in (2, 4, 8))
    assert none > 1.1 * hetero
    assert none > 1.1 * pairs
    assert hetero == pytest.approx(pairs, rel=0.2)
    assert min(hetero, pairs) > 1.05 * fours
    assert fours > 1.02 * eights


@pytest.mark.parametrize(("placeholders", "factor", "units"), [(4, 5, 25), (4, 10, 30), (8, 5, 15)])
def test_the_rounds_of_equal_bundles_are_those_of_the_thesis(placeholders: int, factor: int, units: int) -> None:
    ends = [0] * placeholders
    for bundle in bundles(factor, jobs=100):
        heapq.heapreplace(ends, ends[0] + len(bundle))
    assert max(ends) == units
