"""From hand-out to end: stale answers, partial reports, lost executors, retries and their timers."""

from __future__ import annotations

import pytest

from bough.core.queries.facade import Queries
from bough.core.state import TimerKind
from bough.model.events.facts import (
    ElementFailed,
    ExecutorDrained,
    ExecutorLost,
    RetryDue,
    RunClosed,
    SpanEnded,
    SpanStarted,
    Stopping,
)
from bough.model.events.news import Cancel, WorkFailed, WorkReturned, WorkStarted, WorkSucceeded
from bough.model.ids import ExecutorId
from bough.model.outcomes import Cause, Detail, Failure, Staged
from bough.testing.builders import BOOM, array, executor, group, limits, needs, on_array, task
from tests.unit.core.core_bench import Bench, kinds, on

DIED = Failure(Cause.LOST, "the worker died")


def lost(id_: int = 1) -> ExecutorLost:
    return ExecutorLost(ExecutorId(id_), "gone")


def free(bench: Bench, executor_id: int = 1) -> float:
    return bench.machine.state.executors[executor_id].free("cores")


# --- answers ------------------------------------------------------------------------------------------


def test_an_end_is_completed_by_what_the_core_knows() -> None:
    bench = Bench()
    bench.submit(task(1))
    (fact,) = bench.end(1).facts
    assert isinstance(fact, SpanEnded)
    assert (fact.record, fact.attempt, fact.executor) == (1, 1, 1)


def test_start_and_end_move_a_task_and_free_its_core() -> None:
    bench = Bench(2)
    bench.submit(task(1, needs=needs(2)))
    assert (bench.state(1), free(bench)) == ("placed", 0)
    bench.start(1)
    assert (bench.state(1), free(bench)) == ("running", 0)
    bench.end(1)
    assert (bench.state(1), free(bench)) == ("done", 2)


@pytest.mark.parametrize("news", [WorkSucceeded, WorkStarted, WorkReturned])
def test_an_answer_of_an_unknown_span_is_dropped(news: type) -> None:
    bench = Bench()
    bench.submit(task(1))
    arguments = (99, 0, 1, 1.0) if news is WorkSucceeded else (99, 0, 1)
    assert bench.tell(news(*arguments)).facts == []
    assert bench.tell(WorkFailed(99, 0, BOOM)).facts == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answer",
    [lambda s: WorkSucceeded(s, 0, 1, 1.0), lambda s: WorkFailed(s, 0, BOOM), lambda s: WorkReturned(s, 0, 1)],
)
def test_a_second_answer_is_dropped(answer: object) -> None:
    bench = Bench(1)
    bench.submit(array(1, 1, limits=limits(retries=3, backoff=10)))
    span = bench.span(1)
    bench.tell(answer(span))  # type: ignore[operator]
    before = bench.state(1)
    for stale in (
        WorkSucceeded(span, 0, 1, 1.0),
        WorkFailed(span, 0, BOOM),
        WorkReturned(span, 0, 1),
        WorkStarted(span, 0, 1),
    ):
        assert bench.tell(stale).facts == []
    assert bench.state(1) == before


def test_both_answers_in_one_turn_count_once() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2, 1))
    span = bench.span(1)
    turn = bench.tell(WorkSucceeded(span, 0, 1, 1.0), WorkSucceeded(span, 0, 1, 1.0), WorkFailed(span, 0, BOOM))
    assert kinds(turn) == ["SpanEnded", "Placed"]
    assert free(bench) == 0


def test_an_end_of_elements_that_are_not_in_the_span_is_dropped() -> None:
    bench = Bench(1)
    bench.submit(array(1, 5))
    span = bench.span(1)
    for start, stop in [(0, 2), (1, 2), (3, 3), (0, 0), (4, 9)]:
        assert bench.tell(WorkSucceeded(span, start, stop, 1.0)).facts == []


def long_span(bench: Bench, length: int = 150) -> tuple[int, int, int]:
    """An array a long span of which is out: its number and bounds."""
    bench.submit(array(1, length, limits=limits(retries=1)))
    bench.end(1, 0, seconds=0.001)
    order = bench.sent[1]
    assert order.stop - order.start >= 20
    return order.span, order.start, order.stop


def test_a_span_may_be_reported_part_by_part_in_any_order() -> None:
    bench = Bench(1)
    span, start, stop = long_span(bench)
    bench.tell(WorkSucceeded(span, start + 5, start + 8, 0.003))
    assert bench.states(1)[start + 4 : start + 9] == ["placed", "done", "done", "done", "placed"]
    bench.tell(WorkFailed(span, start + 2, BOOM))
    bench.tell(WorkSucceeded(span, start, start + 2, 0.002))
    assert span in bench.machine.state.spans
    bench.tell(WorkReturned(span, start + 8, stop))
    bench.tell(WorkSucceeded(span, start + 3, start + 5, 0.002))
    assert span not in bench.machine.state.spans
    bench.end_all()
    assert bench.states(1) == ["done"] * 150


def test_of_an_end_that_overlaps_what_was_reported_only_the_rest_counts() -> None:
    bench = Bench(1)
    span, start, _ = long_span(bench)
    bench.tell(WorkSucceeded(span, start, start + 3, 0.003))
    (fact,) = bench.tell(WorkSucceeded(span, start + 2, start + 5, 0.003)).facts
    assert isinstance(fact, SpanEnded)
    assert (fact.start, fact.stop) == (start + 3, start + 5)


def test_a_start_covers_what_is_still_with_the_span() -> None:
    bench = Bench(1)
    span, start, _stop = long_span(bench)
    bench.tell(WorkSucceeded(span, start, start + 3, 0.003))
    turn = bench.tell(WorkStarted(span, start, start + 5))
    assert [(f.start, f.stop) for f in turn.facts if isinstance(f, SpanStarted)] == [(start + 3, start + 5)]
    assert bench.states(1)[start + 3 : start + 6] == ["running", "running", "placed"]
    assert bench.tell(WorkStarted(span, start, start + 5)).facts == []


def test_what_comes_back_unstarted_goes_first_and_loses_nothing() -> None:
    bench = Bench(1)
    bench.submit(array(1, 3), task(2))
    bench.tell(WorkReturned(bench.span(1, 0), 0, 1))
    assert bench.state(1, 0) == "placed"
    assert bench.array(1).failures_of(0) == (0, 0)
    bench.submit(task(3, limits=limits(losses=1)))
    bench.end_all()
    assert bench.machine.counts()["done"] == 5


# --- retries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [task, lambda id_, **f: array(id_, 3, **f)], ids=["task", "array"])
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_task_is_tried_once_and_as_often_again_as_allowed(spec: object, retries: int) -> None:
    bench = Bench(4)
    bench.submit(spec(1, limits=limits(retries=retries)))  # type: ignore[operator]
    for attempt in range(1, retries + 2):
        assert bench.state(1) == "placed"
        assert bench.attempt(1) == attempt
        bench.fail(1)
    assert bench.state(1) == "failed"
    assert bench.failure(1) == BOOM
    assert len([o for o in bench.sent if o.start == 0]) == retries + 1


def test_a_retry_may_succeed_and_frees_its_dependents() -> None:
    bench = Bench()
    bench.submit(task(1, limits=limits(retries=1)), task(2, 1))
    bench.fail(1)
    assert bench.state(2) == "waiting"
    bench.end(1)
    assert bench.states(1, 2) == ["done", "placed"]


def test_the_wait_before_a_retry_doubles() -> None:
    bench = Bench()
    bench.submit(task(1, limits=limits(retries=3, backoff=10)))
    for wait in (10, 20, 40):
        turn = bench.fail(1)
        assert turn.next_timer == bench.now + wait
        assert bench.state(1) == "waiting"
        assert bench.wait(wait - 0.5).facts == []
        assert bench.state(1) == "waiting"
        assert kinds(bench.wait(0.5)) == ["RetryDue", "Placed"]
    assert bench.fail(1).next_timer is None
    assert bench.state(1) == "failed"


def test_a_waiting_retry_occupies_nothing() -> None:
    bench = Bench(1)
    bench.submit(task(1, limits=limits(retries=1, backoff=10)), task(2))
    bench.fail(1)
    assert bench.state(2) == "placed"


def test_the_earliest_timer_wakes() -> None:
    bench = Bench(4)
    bench.submit(task(1, limits=limits(retries=1, backoff=20)), array(2, 2, limits=limits(retries=1, backoff=5)))
    bench.fail(1)
    bench.fail(2, 1)
    turn = bench.fail(2, 0)
    assert turn.next_timer == 5
    turn = bench.wait(5)
    assert [f for f in turn.facts if isinstance(f, RetryDue)] == [RetryDue(2, 0), RetryDue(2, 1)]  # type: ignore[arg-type]
    assert turn.next_timer == 20
    assert bench.attempt(2, 1) == 2


def test_the_timer_of_something_cancelled_is_ignored() -> None:
    bench = Bench()
    bench.submit(task(1, limits=limits(retries=1, backoff=5)))
    bench.fail(1)
    bench.tell(Cancel(on(1)))
    assert bench.wait(10).facts == []
    assert bench.state(1) == "cancelled"


def test_timers_that_are_over_do_not_come_back_with_a_replay() -> None:
    bench = Bench()
    bench.submit(task(1, limits=limits(retries=2, backoff=10)))
    bench.fail(1)
    bench.wait(10)
    bench.fail(1)
    assert bench.machine.state.timers == [(30.0, TimerKind.RETRY, 1, 0)]
    assert bench.twin.state.timers == bench.machine.state.timers
    turn = bench.twin.turn(bench.now, [])
    assert turn.facts == []
    assert turn.next_timer == 30


@pytest.mark.parametrize("cause", [Cause.KILLED, Cause.CANCELLED])
def test_what_somebody_ended_is_not_retried(cause: Cause) -> None:
    bench = Bench()
    bench.submit(task(1, limits=limits(retries=3)))
    bench.fail(1, failure=Failure(cause, "ended"))
    assert bench.state(1) == "failed"


def test_elements_of_an_array_are_retried_one_by_one() -> None:
    bench = Bench(1)
    bench.submit(array(1, 3, limits=limits(retries=1)))
    bench.fail(1, 0)
    bench.end(1, 1)
    bench.end(1, 2)
    assert bench.state(1, 0) == "placed"
    assert bench.attempt(1, 0) == 2
    bench.end(1, 0)
    assert bench.states(1) == ["done"] * 3
    success = bench.array(1).success_of(0)
    assert success is not None
    assert success.attempt == 2


# --- losses -------------------------------------------------------------------------------------------


def test_a_lost_executor_costs_what_ran_there_an_attempt() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2))
    bench.start(1)
    turn = bench.tell(lost())
    assert kinds(turn) == ["ElementFailed", "ExecutorLost", "Freed"]
    assert bench.states(1, 2) == ["ready", "ready"]
    assert bench.task(1).failures_of(0) == (0, 1)
    assert bench.failure(1).message == "the executor on host1 was lost: gone"
    bench.tell(executor(2, 1))
    assert bench.state(1) == "placed"
    assert bench.attempt(1) == 2


def test_losses_are_not_counted_as_failures() -> None:
    bench = Bench(1)
    bench.submit(task(1, limits=limits(retries=0)))
    bench.fail(1, failure=DIED)
    assert bench.state(1) == "placed"
    bench.fail(1)
    assert bench.state(1) == "failed"


def test_the_first_element_of_a_span_counts_as_running_and_the_rest_is_given_back_first() -> None:
    bench = Bench(1)
    _, start, _ = long_span(bench, 150)
    bench.submit(task(2))
    turn = bench.tell(lost())
    assert [f.index for f in turn.facts if isinstance(f, ElementFailed)] == [start]
    assert bench.array(1).failures_of(start) == (0, 1)
    assert bench.array(1).failures_of(start + 1) == (0, 0)
    assert bench.machine.counts()["ready"] == 150 - 1 + 1
    bench.tell(executor(2, 1))
    new = [order for order in bench.sent if order.executor == 2]
    assert new[0].spec.id == 1
    assert new[0].attempt == 2
    assert max(order.stop - order.start for order in new) > 10, "what is given back goes out in spans as before"
    bench.end_all()
    assert bench.states(1) == ["done"] * 150
    assert bench.state(2) == "done"


def test_elements_given_back_by_a_loss_have_a_new_attempt() -> None:
    bench = Bench(1)
    _, start, stop = long_span(bench)
    bench.tell(lost(), executor(2, 1))
    bench.end_all()
    successes = [bench.array(1).success_of(index) for index in (start, start + 1, stop - 1)]
    assert [s.attempt for s in successes if s] == [2, 2, 2]


def test_what_only_waited_on_a_lost_executor_loses_no_attempt() -> None:
    bench = Bench(1)
    bench.submit(task(1, template="x"))
    bench.end(1, seconds=0.001)
    bench.submit(*(task(id_, template="x") for id_ in range(2, 9)))
    spans = bench.machine.state.spans
    assert [span.queued for span in spans.values()] == [False] + [True] * 6
    turn = bench.tell(lost())
    assert [f.record for f in turn.facts if isinstance(f, ElementFailed)] == [2]
    assert [bench.task(id_).failures_of(0) for id_ in range(2, 9)] == [(0, 1)] + [(0, 0)] * 6


def test_after_too_many_losses_a_task_is_called_poisonous() -> None:
    bench = Bench(1)
    bench.submit(task(1, limits=limits(losses=3, retries=9)), task(2, 1))
    for id_ in (1, 2):
        bench.tell(lost(id_), executor(id_ + 1, 1))
        assert bench.state(1) == "placed"
    bench.tell(lost(3))
    assert bench.states(1, 2) == ["failed", "skipped"]
    assert bench.failure(1).cause is Cause.LOST
    assert bench.failure(1).message.startswith("3 executors or workers died while running it: the executor on host3")


def test_losses_of_workers_and_of_executors_count_together() -> None:
    bench = Bench(1)
    bench.submit(array(1, 1, limits=limits(losses=2)))
    bench.fail(1, 0, DIED)
    bench.tell(lost())
    assert bench.state(1, 0) == "failed"


def test_fail_fast_stops_at_a_poisonous_task() -> None:
    bench = Bench(1, fail_fast=True)
    bench.submit(task(1, limits=limits(losses=1)), task(2))
    bench.tell(lost())
    assert bench.states(1, 2) == ["failed", "skipped"]


def test_an_executor_that_is_lost_twice_or_unknown_is_no_news() -> None:
    bench = Bench(1)
    bench.tell(lost())
    assert bench.tell(lost()).facts == []
    assert bench.tell(lost(7), ExecutorDrained(ExecutorId(7))).facts == []


def test_an_executor_that_joins_twice_is_no_news() -> None:
    bench = Bench(1)
    assert bench.tell(executor(1, 64)).facts == []
    assert bench.machine.state.cores == 1


@pytest.mark.parametrize("retried", [False, True])
def test_a_late_success_of_a_lost_executor_counts_while_nobody_else_has_brought_one(retried: bool) -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2, 1))
    span = bench.span(1)
    bench.tell(lost(), *([executor(2, 1)] if retried else []))
    assert bench.state(1) == ("placed" if retried else "ready")
    (fact, *_) = bench.tell(WorkSucceeded(span, 0, 1, 1.0)).facts
    assert isinstance(fact, SpanEnded)
    assert (fact.attempt, fact.executor) == (1, 1)
    assert bench.state(1) == "done"
    assert len(bench.stops) == retried, "the other attempt is ended"
    bench.tell(executor(3, 1))
    bench.end_all()
    assert bench.machine.is_idle


def test_an_array_element_a_lost_executor_still_brings_is_not_asked_of_another() -> None:
    bench = Bench(1)
    bench.submit(array(1, 3))
    span = bench.span(1)
    bench.tell(lost())
    bench.tell(WorkSucceeded(span, 0, 1, 1.0))
    assert bench.states(1) == ["done", "ready", "ready"]
    bench.tell(executor(2, 3))
    bench.end_all()
    assert bench.states(1) == ["done"] * 3


def test_the_first_good_result_wins_and_the_attempt_on_a_lost_executor_is_ended() -> None:
    bench = Bench(1)
    bench.submit(task(1))
    span = bench.span(1)
    bench.tell(lost(), executor(2, 1))
    bench.end(1)
    assert [(stop.executor, stop.span) for stop in bench.stops] == [(1, span)]
    assert bench.tell(WorkSucceeded(span, 0, 1, 1.0)).facts == []
    assert bench.task(1).attempt == 2


def test_a_late_failure_of_a_lost_executor_is_dropped() -> None:
    bench = Bench(1)
    bench.submit(task(1))
    span = bench.span(1)
    bench.tell(lost(), executor(2, 1))
    assert bench.tell(WorkFailed(span, 0, BOOM)).facts == []


def test_what_was_cancelled_meanwhile_is_ended_on_a_lost_executor_that_returns() -> None:
    bench = Bench(1)
    bench.submit(task(1))
    span = bench.span(1)
    bench.tell(lost())
    bench.tell(Cancel(on(1)))
    assert [(stop.executor, stop.span) for stop in bench.stops] == [(1, span)]
    assert bench.tell(WorkSucceeded(span, 0, 1, 1.0)).facts == []
    assert not Queries(bench.machine).is_wanted(span, 1)


def test_one_that_drains_gets_nothing_new_and_ends_what_it_has() -> None:
    bench = Bench(2)
    bench.submit(task(1))
    bench.tell(ExecutorDrained(ExecutorId(1)))
    bench.submit(task(2))
    assert bench.state(2) == "ready"
    bench.end(1)
    assert bench.states(1, 2) == ["done", "ready"]
    bench.tell(executor(2, 1))
    assert bench.state(2) == "placed"


# --- backlog ------------------------------------------------------------------------------------------


def test_short_tasks_wait_on_the_executor_behind_others() -> None:
    bench = Bench(1)
    bench.submit(task(1, template="x"))
    bench.end(1, seconds=0.02)
    bench.submit(*(task(id_, template="x") for id_ in range(2, 16)))
    assert bench.states(*range(2, 16)) == ["placed"] * 10 + ["ready"] * 4, "0.2 s of work for each core"
    assert [span.queued for span in bench.machine.state.spans.values()] == [False] + [True] * 9
    bench.end(2, seconds=0.02)
    assert [span.queued for span in bench.machine.state.spans.values()] == [True] * 10
    bench.end_all()
    assert bench.machine.is_idle


def test_short_tasks_that_wait_long_for_their_inputs_wait_in_the_queue() -> None:
    bench = Bench(1)
    bench.submit(task(1, template="x"))
    far = Detail(0, staged=Staged(stage_in=2.0, from_origin=3_000_000))
    bench.tell(WorkSucceeded(bench.span(1), 0, 1, 0.02, details=(far,)))
    bench.submit(*(task(id_, template="x") for id_ in range(2, 16)))
    assert bench.states(*range(2, 16)) == ["placed"] + ["ready"] * 13, "their inputs would travel to one place"
    bench.restart()
    bench.end(2, seconds=0.02)
    assert bench.states(*range(3, 16)) == ["placed"] + ["ready"] * 12
    for id_ in range(3, 10):
        bench.end(id_, seconds=0.02)  # their inputs were there
    assert bench.states(*range(10, 16)).count("placed") > 1


# --- the end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("news", [Stopping(), RunClosed(1)])
def test_when_the_session_closes_nothing_new_is_placed(news: Stopping | RunClosed) -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2))
    bench.tell(news)
    bench.end(1)
    assert bench.states(1, 2) == ["done", "ready"]


def test_what_is_submitted_while_the_session_closes_is_not_run() -> None:
    bench = Bench(1)
    bench.tell(Stopping())
    bench.submit(group(1, "g"), task(1), array(2, 3, group=1), task(3, on_array(2)))
    assert bench.states(1, 2, 3) == ["skipped"] * 3
    assert bench.failure(1).cause is Cause.CLOSED
    assert bench.machine.is_idle


def test_a_turn_without_news_is_no_turn() -> None:
    bench = Bench()
    number = bench.machine.state.turn
    turn = bench.tell()
    assert (turn.number, turn.facts, turn.orders, turn.next_timer) == (number, [], [], None)


def test_turns_are_numbered_without_gaps() -> None:
    bench = Bench()
    bench.tell()
    first = bench.submit(task(1)).number
    bench.tell(WorkSucceeded(99, 0, 1, 1.0))  # type: ignore[arg-type]
    assert bench.end(1).number == first + 1


def test_tasks_that_fail_at_once_are_bundled_like_those_that_succeed() -> None:
    bench = Bench(1)
    bench.submit(array(1, 1000))
    detail = Detail(0, exit_code=1, started=10.0, ended=10.001)
    bench.tell(WorkFailed(bench.span(1), 0, BOOM, detail))
    assert bench.sent[-1].stop - bench.sent[-1].start > 10
