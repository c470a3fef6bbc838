"""What a platform says of speeds, shares of links, look-ups and files; what is wrong is named with its site and key."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, pstdev

import pytest

import bough
from bough.errors import UserError
from bough.sim.data.index_lookups import CentralIndex, index_of
from bough.sim.experiment import simulate
from bough.sim.models.index_model import lookup_seconds
from bough.sim.platforms.availability_traces import Trace
from bough.sim.platforms.platform import Platform, read_platform
from bough.sim.platforms.platform_files import load_platform, with_files, write_platform
from bough.sim.studies.storage_affinity_study import Scenario, grid, grid_platform
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload


def speeds(text: str, seed: int = 1) -> list[float]:
    """Of the hosts of a platform."""
    return [one.traits.speed for one in read_platform(text).executors(seed)]


def test_speeds_are_said_for_each_host() -> None:
    assert speeds("[site.a]\nhosts = 3\nspeeds = [1, 2, 4]\n") == [1.0, 2.0, 4.0]
    platform = read_platform("[site.a]\nhosts = 3\nspeeds = [1, 2, 4]\nqueue = {wait = 5}\n")
    assert [node.speed for node in platform.nodes("a", 1)] == [1.0, 2.0, 4.0]
    assert platform.scaled(hosts=2).site["a"].speeds == [1, 2, 4, 1, 2, 4]
    assert platform.scaled(hosts=0.5).site["a"].speeds == [1, 2]


def test_speeds_are_drawn_from_a_normal_distribution() -> None:
    text = "[site.a]\nhosts = 20000\nspeed = {mean = 10, deviation = 3}\n"
    found = speeds(text)
    assert fmean(found) == pytest.approx(10.0, rel=0.02)
    assert pstdev(found) == pytest.approx(3.0, rel=0.03)
    assert found == speeds(text)
    assert found != speeds(text, 2)
    assert min(speeds("[site.a]\nhosts = 20000\nspeed = {mean = 1, deviation = 1}\n")) >= 0.01


LINK = "{{bandwidth = 100, latency = {}}}"


@pytest.mark.parametrize(
    ("home", "nic", "rules", "expected"),
    [
        ("0.1", "0.001", "", True),
        ("0.1", "0", "", False),  # one latency is not said
        ("0", "0", "", False),
        ("0.1", "0.001", '[transfers]\nfairness = "max-min"\n', False),
        ("0.1", "0", '[transfers]\nfairness = "rtt"\n', True),
    ],
)
def test_links_are_shared_by_latency_if_it_is_said_or_all_latencies_are(
    home: str, nic: str, rules: str, expected: bool
) -> None:
    text = f"home = {LINK.format(home)}\n[site.a]\nnic = {LINK.format(nic)}\n{rules}"
    assert read_platform(text).weighs_by_latency is expected


def _data_ends(text: str) -> list[float]:
    """When two tasks at two sites have what they read from home, 1000 bytes each."""
    work = Workload(
        "w",
        [SimulatedTask("t", 0.0, reads=(0,)), SimulatedTask("u", 0.0, reads=(1,))],
        [SimulatedFile("f", 1000), SimulatedFile("g", 1000)],
    )
    (run,) = simulate(work, read_platform(text), ["fifo"]).runs
    return [run.response, run.makespan]


def test_who_is_far_gets_less_of_a_link() -> None:
    """The near one has 3/4 of home's 100 bytes a second and ends after 13.3 s, the far one after 20 s."""
    text = (
        'home = {bandwidth = 100, latency = 1e-4}\n[site.a]\nuplink = {bandwidth = "1GB/s", latency = 1e-4}\n'
        '[site.b]\nuplink = {bandwidth = "1GB/s", latency = 5e-4}\n'
    )
    assert _data_ends(text) == pytest.approx([(13.333 + 20) / 2, 20.0], rel=1e-3)
    assert _data_ends(text + '[transfers]\nfairness = "max-min"\n') == pytest.approx([20.0, 20.0], rel=1e-3)


def test_an_index_is_asked_before_a_file_travels() -> None:
    text = "home = {{bandwidth = 100}}\n[site.a]\nhosts = 2\n[transfers]\nindex = {}\n"
    assert _data_ends(text.format('"none"')) == [20.0, 20.0]
    slow = lookup_seconds(2)
    assert _data_ends(text.format('"distributed"')) == pytest.approx([20.0 + slow] * 2, abs=1e-9)
    # one look-up a second: the second file begins a second after the first
    assert _data_ends(text.format('"central"\nlookups = 1')) == pytest.approx([(20.0 + 21.0) / 2, 21.0])


def test_a_central_index_answers_one_after_the_other() -> None:
    ask = CentralIndex(10.0)
    assert [ask(0.0), ask(0.0), ask(5.0)] == pytest.approx([0.1, 0.2, 0.1])
    assert index_of(read_platform("[site.a]\n"))(3.0) == 0.0


TRACE = "# load\n0 1\n10 0.5\n20 0.5\n"


def test_availability_comes_from_files_beside_the_platform(tmp_path: Path) -> None:
    """All of the host for 10 s, then half for 10 s, and so on: 30 s of work take 40 s."""
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "load.txt").write_text(TRACE)
    text = (
        '[site.a]\navailability = {file = "load.txt"}\nuplink = {bandwidth = 1, availability = {file = "load.txt"}}\n'
    )
    (folder / "lab.toml").write_text(text)
    platform = bough.sim.load_platform(folder / "lab.toml")
    (run,) = simulate(Workload("w", [SimulatedTask("t", 30.0)]), platform, ["fifo"]).runs
    assert run.makespan == 40.0
    uplink = platform.site["a"].uplink
    assert uplink is not None
    assert uplink.availability is not None
    assert (uplink.availability.times, uplink.availability.values) == ([0.0, 10.0, 20.0], [1.0, 0.5])
    assert with_files(platform, lambda path: "nothing") == platform  # it is read once
    with pytest.raises(UserError, match="load_platform"):
        list(read_platform(text).executors(1))


def test_hosts_begin_at_places_of_their_own_in_a_trace() -> None:
    text = '[site.a]\nhosts = 3\navailability = {file = "x", shift = true}\n'
    platform = with_files(read_platform(text), lambda path: TRACE)
    traces = [one.availability for one in platform.executors(1)]
    starts = [trace.next_change(0.0) for trace in traces if trace is not None]
    assert len(set(starts)) == 3
    assert [trace.mean for trace in traces if trace is not None] == pytest.approx([0.75] * 3)
    assert starts == [one.availability.next_change(0.0) for one in platform.executors(1) if one.availability]


@pytest.mark.parametrize("by", [0.0, 3.0, 10.0, 39.0, 45.0])
def test_a_trace_that_is_shifted_is_the_same_later(by: float) -> None:
    trace = Trace([0.0, 10.0, 20.0], [1.0, 0.0, 0.5], 40.0)
    shifted = trace.shifted(by)
    assert [shifted.at(when) for when in range(100)] == [trace.at(when + by) for when in range(100)]
    assert shifted.integral(100.0) == pytest.approx(trace.integral(100.0 + by) - trace.integral(by))


@pytest.mark.parametrize(
    ("trace", "match"),
    [
        ("0 1\n9 x\n", "load.txt, line 2"),
        ("0 1\n9 0.5\n\n9 1\n", "load.txt, line 4: .* times grow"),
        ("5 1\n9 1\n", "load.txt, line 1: .* first time is 0"),
        ("0 1\n9 1.5\n", "load.txt, line 2: .* from 0 to 1"),
        ("0 nan\n9 1\n", "load.txt, line 1"),
        ("0 1\ninf 1\n", "load.txt, line 2"),
        ("0 0\n9 1\n", "load.txt: .* all 0"),
        ("", "load.txt: two lines"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said_with_its_file_and_line(trace: str, match: str) -> None:
    platform = read_platform('[site.a]\navailability = {file = "load.txt"}\n')
    with pytest.raises(UserError, match=match):
        with_files(platform, lambda path: trace)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.toml"):
        load_platform(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"[site.a]\n# \xff\n")
    with pytest.raises(UserError, match=r"bytes\.toml"):
        load_platform(tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[site.lab]\navailability = {values = [0, 0]}", "site lab: availability: its values are all 0"),
        (
            "[site.lab]\navailability = {times = [0, 5], values = [1, 1]}",
            "lab: availability: 2 times and 2 values",
        ),
        ("[site.lab]\navailability = {times = [5, 6], values = [1]}", "site lab: availability: its times begin with 0"),
        ("[site.lab]\navailability = {file = 'f', values = [1]}", "exclude each other"),
        ("[site.lab]\ndisk_read = 'fast'", "site lab: disk_read: 'fast' is no number of bytes a second"),
        ("[site.lab]\ncache = 'foo'", "site lab: cache: 'foo' is no number of bytes, such as"),
        ("[site.lab]\nmemory = '-5GB'", "site lab: memory"),
        ("[site.lab]\ncors = 1", "site lab: there is no key 'cors'; did you mean cores?"),
        (
            "[site.lab]\nnic = {bandwidth = 1, availability = {value = [1]}}",
            "lab: nic.availability: there is no",
        ),
        ("[site.lab]\nnic = {bandwidth = 'x'}", "site lab: nic: bandwidth: 'x'"),
        ("[site.lab]\nhosts = 'many'", "site lab: hosts = 'many': it must be a whole number"),
        (
            "[site.lab]\nspeed = [1, 2, 3]",
            "lab: speed = [1, 2, 3]: it is [low, high]; for one of each host say speeds",
        ),
        ("[site.lab]\nspeeds = [1, 2, 3]\nhosts = 2", "site lab: speeds has 3 numbers, and hosts = 2"),
        ("[site.lab]\nspeed = 2\nspeeds = [1]", "exclude each other"),
        ("[site.lab]\nspeed = {mean = 1, deviation = 2}", "above the mean"),
        ("[site.lab]\n[transfers]\npeer = 'all'", "transfers: there is no key 'peer'; did you mean peers?"),
        ("[site.lab]\n[transfers]\nlookups = 0", "transfers: lookups = 0"),
        ("[sites.lab]", "there is no key 'sites'; did you mean site?"),
        ("site = 3", "there is no site"),
        ("[site]\nlab = 3", "site lab: it must be a table"),
    ],
)
def test_what_is_wrong_is_named_with_its_site_and_key(text: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        read_platform(text, "lab.toml")
    assert str(error.value).startswith("lab.toml: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_grid_of_storage_affinity_is_a_platform() -> None:
    scenario = Scenario(heterogeneity=8)
    platform = grid_platform(scenario)
    made = [(one.traits.site, one.traits.speed) for one in platform.executors(1)]
    assert made == grid(scenario)
    assert read_platform(write_platform(platform)) == platform


def test_a_platform_is_read_as_it_was_written() -> None:
    text = (
        'home = {bandwidth = "1MB/s", latency = 0.1}\n[site."a b"]\nhosts = 2\nspeed = {mean = 2.0, deviation = 0.5}\n'
        'cache = "5GB"\nnic = {bandwidth = 5.0, sharing = "serial", availability = {mean = 0.5}}\nleaves = [5.0, 9.0]\n'
        'returns = 7.0\nqueue = {waits = [1.0, 2.0], idle = 0.0}\n[transfers]\nchains = true\noutputs = "keep"\n'
    )
    platform = read_platform(text)
    assert read_platform(write_platform(platform)) == platform
    traced = with_files(read_platform('[site.a]\navailability = {file = "load.txt"}\n'), lambda path: TRACE)
    assert read_platform(write_platform(traced)) == traced


def test_a_platform_travels_to_other_processes() -> None:
    import pickle

    platform = read_platform("[site.a]\nhosts = 2\nspeed = {mean = 2, deviation = 1}\navailability = {values = [1]}\n")
    again = pickle.loads(pickle.dumps(platform))
    assert isinstance(again, Platform)
    assert again == platform
