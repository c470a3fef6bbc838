"""The model of data diffusion: its equations agree with each other, and with what is worked out by hand."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.errors import UserError
from bough.sim.models.diffusion_model import (
    AccessCosts,
    HitRatios,
    arrival_bounds,
    contended_storage,
    efficiency,
    highest_arrival,
    ideal_hit_ratio,
    speedup,
    storage_cost,
    task_bounds,
    task_time,
    undirected_ratios,
    utilisation,
    workload_time,
)

COSTS = AccessCosts(local=0.1, peer=0.5, storage=2.0, compute=1.0)
seconds = st.floats(0.001, 100)


def test_a_workload_by_hand() -> None:
    ratios = HitRatios(0.6, 0.3, 0.1)
    assert task_time(COSTS, ratios) == pytest.approx(1.0 + 0.06 + 0.15 + 0.2)
    one, many = (workload_time(COSTS, ratios, 1000, n) for n in (1, 64))
    assert one == pytest.approx(1410)
    assert speedup(one, many) == pytest.approx(64)
    assert efficiency(one, many, 64) == pytest.approx(1)
    assert highest_arrival(1.41, 64) == pytest.approx(64 / 1.41)
    assert utilisation(64 / 1.41, 1.41, 64) == pytest.approx(1)


def test_the_regimes_are_told_by_what_the_caches_hold() -> None:
    assert task_bounds(COSTS, 100, 100) == task_bounds(COSTS, 200, 100)
    assert task_bounds(COSTS, 100, 100).high == task_bounds(COSTS, 99, 100).low == 1.5


def test_many_readers_saturate_storage() -> None:
    assert storage_cost(100, 0.5, 100) == 1.5
    assert storage_cost(100, 0.5, 100, readers=2, aggregate=1000) == 1.5
    assert storage_cost(100, 0.5, 100, readers=64, aggregate=1000) == pytest.approx(6.4)


def test_each_file_is_read_once_from_storage_at_best() -> None:
    assert [ideal_hit_ratio(one) for one in (1, 2, 5, 10)] == pytest.approx([0, 0.5, 0.8, 0.9])


def test_ratios_that_are_none_are_refused() -> None:
    for wrong in ((0.5, 0.6, 0.1), (-0.1, 1.0, 0.1), (0, 0, 0)):
        with pytest.raises(UserError, match="add up"):
            HitRatios(*wrong)


@given(seconds, seconds, seconds, seconds, st.floats(0, 1), st.integers(1, 1000))
def test_a_mean_lies_within_the_bounds_of_its_regime(
    one: float, two: float, three: float, compute: float, share: float, processors: int
) -> None:
    local, peer, storage = sorted((one, two, three))
    costs = AccessCosts(local, peer, storage, compute)
    fits, misses = task_bounds(costs, 2, 1), task_bounds(costs, 1, 2)
    for bounds, ratios in (
        (fits, HitRatios(share, 1 - share, 0.0)),
        (misses, HitRatios(0.0, share, 1 - share)),
    ):
        took = task_time(costs, ratios)
        assert bounds.low * (1 - 1e-9) <= took <= bounds.high * (1 + 1e-9)
        rates = arrival_bounds(costs, *((2, 1) if bounds is fits else (1, 2)), processors)
        assert rates.low * (1 - 1e-9) <= highest_arrival(took, processors) <= rates.high * (1 + 1e-9)


@given(st.integers(1, 12), st.integers(1, 8))
def test_expected_ratios_are_those_of_all_ways_to_spread_the_readers(locality: int, nodes: int) -> None:
    ratios = undirected_ratios(locality, nodes)
    assert ratios.storage == pytest.approx(1 - ideal_hit_ratio(locality))
    if nodes ** min(locality, 4) <= 4096 and locality <= 4:
        ways = list(product(range(nodes), repeat=locality))
        found = sum(way[n] in way[:n] for way in ways for n in range(locality)) / len(ways) / locality
        assert ratios.local == pytest.approx(found)


@given(st.floats(0.01, 1.0), st.integers(1, 64), st.floats(0.001, 10))
def test_contention_is_where_the_readers_that_are_found_reading_agree_with_the_cost(
    share: float, processors: int, occupied: float
) -> None:
    ratios = HitRatios(1 - share, 0.0, share)
    found = contended_storage(COSTS, ratios, processors, occupied)
    reading = processors * share * found.storage / task_time(found, ratios)
    assert found.storage >= COSTS.storage
    if found.storage > COSTS.storage * (1 + 1e-6):
        assert found.storage == pytest.approx(reading * occupied)
    else:
        assert reading * occupied <= found.storage * (1 + 1e-6)
