"""The study of the diffusion model: its rows follow from the library and the recorded runs, and from nothing else."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bough.analysis.study_pictures import draw_figures
from bough.sim import studies
from bough.sim.models.diffusion_model import AccessCosts, contended_storage, workload_time
from bough.sim.studies.diffusion_model_study import (
    BENCH,
    CALIBRATION,
    FORMER,
    RUNS,
    CalibrationRun,
    Constants,
    LiveRun,
    Plan,
    calibrate,
    compare,
    predict,
    ratios_of,
    summary,
)

TRUTH = Constants(overhead=0.03, local=0.005, peer_latency=0.06, storage_latency=0.02, stretch=1.1)


def _ideal(plan: Plan, local: int, peer: int) -> CalibrationRun:
    """A run as the model would have it."""
    storage = plan.tasks - local - peer
    wire = TRUTH.stretch * plan.size * 8e-6 / plan.host_link
    run = LiveRun(plan, local, peer, storage, 1.0)
    return CalibrationRun(
        run._replace(seconds=predict(TRUTH, plan, ratios_of(run))),
        local * TRUTH.local,
        peer * (TRUTH.peer_latency + wire),
        storage * (TRUTH.storage_latency + wire),
    )


def test_calibration_finds_the_constants_that_made_the_runs() -> None:
    runs = [
        _ideal(Plan(3, 1, 0, 25, 0, 300_000, 45, 0.25), 0, 0),
        _ideal(Plan(3, 3, 0, 25, 0, 1_200_000, 45, 0.25), 10, 20),
        _ideal(Plan(2, 3, 0, 50, 0, 1_200_000, 30, 0.25), 10, 5),
    ]
    found = calibrate(runs)
    assert found == pytest.approx(TRUTH)
    assert summary(compare(found, [one.run for one in runs])).worst == pytest.approx(0, abs=1e-6)


def test_a_shared_link_bounds_what_all_hosts_read_from_home() -> None:
    plan = Plan(4, 1, 0, 30, 10, 1_000_000, 40, 0.25)
    cold = ratios_of(LiveRun(plan, 0, 0, 40, 1.0))
    assert predict(TRUTH, plan, cold) == pytest.approx(40 * 8 / 10 * TRUTH.stretch)
    wide = plan._replace(home_link=1000)
    assert predict(TRUTH, wide, cold) == predict(TRUTH, plan._replace(home_link=0), cold)
    warm = ratios_of(LiveRun(plan, 40, 0, 0, 1.0))
    costs = AccessCosts(0.1, 0.2, 0.3, 1.0)
    assert contended_storage(costs, warm, 4, 100.0) == costs


def test_measured_runs_vary_and_are_not_those_of_the_calibration() -> None:
    assert len(RUNS) >= 40
    assert len({run.plan for run in RUNS}) == len(RUNS)
    for column in ("hosts", "locality", "cache", "host_link", "home_link"):
        assert len({getattr(run.plan, column) for run in RUNS}) >= 2, column
    assert not {run.plan.hosts for run in RUNS} & {one.run.plan.hosts for one in CALIBRATION}
    assert not {run.plan.host_link for run in RUNS} & {one.run.plan.host_link for one in CALIBRATION}
    for run in (*RUNS, *(one.run for one in CALIBRATION)):
        assert run.local + run.peer + run.storage == run.plan.tasks
        assert run.storage * run.plan.locality >= run.plan.tasks  # each file comes from home at least once


def test_the_rows_follow_from_the_library_and_the_recorded_runs(tmp_path: Path) -> None:
    result = studies.run("diffusion-model")
    rows = {row.subject: row for row in result.rows}
    assert len(rows) == len(result.rows)
    compared = compare(calibrate(CALIBRATION), RUNS)
    mean = 100 * math.fsum(abs(one.predicted - one.run.seconds) / one.run.seconds for one in compared) / len(RUNS)
    assert rows["mean error"].ours == pytest.approx(mean)
    assert rows["mean error"].reference == 5.0
    assert BENCH in rows["mean error"].note
    assert [(row.ours, row.reference) for row in result.rows[-len(RUNS) :]] == [
        (one.predicted, one.run.seconds) for one in compared
    ]
    page = (Path(__file__).parents[3] / "docs" / "studies" / "diffusion-model.md").read_text()
    assert f"| {mean:.1f} % (" in page
    (drawn,) = draw_figures(str(tmp_path), result.figures)
    assert "<svg" in Path(drawn).read_text()


def test_runs_before_the_defect_was_put_right_are_those_with_small_caches() -> None:
    assert {run.plan for run in FORMER} == {run.plan for run in RUNS if run.plan.cache}
    constants = calibrate(CALIBRATION)
    first = compare(constants, [*FORMER, *(run for run in RUNS if not run.plan.cache)])
    rows = {row.subject: row for row in studies.run("diffusion-model").rows}
    assert rows["mean error before a defect was put right"].ours == pytest.approx(summary(first).mean)


def test_a_prediction_by_hand() -> None:
    constants = calibrate(CALIBRATION)
    run = next(run for run in RUNS if not run.plan.home_link and run.peer)
    wire = constants.stretch * run.plan.size * 8e-6 / run.plan.host_link
    costs = AccessCosts(
        constants.local,
        constants.peer_latency + wire,
        constants.storage_latency + wire,
        run.plan.compute + constants.overhead,
    )
    by_hand = workload_time(costs, ratios_of(run), run.plan.tasks, run.plan.hosts)
    assert predict(constants, run.plan, ratios_of(run)) == pytest.approx(by_hand)


def test_the_bench_that_makes_new_runs_is_there() -> None:
    assert (Path(__file__).parents[3] / BENCH).is_file()
