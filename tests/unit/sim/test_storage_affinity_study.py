"""Storage Affinity's simulations: the grids and jobs, the loads, XSufferage's plan, and the shape of six executions."""

from __future__ import annotations

from random import Random

import pytest

from bough.sim.studies.static_xsufferage import StaticXSufferage
from bough.sim.studies.storage_affinity_study import (
    COMPARED,
    SPEEDS,
    SPREADS,
    VARIANTS,
    ExecutionOutcome,
    Load,
    Scenario,
    Sufferage,
    _grain_rows,
    _heterogeneity_rows,
    _variant_rows,
    grid,
    job,
    run_heuristic,
    scenarios,
)
from bough.sim.studies.study_rows import Reference
from bough.sim.study_workloads import COST, MEGABYTE
from bough.sim.study_workloads import JOB_BYTES as TOTAL

COARSE = Scenario(grain=75)


def test_the_design_has_120_cells_and_3000_simulations() -> None:
    assert len(scenarios(quick=False, full=False)) == 120
    assert len(set(scenarios(quick=False, full=True))) == 3000


@pytest.mark.parametrize("heterogeneity", [1, 2, 4, 8])
def test_a_grid_has_the_power_that_it_should_in_2_to_12_sites(heterogeneity: int) -> None:
    processors = grid(Scenario(heterogeneity=heterogeneity))
    speeds = [speed for _, speed in processors]
    assert 1000 <= sum(speeds) < 1018
    assert max(speeds) <= heterogeneity * min(speeds) * 1.0001
    sizes = [sum(site == one for one, _ in processors) for site in {site for site, _ in processors}]
    assert 2 <= len(sizes) <= 12
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("kind", ["visualization", "search"])
def test_a_job_has_2_gb_of_input_and_costs_by_its_bytes(kind: str) -> None:
    workload = job(Scenario(kind, grain=15, spread=1.0))
    sizes = [file.size for file in workload.files]
    assert sum(sizes) == TOTAL
    assert all(7.5 * MEGABYTE <= size <= 22.5 * MEGABYTE for size in sizes[:-1])
    for task, size in zip(workload.tasks, sizes, strict=True):
        assert task.seconds == pytest.approx(COST * size) if kind == "visualization" else task.seconds <= COST * size


def test_a_load_takes_as_long_as_its_integral_says() -> None:
    load, dice = Load("x", 0.4, 1.0, every=50.0), Random(1)
    for _ in range(50):
        start, work = dice.uniform(0, 5000), dice.uniform(0, 500)
        length = load.length(start, work)
        steps = 20_000
        done = sum(load.at(start + (step + 0.5) * length / steps) for step in range(steps)) * length / steps
        assert done == pytest.approx(work, rel=0.01, abs=0.1)


def test_loads_of_arrays_are_those_of_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    load, dice = Load("y", 0.2, 1.0), Random(2)
    starts = numpy.array([dice.uniform(0, 1e5) for _ in range(100)])
    works = numpy.array([dice.uniform(0, 1e4) for _ in range(100)])
    expected = [load.length(start, work) for start, work in zip(starts, works, strict=True)]
    assert load.lengths(starts, works) == pytest.approx(expected)


def test_the_plan_gives_the_task_that_suffers_most_its_best_site_first() -> None:
    pytest.importorskip("numpy")
    speeds = {1: 1.0, 2: 10.0}
    policy = StaticXSufferage(["a", "b"], lambda processor, costs, begins: costs / speeds[processor], "alone")
    # the long one loses most if it does not get the fast processor; the short one, whose data is at a, stays there
    policy.plan(1, [10.0, 100.0], 0.0, lambda task, site: 50.0 if task == 0 and site == "b" else 0.0)
    assert [list(queue) for queue in policy._queues] == [[1], [2]]


def test_a_serial_link_is_planned_for_one_transfer_after_the_other() -> None:
    pytest.importorskip("numpy")
    chosen = {}
    for link in ("alone", "serial"):
        policy = StaticXSufferage(["a", "a", "b"], lambda processor, costs, begins: costs, link)
        policy.plan(1, [30.0, 30.0], 0.0, lambda task, site: 20.0 if site == "a" else 21.0)
        chosen[link] = sorted(one for queue in policy._queues for one in queue)
    assert chosen["alone"] == chosen["serial"] == [1, 2]


def test_storage_affinity_drops_after_its_first_execution_and_wqr_does_not() -> None:
    own, blind = run_heuristic("SA", COARSE), run_heuristic("WQR", COARSE)
    assert len(own) == len(blind) == 6
    assert max(one.makespan for one in own[1:]) < own[0].makespan
    assert min(one.makespan for one in blind) > 0.7 * max(one.makespan for one in blind)
    assert sum(one.makespan for one in own) < 0.6 * sum(one.makespan for one in blind)
    assert sum(one.network_waste for one in own) < sum(one.cpu_waste for one in own)
    assert sum(one.network_waste for one in blind) > 6.0


def test_a_plan_is_ahead_at_coarse_grain_and_the_same_each_time() -> None:
    pytest.importorskip("numpy")
    planned = run_heuristic(Sufferage(), COARSE)
    assert run_heuristic(Sufferage(), COARSE) == planned
    assert sum(one.makespan for one in planned[1:]) < sum(one.makespan for one in run_heuristic("SA", COARSE)[1:])
    assert all(one.cpu_waste == one.network_waste == 0 for one in planned)


def test_transfers_that_share_the_link_are_planned_to_take_longer() -> None:
    """Each would fetch in 15 s alone; while one is fetching, the next stays where its data is."""
    pytest.importorskip("numpy")
    chosen = {}
    for link in ("alone", "fair-share"):
        policy = StaticXSufferage(["a", "a", "b"], lambda processor, costs, begins: costs, link)
        policy.plan(1, [10.0] * 4, 0.0, lambda task, site: 15.0 if site == "a" else 0.0)
        chosen[link] = [len(queue) for queue in policy._queues]
    assert chosen == {"alone": [1, 1, 2], "fair-share": [1, 0, 3]}


@pytest.mark.parametrize(
    "name",
    [
        Sufferage("static", "noisy", "serial"),
        Sufferage("static", "forecast", "fair-share"),
        Sufferage("on-event", "snapshot", "alone"),
        Sufferage("on-event", "oracle", "fair-share"),
    ],
)
def test_each_option_of_xsufferage_runs_and_is_the_same_each_time(name: Sufferage) -> None:
    pytest.importorskip("numpy")
    once = run_heuristic(name, COARSE)
    assert run_heuristic(name, COARSE) == once
    assert once != run_heuristic(Sufferage(), COARSE)
    assert all(one.cpu_waste == one.network_waste == 0 for one in once)


def test_the_mean_of_a_load_is_its_integral_for_the_time() -> None:
    load = Load("z", 0.2, 1.0, every=50.0)
    assert load.mean(0.0) == load.at(0.0)
    assert load.mean(2000.0) == pytest.approx(sum(load.at(0.5 + second) for second in range(2000)) / 2000, rel=0.02)


def test_rows_by_grain_say_makespan_and_waste_of_wqr_too_and_what_is_implied() -> None:
    """75 MB is nowhere printed: three times all less twice the fine ones."""
    found = {
        (name, Scenario(kind, grain)): [ExecutionOutcome(100.0 * grain, 0.5, 0.25)] * 6
        for name in (*COMPARED, *VARIANTS)
        for kind in ("visualization", "search")
        for grain in (3, 15, 75)
    }
    rows = {row.subject: row for row in _grain_rows(found)}
    implied = rows["WQR: makespan, 75 MB"]
    assert (implied.ours, implied.reference, implied.of) == (7500.0, pytest.approx(73793), Reference.FOLLOWS)
    assert rows["WQR: makespan, 3 MB"].reference is None
    assert rows["WQR: network waste, 75 MB"].reference == pytest.approx(287, abs=0.5)
    assert rows["SA: CPU waste, 75 MB"].reference == pytest.approx(112, abs=0.5)
    assert rows["SA: makespan of executions 2 to 6, 75 MB"].of is Reference.PUBLISHED
    options = _variant_rows(found, VARIANTS)
    assert {row.of for row in options} == {Reference.MODEL}
    assert len(options) == 1 + len(VARIANTS)


def test_waste_is_said_by_the_heterogeneity_of_the_grid() -> None:
    found = {
        (name, Scenario(heterogeneity=level, spread=spread)): [ExecutionOutcome(100.0, level / 10, 0.25)] * 6
        for name in COMPARED
        for level in SPEEDS
        for spread in SPREADS
    }
    rows = {row.subject: row.ours for row in _heterogeneity_rows(found)}
    assert rows["WQR: CPU waste, grid of 8 times"] == pytest.approx(80.0)
    assert rows["SA: network waste, grid of 1 times"] == pytest.approx(25.0)
