"""Falkon's studies of data diffusion: their arrivals have the printed totals, and small ones behave as large ones."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from bough.sim.studies.data_diffusion_study import (
    GB,
    GBIT,
    GCC,
    MCH,
    MCU,
    STACKS,
    DiffusionRun,
    OneAfterTheOther,
    cases,
    increasing,
    policies_of,
    run_diffusion,
    sine,
)


def test_arrivals_grow_to_250_000_in_1415_seconds() -> None:
    arrivals = increasing(1)
    assert sum(many for _, many in arrivals) == 250_000
    assert arrivals[-1][0] == 1414.0
    assert [many for when, many in arrivals if when % 60 == 0][:10] == [1, 2, 3, 4, 6, 8, 11, 15, 20, 26]
    assert max(many for _, many in arrivals) == 1000


def test_arrivals_wave_to_two_million_in_6505_seconds() -> None:
    arrivals = sine(1)
    assert sum(many for _, many in arrivals) == pytest.approx(2_003_000, rel=0.01)
    peak = max(arrivals, key=lambda one: one[1])
    assert peak[1] == 1000
    assert peak[0] == pytest.approx(5284, abs=30)


def test_a_part_of_the_arrivals_is_that_part_of_the_tasks() -> None:
    assert sum(many for _, many in increasing(8)) == 250_000 // 8


def test_without_caches_the_shared_file_system_is_the_bound_and_with_them_it_is_not() -> None:
    plain = run_diffusion(DiffusionRun("MI", "first-available", 2, 4.0 * GB, 4.4 * GBIT / 32, 32))
    assert plain.efficiency == pytest.approx(0.28, abs=0.02)
    assert plain.miss == pytest.approx(1.0, abs=0.01)
    cached = run_diffusion(DiffusionRun("MI", GCC, 2, 4.0 * GB, 4.4 * GBIT / 32, 32))
    assert cached.efficiency > 0.9
    assert cached.hit > 0.5
    assert cached.response < plain.response / 10


def test_policies_have_falkons_rules_made_smaller_with_all_else_or_our_own() -> None:
    run = DiffusionRun("MI", GCC, 16, 4.0 * GB, 4.4 * GBIT / 4, 4)
    falkon = policies_of(run).placement
    assert (falkon.window, falkon.backlog, falkon.patience, falkon.threshold) == (625, "no", 0.0, 0.9)
    ours = policies_of(msgspec.structs.replace(run, rules="ours")).placement
    assert (ours.window, ours.backlog, ours.patience) == (0, "yes", 600.0)
    for policy in (MCH, MCU):
        assert policies_of(msgspec.structs.replace(run, policy=policy)).placement.window == 625


def test_with_small_caches_a_window_loses_hits_that_the_whole_queue_has() -> None:
    """A third of the files fit into the caches: behind the window wait readers of what is cached."""
    falkon = run_diffusion(DiffusionRun("MI", GCC, 2, 0.5 * GB, 4.4 * GBIT / 32, 32))
    ours = run_diffusion(DiffusionRun("MI", GCC, 2, 0.5 * GB, 4.4 * GBIT / 32, 32, rules="ours"))
    assert falkon.hit < ours.hit - 0.1
    assert falkon.efficiency < ours.efficiency - 0.1


def test_nodes_come_one_after_the_other() -> None:
    strategy = OneAfterTheOther()
    assert [list(strategy.requests(5, SimpleNamespace(starting=n))) for n in (0, 1, 2)] == [[1], [], []]
    at_once = DiffusionRun("MI", GCC, 2, 4.0 * GB, 4.4 * GBIT / 32, 32, idle=60.0)
    in_line = msgspec.structs.replace(at_once, gap=40.0)
    assert run_diffusion(in_line).node_hours < 0.9 * run_diffusion(at_once).node_hours


def test_in_all_pairs_chains_spare_the_shared_file_system() -> None:
    alone = run_diffusion(DiffusionRun("AP", GCC, 8, 50.0 * GB, 1.0 * GBIT, 100, seconds=1.0, rules="ours"))
    chains = run_diffusion(
        DiffusionRun("AP", GCC, 8, 50.0 * GB, 1.0 * GBIT, 100, seconds=1.0, rules="ours", chains=True)
    )
    assert chains.miss < alone.miss
    assert chains.peer > alone.peer
    assert chains.efficiency >= alone.efficiency


@pytest.mark.parametrize("locality", [1.0, 5.0])
def test_stacking_hits_what_its_locality_allows(locality: float) -> None:
    run = DiffusionRun(
        "stacking", "max-compute-util", 2, 50.0 * GB, 3.4 * GBIT / 32, 100, locality=locality, seconds=0.05
    )
    outcome = run_diffusion(run)
    assert outcome.hit + outcome.peer == pytest.approx(1 - 1 / locality, abs=0.1)


def test_what_is_run_names_each_published_configuration_once() -> None:
    for quick, full in ((True, False), (False, False), (False, True)):
        chosen = cases(quick=quick, full=full)
        assert len(set(chosen)) == len(chosen)
    assert {one.locality for one in chosen if one.study == "stacking"} == set(STACKS)
