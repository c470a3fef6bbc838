"""An emulated executor takes its time, in order, and says of every element how it ended, without a clock of its own."""

from __future__ import annotations

import pickle

import pytest

from bough.model.events.news import WorkFailed, WorkObserved, WorkStarted, WorkSucceeded
from bough.model.ids import BlobId, RecordId, SpanId
from bough.model.monitoring.monitors import Finish, Restart
from bough.model.outcomes import Cause
from bough.model.sites.resources import Needs
from bough.model.tasks import Kind
from bough.testing.emulated_work import NEVER, EmulatedExecutor, Times
from bough.wire.executor_messages import EndElements, FromExecutor, Report, RunSpan, StopElements
from bough.wire.framing import Frames

_frames: Frames[Report] = Frames(FromExecutor)


def a_run(span: int, count: int = 1, kind: Kind = Kind.COMMAND, cores: float = 1, after_span: int = 0) -> RunSpan:
    return RunSpan(
        SpanId(span),
        RecordId(span),
        0,
        count,
        1,
        kind,
        BlobId(b""),
        is_array=count > 1,
        needs=Needs(cores),
        after_span=SpanId(after_span),
    )


def given(*runs: tuple[RunSpan, Times], cores: float = 1) -> EmulatedExecutor:
    made = EmulatedExecutor(cores)
    for run, times in runs:
        made.add(run, times)
    return made


def news(of: EmulatedExecutor) -> list[object]:
    """What it says now."""
    data = of.reports.cut()
    return [] if data is None else list(_frames.feed(data)[0].news)


def told(of: EmulatedExecutor) -> list[tuple[str, int, int, int]]:
    """The same in short: what, span, from, to."""
    return [(type(one).__name__, one.span, one.start, one.stop) for one in news(of)]


def test_a_span_that_takes_no_time_is_one_piece_of_news() -> None:
    executor = given((a_run(1, 1_000_000), 0.0))
    assert executor.advance(5.0) == NEVER
    assert news(executor) == [WorkSucceeded(SpanId(1), 0, 1_000_000, 0.0)]
    assert executor.idle


def test_functions_that_are_not_run_return_none() -> None:
    executor = given((a_run(1, 3, Kind.FUNCTION), 0.0))
    executor.advance(0.0)
    (ended,) = news(executor)
    assert isinstance(ended, WorkSucceeded)
    assert pickle.loads(ended.results) == [None, None, None]


def test_long_tasks_run_one_after_the_other_and_are_said_to_have_started() -> None:
    executor = given((a_run(1, 2), 1.0), (a_run(2), 2.0))
    assert executor.advance(10.0) == 11.0
    assert told(executor) == [("WorkStarted", 1, 0, 1)]
    assert executor.advance(11.0) == 12.0
    assert told(executor) == [("WorkSucceeded", 1, 0, 1), ("WorkStarted", 1, 1, 2)]
    assert executor.advance(12.0) == 14.0
    assert told(executor) == [("WorkSucceeded", 1, 1, 2), ("WorkStarted", 2, 0, 1)]
    assert executor.advance(14.0) == NEVER
    assert news(executor) == [WorkSucceeded(SpanId(2), 0, 1, 2.0)]


def test_ends_of_short_elements_are_reported_together() -> None:
    executor = given((a_run(1, 100), 0.01))
    assert executor.advance(0.0) == pytest.approx(0.05)
    assert told(executor) == []
    assert executor.advance(0.05) == pytest.approx(0.1)
    assert told(executor) == [("WorkSucceeded", 1, 0, 5)]
    assert executor.advance(1.0) == NEVER
    assert told(executor) == [("WorkSucceeded", 1, 5, 100)]


def test_elements_may_take_different_times() -> None:
    executor = given((a_run(1, 3), [0.0, 0.5, 0.25]))
    assert executor.advance(0.0) == 0.5
    assert told(executor) == [("WorkSucceeded", 1, 0, 1), ("WorkStarted", 1, 1, 2)]
    assert executor.advance(0.5) == 0.75
    assert executor.advance(0.75) == NEVER
    assert sum(one.seconds for one in news(executor) if isinstance(one, WorkSucceeded)) == 0.75


def test_as_many_tasks_run_as_there_are_cores() -> None:
    executor = given(*((a_run(span), 1.0) for span in (1, 2, 3)), cores=2)
    executor.advance(0.0)
    assert [one.span for one in news(executor)] == [1, 2]  # type: ignore[attr-defined]
    executor.advance(1.0)
    assert ("WorkStarted", 3, 0, 1) in told(executor)


def test_a_task_that_needs_more_waits_and_nobody_overtakes_it() -> None:
    executor = given((a_run(1), 1.0), (a_run(2, cores=2), 1.0), (a_run(3), 1.0), cores=2)
    executor.advance(0.0)
    assert told(executor) == [("WorkStarted", 1, 0, 1)]
    executor.advance(1.0)
    assert told(executor) == [("WorkSucceeded", 1, 0, 1), ("WorkStarted", 2, 0, 1)]
    assert executor.advance(2.0) == 3.0


def test_what_follows_a_short_task_runs_behind_it() -> None:
    executor = given((a_run(1), 0.0), (a_run(2, after_span=1), 0.0), (a_run(3, after_span=2), 0.0))
    executor.advance(0.0)
    assert told(executor) == [("WorkSucceeded", 1, 0, 1), ("WorkSucceeded", 2, 0, 1), ("WorkSucceeded", 3, 0, 1)]


def test_what_follows_nothing_that_is_here_goes_back() -> None:
    executor = given((a_run(1), 0.0), (a_run(2, after_span=7), 0.0))
    assert told(executor) == [("WorkReturned", 2, 0, 1)]


def test_what_follows_a_long_task_goes_back_when_that_begins() -> None:
    executor = given((a_run(1), 1.0), (a_run(2, after_span=1), 0.0), (a_run(3, after_span=2), 0.0), (a_run(4), 0.0))
    executor.advance(0.0)
    assert told(executor) == [("WorkReturned", 2, 0, 1), ("WorkReturned", 3, 0, 1), ("WorkStarted", 1, 0, 1)]
    assert executor.spans() == [1, 4]


def test_what_is_stopped_is_not_spoken_of_and_what_followed_it_goes_back() -> None:
    executor = given((a_run(1), 1.0), (a_run(2), 0.0), (a_run(3, after_span=2), 0.0))
    executor.advance(0.0)
    news(executor)
    executor.stop(StopElements(SpanId(2), 0, 1), 0.5)
    assert told(executor) == [("WorkReturned", 3, 0, 1)]
    executor.stop(StopElements(SpanId(1), 0, 1), 0.5)
    assert executor.advance(0.5) == NEVER
    assert told(executor) == []
    assert executor.idle


def test_stopping_the_running_element_begins_the_next() -> None:
    executor = given((a_run(1, 3), 1.0))
    executor.advance(0.0)
    news(executor)
    executor.stop(StopElements(SpanId(1), 0, 1), 0.5)
    assert executor.advance(0.5) == 1.5
    assert told(executor) == [("WorkStarted", 1, 1, 2)]


def test_stopping_elements_in_the_middle_leaves_both_sides() -> None:
    executor = given((a_run(1, 4), 1.0))
    executor.advance(0.0)
    executor.stop(StopElements(SpanId(1), 1, 3), 0.5)
    assert executor.advance(1.0) == 2.0
    assert executor.advance(2.0) == NEVER
    assert [(one.start, one.stop) for one in news(executor) if isinstance(one, WorkSucceeded)] == [(0, 1), (3, 4)]


def test_what_is_given_back_is_returned_once() -> None:
    executor = given((a_run(1, 4), 1.0), (a_run(2), 1.0))
    executor.advance(0.0)
    news(executor)
    executor.give_back(running=False)
    assert told(executor) == [("WorkReturned", 2, 0, 1)]
    executor.advance(1.0)
    news(executor)
    executor.give_back(running=True)
    assert told(executor) == [("WorkReturned", 1, 1, 4)]
    assert executor.idle
    executor.add(a_run(3), 0.0)
    executor.advance(9.0)
    assert told(executor) == [("WorkSucceeded", 3, 0, 1)]


def test_every_element_ends_once_whatever_the_times() -> None:
    times = [0.0, 0.001, 0.2, 0.0, 0.03, 0.05, 0.0, 0.0, 0.011, 0.4]
    executor = given((a_run(1, 10), times), (a_run(2, 10), 0.02), cores=2)
    now, ended = 0.0, []
    while (due := executor.advance(now)) != NEVER:
        assert due > now
        now = due
    for one in news(executor):
        assert isinstance(one, WorkSucceeded | WorkStarted)
        if isinstance(one, WorkSucceeded):
            ended += [(one.span, index) for index in range(one.start, one.stop)]
    assert sorted(ended) == [(span, index) for span in (1, 2) for index in range(10)]


def test_what_runs_is_ended_by_a_verdict_and_the_next_begins() -> None:
    executor = given((a_run(1, 3), 1.0))
    executor.advance(0.0)
    news(executor)
    executor.end(EndElements(SpanId(1), 0, 2, Finish(), "m", "enough"), 0.5)
    observed, *rest = news(executor)
    assert isinstance(observed, WorkObserved)
    assert rest == [WorkSucceeded(SpanId(1), 0, 1, 0.5), WorkStarted(SpanId(1), 1, 2)]
    executor.end(EndElements(SpanId(1), 0, 3, Restart(2), "m"), 0.6)
    failed = next(one for one in news(executor) if isinstance(one, WorkFailed))
    assert (failed.index, failed.failure.cause, failed.failure.restarts) == (1, Cause.MONITOR, 2)
    executor.end(EndElements(SpanId(7), 0, 3, Finish(), "m"), 0.7)
    assert news(executor) == []
