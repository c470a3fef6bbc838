"""A simulated executor by itself: it never occupies more than it has, and reports as a real one does."""

from __future__ import annotations

from bough.model.events.news import WorkFailed, WorkReturned, WorkSucceeded
from bough.model.events.orders import SendSpan, StopSpan
from bough.model.ids import ExecutorId, SpanId
from bough.model.tasks import ArraySpec, TaskSpec
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate, Model, SimulatedExecutor
from bough.testing.builders import BOOM, array, needs, task

ONE = ExecutorId(1)


def send(span: int, spec: TaskSpec | ArraySpec, start: int = 0, stop: int = 1) -> SendSpan:
    return SendSpan(ONE, SpanId(span), spec, start, stop, 1)


def lasts(seconds: float, *bad: int) -> Model:
    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        return Fate(seconds, BOOM if index in bad else None)

    return model


def test_it_says_who_it_is() -> None:
    hello = SimulatedExecutor(3, needs(4)).hello()
    assert (hello.executor, hello.host, hello.capacity) == (3, "sim3", needs(4))


def test_what_does_not_fit_waits_until_something_ends() -> None:
    room, model = SimulatedExecutor(1, needs(2)), lasts(1.0)
    (first,) = room.take(send(1, task(1, needs=needs(2))), model)
    assert room.take(send(2, task(2)), model) == []
    news, started = room.finish(first, model)
    assert news == [WorkSucceeded(SpanId(1), 0, 1, 1.0)]
    assert [end.order.span for end in started] == [2]
    assert room.busy == 2.0


def test_the_elements_of_a_span_run_one_after_the_other() -> None:
    room = SimulatedExecutor(1, needs(4), speed=2.0)
    (end,) = room.take(send(1, array(1, 10), 2, 8), lasts(1.0))
    assert end.seconds == 3.0


def test_failures_are_reported_one_by_one_and_successes_in_ranges() -> None:
    room, model = SimulatedExecutor(1, needs(1)), lasts(1.0, 0, 4, 5)
    (end,) = room.take(send(1, array(1, 8), 0, 8), model)
    news, _ = room.finish(end, model)
    assert [(type(n), getattr(n, "start", None), getattr(n, "stop", getattr(n, "index", None))) for n in news] == [
        (WorkFailed, None, 0),
        (WorkSucceeded, 1, 4),
        (WorkFailed, None, 4),
        (WorkFailed, None, 5),
        (WorkSucceeded, 6, 8),
    ]


def test_what_was_stopped_is_not_reported() -> None:
    room, model = SimulatedExecutor(1, needs(1)), lasts(1.0, 3)
    (end,) = room.take(send(1, array(1, 6), 0, 6), model)
    room.stop(StopSpan(ONE, SpanId(1), 2, 4), model)
    news, _ = room.finish(end, model)
    assert [(n.start, n.stop) for n in news if isinstance(n, WorkSucceeded)] == [(0, 2), (4, 6)]
    assert len(news) == 2


def one_by_one(*bad: int, alone: tuple[int, ...] = (0, 1, 2, 3)) -> Model:
    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        return Fate(1.0 + index, BOOM if index in bad else None, index in alone)

    return model


def test_elements_are_reported_when_they_end_where_the_model_says_so() -> None:
    room, model = SimulatedExecutor(1, needs(1), speed=2.0), one_by_one(1)
    ends = room.take(send(1, array(1, 4), 0, 4), model)
    assert [(end.start, end.stop, end.after, end.is_last) for end in ends] == [
        (0, 1, 0.5, False),
        (1, 2, 1.5, False),
        (2, 3, 3.0, False),
        (3, 4, 5.0, True),
    ]
    assert room.take(send(2, task(2)), model) == []  # the span still occupies its core
    told = [room.finish(end, model) for end in ends]
    assert [news for news, _ in told] == [
        [WorkSucceeded(SpanId(1), 0, 1, 0.5)],
        [WorkFailed(SpanId(1), 1, BOOM)],
        [WorkSucceeded(SpanId(1), 2, 3, 1.5)],
        [WorkSucceeded(SpanId(1), 3, 4, 2.0)],
    ]
    assert [len(started) for _, started in told] == [0, 0, 0, 1]
    assert room.busy == 5.0


def test_what_is_not_reported_at_once_comes_with_the_next_that_is() -> None:
    room, model = SimulatedExecutor(1, needs(1)), one_by_one(alone=(1,))
    first, second = room.take(send(1, array(1, 4), 0, 4), model)
    room.stop(StopSpan(ONE, SpanId(1), 2, 3), model)
    assert room.finish(first, model)[0] == [WorkSucceeded(SpanId(1), 0, 2, 3.0)]
    assert room.finish(second, model)[0] == [WorkSucceeded(SpanId(1), 3, 4, 3.5)]


def test_what_was_to_follow_goes_back_when_an_element_before_the_last_failed() -> None:
    room, model = SimulatedExecutor(1, needs(2)), one_by_one(0)
    first, second = room.take(send(1, array(1, 2), 0, 2), model)
    assert room.take(SendSpan(ONE, SpanId(2), task(2), 0, 1, 1, behind=SpanId(1)), model) == []
    room.finish(first, model)
    assert room.finish(second, model)[0] == [WorkSucceeded(SpanId(1), 1, 2, 2.0), WorkReturned(SpanId(2), 0, 1)]
