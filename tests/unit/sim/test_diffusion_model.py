"""The model of data diffusion: its equations agree with each other, and with what is worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.errors import UserError
from bough.sim.diffusion_model import (
    AccessCosts,
    HitRatios,
    arrival_bounds,
    efficiency,
    highest_arrival,
    ideal_hit_ratio,
    speedup,
    storage_cost,
    task_bounds,
    task_time,
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
