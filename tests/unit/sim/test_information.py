"""What policies know of run times: the truth, what was true at the start, errors, and words that say nothing."""

from __future__ import annotations

from typing import Any

import pytest

from bough.errors import UserError
from bough.model.sites.resources import Needs
from bough.sim.experiment import simulate
from bough.sim.information import Foresight, estimates, read_information
from bough.sim.platforms.availability_traces import Trace
from bough.sim.platforms.platform import read_platform
from bough.sim.platforms.simulated_executor import Node, SimulatedExecutor
from bough.sim.platforms.simulated_site import PilotExecutor
from bough.sim.workload import SimulatedTask, Workload

# a is fast at the start and slow later; b is half as fast all the time
FADING = read_platform(f"[site.a]\navailability = {{step = 5, values = {[1.0] + [0.1] * 20}}}\n[site.b]\nspeed = 0.5\n")
ONE = Workload("one", [SimulatedTask("t", 10.0)])


@pytest.mark.parametrize("policy", ["min-min", "heft", "xsufferage"])
def test_a_snapshot_misleads_where_the_truth_does_not(policy: str) -> None:
    found = {
        known: simulate(ONE, FADING, [policy], information=known).runs[0].makespan
        for known in ("perfect", "snapshot", "measured", 0.0)
    }
    assert found == {"perfect": 20.0, "snapshot": 55.0, "measured": 55.0, 0.0: 20.0}


def test_estimates_that_are_off_know_hosts_all_the_same() -> None:
    platform = read_platform("[site.slow]\nspeed = 0.1\n[site.fast]\n")
    for seed_count in (1, 5):
        report = simulate(ONE, platform, ["min-min"], information=0.3, seeds=seed_count)
        assert {run.makespan for run in report.runs} == {10.0}
    truth = [10.0] * 50
    wrong = estimates(0.3, truth, 1)
    assert wrong == estimates(0.3, truth, 1) != estimates(0.3, truth, 2)
    assert estimates("perfect", truth, 1) == estimates("snapshot", truth, 1) == truth
    assert estimates("measured", truth, 1) is None


def test_what_is_foreseen_of_a_host() -> None:
    trace = Trace([0.0, 10.0, 20.0], [0.5, 1.0, 0.0], 30.0)
    here = SimulatedExecutor(1, Needs(), 2.0, "here")
    here.availability = trace
    plain = SimulatedExecutor(2, Needs(), 2.0, "plain")
    pilot = PilotExecutor(7, "s", 1.0, 12.0, node=Node(1.0, None, trace))  # type: ignore[arg-type]
    late = PilotExecutor(8, "s", 1.0, 25.0, node=Node(1.0, None, trace))  # type: ignore[arg-type]
    came: list[SimulatedExecutor] = [here, plain]
    snapshot, truth = (Foresight(model, [8.0], lambda: came) for model in ("snapshot", "perfect"))  # type: ignore[arg-type]
    truth.now = snapshot.now = lambda: 10.0
    assert (snapshot(1, 0, "here"), truth(1, 0, "here")) == (8.0, 4.0)
    assert (snapshot(1, 0, "plain"), truth(1, 0, "plain")) == (4.0, 4.0)
    assert snapshot(1, 0, pilot.host) == 8.0  # nobody has heard of it
    came += [pilot, late]
    assert (snapshot(1, 0, pilot.host), truth(1, 0, pilot.host)) == (8.0, 8.0)
    assert snapshot(1, 0, late.host) == 800.0  # it was not there for us then, and will be


@pytest.mark.parametrize("said", ["snapshoot", "", "perfect ", None, "nan", -0.1, 11, 10**400, [0.3]])
def test_what_says_nothing_is_refused(said: Any) -> None:
    with pytest.raises(UserError) as error:
        simulate(ONE, FADING, ["fifo"], information=said)
    assert "say" in str(error.value)
    assert "\n" not in str(error.value)


def test_words_and_numbers_are_read() -> None:
    assert [read_information(said) for said in ("measured", "perfect", "snapshot", "0.3", 0.3, 2)] == [
        *("measured", "perfect", "snapshot"),
        *(0.3, 0.3, 2.0),
    ]
    with pytest.raises(UserError, match=r"did you mean snapshot\?"):
        read_information("snapshoot")
