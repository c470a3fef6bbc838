"""Workloads of published applications have the counts that were printed; what policies know of run times matters."""

from __future__ import annotations

import json
from statistics import fmean, stdev

import msgspec
import pytest

from bough.cli.main import main
from bough.errors import UserError
from bough.sim.application_workloads import APPLICATIONS, application
from bough.sim.experiment import simulate
from bough.sim.platforms.platform import one_site
from bough.sim.study_workloads import count, increasing, sine
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload


@pytest.mark.parametrize(
    ("name", "tasks"),
    [
        ("fmri", 480),
        ("moldyn:1", 85),
        ("moldyn:244", 20_497),
        ("all-pairs:30", 900),
        ("stages", 1018),
        ("checkers", 1276),
        ("resources", 48),
        ("mi:2500", 2500),
        ("sw:2000", 2000),
        ("dock-synthetic:7", 7),
        ("storage-affinity:75", 6 * 27 + 5),
    ],
)
def test_as_many_tasks_as_were_printed(name: str, tasks: int) -> None:
    assert len(application(name).tasks) == tasks


def test_work_is_as_much_as_was_printed() -> None:
    assert application("moldyn:1").core_seconds == pytest.approx(235.4 * 60)
    assert application("stages").core_seconds == pytest.approx(17_820)
    docked = [task.seconds for task in application("dock:20000").tasks]
    assert fmean(docked) == pytest.approx(660, rel=0.05)
    assert stdev(docked) == pytest.approx(478.8, rel=0.1)


@pytest.mark.parametrize(
    ("name", "low", "high", "mean", "deviation"),
    [("dock5", 1, 5030, 713, 560), ("dock6", 23, 2802, 783, 300), ("dock-synthetic", 17.3, 17.3, 17.3, 0)],
)
def test_docking_takes_as_long_as_was_printed(
    name: str, low: float, high: float, mean: float, deviation: float
) -> None:
    docked = [task.seconds for task in application(f"{name}:20000").tasks]
    assert low <= min(docked) <= max(docked) <= high
    assert fmean(docked) == pytest.approx(mean, rel=0.05)
    assert stdev(docked) == pytest.approx(deviation, rel=0.1)


def test_mars_in_batches_of_600_and_48_resources_are_as_printed() -> None:
    assert {task.seconds for task in application("mars-600:5").tasks} == {271.0}
    assert {task.seconds for task in application("mars:5").tasks} == {65.4}
    assert APPLICATIONS["mars-600"].size == 1_000_000
    assert {task.seconds for task in application("resources").tasks} == {10_000.0}


def test_six_executions_read_the_same_files_one_after_the_other() -> None:
    work = application("storage-affinity-search:75")
    assert sum(file.size for file in work.files) == 2 << 30
    assert work.shared_share == 1.0
    tasks = [task for task in work.tasks if task.cores]
    assert len(tasks) == 6 * len(work.files)
    found = simulate(work, one_site(3, 4), ["fifo"]).runs[0]
    assert found.makespan >= work.critical_path > max(task.seconds for task in tasks)


def test_arrivals_are_those_of_the_study() -> None:
    for name, of, arrivals in (("mi", 250_000, increasing()), ("sw", 2_000_000, sine())):
        work = application(f"{name}:{of // 100}")
        assert count(arrivals) == of
        assert work.tasks[-1].arrival <= arrivals[-1][0]
        assert sum(task.arrival < arrivals[-1][0] / 2 for task in work.tasks) < len(work.tasks) / 2
    report = simulate(application("mi:500"), one_site(2, 2), ["fifo"])
    assert report.runs[0].makespan >= 1400
    assert report.runs[0].response < 60


def test_a_mosaic_has_five_overlaps_for_each_image() -> None:
    names = [task.template for task in application("montage").tasks]
    assert names.count("mProject") == 440
    assert names.count("mDiff") == 2200


@pytest.mark.parametrize("name", APPLICATIONS)
def test_each_runs_and_is_the_same_each_time(name: str) -> None:
    size = 75 if name.startswith("storage-affinity") else 3  # there a larger number is fewer tasks
    small = application(f"{name}:{size}")
    assert application(f"{name}:{size}") == small
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
    for text in ("nothing", "fmri:0", "fmri:x", "fmri:99999999999", "fmri:", "checkers:639", "storage-affinity:2049"):
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


def test_tasks_are_submitted_when_they_arrive() -> None:
    """Times are counted from there, and what is idle until then is no lower bound that is missed."""
    files = [SimulatedFile("a", 10), SimulatedFile("b", 10)]
    tasks = [
        SimulatedTask("one", 2.0, reads=(0,)),
        SimulatedTask("two", 3.0, (0,), reads=(1,), arrival=100.0),
        SimulatedTask("three", 1.0, arrival=50.0),
    ]
    for some in (files, []):
        kept = tasks if some else [msgspec.structs.replace(task, reads=()) for task in tasks]
        work = Workload("late", kept, some)
        found = simulate(work, one_site(1, 1), ["fifo", "bough"]).runs
        assert [run.makespan for run in found] == [103.0, 103.0]
        assert found[0].lower_bound == found[0].ideal == work.critical_path == 103.0
        assert found[0].response == pytest.approx(2.0)
        assert (found[0].wait, found[0].peak_queue) == (0.0, 0)


def test_arrivals_out_of_bounds_or_before_what_is_waited_for_are_refused() -> None:
    for arrival in (-1.0, float("nan"), float("inf"), 1e16):
        with pytest.raises(UserError, match="arrives at"):
            Workload("w", [SimulatedTask("t", 1.0, arrival=arrival)])
    with pytest.raises(UserError, match="arrives before one that it waits for"):
        Workload("w", [SimulatedTask("a", 1.0, arrival=5.0), SimulatedTask("b", 1.0, after=(0,))])


def test_elements_of_an_array_arrive_together() -> None:
    work = Workload("w", [SimulatedTask(f"t{n}", 1.0, template="t", arrival=float(n // 3)) for n in range(6)])
    submission = work.submission(arrays=True)
    assert len(submission.items) == 2
    assert [(when, len(news.items)) for when, news in work.news(submission)] == [(0.0, 1), (1.0, 1)]
