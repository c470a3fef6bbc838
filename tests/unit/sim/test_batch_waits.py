"""Waits in batch queues: logs in the Standard Workload Format, samples, and hosts that fail."""

from __future__ import annotations

from statistics import fmean, pstdev

import pytest

from bough.core.machine import Machine
from bough.errors import UserError
from bough.model.events.facts import ExecutorLost
from bough.model.sites.site_specs import PilotId, SiteSpec
from bough.policies.policy_registry import load_policies
from bough.sim.departures import Departures
from bough.sim.experiment import simulate
from bough.sim.platforms.batch_waits import failures, read_swf, recorded, sampled
from bough.sim.platforms.platform import read_platform
from bough.sim.platforms.platform_files import with_files
from bough.sim.platforms.simulated_executor import Fate, Node
from bough.sim.platforms.simulated_site import SimulatedSite, after
from bough.sim.simulation import Simulation
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload
from bough.testing.builders import submit, task

LOG = """; Computer: SP2
; UnixStartTime: 0
    1        0      5    100   8 -1 -1   8 -1 -1 1   1  1 -1 -1 -1 -1 -1
    2       10     -1    100   8 -1 -1   8 -1 -1 0   1  1 -1 -1 -1 -1 -1
    3       20   3600   7200  64 -1 -1  64 -1 -1 1   2  1 -1 -1 -1 -1 -1
"""


def test_requests_wait_as_the_jobs_of_a_log_did() -> None:
    jobs = read_swf(LOG)
    assert [(job.submitted, job.wait, job.run, job.processors) for job in jobs] == [
        (0.0, 5.0, 100.0, 8),
        (20.0, 3600.0, 7200.0, 64),
    ]
    queue = recorded([job.wait for job in jobs], startup=2.0)
    assert queue(100.0, 0, 3) == [107.0] * 3
    assert queue(100.0, 1, 1) == [3702.0]
    assert queue(0.0, 2, 1) == [7.0]
    starts = {recorded([job.wait for job in jobs], seed)(0.0, 0, 1)[0] for seed in range(1, 20)}
    assert starts == {5.0, 3600.0}


@pytest.mark.parametrize(("text", "match"), [("; no job\n", "no job"), ("1 2 3\n", "line 1"), ("1 2 3 4 5 6\n", "18")])
def test_what_is_no_log_is_refused(text: str, match: str) -> None:
    with pytest.raises(UserError, match=match):
        read_swf(text)


@pytest.mark.parametrize(("deviation", "expected"), [(0.0, 60.0), (30.0, 30.0)])
def test_samples_have_the_mean_and_deviation_that_are_wanted(deviation: float, expected: float) -> None:
    queue = sampled(3, 60.0, deviation, startup=10.0)
    waits = [queue(100.0, nth, 1)[0] - 110.0 for nth in range(20_000)]
    assert fmean(waits) == pytest.approx(60.0, rel=0.05)
    assert pstdev(waits) == pytest.approx(expected, rel=0.1)
    again = sampled(3, 60.0, deviation, startup=10.0)
    assert [again(100.0, nth, 1)[0] - 110.0 for nth in range(100)] == waits[:100]


def test_hosts_fail_after_times_of_their_own() -> None:
    lost = failures(range(1, 1001), 100.0, 100.0, seed=1)
    assert 580 < len(lost) < 680  # 1 - 1/e of them
    assert [when for when, _ in lost] == sorted(when for when, _ in lost)
    assert lost == failures(range(1, 1001), 100.0, 100.0, seed=1)


def test_a_pilot_ends_with_its_wall_time_and_its_task_runs_again() -> None:
    """Pilots last 100 s. The first brings an executor at 5 s, where tasks of 40 s each end at 45 and 85 s; the third is
    not placed there, as far as its length is known, or is lost at 105 s; another pilot runs it."""
    spec = SiteSpec(batch="slurm", max_pilots=1, cores_per_pilot=1, idle=0.0)
    site = SimulatedSite("lab", spec, after(5.0), walltime=100.0)
    sim = Simulation(Machine(load_policies("fifo")), lambda *_: Fate(40.0), (), [site])
    sim.at(0.0, submit(*[task(number, template="t") for number in (1, 2, 3)]))
    sim.run(until=400.0)
    assert sim.machine.counts()["done"] == 3
    first = site.executors[0]
    assert (first.came, first.left) == (5.0, 105.0)
    assert len(site.executors) >= 2


def _simulate(text: str, tasks: int = 20) -> list[object]:
    platform = with_files(read_platform(text), lambda path: LOGS[path])
    workload = Workload("w", [SimulatedTask(f"t{n}", 100.0, template="t") for n in range(tasks)])
    return simulate(workload, platform, ["fifo"]).runs  # type: ignore[return-value]


LOGS = {"a.swf": "; a log\n1 0 500 60 4 " + " ".join(["-1"] * 13) + "\n"}


def test_a_platform_names_the_log_of_its_queue() -> None:
    (run,) = _simulate('[site.a]\nhosts = 20\nqueue = {log = "a.swf", startup = 10}\n')
    assert run.ended
    assert run.makespan == pytest.approx(610.0)


def test_hosts_behind_a_queue_have_speeds_memory_and_availability() -> None:
    text = "[site.a]\nhosts = 2\nspeed = {}\n{}queue = {{waits = [5], idle = 1000}}\n"
    (fast,) = _simulate(text.format("4", ""), tasks=2)
    assert fast.makespan == pytest.approx(30.0)
    (half,) = _simulate(text.format("4", "availability = {values = [0.5]}\n"), tasks=2)
    assert half.makespan == pytest.approx(55.0)
    (mixed,) = _simulate(text.format("[1, 4]", 'memory = "8GB"\n'), tasks=2)
    speeds = [node.speed for node in read_platform(text.format("[1, 4]", "")).nodes("a", 1)]
    assert len(set(speeds)) == 2
    assert mixed.makespan == pytest.approx(5.0 + 100.0 / min(speeds))


def test_a_pilot_gets_the_first_node_that_no_other_has() -> None:
    spec = SiteSpec(batch="slurm", max_pilots=2, cores_per_pilot=1, idle=0.0)
    site = SimulatedSite("lab", spec, after(5.0), nodes=[Node(1.0), Node(2.0)])
    first, second = (site.start(PilotId(number), 0.0) for number in (1, 2))
    assert first is not None
    assert second is not None
    assert (first.traits.speed, second.traits.speed) == (1.0, 2.0)
    site.end(PilotId(1), 10.0)
    third = site.start(PilotId(3), 20.0)
    assert third is not None
    assert third.traits.speed == 1.0


def test_pilots_end_with_their_wall_time_and_others_go_on() -> None:
    (run,) = _simulate("[site.a]\nhosts = 2\nqueue = {wait = 5, walltime = 350}\n", tasks=10)
    assert run.ended
    assert run.makespan > 500.0


def test_what_ran_at_a_site_that_left_runs_again_elsewhere() -> None:
    (stays,) = _simulate("[site.a]\nhosts = 10\n[site.b]\nhosts = 10\n")
    (leaves,) = _simulate("[site.a]\nhosts = 10\n[site.b]\nhosts = 10\nleaves = 50\n")
    (returns,) = _simulate("[site.a]\nhosts = 10\n[site.b]\nhosts = 10\nleaves = 50\nreturns = 70\n")
    assert (stays.makespan, leaves.makespan) == (100.0, 200.0)
    assert returns.makespan == 170.0


def test_a_site_leaves_and_returns_as_often_as_it_is_said() -> None:
    """Tasks of 100 s on 10 hosts, which are there from 0 to 50, from 70 to 180 and from 300 on."""
    (run,) = _simulate("[site.a]\nhosts = 10\nleaves = [50, 180]\nreturns = [70, 300]\n")
    assert run.makespan == 400.0


def test_a_site_that_is_back_has_its_availability() -> None:
    text = "[site.a]\navailability = {values = [0.5]}\nleaves = 50\nreturns = 70\n"
    (run,) = _simulate(text, tasks=1)
    assert run.makespan == 270.0


def test_a_site_behind_a_queue_leaves_and_returns() -> None:
    """Pilots come at 10 s, and leave at 50; those that are asked for when it is back come at 80."""
    (run,) = _simulate("[site.a]\nhosts = 2\nleaves = 50\nreturns = 70\nqueue = {wait = 10}\n", tasks=2)
    assert run.ended
    assert run.makespan == 180.0


def test_an_idle_pilot_takes_no_output_with_it() -> None:
    """The host that made the file is gone when its reader can run; the file is at home, and nothing is made again."""
    tasks = [
        SimulatedTask("make", 10.0, writes=(0,)),
        SimulatedTask("long", 200.0),
        SimulatedTask("read", 10.0, (1,), reads=(0,)),
    ]
    work = Workload("w", tasks, [SimulatedFile("f", 1000)])
    text = "[site.a]\nhosts = 2\nqueue = {{wait = 5, idle = 20}}\n[transfers]\n{}"
    (live,) = simulate(work, read_platform(text.format("")), ["fifo"]).runs
    (kept,) = simulate(work, read_platform(text.format('outputs = "keep"\n')), ["fifo"]).runs
    assert (live.makespan, live.cpu_waste) == (215.0, 0.0)
    assert kept.makespan > 215.0


def test_the_speed_of_a_host_that_is_back_is_foreseen() -> None:
    """Five of six tasks end on the host of speed 4 at 135 s; the other host would need 100 s for one."""
    platform = read_platform("[site.a]\nhosts = 2\nspeeds = [4, 1]\nleaves = 5\nreturns = 10\n")
    work = Workload("w", [SimulatedTask(f"t{n}", 100.0, template="t") for n in range(6)])
    (run,) = simulate(work, platform, ["xsufferage:info=oracle"], information="perfect").runs
    assert run.makespan == 135.0


def test_hosts_that_are_repaired_come_back() -> None:
    """Without repair one host does all that is left when the others have failed, or nothing ends."""
    text = "[site.a]\nhosts = 4\nlifetime = 300\n{}"
    (broken,) = _simulate(text.format(""), tasks=40)
    (repaired,) = _simulate(text.format("repair = 50\n"), tasks=40)
    assert not broken.ended
    assert repaired.ended
    assert repaired.makespan > 1000.0
    assert _simulate(text.format("repair = 50\n"), tasks=40) == [repaired]


def test_hosts_behind_a_queue_fail_and_others_are_asked_for() -> None:
    text = "[site.a]\nhosts = 4\n{}queue = {{wait = 10}}\n"
    (calm,) = _simulate(text.format(""), tasks=40)
    (run,) = _simulate(text.format("lifetime = 400\n"), tasks=40)
    assert run.ended
    assert run.makespan > calm.makespan


def test_hosts_of_two_sites_do_not_fail_together() -> None:
    platform = read_platform("[site.a]\nhosts = 3\nlifetime = 100\n[site.b]\nhosts = 3\nlifetime = 100\n")
    executors = list(platform.executors(1))
    simulation = Simulation(Machine(load_policies("fifo")), lambda *_: Fate(1.0), executors)
    Departures(simulation, platform, executors, 1)
    lost = [when for when, _, thing in simulation._agenda.heap if isinstance(thing, ExecutorLost)]
    assert len(set(lost)) == 6


def test_hosts_fail_and_the_rest_does_the_work() -> None:
    (run,) = _simulate("[site.a]\nhosts = 10\n[site.b]\nhosts = 10\nlifetime = 200\n", tasks=60)
    assert run.ended
    assert run.makespan > 300.0


@pytest.mark.parametrize(
    "text",
    [
        "[site.a]\nreturns = 5\n",
        "[site.a]\nleaves = 9\nreturns = 5\n",
        "[site.a]\nleaves = [9, 5]\nreturns = 12\n",
        "[site.a]\nleaves = [1, 5, 9]\nreturns = 3\n",
        "[site.a]\nlifetime = -1\n",
        "[site.a]\nrepair = 5\n",
        "[site.a]\nlifetime = 5\nrepair = 5\nqueue = {wait = 5}\n",
    ],
)
def test_times_that_do_not_fit_together_are_the_users_error(text: str) -> None:
    with pytest.raises(UserError):
        read_platform(text)
