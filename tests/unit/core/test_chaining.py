"""Short successors travel with what they wait for, and come back when it does not succeed."""

from __future__ import annotations

import pytest
from msgspec import structs

from bough.model.events import facts, news
from bough.model.ids import ExecutorId
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import Kind, TaskSpec
from bough.testing.builders import executor, limits, needs, task
from tests.unit.core.core_bench import BOOM, Bench, on

DIED = Failure(Cause.LOST, "the worker died")


def chain(first: int, length: int, **fields: object) -> list[TaskSpec]:
    return [
        task(id_, *([id_ - 1] if id_ > first else []), template="x", **fields) for id_ in range(first, first + length)
    ]


def measured(cores: float = 1) -> Bench:
    """A bench on which tasks of the template x are known to take a millisecond."""
    bench = Bench(cores)
    bench.submit(task(1, template="x"))
    bench.end(1, seconds=0.001)
    return bench


def behind(bench: Bench) -> list[int]:
    return [order.behind for order in bench.sent if order.spec.id > 1]


def test_a_chain_goes_out_in_one_turn_each_behind_the_one_before() -> None:
    bench = measured()
    turn = bench.submit(*chain(10, 4))
    assert bench.states(10, 11, 12, 13) == ["placed"] * 4
    first = bench.span(10)
    assert behind(bench) == [0, first, first + 1, first + 2]
    assert len([fact for fact in turn.facts if isinstance(fact, facts.Placed)]) == 4


def test_ends_come_in_bulk_and_nothing_is_sent_again() -> None:
    bench = measured()
    bench.submit(*chain(10, 4))
    ends = [news.WorkSucceeded(bench.span(id_), 0, 1, 0.001) for id_ in range(10, 14)]
    turn = bench.tell(*ends)
    assert [type(fact).__name__ for fact in turn.facts] == ["SpanEnded"] * 4
    assert turn.orders == []
    assert bench.machine.is_idle


def linked(first: int, length: int, **fields: object) -> list[TaskSpec]:
    """A chain each of which takes the value of the one before."""
    return [structs.replace(spec, inputs=spec.after) for spec in chain(first, length, **fields)]


def test_links_that_are_alike_and_take_the_value_of_the_one_before_are_one_hand_out() -> None:
    bench = measured()
    bench.submit(*linked(10, 4))
    (order,) = (order for order in bench.sent if order.spec.id > 1)
    assert (order.chained, [record for record, _ in order.along]) == (True, [11, 12, 13])
    singles = list(order.singly())
    assert [single.span for single in singles] == [bench.span(id_) for id_ in range(10, 14)]
    assert [single.behind for single in singles] == [0, *(bench.span(id_) for id_ in range(10, 13))]
    assert [single.spec.after for single in singles] == [spec.after for spec in linked(10, 4)]
    bench.tell(news.CallsEnded(order.span, 0, [0.001] * 4, [b"x"] * 4))
    assert bench.machine.is_idle


def test_links_that_differ_begin_another_hand_out_behind_the_one_before() -> None:
    bench = measured()
    specs = linked(10, 6)
    specs[3] = structs.replace(specs[3], name="other")
    bench.submit(*specs)
    orders = [order for order in bench.sent if order.spec.id > 1]
    assert [(order.spec.id, len(order.along), order.chained) for order in orders] == [
        (10, 2, True),
        (13, 0, False),
        (14, 1, True),
    ]
    assert [order.behind for order in orders] == [0, bench.span(12), bench.span(13)]


def test_a_link_that_takes_more_than_the_value_before_it_is_sent_by_itself() -> None:
    bench = measured()
    first, second, third = linked(10, 3)
    bench.submit(first, structs.replace(second, inputs=(*second.inputs, *second.inputs)), third)
    assert [len(order.along) for order in bench.sent if order.spec.id > 1] == [0, 1]


def test_a_successor_that_waits_for_something_else_stays() -> None:
    bench = measured()
    bench.submit(task(5), task(10, template="x"), task(11, 10, 5, template="x"))
    bench.submit(task(20, template="x"), task(21, 20, template="x"), task(22, 20, template="x"))
    assert bench.state(11) == "waiting"
    assert bench.states(21, 22) == ["waiting", "waiting"], "several successors may go to several places"


@pytest.mark.parametrize(
    "fields",
    [{"needs": needs(0.5)}, {"template": "unknown"}, {"limits": limits(resend_after=5.0)}],
    ids=["needs", "time", "replay"],
)
def test_one_that_is_unlike_its_predecessor_stays(fields: dict[str, object]) -> None:
    bench = measured()
    bench.submit(task(10, template="x"), task(11, 10, **{"template": "x", **fields}))
    assert bench.states(10, 11) == ["placed", "waiting"]


def test_no_more_travels_than_a_hand_out_of_work() -> None:
    bench = Bench(1)
    bench.submit(task(1, template="x"))
    bench.end(1, seconds=0.04)
    bench.submit(*chain(10, 9))
    assert bench.states(*range(10, 19)).count("placed") == 4


def test_when_the_predecessor_fails_what_followed_is_not_run_once_it_is_back() -> None:
    bench = measured()
    bench.submit(*chain(10, 3))
    spans = [bench.span(id_) for id_ in (10, 11, 12)]
    bench.fail(10, 0, BOOM)
    assert bench.states(10, 11, 12) == ["failed", "placed", "placed"]
    bench.tell(*(news.WorkReturned(span, 0, 1) for span in spans[1:]))
    assert bench.states(10, 11, 12) == ["failed", "skipped", "skipped"]


def test_when_the_predecessor_is_tried_again_what_followed_waits_again() -> None:
    bench = measured()
    bench.submit(*chain(10, 2, limits=limits(retries=1)))
    span = bench.span(11)
    bench.fail(10, 0, BOOM)
    bench.tell(news.WorkReturned(span, 0, 1))
    assert bench.states(10, 11) == ["placed", "waiting"]
    bench.end(10)
    assert bench.state(11) == "placed"
    bench.end(11)
    assert bench.machine.is_idle


def test_one_that_comes_back_after_its_predecessor_succeeded_elsewhere_is_ready() -> None:
    bench = measured()
    bench.submit(*chain(10, 2, limits=limits(retries=1)))
    span = bench.span(11)
    bench.fail(10, 0, BOOM)
    bench.end(10)
    assert bench.state(11) == "placed", "nothing was heard of it yet"
    bench.tell(news.WorkReturned(span, 0, 1))
    assert bench.attempt(11) == 2
    bench.end(11)
    assert bench.machine.is_idle


def test_a_result_made_from_what_was_cancelled_does_not_count() -> None:
    bench = measured()
    bench.submit(*chain(10, 2))
    bench.tell(news.Cancel(on(10)))
    bench.tell(news.WorkSucceeded(bench.span(11), 0, 1, 0.001))
    assert bench.states(10, 11) == ["cancelled", "skipped"]


def test_a_lost_executor_costs_only_the_first_an_attempt() -> None:
    bench = measured()
    bench.submit(*chain(10, 3))
    bench.tell(facts.ExecutorLost(ExecutorId(1), "gone"))
    assert bench.states(10, 11, 12) == ["ready", "waiting", "waiting"]
    assert [bench.record(id_).failures_of(0) for id_ in (10, 11, 12)] == [(0, 1), (0, 0), (0, 0)]
    bench.tell(executor(2, 1))
    bench.end_all()
    assert bench.states(10, 11, 12) == ["done"] * 3


def test_a_chain_a_lost_executor_finished_counts_when_it_comes_back() -> None:
    bench = measured()
    bench.submit(*chain(10, 3))
    spans = [bench.span(id_) for id_ in (10, 11, 12)]
    bench.tell(facts.ExecutorLost(ExecutorId(1), "gone"))
    bench.tell(*(news.WorkSucceeded(span, 0, 1, 0.001) for span in spans))
    assert bench.states(10, 11, 12) == ["done"] * 3
    assert bench.machine.is_idle


def test_held_tasks_do_not_travel() -> None:
    bench = measured(1)
    bench.submit(task(5), *chain(10, 2))
    bench.tell(news.Hold(on(11)))
    bench.end(5)
    assert bench.states(10, 11) == ["placed", "waiting"]


def test_a_restart_in_the_middle_changes_nothing() -> None:
    bench = measured()
    bench.submit(*chain(10, 3))
    bench.restart()
    bench.end(10)
    bench.end(11)
    bench.restart()
    bench.end(12)
    assert bench.states(10, 11, 12) == ["done"] * 3


def fan(root: int, width: int) -> list[TaskSpec]:
    return [task(root, template="x"), *(task(root + n, root, template="x") for n in range(1, width + 1))]


def test_of_a_fan_out_one_share_travels_as_one_hand_out() -> None:
    bench = measured(2)
    bench.submit(*fan(10, 40))
    root = bench.span(10)
    (order,) = [order for order in bench.sent if order.behind == root]
    travelling = 1 + len(order.along)
    assert travelling == 4, "no more than a few milliseconds of work, and no more than a core's share"
    assert [record for record, _ in order.along] == list(range(12, 11 + travelling))
    assert bench.states(*range(11, 51)).count("placed") == travelling


def test_the_rest_of_a_fan_out_goes_when_the_root_has_ended() -> None:
    bench = measured(2)
    bench.submit(*fan(10, 40))
    bench.end(10, seconds=0.001)
    bench.end_all()
    assert bench.machine.is_idle
    assert set(bench.states(*range(10, 51))) == {"done"}


def test_a_fan_out_comes_back_when_the_root_fails() -> None:
    bench = measured(2)
    bench.submit(*fan(10, 8))
    travelling = [id_ for id_ in range(11, 19) if bench.state(id_) == "placed"]
    spans = [bench.span(id_) for id_ in travelling]
    bench.tell(news.WorkFailed(bench.span(10), 0, BOOM), *(news.WorkReturned(span, 0, 1) for span in spans))
    assert set(bench.states(*range(11, 19))) == {"skipped"}


def test_like_tasks_that_wait_go_out_as_one_hand_out() -> None:
    bench = measured()
    bench.submit(*(task(id_, template="x") for id_ in range(10, 50)))
    orders = [order for order in bench.sent if order.spec.id >= 10]
    assert sum(1 + len(order.along) for order in orders) == 40
    assert len(orders) < 20
    spans = [single.span for order in orders for single in order.singly()]
    assert spans == [bench.span(id_) for id_ in range(10, 50)]


def test_the_ends_of_like_tasks_come_together() -> None:
    bench = measured()
    bench.submit(*(task(id_, template="x") for id_ in range(10, 20)))
    first = bench.span(10)
    turn = bench.tell(news.CallsEnded(first, 0, [0.001] * 10, [b"%d" % n for n in range(10)], "node7"))
    ends = [fact for fact in turn.facts if isinstance(fact, facts.SpanEnded)]
    assert [(end.record, end.results, end.host) for end in ends] == [(10 + n, b"%d" % n, "node7") for n in range(10)]
    assert bench.machine.is_idle


def test_of_ends_that_come_together_a_cancelled_one_is_passed_over() -> None:
    bench = measured()
    bench.submit(*(task(id_, template="x") for id_ in range(10, 13)))
    first = bench.span(10)
    bench.tell(news.Cancel(on(11)))
    bench.tell(news.CallsEnded(first, 0, [0.001] * 3, [b"a", b"b", b"c"]))
    assert bench.states(10, 11, 12) == ["done", "cancelled", "done"]


def test_tasks_that_differ_go_apart() -> None:
    bench = measured()
    bench.submit(task(10, template="x"), task(11, template="x", name="other"), task(12, template="x"))
    assert [order.along for order in bench.sent if order.spec.id >= 10] == [(), (), ()]


def test_commands_go_one_by_one() -> None:
    bench = measured()
    bench.submit(*(structs.replace(task(id_, template="x"), kind=Kind.COMMAND) for id_ in range(10, 13)))
    assert [order.along for order in bench.sent if order.spec.id >= 10] == [(), (), ()]
