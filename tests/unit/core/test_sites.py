"""Sites that leave and return: who gets nothing, what is given back, and that it goes first."""

from __future__ import annotations

import pytest
from core_bench import Bench

from bough.core.pilots.sites import PATIENCE
from bough.model.events import facts, news
from bough.model.events.orders import ClearExecutor, KeepExecutor, StopSpan
from bough.model.outcomes import Cause, Failure
from bough.testing.builders import array, executor, limits, needs, on_element, task

LEFT = Failure(Cause.GIVEN_BACK, "given back: site b left (its owner)")


def two_sites(cores: float = 1) -> Bench:
    """Executor 1 is of site a, executor 2 of b."""
    bench = Bench(0)
    bench.tell(executor(1, cores, site="a"))
    bench.tell(executor(2, cores, site="b"))
    return bench


def order_of(bench: Bench, *known: int) -> list[tuple[int, int]]:
    """The elements that executor 1 is given next, one after the other, as each before it ends."""
    found: list[tuple[int, int]] = []
    while spans := list(bench.machine.state.executors[1].spans.values()):
        for span in spans:
            for low, high in [tuple(part) for part in span.left]:
                found += [(span.record.id, index) for index in range(low, high)]
                bench.tell(news.WorkSucceeded(span.id, low, high, 100.0))
    return [one for one in found if one[0] not in known]


def test_what_ran_on_a_site_that_left_goes_before_all_that_never_ran() -> None:
    bench = two_sites()
    bench.submit(*(task(number) for number in range(1, 7)))  # 1 runs on a, 2 on b
    bench.start(2)
    turn = bench.tell(facts.SiteLeft("b", "its owner", 0.0))
    assert ClearExecutor(2, 0.0, LEFT.message) in turn.orders
    bench.fail(2, failure=LEFT)
    assert order_of(bench) == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)]
    assert bench.machine.state.records[2].failures_of(0) == (0, 0)


def test_of_an_array_only_what_had_run_goes_first_and_before_what_came_back_unstarted() -> None:
    bench = two_sites(cores=2)
    bench.submit(task(1), task(2))  # on a
    bench.submit(array(3, 6))  # two of its elements on b
    bench.submit(task(4), task(5))
    held = [span for span in bench.machine.state.spans.values() if span.executor.id == 2]
    bench.tell(news.WorkStarted(held[1].id, held[1].start, held[1].stop))
    bench.tell(facts.SiteLeft("b", "", 0.0))
    bench.tell(news.WorkFailed(held[1].id, held[1].start, LEFT))
    bench.tell(news.WorkReturned(held[0].id, held[0].start, held[0].stop))
    assert order_of(bench, 1, 2) == [(3, 1), (3, 0), (3, 2), (3, 3), (3, 4), (3, 5), (4, 0), (5, 0)]


def test_the_rest_of_an_array_does_not_go_along_with_what_was_given_back_of_it() -> None:
    bench = two_sites(cores=2)
    bench.submit(task(1), task(2))  # on a
    bench.submit(task(9))
    bench.submit(array(3, 5))  # its first element with task 9 on b
    bench.tell(facts.SiteLeft("b"))
    bench.tell(*(news.WorkFailed(span, 0, LEFT) for span in bench.machine.state.executors[2].spans))
    bench.tell(facts.SiteReturned("b"))
    held = bench.machine.state.executors[2].spans.values()
    assert [(span.record.id, span.left) for span in held] == [(3, [[0, 1]]), (9, [[0, 1]])]


@pytest.mark.parametrize("withdraw", [news.Cancel, news.Hold])
def test_nor_does_it_go_first_when_that_is_withdrawn(withdraw: type[news.Cancel | news.Hold]) -> None:
    bench = two_sites(cores=2)
    bench.submit(task(1), task(2))  # on a
    bench.submit(task(9))
    bench.submit(array(3, 3))  # its first element with task 9 on b
    bench.tell(facts.SiteLeft("b"))
    bench.tell(*(news.WorkFailed(span, 0, LEFT) for span in bench.machine.state.executors[2].spans))
    bench.tell(withdraw(on_element(3, 0)))
    assert order_of(bench, 1, 2) == [(9, 0), (3, 1), (3, 2)]


def test_a_priority_counts_more_than_what_was_given_back() -> None:
    bench = two_sites()
    bench.submit(task(1), task(2))
    bench.submit(task(3), task(4, priority=1))
    bench.tell(facts.SiteLeft("b"))
    bench.fail(2, failure=LEFT)
    assert [record for record, _ in order_of(bench)] == [1, 4, 2, 3]


def test_it_costs_neither_a_retry_nor_a_loss_however_often() -> None:
    bench = two_sites()
    bench.submit(task(1, limits=limits(losses=1)))
    bench.tell(facts.SiteLeft("a"))
    for _ in range(20):
        [span] = bench.machine.state.spans.values()
        bench.tell(news.WorkFailed(span.id, 0, LEFT))
        bench.tell(facts.SiteReturned("a"), facts.SiteLeft("a"))
    assert bench.machine.state.records[1].failures_of(0) == (0, 0)
    bench.end(1)


def test_a_site_that_is_away_gets_nothing_nor_do_executors_that_join_it() -> None:
    bench = Bench(0)
    bench.tell(facts.SiteLeft("b", "its owner", 5.0))
    bench.now += 2
    turn = bench.tell(executor(2, 4, site="b"))
    assert turn.orders == [ClearExecutor(2, 3.0, LEFT.message)]
    bench.submit(task(1))
    assert not bench.machine.state.spans
    assert bench.machine.explain(1) == [
        "task 1 is ready, but where it could run is away: site b (its owner); see bough site list"
    ]
    bench.tell(facts.SiteReturned("b"))
    assert len(bench.machine.state.spans) == 1


def test_an_executor_that_says_nothing_is_taken_what_it_has() -> None:
    bench = two_sites()
    bench.submit(task(1), task(2), task(3, needs=needs(0)))
    bench.tell(facts.SiteLeft("b", "its owner", 10.0))
    bench.wait(10 + PATIENCE - 1)
    had = [span.id for span in bench.machine.state.executors[2].spans.values()]
    assert had
    turn = bench.wait(1)
    assert [order.span for order in turn.orders if isinstance(order, StopSpan)] == had
    assert not bench.machine.state.executors[2].spans
    assert bench.machine.state.records[2].failure_of(0) == LEFT


def test_a_site_that_returns_within_the_grace_keeps_what_runs() -> None:
    bench = two_sites()
    bench.submit(task(1), task(2))
    bench.tell(facts.SiteLeft("b", "", 10.0))
    turn = bench.tell(facts.SiteReturned("b"))
    assert turn.orders == [KeepExecutor(2)]
    bench.wait(100)
    bench.end(2)


def test_one_that_reconnects_while_its_site_is_away_is_told_again() -> None:
    bench = two_sites()
    bench.tell(facts.SiteLeft("b", "its owner", 10.0))
    bench.tell(facts.ExecutorSuspended(2, 1000.0, "missing"))
    bench.now += 4
    assert bench.tell(facts.ExecutorResumed(2)).orders == [ClearExecutor(2, 6.0, LEFT.message)]


def test_what_a_user_says_stands_until_a_user_says_otherwise() -> None:
    bench = two_sites()
    bench.tell(facts.SiteLeft("b", "by hand", 0.0, True))
    assert not bench.tell(facts.SiteLeft("b", "by its rule")).facts
    bench.tell(facts.SiteReturned("b"))
    assert not bench.tell(facts.SiteReturned("b")).facts
    bench.tell(facts.SiteLeft("b", "by its rule"))
    assert bench.tell(facts.SiteLeft("b", "by hand", 0.0, True)).facts
