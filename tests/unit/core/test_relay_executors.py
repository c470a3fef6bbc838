"""Relays that share out work: spans as wide as they have cores, and narrower as elements end."""

from __future__ import annotations

from msgspec import structs

from bough.core.invariants import check
from bough.core.machine import Machine
from bough.model.events import facts, news
from bough.model.events.facts import Fact
from bough.model.events.orders import SendSpan
from bough.model.outcomes import Cause, Failure
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies
from bough.testing.builders import array, executor, needs, submit, task


def relay(number: int, members: int, cores: float = 1) -> facts.ExecutorJoined:
    joined = executor(number, members * cores)
    return structs.replace(joined, members=members, each=needs(cores))


class Hall:
    """A machine and the spans it sent."""

    def __init__(self, *news: Fact) -> None:
        self.machine = Machine(Policies(Fifo()))
        self.now = 0.0
        self.turn(facts.RunOpened(1, "test", "h", 1), *news)

    def turn(self, *news: Fact) -> list[SendSpan]:
        turn = self.machine.turn(self.now, news)
        check(self.machine.state)
        return [order for order in turn.orders if isinstance(order, SendSpan)]

    def ended(self, span: SendSpan, start: int, stop: int, each: float) -> list[SendSpan]:
        return self.turn(news.WorkSucceeded(span.span, start, stop, each * (stop - start)))

    def free(self, number: int) -> float:
        return self.machine.state.executors[number].free("cores")


def test_a_span_of_unknown_tasks_is_as_wide_as_there_are_cores() -> None:
    hall = Hall(relay(1, 10))
    (span,) = hall.turn(submit(array(1, 100)))
    assert (span.start, span.stop) == (0, 10)
    assert hall.free(1) == 0


def test_functions_go_only_to_a_relay_whose_executors_have_their_python() -> None:
    hall = Hall(structs.replace(relay(1, 10), python="3.11"), structs.replace(relay(2, 10), python="3.12"))
    (span,) = hall.turn(submit(array(1, 5, needs=needs(1, python="3.12"))))
    assert (span.executor, span.start, span.stop) == (2, 0, 5)
    hall.turn(facts.ExecutorResized(2, needs(6), 6, needs(1)))
    assert {s.executor for s in hall.turn(submit(array(2, 5, needs=needs(1, python="3.12"))))} == {2}
    assert hall.turn(submit(array(3, 5, needs=needs(1, python="3.13")))) == []


def test_cores_come_back_as_elements_end_and_are_filled_again() -> None:
    hall = Hall(relay(1, 10))
    (span,) = hall.turn(submit(array(1, 100)))
    (more,) = hall.ended(span, 0, 3, 1.0)
    assert (more.start, more.stop) == (10, 13)
    assert hall.free(1) == 0


def test_short_tasks_go_out_in_hand_outs_for_every_core() -> None:
    hall = Hall(relay(1, 4))
    (span,) = hall.turn(submit(array(1, 100_000)))
    sent = hall.ended(span, 0, 4, 0.001)
    total = sum(order.stop - order.start for order in sent)
    assert 4 * 8 <= total <= 4 * 100  # trust grows with what was seen, at most 0.1 s of work for each core


def test_two_relays_share_what_is_there() -> None:
    hall = Hall(relay(1, 5), relay(2, 10))
    sent = hall.turn(submit(array(1, 12)))
    assert sorted(order.stop - order.start for order in sent) == [5, 7]


def test_a_task_must_fit_one_executor_behind_it() -> None:
    hall = Hall(relay(1, 8))
    assert hall.turn(submit(task(1, needs=needs(2)))) == []
    assert "2 cores" in hall.machine.explain(1)[0]
    (order,) = hall.turn(relay(2, 1, cores=2))
    assert order.executor == 2


def test_it_grows_and_shrinks_with_the_executors_behind_it() -> None:
    hall = Hall(relay(1, 2))
    hall.turn(submit(array(1, 100)))
    (more,) = hall.turn(facts.ExecutorResized(1, needs(5), 5, needs(1)))
    assert more.stop - more.start == 3
    assert hall.turn(facts.ExecutorResized(1, needs(1), 1, needs(1))) == []
    assert hall.free(1) == 1 - 5


def test_what_ran_behind_a_lost_relay_goes_elsewhere() -> None:
    hall = Hall(relay(1, 3))
    (span,) = hall.turn(submit(array(1, 10)))
    hall.turn(news.WorkStarted(span.span, 0, 3, host="node7"))
    sent = hall.turn(relay(2, 10), facts.ExecutorLost(1, "gone"))
    assert sum(order.stop - order.start for order in sent) == 10
    assert all(order.executor == 2 for order in sent)
    assert {order.attempt for order in sent if order.stop <= 3} == {2}


def test_one_failed_element_gives_back_one_core() -> None:
    hall = Hall(relay(1, 3))
    (span,) = hall.turn(submit(array(1, 3)))
    hall.turn(news.WorkFailed(span.span, 1, Failure(Cause.EXIT, "exit code 1", exit_code=1)))
    assert hall.free(1) == 1
    hall.turn(news.WorkReturned(span.span, 2, 3))
    assert hall.free(1) == 1  # it went out again at once


def test_a_restored_machine_knows_widths() -> None:
    hall = Hall(relay(1, 4))
    hall.turn(submit(array(1, 6)))
    restored = Machine.restore(hall.machine.snapshot(), Policies(Fifo()))
    check(restored.state)
    assert restored.state.executors[1].free("cores") == 0
    assert restored.state.executors[1].members == 4


def test_tasks_that_take_no_time_are_shared_by_all_relays() -> None:
    hall = Hall(relay(1, 4), relay(2, 4))
    first = hall.turn(submit(array(1, 20_000)))
    sent = [order for span in first for order in hall.ended(span, span.start, span.stop, 1e-9)]
    for _ in range(6):
        sent = [order for span in sent for order in hall.ended(span, span.start, span.stop, 1e-9)] or sent
    share = [sum(o.stop - o.start for o in sent if o.executor == number) for number in (1, 2)]
    assert min(share) > 0.3 * max(share)
