"""Experiments: figures worked out by hand, platforms from text, and that a bad policy stops nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import pytest

from bough.errors import UserError
from bough.policies import policy_registry
from bough.policy.interface import Place, ReadyWork, View
from bough.sim.experiment import simulate, trace
from bough.sim.information import Information
from bough.sim.platforms.platform import one_site, read_platform
from bough.sim.workload import SimulatedTask, Workload

FORK = Workload(
    "fork",
    [
        SimulatedTask("first", 10.0),
        SimulatedTask("left", 20.0, (0,)),
        SimulatedTask("right", 40.0, (0,)),
        SimulatedTask("join", 5.0, (1, 2)),
    ],
)


def test_a_fork_by_hand() -> None:
    (row,) = simulate(FORK, one_site(2), ["fifo"]).rows()
    assert (row.makespan, row.lower_bound, row.ratio) == (55.0, 55.0, 1.0)
    assert row.speedup == pytest.approx(75 / 55)
    assert row.efficiency == pytest.approx(75 / 55 / 2)
    assert row.utilisation == pytest.approx(75 / 110)
    assert row.response == pytest.approx((10 + 30 + 50 + 55) / 4)
    assert FORK.critical_path == 55.0
    assert FORK.core_seconds == 75.0


def test_a_policy_meets_the_same_dice_as_another_and_a_seed_gives_the_same_again() -> None:
    platform = read_platform('[site.a]\nhosts = 3\nspeed = [0.5, 2]\n[site.b]\ncores = 4\nmemory = "8GB"\n')
    once, again = (simulate(FORK, platform, ["fifo", "sjf"], seeds=4, noise=0.3) for _ in range(2))
    assert once == again
    bounds = {(run.seed, run.lower_bound) for run in once.runs}
    assert len(bounds) == 4  # one for each seed, whatever the policy
    assert all(run.ratio >= 1 - 1e-9 for run in once.runs)
    assert all(row.spread > 0 for row in once.rows())


class _Raises:
    def rank(self, work: ReadyWork, /) -> float:
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        raise RuntimeError("no idea")


def test_a_policy_that_raises_is_reported_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(policy_registry._PLACEMENT, "raises", _Raises)
    bad, good = simulate(FORK, one_site(2), ["raises", "fifo"]).rows()
    assert "no idea" in bad.complaint
    assert not good.complaint
    assert bad.makespan == good.makespan  # it was replaced


class _Ends(_Raises):
    def place(self, view: View, /) -> Iterable[Place]:
        raise SystemExit(3)


class _Interrupted(_Raises):
    def place(self, view: View, /) -> Iterable[Place]:
        raise KeyboardInterrupt


def test_a_policy_that_ends_the_program_stops_nothing_and_a_user_who_interrupts_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(policy_registry._PLACEMENT, "ends", _Ends)
    monkeypatch.setitem(policy_registry._PLACEMENT, "interrupted", _Interrupted)
    bad, good = simulate(FORK, one_site(2), ["ends", "fifo"]).rows()
    assert bad.complaint == "the run did not end: the policy ended the program (SystemExit: 3)"
    assert (bad.runs, good.runs, good.makespan) == (0, 1, 55.0)
    assert trace(FORK, one_site(2), "ends") == []
    with pytest.raises(KeyboardInterrupt):
        simulate(FORK, one_site(2), ["interrupted"])


def _bag(count: int, seconds: float) -> Workload:
    return Workload("bag", [SimulatedTask(f"t{number}", seconds) for number in range(count)])


def test_a_run_in_which_tasks_failed_has_no_figures_and_says_why() -> None:
    after = Workload("then", [*_bag(8, 10.0).tasks, SimulatedTask("last", 1.0, (0, 1))])
    report = simulate(after, read_platform("[site.a]\nhosts = 2\ncores = 4\nqueue = {walltime = 5}\n"), ["fifo"])
    (run,), (row,) = report.runs, report.rows()
    assert run.complaint.startswith("8 of 9 tasks failed, 1 was skipped; the first: task 1 (t0) failed: ")
    assert "its wall time was over" in run.complaint
    assert (run.ended, run.makespan, run.ratio, row.runs) == (False, 0.0, 1.0, 0)


@pytest.mark.parametrize(("information", "used", "waste"), [("perfect", 100 / 120, 0.0), ("measured", 1.0, 0.2)])
def test_hosts_that_come_and_go_count_for_as_long_as_they_are_there(
    information: Literal["perfect", "measured"], used: float, waste: float
) -> None:
    """Two tasks fit into each pilot of 25 s. The core begins a third one only if it does not know how long it takes."""
    platform = read_platform("[site.a]\nqueue = {walltime = 25}\n")
    (run,) = simulate(_bag(10, 10.0), platform, ["fifo"], information=information).runs
    assert (run.makespan, run.lower_bound, run.ratio) == (120.0, 100.0, 1.2)
    assert run.efficiency == pytest.approx(100 / 120)
    assert run.core_hours == pytest.approx(120 / 3600)
    assert (run.utilisation, run.cpu_waste) == (pytest.approx(used), waste)


def test_the_time_before_a_host_has_joined_is_no_capacity() -> None:
    platform = read_platform("[site.a]\n[site.b]\nqueue = {wait = 10}\n")
    (run,) = simulate(_bag(3, 10.0), platform, ["fifo"]).runs
    assert (run.makespan, run.lower_bound) == (20.0, 15.0)
    assert (run.efficiency, run.utilisation) == (1.0, 1.0)


def test_work_that_is_lost_with_its_host_was_held_cores_and_waste() -> None:
    platform = read_platform("[site.a]\nleaves = 5\nreturns = 6\n")
    (run,) = simulate(_bag(1, 10.0), platform, ["fifo"]).runs
    assert (run.makespan, run.lower_bound) == (16.0, 10.0)
    assert run.efficiency == pytest.approx(10 / 15)
    assert (run.utilisation, run.cpu_waste) == (1.0, 0.5)


def test_no_pilots_are_asked_for_without_end_if_tasks_are_known_to_be_too_long_for_them() -> None:
    platform = read_platform("[site.a]\nhosts = 2\ncores = 4\nqueue = {walltime = 5}\n")
    (run,) = simulate(_bag(8, 10.0), platform, ["fifo"], information="perfect").runs
    assert run.complaint.startswith("8 of 8 tasks never ran: no host comes that could take them; site a gets no pilot")
    assert "its pilots end after 5 s, and it is expected to run for 10 s" in run.complaint
    assert not run.ended


def test_tasks_that_no_host_is_left_for_are_counted_in_a_sentence() -> None:
    (run,) = simulate(_bag(3, 10.0), read_platform("[site.a]\nhosts = 1\nleaves = 15\n"), ["fifo"]).runs
    assert (run.complaint, run.ended) == ("2 of 3 tasks never ran: no host is left that could take them", False)


def test_what_cannot_be_is_refused_before_anything_runs() -> None:
    for wrong, match in (
        ({"policies": ["fifoo"]}, "did you mean"),
        ({"policies": []}, "no policy"),
        ({"policies": ["fifo"], "seeds": 0}, "seeds"),
        ({"policies": ["fifo"], "noise": float("nan")}, "noise"),
    ):
        with pytest.raises(UserError, match=match):
            simulate(FORK, one_site(2), **wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no host has more than 2"):
        simulate(Workload("wide", [SimulatedTask("t", 1.0, cores=4)]), one_site(9, 2), ["fifo"])
    with pytest.raises(UserError, match="does not stand after"):
        Workload("loop", [SimulatedTask("t", 1.0, (0,))])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("x", "no TOML"),
        ("[site.a]\nhosts = 0", "hosts"),
        ("[site.a]\ncors = 1", "cors"),
        ("[site.a]\nspeed = -1", "speed"),
        ("[site.a]\nspeed = [2, 1]", "above"),
        ("[site.a]\nmemory = 'much'", "lab.toml"),
        ("[sites.a]\n", "site"),
        ("site = {}", "site"),
    ],
)
def test_a_platform_that_is_none_is_refused_in_one_line(text: str, match: str) -> None:
    with pytest.raises(UserError, match=match) as error:
        read_platform(text, "lab.toml")
    assert str(error.value).startswith("lab.toml: ")
    assert "\n" not in str(error.value)


def test_a_platform_with_more_hosts_and_faster_links() -> None:
    text = '[site.a]\nhosts = 3\nnic = {bandwidth = "8Mbit/s", latency = 0.5}\ndisk_read = "1MB/s"\n'
    text += "[home]\nbandwidth = 5e5\n"
    twice = read_platform(text).scaled(hosts=0.5, link=2.0)
    site = twice.site["a"]
    assert site.hosts == 2
    assert site.nic is not None
    assert twice.home is not None
    assert (site.nic.bandwidth, site.nic.latency, site.disk_read) == (2e6, 0.5, "1MB/s")
    assert twice.home.bandwidth == 1e6
    assert site.uplink is None


MIXED = Workload("mixed", [SimulatedTask(f"t{n}", 1.0 + 7 * n % 11, template="t") for n in range(12)])


@pytest.mark.parametrize("policy", ["sjf", "heft", "workqueue+wqr"])
@pytest.mark.parametrize("information", ["measured", "perfect", 0.8])
def test_a_trace_is_the_run_that_the_report_tells_of(policy: str, information: Information) -> None:
    platform = read_platform("[site.a]\nhosts = 3\nspeed = [0.3, 2]\n")
    (run,) = simulate(MIXED, platform, policy, noise=0.2, information=information).runs
    traced = trace(MIXED, platform, policy, noise=0.2, information=information)
    assert max(one.end for one, _ in traced) == run.makespan
    assert len(traced) == len(MIXED.tasks)


def test_information_changes_the_schedule_and_so_the_trace() -> None:
    ends = {str(know): trace(MIXED, one_site(2), "sjf", information=know) for know in ("measured", "perfect")}
    assert ends["measured"] != ends["perfect"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"workload": "montage.json"}, r"'montage.json' is no workload.*read_workload"),
        ({"platform": "lab.toml"}, r"'lab.toml' is no platform.*read_platform"),
        ({"seeds": "3"}, "seeds is '3'; it must be a whole number"),
        ({"seeds": 0}, "seeds is 0; it must be a whole number >= 1"),
        ({"noise": "much"}, "noise is 'much'"),
        ({"noise": -0.1}, "noise is -0.1"),
        ({"information": "all"}, "information is 'all'; say measured, perfect"),
        ({"information": None}, "information is None"),
        ({"patience": -1}, "patience is -1"),
    ],
)
def test_what_cannot_be_simulated_is_said(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        simulate(**{"workload": FORK, "platform": one_site(2), "policies": "fifo", **wrong})


def test_a_text_is_a_list_of_policies_as_on_the_command_line() -> None:
    assert simulate(FORK, one_site(2), "fifo") == simulate(FORK, one_site(2), ["fifo"])
    assert [row.policy for row in simulate(FORK, one_site(2), "fifo,sjf").rows()] == ["fifo", "sjf"]


def test_seeds_are_any_whole_number() -> None:
    class Three:  # as those of NumPy
        def __index__(self) -> int:
            return 3

    assert len(simulate(FORK, one_site(2), "fifo", seeds=Three()).runs) == 3  # type: ignore[arg-type]
