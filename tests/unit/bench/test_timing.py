"""Runs by turns, medians, and the arithmetic of rows."""

from __future__ import annotations

import os

import pytest

from bough.bench.timing import (
    BenchRow,
    Measured,
    Side,
    Took,
    by_turns,
    bytes_row,
    compare,
    cpu_time,
    family,
    limit_row,
    milliseconds,
    once,
    per_second,
    rate_row,
    resident,
    time_row,
)


def test_sides_run_by_turns_and_settle_after_each_run() -> None:
    said: list[str] = []

    def side(name: str) -> Side:
        return Side(lambda: said.append(name), settle=lambda: said.append(f"{name} settles"))

    by_turns([side("a"), side("b")], 2)
    assert said == ["a", "a settles", "b", "b settles"] * 2


def test_without_time_there_is_one_round() -> None:
    said: list[str] = []
    by_turns([Side(lambda: said.append("a"))], 3, most_seconds=0.0)
    assert said == ["a"]


def test_what_a_run_measured_by_itself_counts_and_the_median_is_taken() -> None:
    times = iter([3.0, 1.0, 2.0])
    mine, fixed = compare(Side(lambda: Took(next(times))), Side(lambda: Took(7)), 3)
    assert mine.seconds == 2.0
    assert fixed.seconds == 7.0


def test_other_answers_are_not_taken_for_times() -> None:
    assert once(Side(lambda: 1e9)).seconds < 1e6


def test_a_rate_is_beside_the_peers_also_when_the_peer_did_fewer() -> None:
    row = rate_row("map", 1000, Measured(0.5, 0.001), "peer", Measured(2.0, 0.01), target=10.0, peer_count=100)
    assert (row.ours, row.peer, row.ratio, row.met) == ("2,000/s", "50/s", 40.0, True)
    assert row.cpu == "1.0"


def test_cpu_time_of_both_is_shown_where_both_did_the_same() -> None:
    row = rate_row("map", 1000, Measured(0.5, 0.001), "peer", Measured(2.0, 0.01))
    assert (row.ratio, row.met, row.cpu) == (4.0, None, "1.0 / 10.0")


@pytest.mark.parametrize(
    ("row", "ratio", "met"),
    [
        (time_row("trip", 0.003, "pool", 0.002, target=1.2), 1.5, False),
        (time_row("trip", 0.002, "pool", 0.002, target=1.2), 1.0, True),
        (limit_row("start", 0.35, 0.35), 1.0, True),
        (bytes_row("memory", 24.0, 16.0), 1.5, False),
        (BenchRow("alone", "1", "", "", None, target=1.0), None, None),
    ],
)
def test_rows_that_should_be_low_are_met_below_their_target(
    row: BenchRow, ratio: float | None, met: bool | None
) -> None:
    assert row.ratio == (None if ratio is None else pytest.approx(ratio))
    assert row.met is met


def test_figures_for_people() -> None:
    assert per_second(100_000, 0.1) == "1,000,000/s"
    assert milliseconds(0.00123) == "1.23 ms"
    assert milliseconds(1.5) == "1,500 ms"
    assert limit_row("start", 0.1, 0.35, peer="pool: 80 ms").peer_name == "limit 0.35 s (pool: 80 ms)"


def test_processes_are_looked_at_through_the_system() -> None:
    me = os.getpid()
    assert family(me)[0] == me
    assert resident(me) > 1 << 20
    assert cpu_time([me]) > 0
    assert cpu_time([-1]) == 0
