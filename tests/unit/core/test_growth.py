"""Attempts that ask for more after a memory or time limit ended the one before."""

from __future__ import annotations

from core_bench import Bench

from bough.model.events import news
from bough.model.events.orders import SendSpan
from bough.model.outcomes import Cause, Detail, Failure
from bough.model.tasks import Limits, TaskSpec
from bough.testing.builders import array, executor, limits, needs, task

GB = 10**9
OUT_OF_MEMORY = Failure(Cause.MEMORY, "used more")
TOO_LONG = Failure(Cause.TIMEOUT, "ran longer")
GROWS = limits(memory=2 * GB, memory_growth=2, retries=9)


def growing(id_: int, **more: object) -> TaskSpec:
    return task(id_, needs=needs(1, memory=2 * GB), limits=GROWS, **more)


def sent(bench: Bench) -> list[tuple[int, int]]:
    """The memory that tasks need and may use, in the order in which they were sent."""
    orders = [order for order in bench.orders if isinstance(order, SendSpan)]
    return [(order.spec.needs.memory // GB, order.spec.limits.memory // GB) for order in orders]


def test_after_its_memory_limit_ended_it_a_task_needs_and_gets_more() -> None:
    bench = Bench(4, memory=16 * GB)
    bench.submit(growing(1), growing(2))
    bench.fail(1, failure=OUT_OF_MEMORY)
    bench.fail(1, failure=OUT_OF_MEMORY)
    assert sent(bench) == [(2, 2), (2, 2), (4, 4), (8, 8)]
    assert bench.machine.state.executors[1].free("memory") == 6 * GB
    bench.end(1)
    bench.end(2)
    assert bench.machine.state.executors[1].free("memory") == 16 * GB


def test_other_failures_change_nothing() -> None:
    bench = Bench(2, memory=16 * GB)
    bench.submit(growing(1))
    bench.fail(1)
    bench.fail(1, failure=TOO_LONG)
    assert sent(bench) == [(2, 2)] * 3


def test_memory_grows_to_what_the_largest_executor_has() -> None:
    bench = Bench(2, memory=3 * GB)
    bench.tell(executor(2, 2, memory=5 * GB))
    bench.submit(growing(1))
    for _ in range(3):
        bench.fail(1, failure=OUT_OF_MEMORY)
    assert sent(bench) == [(2, 2), (4, 4), (5, 5), (5, 5)]
    assert bench.machine.state.spans[bench.span(1)].executor.id == 2


def test_a_grown_task_waits_for_room_and_says_why() -> None:
    bench = Bench(4, memory=6 * GB)
    bench.submit(growing(1), task(2, needs=needs(1, memory=4 * GB)))
    bench.fail(1, failure=OUT_OF_MEMORY)
    assert bench.state(1) == "ready"
    said = bench.machine.explain(1)
    assert "waits for 1 core, 4.0 GB memory" in said[0]
    assert said[1] == "its memory limit ended the last attempt; the next one has 4.0 GB"
    bench.restart()
    bench.end(2)
    assert bench.machine.explain(1)[-1] == "its memory limit ended the last attempt; this one has 4.0 GB"


def test_what_has_not_started_of_an_array_grows_with_it_once() -> None:
    """Elements that run with less stay as they are, and their failure with less raises nothing more."""
    bench = Bench(3, memory=16 * GB)
    bench.submit(array(1, 6, needs=needs(1, memory=2 * GB), limits=GROWS))
    bench.fail(1, 0, OUT_OF_MEMORY)
    bench.fail(1, 1, OUT_OF_MEMORY)
    assert bench.array(1).spec.needs.memory == 4 * GB
    assert sorted(set(sent(bench))) == [(2, 2), (4, 4)]
    bench.restart()
    bench.end_all()
    assert set(bench.states(1)) == {"done"}
    assert bench.machine.state.executors[1].free("memory") == 16 * GB


def test_a_time_limit_grows_from_what_the_attempt_had() -> None:
    bench = Bench(2)
    bench.submit(task(1, limits=limits(timeout=10, timeout_growth=3, retries=9)))
    bench.fail(1, failure=TOO_LONG)
    bench.fail(1, failure=TOO_LONG)
    assert bench.task(1).spec.limits == limits(timeout=90, timeout_growth=3, retries=9)
    assert bench.machine.explain(1)[-1] == "its time limit ended the last attempt; this one has 90 s"
    bench.submit(array(2, 2, limits=limits(timeout=10, timeout_growth=3, retries=9)))
    for index in (0, 1):
        detail = Detail(index, started=1.0, ended=11.0)
        bench.tell(news.WorkFailed(bench.span(2, index), index, TOO_LONG, detail))
    assert bench.array(2).spec.limits.timeout == 30


def test_a_limit_that_does_not_grow_stays() -> None:
    assert (Limits().memory_growth, Limits().timeout_growth) == (0, 0)
    bench = Bench(2, memory=16 * GB)
    bench.submit(task(1, needs=needs(1, memory=2 * GB), limits=limits(memory=2 * GB, timeout=5, retries=9)))
    bench.fail(1, failure=OUT_OF_MEMORY)
    bench.fail(1, failure=TOO_LONG)
    assert bench.task(1).spec.limits.timeout == 5
    assert sent(bench) == [(2, 2)] * 3
