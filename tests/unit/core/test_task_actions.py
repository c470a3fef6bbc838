"""What people do: cancel, kill, hold, release, retry and prioritise, of anything, at every moment."""

from __future__ import annotations

from collections.abc import Callable
from pickle import dumps, loads

import msgspec
import pytest

from bough.core.queries.facade import Queries
from bough.model.events.facts import MemoLookedUp, SpanEnded
from bough.model.events.news import (
    Cancel,
    GroupClosed,
    Hold,
    Kill,
    PagesAdded,
    Prioritise,
    Release,
    Retry,
    WorkSucceeded,
)
from bough.model.ids import BlobId, GroupId, RecordId
from bough.model.outcomes import Cause
from bough.model.tasks import Dep, Page
from bough.testing.builders import array, group, limits, on_array, on_group, task
from tests.unit.core.core_bench import Bench, kinds, on

KEY = b"k" * 16


# Every moment a task can be in, and how to get there: task 2, which comes after task 1.


def waiting(bench: Bench) -> None:
    bench.submit(task(1), task(2, 1))


def ready(bench: Bench) -> None:
    bench.submit(task(1), task(3), task(2))


def held(bench: Bench) -> None:
    ready(bench)
    bench.tell(Hold(on(2)))


def placed(bench: Bench) -> None:
    bench.submit(task(2))


def running(bench: Bench) -> None:
    placed(bench)
    bench.start(2)


def retry_not_due(bench: Bench) -> None:
    bench.submit(task(2, limits=limits(retries=1, backoff=10)))
    bench.fail(2)


def awaits_memo(bench: Bench) -> None:
    bench.submit(task(2, key=KEY))


def done(bench: Bench) -> None:
    placed(bench)
    bench.end(2)


def failed(bench: Bench) -> None:
    placed(bench)
    bench.fail(2)


def skipped(bench: Bench) -> None:
    waiting(bench)
    bench.fail(1)


def cancelled(bench: Bench) -> None:
    placed(bench)
    bench.tell(Cancel(on(2)))


MOMENTS = [waiting, ready, held, placed, running, retry_not_due, awaits_memo, done, failed, skipped, cancelled]
TARGETS = [on(2), on_array(2), on_group(0)]


def at(moment: Callable[[Bench], None]) -> Bench:
    bench = Bench(2, memos=moment is awaits_memo)
    moment(bench)
    return bench


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("target", TARGETS, ids=["task", "array", "group"])
def test_cancelling_is_final_at_once_unless_it_has_ended(moment: Callable[[Bench], None], target: Dep) -> None:
    bench = at(moment)
    before, span = bench.state(2), bench.machine.state.spans.copy()
    mine = [s.id for s in span.values() if s.record.id == 2]
    bench.tell(Cancel(target))
    expected = before if before in {"done", "failed", "skipped"} else "cancelled"
    assert bench.state(2) == expected
    assert [order.span for order in bench.stops if order.span in mine] == mine
    bench.wait(100)
    for id_ in mine:
        bench.tell(WorkSucceeded(id_, 0, 1, 1.0))
    assert bench.state(2) == expected


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("target", TARGETS, ids=["task", "array", "group"])
def test_killing_fails_what_is_with_an_executor_and_leaves_the_rest_alone(
    moment: Callable[[Bench], None], target: Dep
) -> None:
    bench = at(moment)
    before = bench.state(2)
    mine = [s.id for s in bench.machine.state.spans.values() if s.record.id == 2]
    assert len(mine) == (before in {"placed", "running"})
    bench.tell(Kill(target))
    if mine:
        assert bench.state(2) == "failed"
        assert bench.failure(2).cause is Cause.KILLED
        assert [order.span for order in bench.stops if order.span in mine] == mine
    elif target == on(2):
        assert bench.state(2) == before


def test_killing_takes_no_retry() -> None:
    bench = Bench()
    bench.submit(task(1, limits=limits(retries=5)), task(2, 1))
    bench.tell(Kill(on(1)))
    assert bench.states(1, 2) == ["failed", "skipped"]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("target", TARGETS, ids=["task", "array", "group"])
def test_what_is_held_does_not_start(moment: Callable[[Bench], None], target: Dep) -> None:
    bench = at(moment)
    before = bench.state(2)
    bench.tell(Hold(target))
    assert bench.state(2) == {"ready": "held"}.get(before, before)
    for order in list(bench.recalls):
        bench.tell(MemoLookedUp(order.record, 0, 1, found=False))
    bench.wait(100)
    for record in (1, 3):
        if record in bench.machine.state.records and bench.state(record) in {"placed", "running"}:
            bench.end(record)
    if before in {"waiting", "ready", "held"}:
        assert bench.state(2) == "held"
        bench.tell(Release(target))
        bench.tell(Release(on(2)))
        assert bench.state(2) == "placed"


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("target", TARGETS, ids=["task", "array", "group"])
def test_retrying_revives_what_ended_badly_and_nothing_else(moment: Callable[[Bench], None], target: Dep) -> None:
    bench = at(moment)
    before = bench.state(2)
    bench.tell(Retry(target))
    after = bench.state(2)
    if before in {"failed", "cancelled"}:
        assert after == "placed"
        assert bench.attempt(2) == 2
    elif moment is skipped:
        assert after == ("skipped" if target.id == 2 else "waiting")
    else:
        assert after == before


@pytest.mark.parametrize("deed", [Cancel, Kill, Hold, Release, Retry])
@pytest.mark.parametrize("target", [on(99), on_array(99), on_group(99), on(1, 5), on(2, 9)])
def test_a_deed_upon_nothing_does_nothing(deed: type, target: Dep) -> None:
    bench = Bench(1)
    bench.submit(task(1), array(2, 4, element_after=((2, (on(1),)),)))
    before = (bench.state(1), bench.states(2))
    bench.tell(deed(target, 0))
    assert Queries(bench.machine).preview(deed(target, 0)).count == 0
    assert (bench.state(1), bench.states(2)) == before
    bench.end_all()
    assert bench.states(2) == ["done"] * 4


# --- slices -------------------------------------------------------------------------------------------


def test_cancelling_a_slice_leaves_the_rest() -> None:
    bench = Bench(2)
    bench.submit(array(1, 6))
    bench.tell(Cancel(on(1, 1), 4))
    assert bench.states(1) == ["placed", "cancelled", "cancelled", "cancelled", "placed", "ready"]
    assert [(order.start, order.stop) for order in bench.stops] == [(1, 2)]
    bench.end_all()
    assert bench.machine.is_idle


def test_cancelling_part_of_a_span_shrinks_it_and_keeps_its_core() -> None:
    bench = Bench(1)
    bench.submit(array(1, 101, template="x"))
    bench.end(1, 0, seconds=0.001)
    (order,) = bench.sent[1:2]
    assert order.stop - order.start > 10
    bench.tell(Cancel(on(1, order.start + 2), order.start + 5))
    assert [(o.start, o.stop) for o in bench.stops] == [(order.start + 2, order.start + 5)]
    assert order.span in bench.machine.state.spans
    values = list(range(order.start, order.stop))
    turn = bench.tell(WorkSucceeded(order.span, order.start, order.stop, 0.01, dumps(values)))
    assert order.span not in bench.machine.state.spans
    assert bench.states(1)[order.start : order.start + 6] == ["done"] * 2 + ["cancelled"] * 3 + ["done"]
    parts = [fact for fact in turn.facts if isinstance(fact, SpanEnded)]
    assert [loads(part.results) for part in parts] == [values[:2], values[5:]], "each part has its own results"


def test_cancelling_everything_of_a_span_lets_its_core_go_at_once() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2))
    bench.tell(Cancel(on(1)))
    assert bench.states(1, 2) == ["cancelled", "placed"]


def test_killing_a_slice() -> None:
    bench = Bench(4)
    bench.submit(array(1, 6))
    bench.tell(Kill(on(1, 1), 5))
    assert bench.states(1) == ["placed", "failed", "failed", "failed", "placed", "placed"]


def test_holding_a_slice_of_what_waits_keeps_that_slice() -> None:
    bench = Bench(8)
    bench.submit(task(1), array(2, 6, 1))
    bench.tell(Hold(on(2, 2), 4))
    bench.end(1)
    assert bench.states(2) == ["placed", "placed", "held", "held", "placed", "placed"]
    bench.tell(Release(on(2, 2)))
    assert bench.states(2)[2:4] == ["placed", "held"]
    bench.tell(Release(on_array(2)))
    assert bench.states(2) == ["placed"] * 6


def test_holding_a_slice_of_what_is_ready() -> None:
    bench = Bench(1)
    bench.submit(array(1, 5))
    bench.tell(Hold(on(1, 2), 4))
    assert bench.states(1) == ["placed", "ready", "held", "held", "ready"]
    for index in (0, 1, 4):
        bench.end(1, index)
    assert bench.states(1) == ["done", "done", "held", "held", "done"]
    bench.tell(Release(on(1, 2), 4))
    bench.end_all()
    assert bench.states(1) == ["done"] * 5


def test_releasing_a_slice_of_a_held_array_lets_that_slice_go() -> None:
    bench = Bench(8)
    bench.submit(task(1), array(2, 5, 1))
    bench.tell(Hold(on_array(2)))
    bench.end(1)
    released = Release(on(2, 1), 3)
    assert Queries(bench.machine).preview(released).count == 2
    bench.tell(released)
    assert bench.states(2) == ["held", "placed", "placed", "held", "held"]
    bench.tell(Release(on_array(2)))
    assert bench.states(2) == ["placed"] * 5


def test_releasing_a_group_lets_go_of_all_in_it_however_it_was_held() -> None:
    bench = Bench(8)
    bench.submit(group(1, "g"), group(2, "sub", 1), task(1), array(2, 4, 1, group=1), task(3, 1, group=2))
    bench.tell(Hold(on(2, 1), 3), Hold(on_group(1)), Hold(on(3)), Hold(on_group(2)))
    bench.end(1)
    assert bench.states(2) == ["held"] * 4
    bench.tell(Release(on_group(1)))
    assert bench.states(2) == ["placed"] * 4
    assert bench.state(3) == "placed"


def test_retrying_a_slice() -> None:
    bench = Bench(4)
    bench.submit(array(1, 4))
    for index in range(4):
        bench.fail(1, index)
    bench.tell(Retry(on(1, 1), 3))
    assert bench.states(1) == ["failed", "placed", "placed", "failed"]
    assert bench.attempt(1, 1) == 2


# --- groups -------------------------------------------------------------------------------------------


def test_holding_a_group_holds_what_is_below_it_and_what_joins_it_later() -> None:
    bench = Bench(8)
    bench.submit(group(1, "g"), group(2, "sub", 1))
    bench.tell(Hold(on_group(1)))
    bench.submit(task(1, group=2), array(2, 2, group=1), task(3))
    assert bench.states(1, 2, 3) == ["held", "held", "placed"]
    bench.tell(Release(on_group(2)))
    assert bench.state(1) == "held", "the group above is still held"
    bench.tell(Release(on_group(1)))
    assert bench.states(1, 2) == ["placed", "placed"]


def test_holding_the_workflow_holds_all() -> None:
    bench = Bench(8)
    bench.tell(Hold(on_group(0)))
    bench.submit(task(1))
    assert bench.state(1) == "held"
    bench.tell(Release(on_group(0)))
    assert bench.state(1) == "placed"


def test_what_is_held_twice_is_released_once() -> None:
    bench = Bench(8)
    bench.submit(group(1, "g"))
    bench.tell(Hold(on_group(1)), Hold(on_group(1)))
    bench.submit(task(1, group=1))
    bench.tell(Release(on_group(1)))
    assert bench.state(1) == "placed"
    bench.submit(task(2))
    assert bench.state(2) == "placed"


def test_cancelling_a_group_cancels_what_is_in_it_and_below_and_dooms_its_dependents() -> None:
    bench = Bench(2)
    bench.submit(
        group(1, "g"), group(2, "sub", 1), task(1, group=1), array(2, 3, group=2), task(3, on_group(1)), task(4)
    )
    bench.tell(GroupClosed(GroupId(1)), GroupClosed(GroupId(2)))
    bench.tell(Cancel(on_group(1)))
    assert bench.states(1, 3, 4) == ["cancelled", "skipped", "placed"]
    assert bench.states(2) == ["cancelled"] * 3
    assert bench.finished == [(2, True), (1, True)]


# --- cancel and attempts ------------------------------------------------------------------------------


@pytest.mark.parametrize("deed", [Cancel, Kill])
@pytest.mark.parametrize("spec", [task(1), array(1, 3)], ids=["task", "array"])
def test_attempt_numbers_go_on_after_a_cancelled_or_killed_one(deed: type, spec: object) -> None:
    bench = Bench(4)
    bench.submit(spec)  # type: ignore[arg-type]
    assert bench.attempt(1) == 1
    bench.tell(deed(on(1), 0))
    bench.tell(Retry(on(1)))
    assert bench.attempt(1) == 2
    bench.restart()
    bench.tell(deed(on(1), 0))
    bench.tell(Retry(on(1)))
    assert bench.attempt(1) == 3


def test_what_was_cancelled_before_it_ran_begins_with_attempt_one() -> None:
    bench = Bench(1)
    bench.submit(task(1), array(2, 2))
    bench.tell(Cancel(on_array(2)), Retry(on_array(2)))
    bench.end(1)
    assert bench.attempt(2, 0) == 1


# --- retry --------------------------------------------------------------------------------------------


def test_retrying_revives_what_was_not_run_because_of_it_however_far_away() -> None:
    bench = Bench(8)
    bench.submit(
        group(1, "g"), task(1, group=1), task(2, 1), array(3, 2, 2), task(4, on_group(1)), group(2, "h", 0, on(4))
    )
    bench.submit(task(5, group=2))
    bench.tell(GroupClosed(GroupId(1)), GroupClosed(GroupId(2)))
    bench.fail(1)
    assert bench.states(1, 2, 3, 4, 5) == ["failed", "skipped", "skipped", "skipped", "skipped"]
    bench.tell(Retry(on(1)))
    assert bench.states(1, 2, 3, 4, 5) == ["placed", "waiting", "waiting", "waiting", "waiting"]
    bench.end_all()
    assert bench.states(1, 2, 3, 4, 5) == ["done"] * 5
    assert bench.states(3) == ["done"] * 2
    assert bench.machine.is_idle


def test_a_revived_task_with_another_failed_dependency_is_not_run_again() -> None:
    bench = Bench(8)
    bench.submit(task(1), task(2), task(3, 1, 2))
    bench.fail(1)
    bench.fail(2)
    bench.tell(Retry(on(1)))
    assert bench.states(1, 2, 3) == ["placed", "failed", "skipped"]
    assert bench.failure(3).source == 2


def test_a_retried_task_may_fail_again_with_all_its_dependents() -> None:
    bench = Bench(8)
    bench.submit(task(1), group(1, "g", 0, on(1)), group(2, "sub", 1), task(2, group=1), task(3, group=2))
    bench.submit(array(4, 2, 1), array(5, 2, element_after=((1, (on(1),)),)))
    for _ in range(3):
        bench.fail(1)
        assert bench.states(2, 3, 4) == ["skipped"] * 3
        assert bench.state(5, 1) == "skipped"
        bench.tell(Retry(on(1)))
        assert bench.states(1, 2, 3, 4) == ["placed", "waiting", "waiting", "waiting"]
        assert bench.state(5, 1) == "waiting"
    bench.end_all()
    assert bench.machine.counts()["done"] == 7


def test_an_element_revived_with_what_it_waits_for_does_not_start_before_it() -> None:
    bench = Bench(8)
    bench.submit(task(1), array(2, 2, element_after=((1, (on(1),)),)))
    bench.fail(1)
    bench.tell(Retry(on(1)))
    assert bench.states(1, 2) == ["placed", "placed"]
    assert bench.state(2, 1) == "waiting"
    bench.end(1)
    assert bench.state(2, 1) == "placed"


@pytest.mark.parametrize(
    "items",
    [
        (task(2, 1),),
        (array(2, 2, 1),),
        (array(2, 2, element_after=((0, (on(1),)), (1, (on(1),)))),),
        (group(1, "g", 0, on(1)), task(2, group=1)),
        (group(1, "g", 0, on(1)), array(2, 2, group=1)),
        (group(1, "g", 0, on(1)), group(2, "sub", 1), task(2, group=2)),
        (group(1, "g", 0, on(1)), group(2, "sub", 1), array(2, 2, group=2)),
    ],
    ids=["task", "array", "elements", "waiting_for_gate task", "waiting_for_gate array", "deep task", "deep array"],
)
def test_retrying_only_the_dependent_of_a_failure_does_not_leave_it_waiting_forever(items: tuple[object, ...]) -> None:
    bench = Bench(8)
    bench.submit(task(1), *items)  # type: ignore[arg-type]
    bench.fail(1)
    assert bench.state(2) == "skipped"
    bench.tell(Retry(on_array(2)))
    assert bench.state(2) == "skipped"
    assert bench.failure(2).source == 1
    assert bench.machine.is_idle
    bench.tell(Retry(on(1)))
    bench.end_all()
    assert bench.machine.counts()["done"] == bench.machine.state.records[2].length + 1


def test_a_retry_that_succeeds_makes_its_group_succeed() -> None:
    bench = Bench(8)
    bench.submit(group(1, "g"), group(2, "sub", 1), task(1, group=2), task(2, on_group(1)))
    bench.fail(1)
    bench.tell(Retry(on(1)))
    bench.end(1)
    bench.tell(GroupClosed(GroupId(2)), GroupClosed(GroupId(1)))
    assert bench.finished == [(2, False), (1, False)]
    assert bench.state(2) == "placed"


def test_a_group_with_another_failure_in_it_still_fails_after_a_retry() -> None:
    bench = Bench(8)
    bench.submit(
        group(1, "g"), group(2, "sub", 1), task(1, group=2), task(2, group=2), task(3, group=1), task(4, on_group(1))
    )
    bench.tell(GroupClosed(GroupId(1)), GroupClosed(GroupId(2)))
    for record in (1, 2):
        bench.fail(record)
    bench.end(3)
    assert bench.state(4) == "skipped"
    bench.tell(Retry(on(1)))
    bench.end(1)
    assert bench.state(4) == "skipped"
    assert bench.failure(4).source == 2
    assert bench.finished[-2:] == [(2, True), (1, True)]
    bench.tell(Retry(on(2)))
    bench.end(2)
    assert bench.state(4) == "placed"


def test_failures_before_a_retry_by_hand_do_not_count_afterwards() -> None:
    bench = Bench(8)
    bench.submit(task(1, limits=limits(retries=1)))
    bench.fail(1)
    bench.fail(1)
    assert bench.state(1) == "failed"
    bench.tell(Retry(on(1)))
    bench.fail(1)
    assert bench.state(1) == "placed"
    assert bench.attempt(1) == 4


def test_retrying_one_element_leaves_the_others_their_reason() -> None:
    bench = Bench(8)
    bench.submit(task(1), array(2, 4, 1))
    bench.fail(1)
    bench.tell(Retry(on(2, 1)))
    for index in range(4):
        assert bench.failure(2, index).source == 1


def test_nothing_to_retry_is_no_fact() -> None:
    bench = Bench()
    bench.submit(task(1))
    assert kinds(bench.tell(Retry(on(1)))) == []
    assert kinds(bench.tell(Kill(on(9)))) == []


# --- priority -----------------------------------------------------------------------------------------


def test_a_higher_priority_goes_first() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2), task(3), task(4, priority=1))
    bench.tell(Prioritise(on(3), 5))
    for record in (4, 3, 1, 2):
        assert bench.state(record) == "placed"
        bench.end(record)


def test_a_priority_given_to_what_waits_counts_when_it_is_ready() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2), task(3, 1))
    bench.tell(Prioritise(on(3), 5))
    bench.end(1)
    assert bench.state(3) == "placed"


def test_the_priority_of_a_group_goes_to_all_in_it() -> None:
    bench = Bench(1)
    bench.submit(group(1, "g"), group(2, "sub", 1), task(1), task(2), array(3, 2, group=2))
    bench.tell(Prioritise(on_group(1), 5))
    bench.end(1)
    assert bench.state(3) == "placed"


def test_lowering_a_priority_lets_others_go_first() -> None:
    bench = Bench(1)
    bench.submit(task(1), array(2, 2), task(3))
    bench.tell(Prioritise(on_array(2), -1))
    bench.end(1)
    assert bench.states(2, 3) == ["ready", "placed"]


# --- numbers ------------------------------------------------------------------------------------------


def test_how_many_tasks_a_deed_would_touch() -> None:
    bench = Bench(2)
    bench.submit(task(1), array(2, 5), task(3, 1))
    queries = Queries(bench.machine)

    def touched(action: Cancel | Kill | Hold | Retry) -> int:
        return queries.preview(action).count

    assert touched(Cancel(on_group(0))) == 7
    assert touched(Cancel(on(2, 1), 3)) == 2
    assert touched(Kill(on_group(0))) == 2
    assert touched(Hold(on_group(0))) == 5
    assert touched(Retry(on_group(0))) == 0
    bench.fail(1)
    assert touched(Retry(on_group(0))) == 2


def test_holding_an_open_array_holds_what_is_added_to_it() -> None:
    bench = Bench(4)
    bench.submit(msgspec.structs.replace(array(1, 0), table=BlobId(b""), open=True))
    bench.tell(Hold(on_array(1)))
    bench.tell(PagesAdded(RecordId(1), [Page(0, 2, b"")], last=True))
    assert bench.states(1) == ["held", "held"]
    bench.tell(Release(on_array(1)))
    assert bench.states(1) == ["placed", "placed"]
