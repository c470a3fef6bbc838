"""What was measured of tasks and transfers: run times by size, bounds, and what a restart leaves of it."""

from __future__ import annotations

import msgspec
import pytest

from bough.core.data.estimates import Basis, Estimates
from bough.core.machine import Machine
from bough.model.arrays.runtimes import RunTimeBySize
from bough.model.events import facts, news
from bough.model.ids import ExecutorId
from bough.model.outcomes import Detail, Output
from bough.testing.builders import submit, task
from tests.unit.policies.data_bench import DataBench

MB = 1_000_000


def line(*pairs: tuple[int, float]) -> RunTimeBySize:
    made = RunTimeBySize()
    for size, seconds in pairs:
        made.note(size, seconds)
    return made


def test_a_line_is_drawn_through_sizes_and_run_times() -> None:
    made = line(*((number * MB, 2.0 + 3.0 * number) for number in range(1, 10)))
    assert made.at(5 * MB) == pytest.approx(17.0)
    assert made.at(20 * MB) == pytest.approx(62.0)
    assert made.at(1) == pytest.approx(2.0, rel=0.01)
    assert made.at(0) == 0.0  # the size is not known


def test_sizes_say_nothing_if_they_are_few_alike_or_beside_the_point() -> None:
    few = line(*((number * MB, 1.0 * number) for number in range(1, 8)))
    alike = line(*((100 * MB + number, 1.0 * number) for number in range(1, 20)))
    constant = line(*((number * MB, 3.0) for number in range(1, 20)))
    other_way = line(*((number * MB, 30.0 - number) for number in range(1, 20)))
    scattered = line(*((number * MB, 1.0 + number * 7 % 11) for number in range(1, 20)))
    assert [one.at(5 * MB) for one in (few, alike, constant, other_way, scattered)] == [0.0] * 5


def test_a_line_never_says_nothing_or_less_and_follows_what_changes() -> None:
    steep = line(*((number * MB, max(0.1, 10.0 * (number - 5))) for number in range(1, 12)))
    assert steep.at(1) > 0.0
    slower = line(*((number % 9 * MB + MB, 1.0 + number % 9) for number in range(3000)))
    for number in range(6000):
        slower.note(number % 9 * MB + MB, 10.0 * (1.0 + number % 9))
    assert slower.at(5 * MB) > 45.0
    assert slower.count < 1024


def test_what_is_measured_is_bounded_and_the_oldest_goes() -> None:
    estimates = Estimates()
    for number in range(10_050):
        estimates.note_runtime(f"t{number}", "h", 1, 1.0)
        estimates.note_outputs(f"t{number}", 1, 10)
    kept = estimates.kept()
    assert len(kept.host_times) == len(kept.outputs) == 10_000
    assert estimates.run_time("t0", "h", 0) == (0.0, Basis.NOTHING)
    assert estimates.run_time("t10049", "h", 0)[1] is Basis.HOST


def measured() -> DataBench:
    """A machine that has seen tasks of a template run, leave outputs, and have their inputs come."""
    shop = DataBench("mct")
    shop.executor(1, site="s")
    for number in range(1, 11):
        shop.sizes[f"f{number}"] = number * MB
        shop.tell(submit(task(number, reads=(f"/f{number}",), template="t"), request=1))
        shop.tell(*shop._known_first([f"f{number}"]))
        made = Detail(0, outputs=(Output("y", f"/y{number}", 500, 1),))
        shop.tell(news.WorkSucceeded(shop.bench.span(number), 0, 1, 2.0 * number, details=(made,)))
    shop.tell(news.BytesMoved(ExecutorId(1), "origin", 4 * MB, 1.0), news.BytesMoved(ExecutorId(1), "origin", 10, 0.2))
    shop.tell(news.BytesMoved(ExecutorId(1), "host9", 80 * MB, 1.0))
    return shop


def what_is_known(machine: Machine) -> tuple[object, ...]:
    state = machine.state
    rates = {(*place, one.rate, one.latency, one.seen) for *place, one in state.data.kept_rates()}
    times = [state.estimates.run_time("t", host, size) for host in ("host1", "else") for size in (0, 3 * MB)]
    return times, state.estimates.output_size("t"), rates


def test_estimates_are_there_after_a_restart() -> None:
    shop = measured()
    before = what_is_known(shop.machine)
    assert before[0][1] == (pytest.approx(6.0), Basis.SIZE_HERE)
    assert before[1] == 500
    assert ("s", "host1", "host9", 80.0 * MB, 0.0, 1) in before[2]
    again = Machine.restore(shop.machine.snapshot(), shop.machine.state.policies)
    assert what_is_known(again) == before
    (host,) = again.state.data.hosts.values()
    assert again.state.data.rate_between("origin", host).latency == pytest.approx(0.2)


def test_a_snapshot_without_estimates_is_read() -> None:
    shop = measured()
    kept = msgspec.msgpack.decode(shop.machine.snapshot())
    del kept["estimates"], kept["rates"]
    again = Machine.restore(msgspec.msgpack.encode(kept), shop.machine.state.policies)
    assert what_is_known(again) == ([(0.0, Basis.NOTHING)] * 4, 0, set())
    assert again.counts() == shop.machine.counts()


def test_how_fast_bytes_came_to_a_host_is_known_when_it_comes_back() -> None:
    shop = measured()
    shop.tell(facts.ExecutorLost(ExecutorId(1), "its pilot ended"))
    assert not shop.machine.state.data.hosts
    shop.bench.restart()
    shop.executor(7, host="host1", site="s")
    host = shop.machine.state.data.hosts["s", "host1"]
    assert host.rates["host9"].rate == 80.0 * MB
    assert shop.machine.state.data.former_rates == {}
