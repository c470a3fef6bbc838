"""Named queues in a simulation limit, share and end tasks as at a server; a name that is not defined is refused."""

from __future__ import annotations

import pytest

from bough.errors import UserError
from bough.sim.experiment import simulate
from bough.sim.platforms.platform import Platform, read_platform
from bough.sim.platforms.platform_files import write_platform
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload

LAB = "[site.lab]\nhosts = 2\ncores = 4\n"
NIGHT = [SimulatedTask(f"n{number}", 10.0, queue="night") for number in range(8)]


def _makespan(platform: Platform, tasks: list[SimulatedTask] = NIGHT) -> float:
    (run,) = simulate(Workload("w", tasks), platform, "fifo").runs
    assert run.ended, run.complaint
    return run.makespan


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [("", 10.0), ("max_cores = 2", 40.0), ("max_cores = 3", 30.0), ('sites = ["den"]', 80.0), ("max_time = 11", 10.0)],
)
def test_a_queue_limits_what_runs_at_once_and_where(limits: str, seconds: float) -> None:
    assert _makespan(read_platform(f"{LAB}[site.den]\n[queue.night]\n{limits}\n")) == seconds


def test_a_reservation_and_shares_say_whose_turn_it_is() -> None:
    day = [SimulatedTask(f"d{number}", 10.0) for number in range(16)]
    both = Workload("w", [*day, *NIGHT])
    platform = read_platform(f"{LAB}[queue.night]\nshare = 3\n")
    (run,) = simulate(both, platform, "fifo").runs
    # six cores of eight in the first round, the last two tasks in the second
    assert run.response == pytest.approx((6 * 10 + 2 * 10 + 2 * 20 + 6 * 20 + 8 * 30) / 24)


@pytest.mark.parametrize("files", [[], [SimulatedFile("in", 5)]])
def test_what_runs_longer_than_its_queue_allows_is_ended(files: list[SimulatedFile]) -> None:
    platform = read_platform("[site.lab]\n[queue.night]\nmax_time = 9\n")
    task = SimulatedTask("t", 10.0, reads=(0,) if files else (), queue="night")
    (run,) = simulate(Workload("w", [task], files), platform, "fifo").runs
    assert not run.ended
    assert "ran longer than 9 s" in run.complaint


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ("", "goes through queue night, which the platform lacks; give it [queue.night]"),
        ("[queue.nigth]", "which the platform lacks; did you mean nigth?"),
        ('[queue.night]\nsites = ["den"]', "whose sites (den) the platform lacks"),
        ("[queue.night]\nmax_cores = 0.5", "no more than 0.5 cores are let out by that queue"),
    ],
)
def test_a_task_that_its_queue_could_never_let_out_is_named(queue: str, said: str) -> None:
    with pytest.raises(UserError, match="task n0") as refused:
        simulate(Workload("w", NIGHT), read_platform(f"{LAB}{queue}\n"), "fifo")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[queue.night]\nmax_core = 8", "queue night: there is no key 'max_core'; did you mean max_cores?"),
        ("[queue.night]\nmax_cores = 1\nmin_cores = 2", "queue night: min-cores is 2; it must not be above max-cores"),
        ("[queue.night]\nshare = 0", "queue night: share = 0"),
        ('[queue."a b"]', "queue"),
        ("queue = 5", "queue is a table of named queues"),
    ],
)
def test_wrong_limits_are_named_with_their_queue(text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        read_platform(f"{text}\n{LAB}")
    assert said in str(refused.value)


def test_a_platform_with_queues_resources_and_attributes_is_read_as_it_was_written() -> None:
    said = """
    [queue.night]
    max_cores = 8
    sites = ["lab"]
    [site.lab]
    gpus = 2
    resources = {license = 3, "a b" = 0.5}
    attributes = {os = "linux", cpu = ["avx2", "sse"]}
    availability = [{values = [1, 0.5]}, {mean = 0.5}]
    """
    platform = read_platform(said)
    assert read_platform(write_platform(platform)) == platform


def test_hosts_have_gpus_and_named_resources() -> None:
    tasks = [SimulatedTask(f"t{number}", 10.0, gpus=1, named=(("license", 1.0),)) for number in range(4)]
    for queue in ("", "queue = {wait = 0}\n"):
        text = f"[site.lab]\ncores = 8\ngpus = 4\nresources = {{license = 2}}\n{queue}"
        assert _makespan(read_platform(text), tasks) == 20.0
    with pytest.raises(UserError, match="no host has more than 1 license"):
        simulate(Workload("w", [SimulatedTask("t", 1.0, named=(("license", 2.0),))]),
                 read_platform("[site.lab]\nresources = {license = 1}\n"), "fifo")  # fmt: skip
