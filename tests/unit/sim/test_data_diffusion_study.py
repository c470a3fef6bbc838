"""Falkon's studies of data diffusion: their arrivals have the printed totals, and small ones behave as large ones."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from bough.sim.studies.data_diffusion_study import (
    FA,
    GB,
    GBIT,
    GCC,
    MCH,
    MCU,
    PAIRS,
    DiffusionOutcome,
    DiffusionRun,
    OneAfterTheOther,
    _active_rows,
    _ap_rows,
    _stacking_rows,
    cases,
    policies_of,
    run_diffusion,
    workload_of,
)
from bough.sim.studies.study_rows import Reference
from bough.sim.study_workloads import STACKS, count, increasing, sine, thinned


def test_arrivals_grow_to_250_000_in_1415_seconds() -> None:
    arrivals = increasing()
    assert sum(many for _, many in arrivals) == 250_000
    assert arrivals[-1][0] == 1414.0
    assert [many for when, many in arrivals if when % 60 == 0][:10] == [1, 2, 3, 4, 6, 8, 11, 15, 20, 26]
    assert max(many for _, many in arrivals) == 1000


def test_arrivals_wave_to_two_million_in_6505_seconds() -> None:
    arrivals = sine()
    assert sum(many for _, many in arrivals) == pytest.approx(2_003_000, rel=0.01)
    peak = max(arrivals, key=lambda one: one[1])
    assert peak[1] == 1000
    assert peak[0] == pytest.approx(5284, abs=30)


def test_a_part_of_the_arrivals_is_that_part_of_the_tasks() -> None:
    assert count(thinned(increasing(), 1, 8)) == 250_000 // 8


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


def test_short_tasks_that_begin_together_read_all_from_the_shared_file_system_and_others_from_each_other() -> None:
    short = DiffusionRun("AP", GCC, 8, 50.0 * GB, 1.0 * GBIT, 100, seconds=0.1)
    together = run_diffusion(short)
    for change in ({"uneven": True}, {"chains": True}):
        apart = run_diffusion(msgspec.structs.replace(short, **change))
        assert apart.miss < together.miss / 2
        assert apart.peer > 3 * together.peer
        assert apart.efficiency > together.efficiency


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


def test_a_full_study_is_whole_and_has_every_locality_and_case_of_all_pairs() -> None:
    whole = cases(quick=False, full=True)
    assert {one.scale for one in whole} == {1}
    assert sorted({one.locality for one in whole if one.study == "stacking"}) == [1, 1.38, 2, 3, 4, 5, 10, 20, 30]
    for full in (False, True):
        pairs = [
            one
            for one in cases(quick=False, full=full)
            if one.study == "AP" and one.rules == "falkon" and not (one.chains or one.uneven)
        ]
        assert {(one.policy, one.side, one.seconds, one.cores) for one in pairs} == {
            (policy, *case)
            for policy in (FA, GCC)
            for case in ((500, 1.0, 2), (500, 0.1, 2), (1000, 4.0, 4), (1000, 4.0, 6))
        }


def outcome(hit: float, peer: float, miss: float, read: float) -> DiffusionOutcome:
    return DiffusionOutcome(100.0, 80.0, hit, peer, miss, read, 1.0, 1.0, 1)


def test_bytes_of_all_pairs_stand_by_kind_beside_what_was_published_made_as_much_smaller() -> None:
    small, whole = (PAIRS[0].run(GCC, full=full) for full in (False, True))
    assert (small.scale, whole.scale) == (4, 1)
    found = {row.subject: row for row in _ap_rows(small, outcome(0.9, 0.08, 0.02, 1500e9))}
    moved = {what: found[f"AP 500 x 500, 1 s, 1/4, GCC: {what}"] for what in (
        "read at the nodes", "moved between nodes", "read from the shared file system")}  # fmt: skip
    assert [round(row.ours) for row in moved.values()] == [1500, 120, 30]
    assert [row.reference for row in moved.values()] == [1500.0, 1698 / 8, 17.0]
    assert all(row.of is Reference.SCALED and "divided by" in row.note for row in moved.values())
    full = _ap_rows(whole, outcome(0.9, 0.08, 0.02, 6000e9))
    assert [row.reference for row in full if row.unit == "GB"] == [6000.0, 1698.0, 34.0]
    assert {row.of for row in full} == {Reference.PUBLISHED}


def test_a_part_of_all_pairs_has_as_many_tasks_for_a_node_and_as_much_of_the_data_set_in_a_cache() -> None:
    for case in PAIRS:
        parts, whole = (case.run(GCC, full=full) for full in (False, True))
        many, all_ = ((run.side / run.scale**0.5) ** 2 / run.nodes for run in (parts, whole))
        assert many == pytest.approx(all_, rel=0.02)
        held = parts.cache / (case.data_set / parts.scale**0.5)
        assert held == pytest.approx(whole.cache / case.data_set)
        assert len(workload_of(parts).tasks) == case.side**2 // parts.scale


def test_active_storage_has_its_bytes_and_two_ways_to_push() -> None:
    rows = {row.subject: row for row in _active_rows()}
    assert rows["AP 500 x 500, 1 s, active storage: read from the shared file system"].ours == 12.0
    assert rows["AP 500 x 500, 1 s, active storage, all levels at once: efficiency"].ours == pytest.approx(92, abs=0.5)
    assert rows[
        "AP 1000 x 1000, 4 s, 1024 nodes, active storage, level by level: efficiency"
    ].deviation == pytest.approx(0.0, abs=0.05)


def test_stacking_says_bytes_for_each_stack_beside_those_that_were_printed() -> None:
    run = DiffusionRun("stacking", MCU, 8, 50.0 * GB, GBIT, 8, locality=30.0, seconds=0.05)
    rows = {row.unit: row for row in _stacking_rows(run, outcome(0.75, 0.21, 0.04, 1e9))}
    assert rows["%"].of is Reference.IDEAL
    assert (rows["MB"].reference, rows["MB"].ours) == (0.421, pytest.approx(0.42))
