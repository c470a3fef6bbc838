"""Workloads of published applications have the counts that were printed; what policies know of run times matters."""

from __future__ import annotations

import json
from statistics import fmean, stdev

import pytest

from bough.cli.main import main
from bough.errors import UserError
from bough.sim.application_workloads import APPLICATIONS, application
from bough.sim.experiment import simulate
from bough.sim.platforms.platform import one_site
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload


@pytest.mark.parametrize(
    ("name", "tasks"),
    [("fmri", 480), ("moldyn:1", 85), ("moldyn:244", 20_497), ("all-pairs:30", 900), ("stages", 1018)],
)
def test_as_many_tasks_as_were_printed(name: str, tasks: int) -> None:
    assert len(application(name).tasks) == tasks


def test_work_is_as_much_as_was_printed() -> None:
    assert application("moldyn:1").core_seconds == pytest.approx(235.4 * 60)
    assert application("stages").core_seconds == pytest.approx(17_820)
    docked = [task.seconds for task in application("dock:20000").tasks]
    assert fmean(docked) == pytest.approx(660, rel=0.05)
    assert stdev(docked) == pytest.approx(478.8, rel=0.1)


def test_a_mosaic_has_five_overlaps_for_each_image() -> None:
    names = [task.template for task in application("montage").tasks]
    assert names.count("mProject") == 440
    assert names.count("mDiff") == 2200


@pytest.mark.parametrize("name", APPLICATIONS)
def test_each_runs_and_is_the_same_each_time(name: str) -> None:
    small = application(f"{name}:3")
    assert application(f"{name}:3") == small
    report = simulate(small, one_site(2, 4), ["fifo", "bough"])
    assert all(run.ended and not run.complaint for run in report.runs)


def test_bytes_that_several_read_are_shared() -> None:
    files = [SimulatedFile("a", 100), SimulatedFile("b", 300)]
    tasks = [SimulatedTask("one", 1.0, reads=(0, 1)), SimulatedTask("two", 1.0, reads=(1, 1))]
    assert Workload("w", tasks, files).shared_share == 0.75
    assert application("mars:10").shared_share > 0.9
    assert application("stages").shared_share == 0.0


def test_what_policies_know_of_run_times_decides_how_well_they_do() -> None:
    """The longest first needs to know which is long; all have one template, so that history tells nothing."""
    lengths = [1.0] * 40 + [20.0]
    workload = Workload("tail", [SimulatedTask(f"t{n}", length, template="t") for n, length in enumerate(lengths)])
    spans = {
        known: simulate(workload, one_site(1, 4), ["ljf"], information=known).rows()[0].makespan
        for known in ("measured", "perfect", 0.0, 3.0)
    }
    assert spans["perfect"] == spans[0.0] == 20.0
    assert spans["measured"] == 30.0
    assert spans["perfect"] <= spans[3.0] <= spans["measured"]


def test_a_name_or_size_that_is_none_is_the_users_error(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("nothing", "fmri:0", "fmri:x", "fmri:99999999999", "fmri:"):
        with pytest.raises(UserError):
            application(text)
    assert main(["simulate", "--workload", "nothing", "--cores", "4"]) == 2
    assert main(["simulate", "--workload", "fmri:2", "--cores", "4", "--information", "much"]) == 2
    assert main(["simulate", "--cores", "4"]) == 2
    assert "--workload" in capsys.readouterr().err


def test_the_command_simulates_an_application(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--workload", "mars:20", "--cores", "4", "--policy", "fifo,ljf", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["tasks"] == 20
    assert answer["shared"] > 0.9
    assert main(["simulate", "--workload", "?"]) == 0
    assert "moldyn" in capsys.readouterr().out
