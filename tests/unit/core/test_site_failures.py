"""Places that fail, are slow to answer, or leave soon: where a task goes, and what it costs it."""

from __future__ import annotations

import pytest

from bough.model.events import facts
from bough.model.ids import ExecutorId
from bough.model.outcomes import Cause, Failure
from bough.testing.builders import array, executor, limits, needs, task
from tests.unit.core.core_bench import BOOM, Bench

FULL = Failure(Cause.NOT_STARTED, "no space left", site=True)
TOO_SMALL = Failure(Cause.NO_SPACE, "it needs more than the 8 MB of /x", site=True)
DIED = Failure(Cause.LOST, "the worker died")


def host_of(bench: Bench, record: int, index: int = 0) -> int:
    return bench.machine.state.spans[bench.span(record, index)].executor.id


def two_places(cores: float = 1) -> Bench:
    bench = Bench(cores)
    bench.tell(executor(2, cores))
    return bench


@pytest.mark.parametrize("kind", ["task", "array"])
def test_a_failure_of_the_place_goes_elsewhere_and_costs_no_retry(kind: str) -> None:
    bench = two_places()
    bench.submit(task(1) if kind == "task" else array(1, 1))
    bench.fail(1, 0, FULL)
    assert host_of(bench, 1) == 2
    assert bench.record(1).failures_of(0) == (0, 0)
    assert bench.attempt(1) == 2
    bench.end(1)
    assert bench.state(1) == "done"


def test_where_it_failed_everywhere_it_is_the_task_that_failed() -> None:
    bench = two_places()
    bench.submit(task(1))
    bench.fail(1, 0, FULL)
    bench.fail(1, 0, FULL)
    assert bench.state(1) == "failed"
    assert not bench.failure(1).site


def test_alone_a_place_is_not_blamed() -> None:
    bench = Bench(1)
    bench.submit(task(1, limits=limits(retries=1)))
    bench.fail(1, 0, FULL)
    assert bench.record(1).failures_of(0) == (1, 0)
    bench.fail(1, 0, FULL)
    assert bench.state(1) == "failed"


def test_one_that_waits_for_another_place_does_not_keep_others_from_this_one() -> None:
    bench = two_places()
    bench.submit(task(1), task(2))
    bench.fail(1, 0, FULL)
    assert bench.state(1) == "ready", "the other place is busy"
    bench.submit(task(3))
    assert host_of(bench, 3) == 1
    bench.end(2)
    assert host_of(bench, 1) == 2


def test_when_the_other_place_leaves_it_may_come_back() -> None:
    bench = two_places()
    bench.submit(task(1), task(2))
    bench.fail(1, 0, FULL)
    bench.tell(facts.ExecutorLost(ExecutorId(2), "gone"))
    bench.end_all()
    assert bench.states(1, 2) == ["done", "done"]


def test_a_place_where_much_fails_that_works_elsewhere_is_suspended_and_comes_back() -> None:
    bench = two_places()
    for id_ in range(1, 6):
        bench.submit(task(id_))
        if host_of(bench, id_) == 2:  # the one that waited longest is taken first: keep it busy
            bench.submit(task(100 + id_))
            bench.end(id_)
            bench.submit(task(200 + id_))
        else:
            bench.fail(id_, 0, FULL)
            bench.end(id_)
    while not bench.machine.state.executors[1].suspended:
        bench.end_all()
        bench.submit(task(bench.machine.state.last_span + 1000))
        (span,) = bench.machine.state.spans.values()
        if span.executor.id == 1:
            bench.fail(span.record.id, 0, FULL)
    assert bench.machine.state.executors[1].suspended > 0
    bench.end_all()
    bench.submit(task(5000), task(5001))
    assert bench.state(5001) == "ready", "one place rests, the other is busy"
    bench.wait(61)
    assert host_of(bench, 5001) == 1


def test_failures_that_are_the_tasks_own_suspend_nobody() -> None:
    bench = two_places()
    for id_ in range(1, 20):
        bench.submit(task(id_))
        bench.fail(id_, 0, BOOM)
    assert not any(place.suspended for place in bench.machine.state.executors.values())


def test_without_a_word_for_too_long_a_task_is_sent_again_and_the_silent_one_ended() -> None:
    bench = two_places()
    bench.submit(task(1, limits=limits(resend_after=30.0)))
    first = bench.span(1)
    bench.wait(31)
    assert [stop.span for stop in bench.stops] == [first]
    assert (host_of(bench, 1), bench.attempt(1)) == (2, 2)
    assert bench.record(1).failures_of(0) == (0, 1)


def test_a_sign_of_life_puts_it_off() -> None:
    bench = two_places()
    bench.submit(task(1, limits=limits(resend_after=30.0)))
    bench.wait(20)
    bench.start(1)
    bench.wait(20)
    assert bench.attempt(1) == 1
    bench.wait(11)
    assert bench.attempt(1) == 2


def test_sent_again_too_often_it_is_given_up() -> None:
    bench = two_places()
    bench.submit(task(1, limits=limits(resend_after=30.0, losses=2)))
    bench.wait(31)
    bench.wait(31)
    assert bench.state(1) == "failed"
    assert "no word of it" in bench.failure(1).message


def test_what_a_silent_span_has_not_begun_goes_back_without_a_loss() -> None:
    bench = Bench(1)
    bench.submit(array(1, 101, template="x", limits=limits(resend_after=5.0)))
    bench.end(1, 0, seconds=0.001)
    assert bench.machine.state.spans[bench.span(1, 1)].stop > 10
    bench.wait(6)
    assert [bench.record(1).failures_of(index) for index in (1, 2, 3)] == [(0, 1), (0, 0), (0, 0)]


def test_nothing_goes_to_a_place_that_leaves_before_it_would_end() -> None:
    bench = Bench(0)
    bench.tell(executor(1, 1, until=100.0))
    bench.submit(task(1, limits=limits(walltime=200.0)), task(2, limits=limits(walltime=50.0)))
    assert bench.states(1, 2) == ["ready", "placed"]
    bench.tell(executor(2, 1))
    assert host_of(bench, 1) == 2


def test_a_worker_that_dies_is_first_tried_elsewhere() -> None:
    bench = two_places()
    bench.submit(task(1))
    bench.fail(1, 0, DIED)
    assert host_of(bench, 1) == 2


def test_big_tasks_that_could_go_nowhere_else_stay_where_they_failed() -> None:
    bench = Bench(4)
    bench.tell(executor(2, 1))
    bench.submit(task(1, needs=needs(4)))
    bench.fail(1, 0, DIED)
    assert host_of(bench, 1) == 1


def test_a_place_whose_disk_is_too_small_is_left_for_good_and_does_not_rest() -> None:
    bench = two_places()
    bench.submit(task(1), task(2))
    bench.fail(1, 0, TOO_SMALL)
    assert not bench.machine.state.executors[1].suspended
    bench.wait(60)
    assert bench.state(1) == "ready", "the other place is busy"
    lines = bench.machine.explain(1)
    assert "the executor is busy" in lines[0], "the one with the small disk is idle, and does not count"
    assert any("for want of space: it needs more than the 8 MB of /x" in line for line in lines)
    bench.end(2)
    assert host_of(bench, 1) == 2
    bench.end(1)
    assert bench.record(1).failures_of(0) == (0, 0)


def test_where_every_disk_is_too_small_it_fails_and_no_retry_is_spent_on_that() -> None:
    bench = two_places()
    bench.submit(task(1, limits=limits(retries=5)))
    bench.fail(1, 0, TOO_SMALL)
    bench.fail(1, 0, TOO_SMALL)
    assert bench.state(1) == "failed"
    assert bench.failure(1).message == TOO_SMALL.message
