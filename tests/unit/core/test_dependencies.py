"""Dependencies: on tasks, arrays, elements and groups; gates; what becomes of dependents of failures."""

from __future__ import annotations

import pytest

from bough.model.events.news import Cancel, GroupClosed, PagesAdded
from bough.model.ids import GroupId, RecordId
from bough.model.outcomes import Cause
from bough.model.tasks import Dep, Page
from bough.testing.builders import array, group, on_array, on_element, on_group, task
from tests.unit.core.core_bench import Bench, on


def closed(id_: int) -> GroupClosed:
    return GroupClosed(GroupId(id_))


def test_a_task_waits_for_all_it_comes_after() -> None:
    bench = Bench(4)
    bench.submit(task(1), task(2), task(3, 1, 2))
    assert bench.states(1, 2, 3) == ["placed", "placed", "waiting"]
    bench.end(1)
    assert bench.state(3) == "waiting"
    bench.end(2)
    assert bench.state(3) == "placed"


def test_a_dependency_named_twice_is_waited_for_once() -> None:
    bench = Bench(4)
    bench.submit(task(1), task(2, 1, 1))
    bench.end(1)
    assert bench.state(2) == "placed"


def test_a_task_after_something_done_is_ready_at_once() -> None:
    bench = Bench()
    bench.submit(task(1))
    bench.end(1)
    bench.submit(task(2, 1))
    assert bench.state(2) == "placed"


def test_items_of_a_batch_may_name_later_ones() -> None:
    bench = Bench(4)
    bench.submit(task(1, 2), task(2))
    assert bench.states(1, 2) == ["waiting", "placed"]
    bench.end(2)
    assert bench.state(1) == "placed"


def test_a_task_after_an_array_waits_for_every_element() -> None:
    bench = Bench(3)
    bench.submit(array(1, 3), task(2, on_array(1)))
    for index in (2, 0):
        bench.end(1, index)
        assert bench.state(2) == "waiting"
    bench.end(1, 1)
    assert bench.state(2) == "placed"


def test_a_task_after_an_element_waits_for_that_one_alone() -> None:
    bench = Bench(4)
    bench.submit(array(1, 3), task(2, on_element(1, 1)))
    bench.end(1, 0)
    assert bench.state(2) == "waiting"
    bench.end(1, 1)
    assert bench.state(2) == "placed"


def test_a_task_after_an_empty_array_is_ready_at_once() -> None:
    bench = Bench()
    bench.submit(array(1, 0), task(2, on_array(1)))
    assert bench.state(2) == "placed"


def test_an_array_waits_as_a_whole() -> None:
    bench = Bench(4)
    bench.submit(task(1), array(2, 2, 1))
    assert bench.states(2) == ["waiting"] * 2
    bench.end(1)
    assert bench.states(2) == ["placed"] * 2


def test_elements_may_wait_for_things_of_their_own() -> None:
    bench = Bench(8)
    bench.submit(task(1), task(2), array(3, 3, element_after=((1, (on(1), on(2))),)))
    assert bench.states(3) == ["placed", "waiting", "placed"]
    bench.end(1)
    assert bench.state(3, 1) == "waiting"
    bench.end(2)
    assert bench.state(3, 1) == "placed"


def test_an_element_waits_for_its_own_things_and_for_those_of_its_array() -> None:
    for order in [(1, 2), (2, 1)]:
        bench = Bench(8)
        bench.submit(task(1), task(2), array(3, 2, 1, element_after=((1, (on(2),)),)))
        bench.end(order[0])
        assert bench.state(3, 1) == "waiting"
        bench.end(order[1])
        assert bench.states(3) == ["placed", "placed"]


def test_element_after_element_makes_chains_of_arrays() -> None:
    bench = Bench(8)
    own = tuple((i, (on_element(1, i),)) for i in range(3))
    bench.submit(array(1, 3), array(2, 3, element_after=own))
    bench.end(1, 1)
    assert bench.states(2) == ["waiting", "placed", "waiting"]


# --- groups -------------------------------------------------------------------------------------------


def test_a_task_after_a_group_waits_until_it_is_closed_and_all_in_it_is_done() -> None:
    bench = Bench(4)
    bench.submit(group(1, "g"), task(1, group=1), array(2, 1, group=1), task(3, on_group(1)))
    bench.end(1)
    bench.tell(closed(1))
    assert bench.state(3) == "waiting"
    assert bench.finished == []
    bench.end(2)
    assert bench.state(3) == "placed"
    assert bench.finished == [(1, False)]


def test_a_group_that_is_not_closed_is_not_done() -> None:
    bench = Bench(4)
    bench.submit(group(1, "g"), task(1, group=1), task(2, on_group(1)))
    bench.end(1)
    assert bench.state(2) == "waiting"
    bench.tell(closed(1))
    assert bench.state(2) == "placed"


def test_a_group_waits_for_its_subgroups() -> None:
    bench = Bench(4)
    bench.submit(group(1, "g"), group(2, "sub", 1), task(1, group=2), task(2, on_group(1)))
    bench.tell(closed(1))
    bench.end(1)
    assert bench.state(2) == "waiting"
    bench.tell(closed(2))
    assert bench.finished == [(2, False), (1, False)]
    assert bench.state(2) == "placed"


def test_nothing_in_a_group_starts_before_the_gate_opens() -> None:
    bench = Bench(8)
    bench.submit(task(1), task(2), group(1, "g", 0, on(1), on(2)), task(3, group=1), array(4, 2, group=1))
    assert bench.states(3, 4) == ["waiting", "waiting"]
    bench.end(1)
    assert bench.states(3, 4) == ["waiting", "waiting"]
    bench.end(2)
    assert bench.states(3, 4) == ["placed", "placed"]


def test_what_joins_a_group_behind_a_gate_waits_too() -> None:
    bench = Bench(8)
    bench.submit(task(1), group(1, "g", 0, on(1)))
    bench.submit(task(2, group=1))
    assert bench.state(2) == "waiting"
    bench.end(1)
    assert bench.state(2) == "placed"
    bench.submit(task(3, group=1))
    assert bench.state(3) == "placed"


def test_the_gate_of_a_group_holds_back_its_subgroups() -> None:
    bench = Bench(8)
    bench.submit(task(1), task(2), group(1, "g", 0, on(1)), group(2, "sub", 1, on(2)), task(3, group=2))
    bench.end(2)
    assert bench.state(3) == "waiting"
    bench.end(1)
    assert bench.state(3) == "placed"


def test_the_gate_of_a_subgroup_does_not_hold_back_its_parent() -> None:
    bench = Bench(8)
    bench.submit(task(1), group(1, "g"), group(2, "sub", 1, on(1)), task(2, group=1), task(3, group=2))
    assert bench.states(2, 3) == ["placed", "waiting"]


def test_a_task_may_wait_for_its_gate_and_for_others() -> None:
    bench = Bench(8)
    bench.submit(task(1), task(2), group(1, "g", 0, on(1)), task(3, 2, group=1))
    bench.end(1)
    assert bench.state(3) == "waiting"
    bench.end(2)
    assert bench.state(3) == "placed"


def test_a_group_after_a_group_after_an_array() -> None:
    bench = Bench(8)
    bench.submit(array(1, 2), group(1, "a", 0, on_array(1)), group(2, "b", 0, on_group(1)))
    bench.submit(task(2, group=1), task(3, group=2))
    bench.tell(closed(1), closed(2))
    bench.end(1, 0)
    bench.end(1, 1)
    assert bench.states(2, 3) == ["placed", "waiting"]
    bench.end(2)
    assert bench.state(3) == "placed"
    bench.end(3)
    assert bench.finished == [(1, False), (2, False)]


# --- failures -----------------------------------------------------------------------------------------


def test_dependents_of_a_failure_are_not_run_and_name_the_first_cause() -> None:
    bench = Bench(4)
    bench.submit(task(1, name="plot"), task(2, 1), array(3, 3, 2), task(4, on_array(3)), task(5))
    bench.fail(1)
    assert bench.states(1, 2, 4) == ["failed", "skipped", "skipped"]
    assert bench.states(3) == ["skipped"] * 3
    for record in (2, 3, 4):
        failure = bench.failure(record)
        assert failure.cause is Cause.DEPENDENCY
        assert failure.source == 1
        assert failure.message == "task 1 (plot) did not succeed: exit code 1"


def test_the_rest_of_the_workflow_goes_on() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2, 1), task(3), task(4, 3))
    bench.fail(1)
    assert bench.state(3) == "placed"
    bench.end_all()
    assert bench.states(1, 2, 3, 4) == ["failed", "skipped", "done", "done"]
    assert bench.machine.is_idle


def test_one_failed_element_dooms_who_waits_for_all_but_not_who_waits_for_another() -> None:
    bench = Bench(4)
    bench.submit(array(1, 3), task(2, on_array(1)), task(3, on_element(1, 2)), task(4, on_element(1, 1)))
    bench.fail(1, 1)
    assert bench.states(2, 3, 4) == ["skipped", "waiting", "skipped"]
    assert bench.failure(4).message == "task 1.1 did not succeed: exit code 1"
    bench.end(1, 2)
    assert bench.state(3) == "placed"


def test_a_failed_dependency_of_one_element_leaves_the_others_alone() -> None:
    bench = Bench(8)
    bench.submit(task(1), array(2, 3, element_after=((1, (on(1),)),)))
    bench.fail(1)
    assert bench.states(2) == ["placed", "skipped", "placed"]


def test_a_failure_in_a_group_dooms_its_dependents_when_the_group_has_ended() -> None:
    bench = Bench(8)
    bench.submit(group(1, "g"), group(2, "sub", 1), task(1, group=2), task(2, group=1), task(3, on_group(1)))
    bench.tell(closed(1), closed(2))
    bench.fail(1)
    assert bench.states(2, 3) == ["placed", "waiting"]
    bench.end(2)
    assert bench.state(3) == "skipped"
    assert bench.finished == [(2, True), (1, True)]
    assert bench.failure(3).source == 1
    assert bench.failure(3).message == "group g: task 1 did not succeed: exit code 1"


def test_behind_a_gate_that_will_never_open_nothing_runs() -> None:
    bench = Bench(8)
    bench.submit(task(1), group(1, "g", 0, on(1)), group(2, "sub", 1), task(2, group=1), array(3, 2, group=2))
    bench.tell(closed(1), closed(2))
    bench.fail(1)
    assert bench.states(2, 3) == ["skipped", "skipped"]
    assert bench.finished == [(2, True), (1, True)]


def test_what_joins_a_doomed_group_is_not_run() -> None:
    bench = Bench(8)
    bench.submit(task(1), group(1, "g", 0, on(1)))
    bench.fail(1)
    bench.submit(task(2, group=1), group(2, "sub", 1), array(3, 2, group=2))
    assert bench.states(2, 3) == ["skipped", "skipped"]
    assert bench.failure(3).source == 1


@pytest.mark.parametrize("dep", [on(1), on_array(1)])
def test_what_comes_after_something_failed_is_not_run(dep: Dep) -> None:
    bench = Bench()
    bench.submit(task(1))
    bench.fail(1)
    bench.submit(task(2, dep), array(3, 2, dep), array(4, 2, element_after=((0, (dep,)),)))
    assert bench.states(2, 3) == ["skipped", "skipped"]
    assert bench.states(4) == ["skipped", "placed"]


def test_what_comes_after_a_failed_group_is_not_run() -> None:
    bench = Bench()
    bench.submit(group(1, "g"), task(1, group=1))
    bench.tell(closed(1))
    bench.fail(1)
    bench.submit(task(2, on_group(1)))
    assert bench.state(2) == "skipped"


def test_a_cancelled_task_dooms_its_dependents() -> None:
    bench = Bench()
    bench.submit(task(1), task(2, 1))
    bench.tell(Cancel(on(1)))
    assert bench.states(1, 2) == ["cancelled", "skipped"]
    assert bench.failure(2).message == "task 1 did not succeed: was cancelled"


def test_a_long_chain_of_dependents_is_abandoned_without_recursion() -> None:
    bench = Bench()
    bench.submit(task(1), *(task(id_, id_ - 1) for id_ in range(2, 1500)))
    bench.fail(1)
    assert bench.machine.counts()["skipped"] == 1498
    assert bench.failure(1499).source == 1


# --- fail fast ----------------------------------------------------------------------------------------


def test_fail_fast_starts_nothing_new_and_spares_what_runs() -> None:
    bench = Bench(2, fail_fast=True)
    bench.submit(task(1), task(2), array(3, 5), task(4, 2))
    bench.fail(1)
    assert bench.states(1, 2, 4) == ["failed", "placed", "skipped"]
    assert bench.states(3) == ["skipped"] * 5
    assert bench.failure(3).cause is Cause.FAIL_FAST
    assert bench.failure(4).message == "task 1 failed and the workflow stops at the first failure"
    bench.end(2)
    assert bench.machine.is_idle


def test_fail_fast_forgives_what_is_retried() -> None:
    from bough.testing.builders import limits

    bench = Bench(1, fail_fast=True)
    bench.submit(task(1, limits=limits(retries=1)), task(2))
    bench.fail(1)
    assert bench.state(2) != "skipped"
    bench.end_all()
    assert bench.states(1, 2) == ["done", "done"]


# --- open arrays --------------------------------------------------------------------------------------


def page(start: int, stop: int) -> Page:
    return Page(start, stop, b"x")


def open_array(id_: int, *after: Dep, **fields: object) -> object:
    from bough.model.ids import BlobId
    from bough.model.tasks import ArraySpec, Kind

    return ArraySpec(RecordId(id_), Kind.FUNCTION, BlobId(b"f" * 16), 0, after=after, open=True, **fields)  # type: ignore[arg-type]


def grow(id_: int, *pages: Page, last: bool = False) -> PagesAdded:
    return PagesAdded(RecordId(id_), list(pages), last)


def test_an_open_array_is_done_when_it_is_complete_and_all_of_it_is_done() -> None:
    bench = Bench(4)
    bench.submit(open_array(1), task(2, on_array(1)))  # type: ignore[arg-type]
    assert not bench.machine.is_idle
    bench.tell(grow(1, page(0, 2)))
    bench.end(1, 0)
    bench.end(1, 1)
    assert bench.state(2) == "waiting"
    bench.tell(grow(1, page(2, 3), last=True))
    assert bench.state(2) == "waiting"
    bench.end(1, 2)
    assert bench.state(2) == "placed"


def test_the_last_page_may_be_none_at_all() -> None:
    bench = Bench(4)
    bench.submit(open_array(1), task(2, on_array(1)))  # type: ignore[arg-type]
    bench.tell(grow(1, last=True))
    assert bench.state(2) == "placed"


def test_an_open_array_keeps_its_group_from_ending() -> None:
    bench = Bench(4)
    bench.submit(group(1, "g"), open_array(1, group=1), task(2, on_group(1)))  # type: ignore[arg-type]
    bench.tell(closed(1), grow(1, page(0, 1)))
    bench.end(1, 0)
    assert bench.finished == []
    bench.tell(grow(1, last=True))
    assert bench.finished == [(1, False)]
    assert bench.state(2) == "placed"


def test_spans_of_a_paged_array_carry_the_pages_they_need() -> None:
    bench = Bench(4)
    bench.submit(open_array(1))  # type: ignore[arg-type]
    bench.tell(grow(1, page(0, 1), page(1, 3)))
    assert [order.pages for order in bench.sent] == [(page(0, 1),), (page(1, 3),), (page(1, 3),)]


@pytest.mark.parametrize("waiting_for_gate", [False, True])
def test_what_is_added_to_an_array_that_cannot_run_is_not_run(waiting_for_gate: bool) -> None:
    bench = Bench(4)
    where = {"group": 1} if waiting_for_gate else {}
    bench.submit(task(1), group(1, "g", 0, *([on(1)] if waiting_for_gate else [])))
    bench.submit(open_array(2, *([] if waiting_for_gate else [on(1)]), **where))  # type: ignore[arg-type]
    bench.fail(1)
    bench.tell(grow(2, page(0, 2), last=True))
    assert bench.states(2) == ["skipped", "skipped"]
    assert bench.failure(2).source == 1
    assert bench.machine.is_idle


def test_an_open_array_that_is_cancelled_when_all_of_it_is_done_counts_as_done() -> None:
    bench = Bench(4)
    bench.submit(open_array(1), task(2, on_array(1)))  # type: ignore[arg-type]
    bench.tell(grow(1, page(0, 1)))
    bench.end(1, 0)
    bench.tell(Cancel(on_array(1)))
    assert bench.state(2) == "placed"


def test_an_empty_group_is_over_when_its_own_dependencies_are() -> None:
    bench = Bench(1)
    bench.submit(task(1), group(1, "empty", 0, on(1)), task(2, on_group(1)))
    bench.tell(closed(1))
    assert bench.state(2) == "waiting"
    bench.end(1)
    assert bench.state(2) == "placed"


def test_an_empty_group_fails_with_its_own_dependencies() -> None:
    bench = Bench(1)
    bench.submit(task(1), group(1, "empty", 0, on(1)), task(2, on_group(1)))
    bench.tell(closed(1))
    bench.fail(1)
    assert bench.state(2) == "skipped"
