"""Executors: what is free, what fits, and what waits behind."""

from __future__ import annotations

import pytest

from bough.core.room import ExecutorRecord, Span
from bough.core.state import State
from bough.core.submission import add_task
from bough.core.timing import BACKLOG, MAX_BACKLOG, SHORT
from bough.model.ids import SpanId
from bough.policies.placement.fifo import Fifo
from tests.builders import executor, needs, task


class Hall:
    """One executor, and spans of loose tasks made for it."""

    def __init__(self, cores: float = 2, **amounts: object) -> None:
        self.state = State(Fifo())
        self.executor = ExecutorRecord(executor(1, cores, **amounts))
        self.last = 0

    def span(self, wants: object = None, *, front: bool = True, mean: float = 0.0, count: int = 1) -> Span:
        self.last += 1
        record = add_task(self.state, task(self.last, needs=wants or needs()))
        record.runtime.mean, record.runtime.seen = mean, 10**6
        return Span(SpanId(self.last), record, 0, count, 1, self.executor, [[0, count]], front, 0.0)

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


def test_a_resource_it_has_not_is_free_in_no_amount() -> None:
    assert Hall().executor.free("moon") == 0


def test_only_short_tasks_of_known_length_may_wait_in_the_backlog() -> None:
    hall = Hall(1)
    hall.add()
    takes = [hall.executor.takes_backlog(hall.span(mean=mean).record) for mean in (0, SHORT / 2, SHORT, SHORT * 1.1)]
    assert takes == [False, True, True, False]


def test_what_could_never_fit_does_not_wait_in_the_backlog() -> None:
    hall = Hall(1)
    assert not hall.executor.takes_backlog(hall.span(needs(2), mean=0.001).record)
    assert not hall.executor.takes_backlog(hall.span(needs(1, gpus=1), mean=0.001).record)


def test_the_backlog_takes_so_many_seconds_of_work_a_core() -> None:
    hall = Hall(2)
    while hall.executor.takes_backlog(hall.span(mean=0.6 * BACKLOG).record):
        hall.add(front=False, mean=0.6 * BACKLOG)
    assert len(hall.executor.backlog) == 4
    assert hall.executor.load == pytest.approx(2.4 * BACKLOG)


def test_the_backlog_takes_so_many_spans() -> None:
    hall = Hall(2)
    for _ in range(MAX_BACKLOG):
        hall.add(front=False, mean=1e-9)
    assert not hall.executor.takes_backlog(hall.span(mean=1e-9).record)


def test_what_waits_moves_up_in_order_when_a_core_becomes_free() -> None:
    hall = Hall(2)
    first, second = hall.add(), hall.add()
    waiting = [hall.add(front=False, mean=0.01) for _ in range(3)]
    hall.executor.drop(first)
    assert [span.front for span in waiting] == [True, False, False]
    assert hall.executor.free("cores") == 0
    hall.executor.drop(second)
    assert [span.front for span in waiting] == [True, True, False]
    assert hall.executor.load == pytest.approx(0.01)


def test_a_big_one_at_the_head_of_the_backlog_is_not_overtaken_there() -> None:
    hall = Hall(2)
    first = hall.add()
    hall.add()
    big = hall.add(needs(2), front=False, mean=0.01)
    small = hall.add(front=False, mean=0.01)
    hall.executor.drop(first)
    assert not big.front
    assert not small.front
    assert hall.executor.free("cores") == 1


def test_dropping_from_the_backlog_frees_no_cores() -> None:
    hall = Hall(1)
    hall.add()
    waiting = hall.add(front=False, mean=0.01)
    hall.executor.drop(waiting)
    assert hall.executor.free("cores") == 0
    assert hall.executor.load == 0


def test_it_has_room_while_a_core_is_free_or_the_backlog_is_short() -> None:
    hall = Hall(1)
    assert hall.executor.has_room()
    hall.add()
    assert hall.executor.has_room()
    hall.add(front=False, mean=BACKLOG)
    assert not hall.executor.has_room()


def test_one_that_leaves_has_no_room() -> None:
    hall = Hall()
    hall.executor.draining = True
    assert not hall.executor.has_room()
