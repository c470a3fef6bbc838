"""Numbers that tasks report of themselves: they are told soon, few of them, and before the end of the task."""

from __future__ import annotations

import pytest

from bough.executor import task_reports
from bough.executor.reports import Reports
from bough.executor.task_reports import TaskReports
from bough.model.events.news import CallsEnded, WorkFailed, WorkObserved, WorkSucceeded
from bough.model.ids import SpanId
from bough.model.monitoring.monitors import MOST_REPORTED_LINES
from bough.model.monitoring.observations import Points
from bough.model.outcomes import Cause, Failure
from bough.wire.framing import News
from bough.wire.here_questions import MOST_REPORTED, Report


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now


class Kept(Reports):
    @property
    def all(self) -> list[News]:
        return self._news


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(task_reports, "time", clock)
    return clock


def values(kept: Kept, name: str = "score") -> list[tuple[float, float]]:
    points = [
        point
        for news in kept.all
        if isinstance(news, WorkObserved)
        for one in news.observations
        if isinstance(one, Points) and one.metric == name
        for point in one.points
    ]
    return [(step, value) for step, _, value in points]


SPAN = SpanId(7)


def test_the_first_report_is_told_at_once_and_the_next_ones_soon(clock: Clock) -> None:
    kept = Kept()
    reports = TaskReports(kept)
    reports.take(SPAN, 0, Report({"score": 1.0}))
    assert values(kept) == [(1.0, 1.0)]
    reports.take(SPAN, 0, Report({"score": 2.0}))
    reports.take(SPAN, 0, Report({"score": 3.0}))
    reports.tick()
    assert values(kept) == [(1.0, 1.0)]
    clock.now += 0.25
    reports.tick()
    assert values(kept) == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]
    reports.tick()
    assert len(kept.all) == 2


def test_steps_and_totals_are_those_that_were_said(clock: Clock) -> None:
    kept = Kept()
    TaskReports(kept).take(SPAN, 3, Report({"score": 1.0, "loss": 2.0}, step=40.0, total=300))
    [news] = kept.all
    assert isinstance(news, WorkObserved)
    assert (news.span, news.index) == (7, 3)
    assert [(one.metric, one.total) for one in news.observations if isinstance(one, Points)] == [
        ("score", 300),
        ("loss", 300),
    ]
    assert values(kept, "loss") == [(40.0, 2.0)]


def test_a_flood_is_thinned_and_its_last_value_comes_before_the_end(clock: Clock) -> None:
    kept = Kept()
    reports = TaskReports(kept)
    for number in range(100_000):
        clock.now += 0.001
        reports.take(SPAN, 0, Report({"score": float(number)}))
    told = len(kept.all)
    assert told < 600
    assert len(values(kept)) < 10 * told
    reports.take(SPAN, 0, Report({"score": -5.0}))
    kept.add(WorkSucceeded(SPAN, 0, 1, 1.0))
    assert isinstance(kept.all[-1], WorkSucceeded)
    assert values(kept)[-1] == (100_001.0, -5.0)
    assert kept.before_end is None  # whoever reports nothing pays nothing


@pytest.mark.parametrize(
    ("end", "is_told"),
    [
        (WorkFailed(SPAN, 1, Failure(Cause.EXIT)), True),
        (WorkFailed(SPAN, 2, Failure(Cause.EXIT)), False),
        (WorkFailed(SpanId(8), 1, Failure(Cause.EXIT)), False),
        (WorkSucceeded(SPAN, 0, 5, 1.0), True),
        (WorkSucceeded(SPAN, 2, 5, 1.0), False),
        (CallsEnded(SpanId(5), 1, [1.0, 1.0], [b"", b""]), True),
        (CallsEnded(SpanId(5), 0, [1.0, 1.0], [b"", b""]), False),
    ],
)
def test_only_the_tasks_that_end_are_told_early(clock: Clock, end: News, is_told: bool) -> None:
    kept = Kept()
    reports = TaskReports(kept)
    reports.take(SPAN, 1, Report({"score": 1.0}))
    reports.take(SPAN, 1, Report({"score": 2.0}))
    kept.add(end)
    assert values(kept)[1:] == ([(2.0, 2.0)] if is_told else [])
    assert kept.all[-1] is end


def test_the_last_reports_are_kept_as_lines_which_somebody_may_hear(clock: Clock) -> None:
    kept = Kept()
    reports = TaskReports(kept)
    heard: list[tuple[SpanId, int, bytes]] = []
    reports.take(SPAN, 1, Report({"score": 1.0}))
    reports.hear = lambda span, index, lines: heard.append((span, index, lines))
    reports.take(SPAN, 1, Report({"score": -2.5, "a\nb": 1e300}, step=3.0))
    assert heard == [(SPAN, 1, b"step=3.0\nscore=-2.5\na?b=1e+300\n")]
    assert reports.lines(SPAN, 1) == (b"score=1.0\n" + heard[0][2], 0)
    assert reports.lines(SPAN, 0) == (b"", 0)
    kept.add(WorkSucceeded(SPAN, 1, 2, 1.0))
    assert reports.lines(SPAN, 1) == (b"", 0)


def test_the_kept_lines_are_bounded_and_whole(clock: Clock) -> None:
    reports = TaskReports(Kept())
    count = 40_000
    for number in range(count):
        reports.take(SPAN, 0, Report({"score": float(number)}))
    lines, skipped = reports.lines(SPAN, 0)
    assert len(lines) <= MOST_REPORTED_LINES
    assert lines == b"".join([b"score=%r\n" % float(number) for number in range(skipped, count)])


def test_a_task_cannot_report_ever_new_metrics(clock: Clock) -> None:
    kept = Kept()
    reports = TaskReports(kept)
    for number in range(MOST_REPORTED):
        assert not reports.take(SPAN, 0, Report({f"m{number}": 1.0}))
    assert "at most" in reports.take(SPAN, 0, Report({"more": 1.0}))
    assert not reports.take(SPAN, 0, Report({"m0": 2.0}))
