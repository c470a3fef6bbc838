"""Series that are thinned: bounded, first and last and extremes kept, told at checkpoints, in time."""

from __future__ import annotations

import random

from bough.executor.monitors.evaluation.thinning import MOST_POINTS, Series


def follow(series: Series, values: list[float], every: float, chunk: int = 1) -> list[tuple[float, ...]]:
    """Feed values at a rate, and take what is told when it is due."""
    told, now = [], 1000.0
    for at in range(0, len(values), chunk):
        part = values[at : at + chunk]
        now += every * len(part)
        series.add(range(at + 1, at + 1 + len(part)), part, now)
        if series.due <= now:
            points = series.tell(now)
            assert points is not None
            told.append(points.points)
    last = series.tell(now)
    return told + ([last.points] if last is not None else [])


def test_a_day_of_values_is_told_some_hundred_times() -> None:
    dice = random.Random(1)
    values = [dice.random() for _ in range(86_400)]
    told = follow(Series("x"), values, 1.0)
    assert 100 < len(told) < 2000
    assert all(1 <= len(points) <= MOST_POINTS for points in told)
    steps = [int(step) for points in told for step, _, _ in points]
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (1, 86_400)
    kept = [value for points in told for _, _, value in points]
    assert (min(kept), max(kept)) == (min(values), max(values))


def test_a_flood_costs_no_more_than_a_trickle() -> None:
    told = follow(Series("x"), [float(at) for at in range(1_000_000)], 1e-6, 10_000)
    assert len(told) <= 6
    assert all(len(points) <= MOST_POINTS for points in told)


def test_checkpoints_are_told_at_once_and_come_on_top() -> None:
    series = Series("x", checkpoints=(10, 20, 1000))
    series.add(range(1, 10), [1.0] * 9, 1.0)
    assert series.due > 1.0
    series.add([9.5, 12, 25], [2.0, 3.0, 4.0], 1.1)
    assert series.due <= 1.1
    points = series.tell(1.1)
    assert points is not None
    assert {(12, 3.0), (25, 4.0)} <= {(step, value) for step, _, value in points.points}
    assert series.tell(1.2) is None


def test_what_was_told_before_is_not_told_again() -> None:
    series = Series("x", total=30, checkpoints=(5,), told=10)
    series.add(range(1, 8), [0.0] * 7, 1.0)
    assert series.due > 10
    series.add(range(8, 13), [8.0, 9.0, 10.0, 11.0, 12.0], 2.0)
    points = series.tell(3.0)
    assert points is not None
    assert [(step, value) for step, _, value in points.points] == [(11, 11.0), (12, 12.0)]
    assert points.total == 30
    assert series.told == 12
