"""Experiments: figures worked out by hand, platforms from text, and that a bad policy stops nothing."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bough.errors import UserError
from bough.policies import policy_registry
from bough.policy.interface import Place, ReadyWork, View
from bough.sim.experiment import simulate
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
