"""The report: every figure by hand, intervals, pairs, frames, hostile policies, the same bytes again."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import msgspec
import pytest

from bough.core.machine import Machine
from bough.errors import SiteError, UserError
from bough.model.sites.resources import Needs
from bough.model.sites.site_specs import SiteSpec
from bough.policies import policy_registry
from bough.policies.policy_registry import load_policies, placement_names
from bough.policy.interface import Place, ReadyWork, View
from bough.sim.experiment import SimulatedHost, measure, run_on_hosts, simulate
from bough.sim.experiment_report import Outcome, Report, half_interval, percentile
from bough.sim.platforms.platform import one_site, read_platform
from bough.sim.platforms.simulated_executor import Fate
from bough.sim.platforms.simulated_site import SimulatedSite, after
from bough.sim.simulation import Simulation
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload

FORK = Workload(
    "fork",
    [
        SimulatedTask("first", 10.0),
        SimulatedTask("left", 20.0, (0,)),
        SimulatedTask("right", 40.0, (0,)),
        SimulatedTask("join", 5.0, (1, 2)),
    ],
)
LOOSE = Workload("loose", [SimulatedTask(f"t{n}", 10.0) for n in range(6)])


def test_every_figure_of_a_fork_on_two_hosts_by_hand() -> None:
    (row,) = simulate(FORK, one_site(2), ["fifo"]).rows()
    assert (row.makespan, row.lower_bound, row.slowdown, row.runs) == (55.0, 55.0, 1.0, 1)
    assert row.response_95 == 55.0
    assert row.wait == 0.0
    assert row.execution_share == 1.0
    assert row.efficiency == pytest.approx(75 / 55 / 2)
    assert row.core_hours == pytest.approx(110 / 3600)
    assert row.node_hours_used == pytest.approx(75 / 3600)
    assert row.node_hours_idle == pytest.approx(35 / 3600)
    assert (row.peak_queue, row.cpu_waste, row.performance_index, row.provisioning) == (0, 0, 1, 0)
    assert row.data is None


def test_tasks_that_could_start_and_wait_are_the_queue() -> None:
    (row,) = simulate(LOOSE, one_site(1, 2), ["fifo"]).rows()
    assert (row.makespan, row.peak_queue) == (30.0, 4)
    assert row.wait == pytest.approx((0 + 0 + 10 + 10 + 20 + 20) / 6)
    assert row.execution_share == pytest.approx(0.5)
    assert row.slowdown == pytest.approx(3.0)  # ideal: all at once
    assert row.ratio == pytest.approx(1.0)
    assert row.node_hours_used == pytest.approx(30 / 3600)
    assert row.node_hours_idle == 0


def _outcome(policy: str, seed: int, makespan: float, **others: object) -> Outcome:
    return Outcome(policy, seed, makespan, 10.0, 10.0, core_hours=2.0, **others)  # type: ignore[arg-type]


def test_policies_are_compared_seed_by_seed() -> None:
    runs = [_outcome("a", 1, 100), _outcome("b", 1, 90), _outcome("a", 2, 200), _outcome("b", 2, 188)]
    report = Report("w", 1, 1, runs)
    (pair,) = report.differences()
    assert (pair.policy, pair.against, pair.pairs, pair.faster, pair.makespan) == ("b", "a", 2, 2, -11.0)
    assert pair.relative == pytest.approx((-0.1 - 0.06) / 2)
    assert pair.spread == pytest.approx(12.71 * 2**0.5 / 2**0.5)
    assert not pair.is_clear  # two seeds say little
    one, other = report.rows()
    assert one.spread > 10 * pair.spread / 12.71  # the pairs are far closer than the runs
    assert other.performance_index == 1.0
    assert one.performance_index == pytest.approx((1 / 100 + 1 / 200) / (1 / 90 + 1 / 188))


def test_a_run_that_did_not_end_counts_for_no_mean() -> None:
    runs = [_outcome("a", 1, 100), Outcome("a", 2, complaint="it ran dry", ended=False), Outcome("b", 1, ended=False)]
    good, none = Report("w", 1, 1, runs).rows()
    assert (good.makespan, good.runs, good.complaint) == (100.0, 1, "it ran dry")
    assert (none.makespan, none.runs) == (0.0, 0)
    (pair,) = Report("w", 1, 1, runs).differences()
    assert pair.pairs == 0
    assert not pair.is_clear


def test_confidence_intervals_are_students() -> None:
    assert half_interval([5.0]) == 0.0
    assert half_interval([1.0, 2.0, 3.0]) == pytest.approx(4.30 / 3**0.5)
    twenty = [float(n) for n in range(20)]
    assert half_interval(twenty) == pytest.approx(2.093 * 5.9161 / 20**0.5, rel=1e-3)
    assert half_interval(twenty * 50) == pytest.approx(1.9623 * 5.7692 / 1000**0.5, rel=1e-3)
    assert [percentile([3, 1, 2], share) for share in (0.01, 0.5, 0.95, 1)] == [1, 2, 3, 3]
    assert percentile([], 0.5) == 0


def test_the_same_seeds_give_the_same_bytes_under_every_policy() -> None:
    platform = read_platform("[site.a]\nhosts = 3\nspeed = [0.5, 2]\n[site.b]\ncores = 4\n")
    once, again = (
        msgspec.json.encode(simulate(FORK, platform, placement_names(), seeds=2, noise=0.3).rows()) for _ in range(2)
    )
    assert once == again


# --- policies that mean no good -----------------------------------------------------------------------


class _Hostile:
    def rank(self, work: ReadyWork, /) -> float:
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        raise NotImplementedError


class _Raises(_Hostile):
    def place(self, view: View, /) -> Iterable[Place]:
        raise RuntimeError("no\nidea")


class _Nothing(_Hostile):
    def place(self, view: View, /) -> Iterable[Place]:
        return ()


class _Impossible(_Hostile):
    def place(self, view: View, /) -> Iterator[Place]:
        while True:
            yield Place(10**9, 10**9)  # type: ignore[arg-type]


class _Rubbish(_Hostile):
    def place(self, view: View, /) -> Iterable[Place]:
        return ["somewhere"]  # type: ignore[list-item]


class _NoRank(_Hostile):
    def rank(self, work: ReadyWork, /) -> float:
        raise KeyError("rank")

    def place(self, view: View, /) -> Iterable[Place]:
        return ()


class _Unmade(_Hostile):
    made = 0

    def __init__(self) -> None:
        _Unmade.made += 1
        if _Unmade.made > 1:
            raise MemoryError("no room")


def test_pilots_that_are_given_nothing_do_not_come_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(policy_registry._PLACEMENT, "nothing", _Nothing)
    monkeypatch.setattr("bough.sim.simulation._MOST_UNUSED", 100)
    bad, good = simulate(FORK, read_platform("[site.a]\nqueue = {wait = 5}\n"), ["nothing", "fifo"]).rows()
    assert bad.complaint == "the run did not end: 100 times pilots came and left again, and none was given a task"
    assert (bad.runs, good.runs, good.complaint) == (0, 1, "")


@pytest.mark.parametrize(
    ("policy", "said", "ends"),
    [
        (_Raises, "RuntimeError", True),
        (_Rubbish, "the policy failed", True),
        (_Nothing, "4 of 4 tasks never ran: the policy gave first to no host, though one has room for it", False),
        (_Impossible, "wished the impossible", False),
        (_NoRank, "could not rank", False),
        (_Unmade, "no room", False),
    ],
)
def test_a_hostile_policy_is_reported_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, policy: type, said: str, ends: bool
) -> None:
    monkeypatch.setitem(policy_registry._PLACEMENT, "hostile", policy)
    report = simulate(FORK, one_site(2), ["hostile", "fifo"], seeds=2)
    bad, good = report.rows()
    assert said in bad.complaint
    assert "\n" not in bad.complaint
    assert bad.runs == (2 if ends else 0)
    assert (good.runs, good.makespan, good.complaint) == (2, 55.0, "")


class _Both(_Hostile):
    """Wishes something impossible before each good wish."""

    def place(self, view: View, /) -> Iterator[Place]:
        from bough.policy.list_scheduling import in_order

        for wish in in_order(view):
            yield Place(wish.record, 10**9)  # type: ignore[arg-type]
            yield wish


def test_impossible_wishes_among_good_ones_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(policy_registry._PLACEMENT, "both", _Both)
    (row,) = simulate(FORK, one_site(2), ["both"]).rows()
    assert (row.runs, row.makespan) == (1, 55.0)
    assert "wished the impossible" in row.complaint


# --- data frames --------------------------------------------------------------------------------------


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    report = simulate(FORK, one_site(2), ["fifo"])
    with pytest.raises(SiteError, match=r"bough\[frames\]"):
        report.frame()
    with pytest.raises(UserError, match="policies, runs or differences"):
        report.frame("everything")


def test_frames_have_a_row_for_each_policy_run_or_difference() -> None:
    report = simulate(FORK, one_site(2), ["fifo", "sjf"], seeds=3)
    assert [len(report.records(what)) for what in ("policies", "runs", "differences")] == [2, 6, 1]
    assert report.records("runs")[0]["ratio"] == 1.0
    pytest.importorskip("pandas")
    frame = report.frame()
    assert list(frame["policy"]) == ["fifo", "sjf"]
    assert frame["makespan"].tolist() == [55.0, 55.0]
    assert len(report.frame("runs")) == 6


def test_every_mean_of_a_frame_has_its_interval_and_the_shared_bytes_stand_beside() -> None:
    files = [SimulatedFile("shared", 300), SimulatedFile("own", 100)]
    tasks = [SimulatedTask("a", 10.0, reads=(0, 1)), SimulatedTask("b", 30.0, reads=(0,))]
    platform = read_platform("[site.a]\nhosts = 2\nspeed = [0.5, 2]\n[home]\nbandwidth = 10\n")
    report = simulate(Workload("two", tasks, files), platform, ["fifo"], seeds=5, noise=0.3)
    (row,) = report.records()
    means = {
        name for name, value in row.items() if isinstance(value, float) and not name.endswith(("spread", "shared"))
    }
    assert means == {name.removesuffix("_spread") for name in row if name.endswith("_spread")}
    assert row["response_spread"] == half_interval([run.response for run in report.runs]) > 0
    moved = [run.data.moved for run in report.runs if run.data is not None]
    assert row["bytes_moved_spread"] == half_interval(moved)
    assert row["makespan_spread"] == row["spread"]
    assert row["shared"] == report.shared == 0.75
    assert {run["shared"] for run in report.records("runs")} == {0.75}


def test_hosts_that_come_and_go_are_allocated_while_they_are_there() -> None:
    hosts = [
        SimulatedHost("a", "h1", Needs(1)),
        SimulatedHost("a", "h2", Needs(2), joins=10.0),
        SimulatedHost("a", "h3", Needs(4), 0.0, 5.0),
    ]
    found, ran = run_on_hosts(LOOSE, hosts, "fifo", 1, [0.0] * 6)
    assert found.provisioning == 10.0
    assert found.makespan == max(one.end for one in ran.values())
    there = found.makespan + 2 * (found.makespan - 10) + 4 * 5
    assert found.core_hours == pytest.approx(there / 3600)
    assert found.node_hours_used + found.node_hours_idle == pytest.approx((2 * found.makespan - 10 + 5) / 3600)
    assert 0 < found.utilisation <= 1


def test_pilots_are_provisioned_until_the_last_one_has_joined() -> None:
    def model(spec: object, index: int, attempt: int, where: object) -> Fate:
        return Fate(10.0)

    site = SimulatedSite("lab", SiteSpec(kind="local", cores_per_pilot=1, max_pilots=3, idle=60), after(40.0))
    simulation = Simulation(Machine(load_policies("fifo")), model, (), [site])
    simulation.submit(0.0, LOOSE)
    simulation.run(until=100.0)
    found = measure(LOOSE, [10.0] * 6, simulation, site.executors)
    assert found.provisioning == pytest.approx(40.0, abs=1.0)
    assert found.makespan == pytest.approx(40 + 20, abs=1.0)
    assert found.core_hours == pytest.approx(3 * 20 / 3600, rel=0.1)
    assert found.utilisation == pytest.approx(1.0, abs=0.01)


def test_a_site_behind_a_queue_brings_its_hosts_after_their_wait() -> None:
    platform = read_platform("[site.lab]\nhosts = 3\nqueue = {wait = 30, startup = 10, idle = 20}\n")
    (row,) = simulate(LOOSE, platform, ["fifo"]).rows()
    assert (row.runs, row.complaint) == (1, "")
    assert row.provisioning == pytest.approx(40.0, abs=1.0)
    assert row.makespan == pytest.approx(60.0, abs=1.0)
    assert row.lower_bound == pytest.approx(20.0)
    assert row.node_hours_used == pytest.approx(60 / 3600, rel=0.05)
    uneven = read_platform("[site.lab]\nhosts = 3\nqueue = {wait = 30, deviation = 20}\n")
    once, again = (simulate(LOOSE, uneven, ["fifo", "ljf"], seeds=3) for _ in range(2))
    assert once == again
    assert len({run.makespan for run in once.runs}) == 3  # the policies meet the same waits
    fast = read_platform("[site.lab]\nhosts = 3\nspeed = 2\nqueue = {wait = 30, startup = 10, idle = 20}\n")
    (row,) = simulate(LOOSE, fast, ["fifo"]).rows()
    assert row.makespan == pytest.approx(50.0, abs=1.0)
