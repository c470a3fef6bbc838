"""Platforms with a dispatcher that serves one caller at a time: calls by hand, files, pilots, arrays, lost hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bough.core.machine import Machine
from bough.errors import UserError
from bough.policies import policy_registry
from bough.policies.policy_registry import load_policies
from bough.policy.interface import Place, View
from bough.sim.dispatched_simulation import DispatchedSimulation
from bough.sim.experiment import simulate
from bough.sim.experiment_report import Outcome
from bough.sim.models.run_time_models import EqualTimes
from bough.sim.platforms.dispatcher_spec import DispatcherSpec
from bough.sim.platforms.platform import read_platform
from bough.sim.platforms.platform_files import write_platform
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload

CALLS = "[dispatcher]\ncall = 1.0\nservice = 0.4\npause = 2.0\n"


def _run(work: Workload, site: str, calls: str = CALLS, policy: str = "fifo") -> Outcome:
    (run,) = simulate(work, read_platform(f"{calls}[site.a]\n{site}\n"), policy).runs
    assert run.ended, run.complaint
    return run


def _tasks(count: int, seconds: float = 3.0, **others: object) -> Workload:
    return Workload("w", [SimulatedTask(f"t{number}", seconds, **others) for number in range(count)])  # type: ignore[arg-type]


def test_a_host_asks_runs_reports_and_gives_way_to_others() -> None:
    # asks 1.0, runs 3.0, reports 1.0, pauses 2.0; the last answer need not come back
    assert _run(_tasks(4), "").makespan == pytest.approx(4 * 5.0 + 3 * 2.0 - 0.3)


def test_calls_are_served_one_after_the_other() -> None:
    assert _run(_tasks(50, 0.001), "hosts = 50").makespan == pytest.approx(0.3 + 100 * 0.4, abs=0.5)


def test_who_gets_nothing_asks_again_and_a_task_that_becomes_ready_waits_for_a_call() -> None:
    work = Workload("w", [SimulatedTask("a", 10.0), SimulatedTask("b", 1.0, after=(0,))])
    # b can go out when the report of a is served at 11.7, to the host that asks next
    assert 11.7 < _run(work, "hosts = 2").makespan - 1.0 - 1.0 < 11.7 + 3.0


def test_hosts_rest_until_a_later_task_arrives() -> None:
    work = Workload("w", [SimulatedTask("a", 1.0), SimulatedTask("b", 1.0, arrival=500.0)])
    assert _run(work, "hosts = 2").makespan == pytest.approx(500.0 + 0.7 + 0.3 + 1.0 + 0.3 + 0.4, abs=0.5)


def test_a_host_of_several_cores_gets_as_much_as_it_has_room_for_with_one_call() -> None:
    assert _run(_tasks(4, 100.0), "cores = 4").makespan == pytest.approx(1.0 + 100.0 + 0.3 + 4 * 0.4)


def test_inputs_travel_after_the_call() -> None:
    work = Workload("w", [SimulatedTask("t", 5.0, reads=(0, 1))], [SimulatedFile("f", 100), SimulatedFile("g", 300)])
    site = "nic = {bandwidth = 100, sharing = 'each'}"
    rules = "[transfers]\nstreams = 1\nstartup = 1.5\n"
    assert _run(work, site, CALLS + rules).makespan == pytest.approx(1.0 + 3.0 + 4.0 + 5.0 + 0.7)
    once = f"{rules}startup_for = 'source'\n"
    assert _run(work, site, CALLS + once).makespan == pytest.approx(1.0 + 1.5 + 4.0 + 5.0 + 0.7)


@pytest.mark.parametrize("policy", ["bough", "workqueue+wqr", "good-cache-compute", "data-conscious"])
@pytest.mark.parametrize(
    "site",
    [
        "hosts = 4\ncores = 2",
        "hosts = 4\nqueue = {wait = 20, idle = 30}",
        "hosts = 4\nspeed = [0.5, 2]\nlifetime = 200\nrepair = 20",
    ],
)
def test_all_tasks_succeed_under_any_policy_with_pilots_and_hosts_that_fail(site: str, policy: str) -> None:
    files = [SimulatedFile(f"f{number}", 1000 * number) for number in range(5)]
    tasks = [SimulatedTask(f"t{n}", 3.0 + n % 7, reads=(n % 5,), template="t") for n in range(60)]
    run = _run(Workload("w", tasks, files), site, CALLS, policy)
    again = _run(Workload("w", tasks, files), site, CALLS, policy)
    assert run == again
    assert run.makespan > _run(Workload("w", tasks, files), site, "", policy).makespan


def test_spans_of_arrays_are_given_out_by_calls() -> None:
    work = Workload("w", [SimulatedTask(f"t{n}", 0.5, template="t") for n in range(200)])
    calls = DispatcherSpec(0.2, 0.1)
    platform = read_platform("[site.a]\nhosts = 4\n")
    sim = DispatchedSimulation(Machine(load_policies("fifo")), EqualTimes(0.5), platform.executors(1), dispatcher=calls)
    sim.submit(0.0, work, arrays=True)
    sim.run()
    sim.check_complete()
    assert sim.now > 200 * 0.5 / 4


class _Withholds:
    """Gives nothing to anybody."""

    def place(self, view: View) -> Iterator[Place]:
        yield from ()


def test_a_policy_that_withholds_for_ever_ends_its_run_with_a_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(policy_registry._PLACEMENT, "miser", _Withholds)
    monkeypatch.setattr("bough.sim.dispatched_simulation._MOST_IN_VAIN", 100)
    found = simulate(_tasks(2), read_platform(f"{CALLS}[site.a]\n"), "miser,fifo").runs
    assert [run.ended for run in found] == [False, True]
    assert "gave no work to any of them" in found[0].complaint


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("call = 1\nservice = 2", "service = 2 is a part of call = 1"),
        ("", "would ask again at once, for ever; say call or pause"),
        ("cal = 1", "there is no key 'cal'; did you mean call?"),
        ("call = -1", "dispatcher: call = -1"),
    ],
)
def test_a_dispatcher_that_cannot_be_is_refused(said: str, why: str) -> None:
    with pytest.raises(UserError) as refused:
        read_platform(f"[dispatcher]\n{said}\n[site.a]\n")
    assert why in str(refused.value)


def test_a_dispatcher_is_read_as_it_was_written() -> None:
    platform = read_platform(f"{CALLS}[site.a]\n")
    assert read_platform(write_platform(platform)) == platform
