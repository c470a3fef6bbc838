"""Backlogs that wait behind something long are recalled when another executor has nothing to do."""

from __future__ import annotations

from bough.core.invariants import check
from bough.core.machine import Machine, Turn
from bough.core.scheduling.recall import LOOK
from bough.model.events import facts, news
from bough.model.events.orders import RecallBacklog, SendSpan
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies
from bough.testing.builders import executor, needs, submit, task

EXPECTED = 0.02


class Bench:
    """A core that has seen short tasks of one kind, with one executor of one core."""

    def __init__(self) -> None:
        self.machine = Machine(Policies(Fifo()))
        self.now = 100.0
        self.number = 0
        self.tell(facts.RunOpened(1, "t", "h", 1), executor(1, 1))
        for _ in range(20):
            sent = self.submit(1)
            self.tell(*(news.WorkSucceeded(span, 0, 1, EXPECTED) for span in spans(sent)), later=EXPECTED)

    def tell(self, *events: object, later: float = 0.0) -> Turn:
        self.now += later
        turn = self.machine.turn(self.now, events)  # type: ignore[arg-type]
        check(self.machine.state)
        return turn

    def submit(self, count: int, **fields: object) -> Turn:
        first, self.number = self.number + 1, self.number + count
        return self.tell(submit(*(task(number, template="t", **fields) for number in range(first, first + count))))

    def wait(self) -> list[int]:
        """Let the core look twice; the executors whose backlogs it recalls."""
        turns = [self.tell(later=LOOK) for _ in range(3)]
        return [order.executor for turn in turns for order in turn.orders if isinstance(order, RecallBacklog)]


def spans(turn: Turn) -> list[int]:
    return [one.span for order in turn.orders if isinstance(order, SendSpan) for one in order.singly()]


def sent_to(turn: Turn) -> list[int]:
    return [order.executor for order in turn.orders if isinstance(order, SendSpan) for _ in order.singly()]


def test_a_backlog_that_does_not_move_goes_to_an_executor_that_has_nothing_to_do() -> None:
    bench = Bench()
    placed = spans(bench.submit(6))
    assert len(placed) == 6  # one runs, and five wait behind it
    bench.tell(executor(2, 1))
    assert bench.wait() == [1, 1]  # the order may be lost, and is repeated
    turn = bench.tell(*(news.WorkReturned(span, 0, 1) for span in placed[1:]))
    assert set(sent_to(turn)) == {2}
    assert len(sent_to(turn)) == 5
    bench.tell(*(news.WorkReturned(span, 0, 1) for span in placed[1:]))  # said again, to no effect
    assert bench.wait() == []


def test_an_executor_whose_backlog_was_recalled_gets_no_other_until_it_has_moved() -> None:
    bench = Bench()
    placed = spans(bench.submit(6))
    bench.tell(executor(2, 1))
    bench.wait()
    bench.tell(*(news.WorkReturned(span, 0, 1) for span in placed[1:]))
    assert set(sent_to(bench.submit(2))) == {2}
    bench.tell(news.WorkSucceeded(placed[0], 0, 1, 30.0), later=10.0)
    bench.wait()
    assert not bench.machine.state.executors[1].stuck


def test_a_backlog_that_moves_is_left_where_it_is() -> None:
    bench = Bench()
    placed = spans(bench.submit(6))
    bench.tell(executor(2, 1))
    for span in placed[:5]:
        turn = bench.tell(news.WorkSucceeded(span, 0, 1, LOOK), later=LOOK)
        assert not [order for order in turn.orders if isinstance(order, RecallBacklog)]


def test_nothing_is_recalled_for_an_executor_that_could_not_run_it() -> None:
    bench = Bench()
    bench.submit(6)
    bench.tell(executor(2, 0.5))
    assert bench.wait() == []


def test_nothing_is_looked_at_where_there_is_one_executor_or_nothing_waits() -> None:
    bench = Bench()
    bench.submit(6)
    assert bench.wait() == []
    assert bench.machine.next_timer is None
    bench.tell(executor(2, 4), facts.ExecutorLost(1, "gone"))
    bench.wait()
    assert bench.machine.next_timer is None


def test_a_look_is_taken_also_if_nothing_happens() -> None:
    bench = Bench()
    bench.submit(6)
    bench.tell(executor(2, 1))
    due = bench.machine.next_timer
    assert due is not None
    assert bench.now < due <= bench.now + LOOK


def test_a_core_that_was_restored_recalls_as_before() -> None:
    bench = Bench()
    bench.submit(6)
    bench.tell(executor(2, 1))
    bench.machine = Machine.restore(bench.machine.snapshot(), Policies(Fifo()))
    assert bench.wait() == [1]


def test_what_needs_more_than_is_free_elsewhere_stays() -> None:
    bench = Bench()
    bench.tell(executor(2, 2))
    sent = bench.submit(2, needs=needs(2))
    assert set(sent_to(sent)) <= {2}
    assert bench.wait() == []
