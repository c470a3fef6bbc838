"""Lamb's studies with our core: the worked example, published points, and what the model of a server must obey."""

from __future__ import annotations

import pytest

from bough.sim.studies import batching
from bough.sim.studies.data_conscious_study import MAKESPANS, POLICIES, Cell, run_cell, run_chains, run_two_hosts
from bough.sim.studies.placeholders import Job, JobFile, Network, run_placeholders

CALLS = Network(1.0, 0.4)


def test_the_worked_example_takes_12_2_and_10_6_seconds() -> None:
    assert run_two_hosts("fifo") == pytest.approx(12.2)
    assert run_two_hosts("data-conscious:rate=1e6") == pytest.approx(10.6)


def test_one_placeholder_pays_two_calls_for_each_job() -> None:
    jobs = [Job(f"j{number}", 3.0) for number in range(4)]
    outcome = run_placeholders("fifo", CALLS, 1, [jobs])
    assert outcome.makespan == pytest.approx(4 * 5.0 - 0.3)  # the last answer need not come back


def test_many_placeholders_wait_for_the_server() -> None:
    jobs = [Job(f"j{number}", 0.0) for number in range(50)]
    outcome = run_placeholders("fifo", CALLS, 50, [jobs])
    assert outcome.makespan == pytest.approx(0.3 + 100 * 0.4)  # it serves one call after the other


def test_files_that_are_elsewhere_are_copied_with_a_start_up_for_each() -> None:
    made = [JobFile("a", 100), JobFile("b", 300)]
    phases = [[Job("make", 1.0, makes=made)], [Job("read", 1.0, made), Job("other", 1.0, made)]]
    outcome = run_placeholders("fifo", Network(0.0, 0.0, 2.0, 100.0), 2, phases)
    assert outcome.moved == 400
    assert outcome.ends == [pytest.approx(1.0), pytest.approx(1.0 + 2 * 2.0 + 4.0 + 1.0)]
    assert outcome.affinity == pytest.approx(2 / 3)


@pytest.mark.parametrize("point", [("WAN", 1, 8, 0.35), ("WAN", 100, 16, 0.35), ("LAN", 1, 32, 0.35)])
def test_published_makespans_are_met_within_a_tenth(point: tuple[str, int, int, float]) -> None:
    for policy, published in zip(POLICIES, MAKESPANS[point], strict=True):
        if published is not None:
            assert run_cell(Cell(policy, *point), seeds=4).makespan == pytest.approx(published, rel=0.1)


def test_data_conscious_scheduling_reaches_the_highest_affinity_and_bundles_of_pipelines_win() -> None:
    conscious, first_come = (run_cell(Cell(policy), seeds=2) for policy in ("DC", "FCFS"))
    assert conscious.affinity == pytest.approx(0.5)
    assert conscious.makespan < first_come.makespan
    assert run_chains("WAN", 8, 8, seeds=2) < conscious.makespan


def test_a_study_gives_the_same_figures_each_time() -> None:
    first = run_cell(Cell("DC", "LAN", 10, 4), seeds=2)
    assert run_cell(Cell("DC", "LAN", 10, 4), seeds=2) == first


def test_batching_is_as_published_where_the_model_was_not_fitted() -> None:
    blast, parsing = batching.run_bundles(8, 16)
    assert blast == pytest.approx(batching.seconds_of("0:37:07"), rel=0.05)
    assert parsing == pytest.approx(batching.seconds_of("0:06:14"), rel=0.1)
    assert batching.run_bundles(16, 2).parsing == pytest.approx(batching.seconds_of("0:17:09"), rel=0.02)


@pytest.mark.parametrize(("hosts", "factor", "rounds"), [(4, 5, 25), (4, 10, 30), (8, 5, 15)])
def test_rounds_of_equal_jobs(hosts: int, factor: int, rounds: int) -> None:
    assert batching.rounds_of(100, hosts, factor) == rounds
