"""What tasks ask for besides cores: hosts that have it run them, and a task that no host could take is refused."""

from __future__ import annotations

import pytest

from bough.errors import UserError
from bough.model.sites.resources import Needs
from bough.sim.experiment import SimulatedHost, run_on_hosts, simulate, trace
from bough.sim.platforms.platform import Platform, one_site, read_platform
from bough.sim.workload import SimulatedTask, Workload

GB = 10**9
FOUR = Workload("four", [SimulatedTask(f"t{number}", 10.0, memory=4 * GB) for number in range(4)])


def _makespan(work: Workload, platform: Platform) -> float:
    (run,) = simulate(work, platform, ["fifo"]).runs
    assert run.ended, run.complaint
    return run.makespan


@pytest.mark.parametrize(("memory", "seconds"), [("5GB", 40.0), ("8GB", 20.0), ("16GB", 10.0), ("0", 10.0)])
@pytest.mark.parametrize("queue", ["", "queue = {wait = 0}\n"])
def test_tasks_share_the_memory_of_a_host_and_what_is_not_said_never_runs_short(
    memory: str, seconds: float, queue: str
) -> None:
    assert _makespan(FOUR, read_platform(f"[site.a]\ncores = 4\nmemory = '{memory}'\n{queue}")) == seconds


def test_hosts_of_a_run_that_was_have_their_memory() -> None:
    for memory, seconds in ((5 * GB, 40.0), (8 * GB, 20.0), (0, 10.0)):
        found, _ = run_on_hosts(FOUR, [SimulatedHost("s", "h", Needs(4, memory))], "fifo", 1, [0.0] * 4)
        assert found.makespan == seconds
    found, _ = run_on_hosts(FOUR, [SimulatedHost("s", "h", Needs(4, GB))], "fifo", 1, [0.0] * 4)
    assert found.complaint.startswith("4 of 4 tasks never ran: task 1 (t0) needs 1 core, 4.0 GB memory")


PLATFORM = read_platform("""
[site.a]
hosts = 2
[site.b]
memory = "8GB"
attributes = {cpu = ["avx2"], os = "linux"}
[site.c]
cores = 4
memory = "2GB"
queue = {wait = 5}
attributes = {os = "bsd"}
""")


def test_tasks_run_where_they_may() -> None:
    wishes: list[dict[str, object]] = [
        {"sites": ("b", "nowhere")},
        {"sites": ("c",)},
        {"requires": "'avx2' in cpu"},
        {"requires": "os == 'bsd'"},
        {"requires": "memory_gb < 10 and cores < 4"},
        {"requires": "host == 'a2'"},
    ]
    work = Workload("w", [SimulatedTask(f"t{n}", 1.0, **wish) for n, wish in enumerate(wishes)])  # type: ignore[arg-type]
    hosts = [host for _, host in sorted(trace(work, PLATFORM, "fifo"))]
    assert [host[:3] for host in hosts] == ["b1", "c-1", "b1", "c-1", "b1", "a2"]
    arrays = {item.needs for item in work.submission(arrays=True).items}  # type: ignore[union-attr]
    assert len(arrays) == len(wishes)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (SimulatedTask("t", 1.0, cores=5), "w: task t needs 5 cores, and no host has more than 4 cores"),
        (
            SimulatedTask("t", 1.0, cores=2, memory=3 * GB),
            "w: task t needs 2 cores, 3.0 GB memory, and no host has all of that",
        ),
        (
            SimulatedTask("t", 1.0, memory=9 * GB, sites=("b",)),
            "w: task t needs 1 core, 9.0 GB memory at b, and no host has more than 8.0 GB memory",
        ),
        (
            SimulatedTask("t", 1.0, sites=("x", "y")),
            "w: task t may run only at x or y, and the sites of the platform are a, b, c; give it a site of that name",
        ),
        (
            SimulatedTask("t", 1.0, requires="os == 9"),
            "w: task t requires os == 9, and no host meets that (os == 9: a has no os); say the attributes of a site",
        ),
    ],
)
def test_a_task_that_no_host_could_take_is_named(task: SimulatedTask, said: str) -> None:
    with pytest.raises(UserError) as error:
        simulate(Workload("w", [SimulatedTask("fits", 1.0), task]), PLATFORM, ["fifo"])
    assert str(error.value) == said


def test_a_platform_without_a_file_has_no_bound_on_memory() -> None:
    assert _makespan(FOUR, one_site(1, 4)) == 10.0
