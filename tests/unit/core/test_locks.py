"""Named locks of running tasks, early release by a task, and signs of life."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bough.model.events import facts, news
from bough.model.tasks import Dep, On
from bough.testing.builders import array, executor, group, limits, on_group, task
from tests.unit.core.core_bench import Bench


def take(bench: Bench, name: str, record: int, index: int = 0) -> bool:
    """Whether the task has the lock now."""
    span = bench.span(record, index)
    bench.tell(news.TakeLock(name, span, index))
    owner = bench.machine.state.locks.get(name)
    return owner is not None and (owner.span, owner.index) == (span, index)


def test_a_lock_has_one_owner() -> None:
    bench = Bench(2)
    bench.submit(task(1), task(2))
    assert take(bench, "a", 1)
    assert not take(bench, "a", 2)
    assert take(bench, "b", 2)
    bench.tell(news.FreeLock("a", bench.span(2), 0))  # it is not its own
    assert set(bench.machine.state.locks) == {"a", "b"}
    bench.tell(news.FreeLock("a", bench.span(1), 0))
    assert take(bench, "a", 2)


@pytest.mark.parametrize(
    "end",
    [
        lambda bench: bench.end(1),
        lambda bench: bench.fail(1),
        lambda bench: bench.tell(news.WorkReturned(bench.span(1), 0, 1)),
        lambda bench: bench.tell(news.Cancel(Dep(On.TASK, 1))),
        lambda bench: bench.tell(news.Kill(Dep(On.TASK, 1))),
        lambda bench: bench.tell(facts.ExecutorLost(1, "gone")),
    ],
    ids=["ended", "failed", "returned", "cancelled", "killed", "lost"],
)
def test_a_lock_is_freed_with_its_owner(end: Callable[[Bench], object]) -> None:
    bench = Bench(1)
    bench.submit(task(1))
    bench.start(1)
    assert take(bench, "a", 1)
    end(bench)
    assert not set(bench.machine.state.locks)
    assert bench.machine.state.locks.by_span == {}


def test_elements_of_one_span_own_their_locks_one_by_one() -> None:
    bench = Bench(1)
    bench.submit(array(1, 100))
    bench.end(1, 0, seconds=0.001)
    first = next(span.left[0][0] for span in bench.machine.state.spans.values() if span.stop - span.start > 1)
    assert bench.span(1, first) == bench.span(1, first + 1)
    assert take(bench, "a", 1, first)
    assert take(bench, "b", 1, first + 1)
    bench.end(1, first, seconds=0.001)
    assert set(bench.machine.state.locks) == {"b"}


def test_who_has_ended_gets_no_lock() -> None:
    bench = Bench(1)
    bench.submit(task(1))
    span = bench.span(1)
    bench.end(1)
    assert bench.tell(news.TakeLock("a", span, 0)).facts == []


def test_locks_outlive_a_restart() -> None:
    bench = Bench(1)
    bench.submit(task(1))
    take(bench, "a", 1)
    bench.restart()
    assert set(bench.machine.state.locks) == {"a"}
    bench.end(1)
    assert not set(bench.machine.state.locks)


def test_a_group_that_a_task_releases_lets_others_start() -> None:
    bench = Bench(2)
    bench.submit(group(1, "g"), task(1, group=1), task(2, on_group(1)))
    assert bench.state(2) == "waiting"
    bench.tell(facts.GroupReleased(1))
    assert bench.state(2) == "placed"
    assert bench.tell(facts.GroupReleased(1)).facts == []
    assert bench.tell(facts.GroupReleased(0), facts.GroupReleased(99)).facts == []


def test_a_sign_of_life_puts_off_that_a_task_is_sent_again() -> None:
    bench = Bench(1)
    bench.tell(executor(2, 1))
    bench.submit(task(1, limits=limits(resend_after=10.0)))
    for _ in range(5):
        bench.wait(8.0)
        bench.tell(news.TaskAlive(bench.span(1)))
    assert bench.task(1).attempt == 1
    assert bench.tell(news.TaskAlive(bench.span(1))).facts == []  # it has just been heard of
    bench.wait(11.0)
    assert bench.task(1).attempt == 2


def test_a_sign_of_life_that_nobody_waits_for_is_not_written() -> None:
    bench = Bench(1)
    bench.submit(task(1))
    bench.wait(100.0)
    assert bench.tell(news.TaskAlive(bench.span(1))).facts == []
