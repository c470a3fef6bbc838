"""Which plans watch which tasks, what is kept of what was seen, and tasks that are ended or started again early."""

from __future__ import annotations

import msgspec
import pytest

from bough.core.queries.facade import Queries
from bough.core.records.indexes.watch_index import WatchIndex
from bough.core.records.task_series import MOST_FIRED, MOST_KEPT, MOST_METRICS, MOST_TAGS, Seen, Series
from bough.model.events import facts, news
from bough.model.events.orders import EndSpan, SendSpan, WatchSpan
from bough.model.ids import BlobId
from bough.model.monitoring.monitors import MOST_PLANS, Fail, Finish, Restart
from bough.model.monitoring.observations import Fired, Points, Trouble
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import Dep, On, Page, TaskExtras
from bough.testing.builders import array, executor, group, limits, on_array, on_group, task
from tests.unit.core.core_bench import Bench

OWN, INNER, OUTER, LATER, OTHER = (BlobId(name) for name in (b"own", b"inner", b"outer", b"later", b"other"))
WATCHED = TaskExtras(watch=OWN)


def watches(bench: Bench) -> dict[tuple[int, int], tuple[BlobId, ...]]:
    """The plans that went with hand-outs, by record and first element."""
    return {(o.spec.id, o.start): o.watch for o in bench.orders if isinstance(o, SendSpan) for o in o.singly()}


def orders(bench: Bench, kind: type) -> list[object]:
    found = [order for order in bench.orders if isinstance(order, kind)]
    bench.orders.clear()
    return found


def in_groups() -> tuple[object, ...]:
    outer = msgspec.structs.replace(group(1, "outer"), watch=OUTER)
    inner = msgspec.structs.replace(group(2, "inner", 1), watch=INNER)
    return outer, inner


# --- plans at a hand-out -----------------------------------------------------------------------------------


def test_a_task_is_handed_out_with_its_own_plan_and_those_of_its_groups() -> None:
    bench = Bench(cores=4)
    bench.submit(*in_groups(), task(1, group=2, extras=WATCHED), task(2, group=1), task(3), array(4, 1, group=2))
    assert watches(bench) == {(1, 0): (OWN, INNER, OUTER), (2, 0): (OUTER,), (3, 0): (), (4, 0): (INNER, OUTER)}


def test_a_plan_that_is_named_twice_watches_once() -> None:
    bench = Bench()
    spec = msgspec.structs.replace(group(1, "g"), watch=OWN)
    bench.submit(spec, task(1, group=1, extras=WATCHED))
    bench.tell(news.AddMonitors(on_group(1), OWN))
    assert watches(bench) == {(1, 0): (OWN,)}


def test_later_plans_of_a_group_are_for_what_runs_waits_and_comes() -> None:
    bench = Bench(cores=1)
    bench.submit(group(1, "g"), task(1, group=1), task(2, group=1))
    bench.tell(news.AddMonitors(on_group(1), LATER))
    assert orders(bench, WatchSpan) == [WatchSpan(1, bench.span(1), 0, 1, LATER)]
    bench.submit(task(3, group=1), task(4))
    bench.end_all()
    assert watches(bench) == {(2, 0): (LATER,), (3, 0): (LATER,), (4, 0): ()}


def test_later_plans_of_elements_split_hand_outs_where_they_begin_and_end() -> None:
    bench = Bench(cores=1)
    bench.submit(task(9), array(1, 100))
    bench.machine.state.records[1].runtime.note(1000, 1.0)  # short ones, which are handed out together
    bench.tell(news.AddMonitors(Dep(On.TASK, 1, 10), LATER, stop=12))
    bench.tell(news.AddMonitors(Dep(On.TASK, 1, 11), OTHER))
    bench.end_all()
    found = {start: watch for (record, start), watch in watches(bench).items() if record == 1}
    assert {start: watch for start, watch in found.items() if watch} == {10: (LATER,), 11: (LATER, OTHER)}
    assert 0 in found
    assert 12 in found


def test_later_plans_of_a_whole_array_are_for_elements_that_are_still_to_come() -> None:
    bench = Bench(cores=8)
    bench.submit(msgspec.structs.replace(array(1, 0), open=True))
    bench.tell(news.AddMonitors(on_array(1), LATER))
    bench.tell(news.PagesAdded(1, [Page(0, 2, b"")], last=True))
    assert set(watches(bench).values()) == {(LATER,)}


def test_a_retry_is_watched_by_the_same_plans() -> None:
    bench = Bench(cores=1)
    bench.submit(task(1, extras=WATCHED, limits=limits(retries=1)))
    bench.tell(news.AddMonitors(Dep(On.TASK, 1), LATER))
    bench.restart()
    orders(bench, SendSpan)
    bench.fail(1)
    assert watches(bench) == {(1, 0): (OWN, LATER)}


def test_tasks_with_plans_of_their_own_do_not_travel_in_a_batch() -> None:
    bench = Bench(cores=1)
    bench.submit(task(9, template="x"), *(task(number, template="x") for number in (1, 2, 3)))
    bench.tell(news.AddMonitors(Dep(On.TASK, 2), LATER))
    bench.end_all()
    assert watches(bench)[2, 0] == (LATER,)
    assert watches(bench)[3, 0] == ()


def test_only_so_many_plans_can_be_added() -> None:
    bench = Bench(cores=1)
    bench.submit(task(1))
    for number in range(MOST_PLANS + 2):
        bench.tell(news.AddMonitors(Dep(On.TASK, 1), BlobId(bytes((number,)))))
    assert len(bench.machine.state.watch.added[1]) == MOST_PLANS
    assert len(bench.machine.state.watch.plans_of(bench.record(1), 0)) == MOST_PLANS


def test_what_has_ended_cannot_be_watched() -> None:
    bench = Bench(cores=2)
    bench.submit(task(1), array(2, 3), array(3, 1, open=True))
    bench.end_all()
    queries = Queries(bench.machine)
    for target, left in (
        (Dep(On.TASK, 1), "task 1: ended, so that nothing of it can be watched"),
        (on_array(2), "task 2.0 and 2 other tasks: ended, so that nothing of it can be watched"),
    ):
        action = news.AddMonitors(target, LATER)
        preview = queries.preview(action)
        assert (preview.count, preview.not_changed) == (0, [left])
        assert bench.tell(action).facts == []
    for target in (on_array(3), on_group(0)):  # more may come
        action = news.AddMonitors(target, LATER)
        assert queries.preview(action).not_changed == []
        assert [type(fact) for fact in bench.tell(action).facts] == [facts.MonitorsAdded]


def test_monitors_for_what_is_not_there_change_nothing() -> None:
    bench = Bench()
    for target in (Dep(On.TASK, 5), on_array(5), on_group(5)):
        assert bench.tell(news.AddMonitors(target, LATER)).facts == []
        assert bench.tell(news.EndEarly(target, Finish(), "m")).facts == []


@pytest.mark.parametrize(("start", "alike"), [(0, 3), (3, 5), (5, 7), (7, 9), (9, 20)])
def test_elements_are_alike_up_to_where_a_plan_begins_or_ends(start: int, alike: int) -> None:
    index = WatchIndex()
    index.add(1, 3, 5, LATER)
    index.add(1, 7, 9, LATER)
    assert index.alike(1, start, 20) == alike
    assert index.added_to(1, start) == ([LATER] if start in {3, 7} else [])


# --- ending early ------------------------------------------------------------------------------------------


def test_what_runs_is_ended_by_an_order_which_is_given_again_until_it_has_ended() -> None:
    bench = Bench(cores=1)
    bench.submit(task(1), task(2))
    bench.tell(news.EndEarly(on_group(0), Finish(), "remote monitor", "enough"))
    expected = EndSpan(1, bench.span(1), 0, 1, Finish(), "remote monitor", "enough")
    assert orders(bench, EndSpan) == [expected]
    bench.tell(news.EndEarly(Dep(On.TASK, 1), Finish(), "remote monitor", "enough"))
    bench.restart()
    assert Queries(bench.machine).orders_again(bench.span(1)) == [expected]
    bench.end(1)
    assert bench.machine.state.watch.endings == {}
    assert bench.state(1) == "done"


def test_orders_are_given_again_to_an_executor_that_is_back() -> None:
    bench = Bench(cores=8)
    bench.submit(*in_groups(), array(1, 4, group=2))
    bench.tell(news.AddMonitors(Dep(On.TASK, 1, 2), LATER))
    again = [order for span in list(bench.machine.state.spans) for order in Queries(bench.machine).orders_again(span)]
    assert {(order.plan, order.start, order.stop) for order in again} >= {(LATER, 2, 3)}
    assert {order.plan for order in again} == {INNER, OUTER, LATER}


def test_a_restart_costs_no_retry_while_attempts_are_left() -> None:
    bench = Bench(cores=1)
    bench.submit(task(1, limits=limits(retries=1)))
    again = Failure(Cause.MONITOR, "it hangs", restarts=2)
    bench.fail(1, failure=again)
    bench.fail(1, failure=again)
    assert bench.record(1).failures_of(0) == (0, 0)
    bench.fail(1, failure=again)  # the third attempt is beyond two restarts: it costs the retry
    assert (bench.state(1), bench.record(1).failures_of(0)) == ("placed", (1, 0))
    bench.fail(1, failure=again)
    assert bench.state(1) == "failed"
    assert bench.record(1).failure_of(0) == again


def test_a_verdict_of_failure_is_a_failure_like_others() -> None:
    bench = Bench(cores=1)
    bench.submit(task(1))
    bench.tell(news.EndEarly(Dep(On.TASK, 1), Fail("too slow"), "m"))
    bench.fail(1, failure=Failure(Cause.MONITOR, "too slow"))
    assert bench.state(1) == "failed"


def test_a_restart_is_asked_for_by_an_order() -> None:
    bench = Bench(cores=1)
    bench.submit(array(1, 2))
    bench.tell(news.EndEarly(Dep(On.TASK, 1, 0), Restart(3), "m"))
    (order,) = orders(bench, EndSpan)
    assert (order.start, order.stop, order.verdict) == (0, 1, Restart(3))


# --- what was seen -----------------------------------------------------------------------------------------


def points(*values: float) -> Points:
    return Points("score", tuple((float(step), float(step), value) for step, value in enumerate(values)), 300)


def test_what_is_seen_is_a_fact_and_kept_until_the_task_ends() -> None:
    bench = Bench(cores=2)
    bench.submit(task(1), array(2, 3))
    tag = Fired(1.0, "hot", action="tag", name="warm")
    started, fact = bench.tell(news.WorkObserved(bench.span(1), 0, [points(3.0, 2.0), tag, tag])).facts
    assert isinstance(started, facts.SpanStarted), "what is seen runs"
    assert fact == facts.Observed(bench.span(1), 1, 0, 1, [points(3.0, 2.0), tag, tag])
    seen = bench.machine.state.watch.seen.of(1, 0)
    assert seen is not None
    assert (seen.metrics["score"].total, len(seen.metrics["score"].points), seen.tags) == (300, 2, ["warm"])
    bench.tell(news.WorkObserved(bench.span(2, 0), 0, [Trouble(1.0, "m", "it raised")]))
    bench.restart()
    bench.end(1)
    assert bench.machine.state.watch.seen.of(1, 0) is None
    assert bench.machine.state.watch.seen.of(2, 0) is not None
    bench.tell(news.Cancel(on_array(2)))
    assert bench.machine.state.watch.seen.by_record == {}


def test_another_attempt_begins_with_nothing_seen() -> None:
    bench = Bench(cores=1)
    bench.submit(task(1, limits=limits(retries=1)))
    bench.tell(news.WorkObserved(bench.span(1), 0, [points(3.0)]))
    bench.fail(1)
    bench.tell(news.WorkObserved(bench.span(1), 0, [points(9.0)]))
    seen = bench.machine.state.watch.seen.of(1, 0)
    assert seen is not None
    assert [value for _, _, value in seen.metrics["score"].points] == [9.0]


def test_what_is_seen_of_an_attempt_that_counts_no_more_is_passed_over() -> None:
    bench = Bench(cores=1)
    bench.submit(task(1, limits=limits(losses=3)))
    span = bench.span(1)
    bench.tell(facts.ExecutorLost(1, "gone"), executor(2))
    assert bench.tell(news.WorkObserved(span, 0, [points(3.0)])).facts == []
    assert bench.tell(news.WorkObserved(bench.span(1), 7, [points(3.0)])).facts == []
    assert bench.tell(news.WorkObserved(bench.span(1), 0, [])).facts == []


def test_a_full_series_loses_every_second_point_but_never_its_first_and_last() -> None:
    series = Series()
    series.add((float(step), 0.0, 0.0) for step in range(10_000))
    steps = [step for step, _, _ in series.points]
    assert steps[0] == 0
    assert steps[-1] == 9_999
    assert MOST_KEPT // 2 <= len(steps) <= MOST_KEPT
    assert steps == sorted(steps)


def test_what_one_task_can_make_the_core_keep_is_bounded() -> None:
    seen = Seen(1)
    for number in range(500):
        seen.add([Points(f"m{number}", ((1.0, 1.0, 1.0),)), Trouble(1.0, "m", "x")])
        seen.add([Fired(1.0, "m", action="tag", name=f"t{number}")])
    assert (len(seen.metrics), len(seen.tags), len(seen.fired)) == (MOST_METRICS, MOST_TAGS, MOST_FIRED)
