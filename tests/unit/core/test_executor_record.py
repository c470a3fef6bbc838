"""Executors: what is free, what fits, and what waits behind."""

from __future__ import annotations

import pytest

from bough.core.graph.submission import add_task
from bough.core.records.attempts import Span
from bough.core.records.executor_record import ExecutorRecord
from bough.core.state import State
from bough.model.arrays.runtimes import BACKLOG, MAX_BACKLOG, SHORT
from bough.model.ids import SpanId
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies
from bough.testing.builders import executor, needs, task


class Hall:
    """One executor, and spans of loose tasks made for it."""

    def __init__(self, cores: float = 2, **amounts: object) -> None:
        self.state = State(Policies(Fifo()))
        self.executor = ExecutorRecord(executor(1, cores, **amounts))
        self.last = 0

    def span(self, wants: object = None, *, mean: float = 0.0, count: int = 1) -> Span:
        self.last += 1
        record = add_task(self.state, task(self.last, needs=wants or needs()))
        record.runtime.believe(mean, 10**6)
        load = mean * count if mean <= SHORT else 0.0
        return Span(SpanId(self.last), record, 0, count, 1, self.executor, [[0, count]], queued=False, load=load)

    def add(self, *args: object, **kwargs: object) -> Span:
        span = self.span(*args, **kwargs)  # type: ignore[arg-type]
        self.executor.add(span)
        return span


def test_a_span_in_front_occupies_and_gives_back_everything_it_needs() -> None:
    hall = Hall(4, memory=1000, gpus=2, named=(("licence", 3),))
    span = hall.add(needs(2, memory=400, gpus=1, named=(("licence", 2),)))
    room = hall.executor
    assert [room.free(name) for name in ("cores", "memory", "gpus", "licence")] == [2, 600, 1, 1]
    room.drop(span)
    assert [room.free(name) for name in ("cores", "memory", "gpus", "licence")] == [4, 1000, 2, 3]


@pytest.mark.parametrize(
    ("wants", "now", "ever"),
    [
        (needs(1), True, True),
        (needs(2), True, True),
        (needs(3), False, True),
        (needs(5), False, False),
        (needs(1, memory=500), True, True),
        (needs(1, memory=501), False, True),
        (needs(1, memory=1001), False, False),
        (needs(1, gpus=1), False, False),
        (needs(1, named=(("licence", 1),)), True, True),
        (needs(1, named=(("moon", 1),)), False, False),
        (needs(0), True, True),
    ],
)
def test_what_fits_now_and_what_could_ever_fit(wants: object, now: bool, ever: bool) -> None:
    hall = Hall(4, memory=1000, named=(("licence", 1),))
    hall.add(needs(2, memory=500))
    record = hall.span(wants).record
    assert hall.executor.fits(record) is now
    assert hall.executor.could_fit(record.needs) is ever


@pytest.mark.parametrize(
    ("has", "wants", "takes"),
    [
        ("3.12", "3.12", True),
        ("3.12", "3.11", False),
        ("3.12", "", True),  # a command
        ("", "3.11", True),  # an executor of an older store
    ],
)
@pytest.mark.parametrize("amounts", [{}, {"memory": 10}])
def test_functions_go_only_where_their_python_is(has: str, wants: str, takes: bool, amounts: dict[str, int]) -> None:
    hall = Hall(2, memory=1000, python=has)
    record = hall.span(needs(1, python=wants, **amounts), mean=0.001).record
    assert hall.executor.fits(record) is takes
    assert hall.executor.could_fit(record.needs) is takes
    assert hall.executor.takes_backlog(record) is takes


def test_a_resource_it_has_not_is_free_in_no_amount() -> None:
    assert Hall().executor.free("moon") == 0


def test_only_short_tasks_of_known_length_may_wait_behind_others() -> None:
    hall = Hall(1)
    hall.add(mean=0.001)
    takes = [hall.executor.takes_backlog(hall.span(mean=mean).record) for mean in (0, SHORT / 2, SHORT, SHORT * 1.1)]
    assert takes == [False, True, True, False]


def test_nothing_waits_behind_long_tasks_alone() -> None:
    hall = Hall(2)
    hall.add(mean=2 * SHORT)
    assert hall.executor.takes_backlog(hall.span(mean=0.001).record)
    hall.add()
    assert not hall.executor.takes_backlog(hall.span(mean=0.001).record)


def test_what_could_never_fit_does_not_wait_there() -> None:
    hall = Hall(1)
    assert not hall.executor.takes_backlog(hall.span(needs(2), mean=0.001).record)
    assert not hall.executor.takes_backlog(hall.span(needs(1, gpus=1), mean=0.001).record)


def test_it_takes_so_many_seconds_of_short_work_a_core() -> None:
    hall = Hall(2)
    while hall.executor.takes_backlog(hall.span(mean=0.4 * BACKLOG).record):
        hall.add(mean=0.4 * BACKLOG)
    assert len(hall.executor.spans) == 5
    assert hall.executor.load == pytest.approx(2 * BACKLOG)


def test_it_takes_so_many_spans() -> None:
    hall = Hall(2)
    for _ in range(MAX_BACKLOG):
        hall.add(mean=1e-9)
    assert not hall.executor.takes_backlog(hall.span(mean=1e-9).record)


def test_those_that_fit_together_are_in_front_in_the_order_they_came() -> None:
    hall = Hall(2)
    first = hall.add(mean=0.01)
    second, third = hall.add(mean=0.01), hall.add(mean=0.01)
    assert hall.executor.front() == [first, second]
    hall.executor.drop(first)
    assert hall.executor.front() == [second, third]


def test_a_big_one_is_not_overtaken_by_what_came_later() -> None:
    hall = Hall(2)
    first = hall.add(mean=0.01)
    second = hall.add(mean=0.01)
    hall.add(needs(2), mean=0.01)
    hall.add(mean=0.01)
    hall.executor.drop(first)
    assert hall.executor.front() == [second]
    assert hall.executor.free("cores") == -2


def test_it_has_room_while_a_core_is_free_or_there_is_little_short_work() -> None:
    hall = Hall(1)
    assert hall.executor.is_open()
    hall.add()
    assert hall.executor.is_open()
    hall.add(mean=SHORT, count=2)
    assert not hall.executor.is_open()


def test_one_that_leaves_or_is_suspended_has_no_room() -> None:
    hall = Hall()
    hall.executor.suspended = 5.0
    assert not hall.executor.is_open()
    hall.executor.suspended = 0.0
    hall.executor.draining = True
    assert not hall.executor.is_open()


def test_a_task_must_end_before_the_executor_leaves() -> None:
    hall = Hall()
    work = hall.span(mean=10.0).record
    assert hall.executor.ends_before(work, 1e9)
    hall.executor.until = 100.0
    assert hall.executor.ends_before(work, 90.0)
    assert not hall.executor.ends_before(work, 91.0)
