"""Availability over time: integrals by hand, what is refused, and what it does to tasks and transfers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.core.machine import Machine
from bough.errors import UserError
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.sim.data.simulated_data import SimulatedData
from bough.sim.platforms.availability_traces import Trace, TraceSpec, autoregressive, read_trace, write_trace
from bough.sim.platforms.platform import read_platform
from bough.sim.platforms.platform_files import load_platform, write_platform
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate
from bough.sim.simulation import Simulation
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload


def test_half_of_a_host_takes_twice_as_long() -> None:
    """The examples of the thesis: constant 50 %, cost 100 s: 200 s."""
    assert Trace([0.0], [0.5], 10.0).end(3.0, 100.0) == pytest.approx(203.0)


def test_a_trace_by_hand() -> None:
    """All of it for 10 s, none for 10 s, half for 20 s; then again."""
    trace = Trace([0.0, 10.0, 20.0], [1.0, 0.0, 0.5], 40.0)
    assert trace.mean == 0.5
    assert [trace.at(when) for when in (0, 9.9, 10, 25, 41, 55)] == [1.0, 1.0, 0.0, 0.5, 1.0, 0.0]
    assert [trace.integral(when) for when in (5, 10, 15, 30, 40, 45)] == [5, 10, 10, 15, 20, 25]
    assert [trace.next_change(when) for when in (0, 10, 39, 40, 45)] == [10, 20, 40, 50, 50]
    assert trace.end(0.0, 12.0) == 24.0
    assert trace.end(10.0, 5.0) == 30.0
    assert trace.end(35.0, 2.5) == 40.0
    assert trace.end(35.0, 12.5) == pytest.approx(50.0)


@given(
    st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=1, max_size=8).filter(any),
    st.floats(0.0, 500.0),
    st.floats(0.001, 500.0),
)
def test_the_integral_over_the_run_is_the_work(values: list[float], start: float, work: float) -> None:
    trace = TraceSpec(step=7.0, values=values).make(Random(1))
    end = trace.end(start, work)
    assert trace.integral(end) - trace.integral(start) == pytest.approx(work, rel=1e-6, abs=1e-6)
    assert trace.next_change(start) > start


def test_the_generator_has_the_mean_the_deviation_and_the_correlation_that_are_wanted() -> None:
    values = autoregressive(Random(5), 50_000, 0.5, 0.1, 0.8)
    assert fmean(values) == pytest.approx(0.5, abs=0.02)
    assert pstdev(values) == pytest.approx(0.1, abs=0.02)
    pairs = [(one - 0.5) * (two - 0.5) for one, two in pairwise(values)]
    assert fmean(pairs) / pstdev(values) ** 2 == pytest.approx(0.8, abs=0.05)
    assert values == autoregressive(Random(5), 50_000, 0.5, 0.1, 0.8)


def test_a_trace_is_read_as_it_was_written() -> None:
    trace = read_trace("# load of a host\n0 1\n10 0.25\n30 0\n40 0\n")
    assert trace.length == 40.0
    assert write_trace(read_trace(write_trace(trace))) == write_trace(trace)
    for text, match in (
        ("0 1", "two lines"),
        ("0 1\nx", "line 2"),
        ("0 1\n5 2\n9 0", "from 0 to 1"),
        ("1 1\n2 1", "0"),
    ):
        with pytest.raises(UserError, match=match):
            read_trace(text)


def test_tasks_and_transfers_take_longer_while_there_is_less() -> None:
    """The link has all of its 100/s for 4 s, then half: 1000 bytes need 4 + 12 s. The host is there by half: 20 s."""
    platform = read_platform(
        "home = {bandwidth = 100, availability = {step = 4, values = [1, 0.5, 0.5, 0.5, 0.5]}}\n"
        "[site.a]\navailability = {values = [0.5]}\n"
    )
    work = Workload("w", [SimulatedTask("t", 10.0, reads=(0,)), SimulatedTask("u", 5.0)], [SimulatedFile("f", 1000)])

    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        return Fate(work.tasks[spec.id - 1].seconds)

    data = SimulatedData(work, platform)
    sim = Simulation(Machine(load_policies("fifo")), model, platform.executors(1), data=data)
    sim.submit(0.0, work)
    sim.run()
    sim.check_complete()
    (one,) = data.attempts
    assert (one.staged, one.ended) == (16.0, 36.0)
    assert sim.now == 46.0


def test_each_host_has_a_trace_of_its_own(tmp_path: Path) -> None:
    for host, share in (("a1", 1.0), ("a2", 0.5), ("b1", 0.25)):
        (tmp_path / f"load-{host}.txt").write_text(f"0 {share}\n10 {share}\n")
    for said in (
        "[site.a]\nhosts = 3\navailability = [{file = 'load-a1.txt'}, {file = 'load-a2.txt'}]",
        (
            "[site.a]\nhosts = 2\navailability = {file = 'load-{host}.txt'}\n"
            "[site.b]\navailability = {file = 'load-{host}.txt'}"
        ),
        "[site.a]\nhosts = 2\navailability = [{values = [1]}, {values = [0.5]}]\nqueue = {wait = 0}",
    ):
        (tmp_path / "p.toml").write_text(said)
        platform = load_platform(tmp_path / "p.toml")
        hosts = [*platform.executors(1)] or platform.nodes("a", 1)
        shares = [one.availability.at(3.0) for one in hosts if one.availability is not None]
        assert shares == ([1.0, 0.5, 0.25] if "site.b" in said else [1.0, 0.5, 1.0][: len(hosts)])
        assert write_platform(read_platform(write_platform(platform))) == write_platform(platform)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("availability = {file = '{host}.txt'}", "a1.txt"),
        ("availability = {file = '{host}'}\nqueue = {wait = 1}", "hosts behind a queue have no names"),
        ("availability = [{values = [0]}]", "its values are all 0"),
        ("availability = []", "availability"),
    ],
)
def test_a_trace_for_each_host_that_cannot_be_is_named(said: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(f"[site.a]\n{said}\n")
    with pytest.raises(UserError, match=why):
        load_platform(tmp_path / "p.toml")
