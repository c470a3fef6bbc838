"""Who may ask for work next, and that it is as many as were asked for, also if others may ask at the same time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from bough.core.records.indexes.arrivals import Arrivals

EXECUTORS = 10


def arrivals() -> Arrivals:
    """Ten executors, each on its host, that took something every ten seconds."""
    hosts = [SimpleNamespace(executors={one: None}) for one in range(EXECUTORS)]
    executors = {one: SimpleNamespace(id=one) for one in range(EXECUTORS)}
    made = Arrivals(cast("Any", SimpleNamespace(by_number=hosts)), cast("Any", executors))
    for one in range(EXECUTORS):
        made.joined(one, one)
    for when in (0.0, 10.0):
        for one in range(EXECUTORS):
            made.took(one, when)
    return made


def test_of_those_that_may_ask_at_the_same_time_as_many_count_as_were_named() -> None:
    """The next 32 arrivals of `spec/trellis-driver.md` 3.3 are 32, not all that may come when the last of them does."""
    made = arrivals()
    named = [executor.id for _, executor in made.first(4, 12.0)]
    assert named == [0, 1, 2, 3]
    assert made.until(20.0) == dict.fromkeys(named, 20.0)
    made.took(2, 19.0)  # it may ask next 9.5 s later
    assert made.until(20.0) == dict.fromkeys([0, 1, 3], 20.0)
    assert [executor.id for _, executor in made.first(4, 19.0)] == [0, 1, 3, 4]
    assert made.until(20.0) == dict.fromkeys([0, 1, 3, 4], 20.0)


def test_an_executor_that_is_gone_is_forgotten_wherever_it_stands() -> None:
    made = arrivals()
    made.took(2, 19.0)  # its place among the next ones is not looked for until somebody asks
    for gone in (2, 0, 7):
        del made._executors[gone]  # type: ignore[attr-defined]
        made.left(gone, gone)
    assert [executor.id for _, executor in made.first(EXECUTORS, 12.0)] == [1, 3, 4, 5, 6, 8, 9]
    assert made._gaps.keys() == {1, 3, 4, 5, 6, 8, 9}
    for gone in sorted(made._gaps):
        made.left(gone, gone)
    assert not made._gaps
    assert not made._expected


def test_who_took_nothing_yet_may_ask_at_any_time() -> None:
    made = arrivals()
    made._data.by_number.append(cast("Any", SimpleNamespace(executors={10: None})))
    made.joined(10, 10)
    made.first(2, 12.0)
    assert made.until(20.0) == {10: 0.0, 0: 20.0, 1: 20.0}
    made.took(10, 25.0)
    assert made.until(20.0) == {0: 20.0, 1: 20.0}
