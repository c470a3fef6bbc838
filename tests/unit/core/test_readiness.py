"""Reuse of earlier runs: keys, occurrences, what is found and what is not."""

from __future__ import annotations

import pytest

from bough.core.queries.facade import Queries
from bough.model.events.facts import MemoLookedUp, SpanEnded
from bough.model.events.news import Cancel, GroupClosed, Retry
from bough.model.ids import GroupId, MemoKey, RecordId
from bough.model.outcomes import Cause, Failure
from bough.model.reuse_scope import ReuseScope
from bough.model.tasks import Dep, Reuse
from bough.testing.builders import array, group, limits, on_array, on_element, on_group, task
from tests.unit.core.core_bench import Bench, kinds, on

KEY = MemoKey(b"k" * 16)
OTHER = MemoKey(b"o" * 16)


def recalled(record: int, start: int = 0, stop: int = 1, *, source: int = 0, attempt: int = 1) -> MemoLookedUp:
    """A memo was found in record `source` of an earlier run, or not at all."""
    if not source:
        return MemoLookedUp(RecordId(record), start, stop, found=False)
    return MemoLookedUp(RecordId(record), start, stop, True, RecordId(source), start, attempt, turn=5)


def key_of_success(bench: Bench, record: int) -> bytes:
    (fact,) = [f for f in bench.end(record).facts if isinstance(f, SpanEnded)]
    return fact.key


def test_without_earlier_runs_nothing_is_looked_up_but_successes_get_a_key() -> None:
    bench = Bench()
    bench.submit(task(1, key=KEY), task(2))
    assert bench.recalls == []
    assert len(key_of_success(bench, 1)) == 16
    assert key_of_success(bench, 2) == b""


def test_a_task_with_a_key_is_looked_up_before_it_runs() -> None:
    bench = Bench(memos=True)
    bench.submit(task(1, key=KEY), task(2))
    assert bench.states(1, 2) == ["waiting", "placed"]
    (order,) = bench.recalls
    assert (order.record, order.start, order.stop, order.reuse) == (1, 0, 1, ())


def test_a_run_with_nothing_to_resume_looks_up_only_what_says_always() -> None:
    bench = Bench(memos=True, reuse=ReuseScope.NONE)
    same = Reuse(0, 2, RecordId(70), 0)
    bench.submit(task(1, key=KEY), task(2, key=OTHER, always=True), array(3, 2, key=KEY, reuse=(same,), always=True))
    assert bench.states(1, 2) == ["placed", "waiting"]
    assert [(order.record, order.always) for order in bench.recalls] == [(2, True), (3, True)]
    assert len(key_of_success(bench, 1)) == 16  # a later run may resume this one


def test_a_run_that_resumes_looks_in_unfinished_runs_and_always_in_all() -> None:
    bench = Bench(memos=True, reuse=ReuseScope.UNFINISHED)
    bench.submit(task(1, key=KEY), task(2, key=OTHER, always=True))
    assert [(order.record, order.always) for order in bench.recalls] == [(1, False), (2, True)]


def test_the_key_it_is_looked_up_by_is_the_key_it_is_kept_by() -> None:
    bench = Bench(memos=True)
    bench.submit(task(1, key=KEY))
    bench.tell(recalled(1))
    assert key_of_success(bench, 1) == bench.recalls[0].key


def test_what_is_found_is_done_without_running() -> None:
    bench = Bench(memos=True)
    bench.submit(task(1, key=KEY), task(2, 1))
    bench.tell(recalled(1, source=40, attempt=3))
    assert bench.states(1, 2) == ["done", "placed"]
    (success,) = Queries(bench.machine).results_of(on(1))
    assert (success.turn, success.source, success.source_start, success.attempt) == (5, 40, 0, 3)


def test_what_is_not_found_runs() -> None:
    bench = Bench(memos=True)
    bench.submit(task(1, key=KEY))
    bench.tell(recalled(1))
    assert bench.state(1) == "placed"
    assert len(bench.recalls) == 1


def test_a_dependent_is_looked_up_when_what_it_depends_on_is_known() -> None:
    bench = Bench(memos=True)
    bench.submit(task(1, key=KEY), task(2, 1, key=OTHER))
    assert [order.record for order in bench.recalls] == [1]
    bench.tell(recalled(1, source=40))
    assert [order.record for order in bench.recalls] == [1, 2]


def key_after(success: str, dep: Dep | None = None) -> bytes:
    """The key of task 9, which comes after a success of its dependency of one kind or another."""
    bench = Bench(8, memos=True)
    bench.submit(group(1, "g"), task(1, key=KEY, group=1), task(9, dep or on(1), key=OTHER))
    bench.tell(GroupClosed(GroupId(1)))
    if success == "ran":
        bench.tell(recalled(1))
        bench.end(1)
    else:
        source, attempt = success.split(".")
        bench.tell(recalled(1, source=int(source), attempt=int(attempt)))
    return bench.recalls[-1].key


@pytest.mark.parametrize("dep", [on(1), on_array(1), on_group(1)], ids=["task", "array", "group"])
def test_a_key_says_which_success_it_builds_on(dep: Dep) -> None:
    keys = [key_after(success, dep) for success in ("ran", "40.1", "40.2", "41.1")]
    assert len(set(keys)) == 4
    assert keys == [key_after(success, dep) for success in ("ran", "40.1", "40.2", "41.1")]


def test_a_key_says_how_often_the_same_was_submitted_before() -> None:
    def keys() -> list[bytes]:
        bench = Bench(8, memos=True)
        bench.submit(task(1, key=KEY), task(2, key=KEY), task(3, key=OTHER))
        bench.submit(task(4, key=KEY))
        return [order.key for order in bench.recalls]

    assert len(set(keys())) == 4
    assert keys() == keys()


def test_occurrences_go_on_after_a_restart() -> None:
    bench = Bench(8, memos=True)
    bench.submit(task(1, key=KEY))
    bench.restart()
    bench.submit(task(2, key=KEY))
    first, second = (order.key for order in bench.recalls)
    assert first != second


def test_a_retry_is_not_looked_up_again() -> None:
    bench = Bench(memos=True)
    bench.submit(task(1, key=KEY, limits=limits(retries=1)))
    bench.tell(recalled(1))
    bench.fail(1)
    assert bench.state(1) == "placed"
    bench.fail(1)
    bench.tell(Retry(on(1)))
    assert bench.state(1) == "placed"
    assert len(bench.recalls) == 1


def test_an_answer_for_something_cancelled_is_dropped() -> None:
    bench = Bench(memos=True)
    bench.submit(task(1, key=KEY))
    bench.tell(Cancel(on(1)))
    assert bench.tell(recalled(1, source=40)).facts == []
    assert bench.state(1) == "cancelled"


@pytest.mark.parametrize("source", [0, 40])
def test_a_second_answer_does_not_hurry_a_retry_that_is_not_due(source: int) -> None:
    bench = Bench(memos=True)
    bench.submit(task(1, key=KEY, limits=limits(retries=1, backoff=10)))
    bench.tell(recalled(1))
    bench.fail(1)
    assert bench.tell(recalled(1, source=source)).facts == []
    assert bench.state(1) == "waiting"


def test_an_answer_for_a_task_that_waits_again_does_not_free_it() -> None:
    bench = Bench(memos=True)
    bench.submit(task(1), task(2), task(3, 1, 2, key=KEY))
    bench.end(1)
    assert bench.tell(recalled(3)).facts == []
    assert bench.state(3) == "waiting"


@pytest.mark.parametrize("answer", [recalled(9), recalled(1, 5, 9)])
def test_an_answer_for_nothing_is_dropped(answer: MemoLookedUp) -> None:
    bench = Bench(memos=True)
    bench.submit(task(1, key=KEY))
    assert bench.tell(answer).facts == []


def test_while_it_is_looked_up_a_task_can_be_doomed() -> None:
    bench = Bench(memos=True, fail_fast=True)
    bench.submit(task(1, key=KEY), task(2))
    bench.fail(2, failure=Failure(Cause.EXIT, "no"))
    assert bench.state(1) == "skipped"
    assert bench.tell(recalled(1, source=40)).facts == []


# --- arrays -------------------------------------------------------------------------------------------


def reuse(start: int, stop: int, source: int = 40, source_start: int | None = None) -> Reuse:
    return Reuse(start, stop, RecordId(source), start if source_start is None else source_start)


def test_an_array_without_candidates_runs_at_once() -> None:
    bench = Bench(8, memos=True)
    bench.submit(array(1, 2, key=KEY))
    assert bench.recalls == []
    assert bench.states(1) == ["placed"] * 2


def test_an_array_with_candidates_is_looked_up_as_a_whole() -> None:
    bench = Bench(8, memos=True)
    candidates = (reuse(0, 3), reuse(5, 6, 41, 0))
    bench.submit(array(1, 6, key=KEY, reuse=candidates))
    (order,) = bench.recalls
    assert (order.start, order.stop, order.reuse) == (0, 6, candidates)
    assert bench.states(1) == ["waiting"] * 6


def test_parts_of_an_array_are_found_and_the_rest_runs() -> None:
    bench = Bench(8, memos=True)
    bench.submit(array(1, 6, key=KEY, reuse=(reuse(0, 3, 40, 10),)), task(2, on_array(1)))
    bench.tell(MemoLookedUp(RecordId(1), 0, 3, True, RecordId(40), 10, 1, 5), recalled(1, 3, 6))
    assert bench.states(1) == ["done"] * 3 + ["placed"] * 3
    success = bench.array(1).success_of(2)
    assert success is not None
    assert success.source_start + 2 - success.start == 12
    bench.end_all()
    assert bench.state(2) == "done"


def test_elements_with_dependencies_of_their_own_are_looked_up_by_themselves() -> None:
    bench = Bench(8, memos=True)
    bench.submit(task(9), array(1, 4, key=KEY, reuse=(reuse(0, 4),), element_after=((2, (on(9),)),)))
    assert [(order.start, order.stop) for order in bench.recalls] == [(0, 2), (3, 4)]
    bench.end(9)
    assert [(order.start, order.stop) for order in bench.recalls][2:] == [(2, 3)]


def test_the_mark_of_an_array_does_not_depend_on_how_its_spans_were_cut() -> None:
    def key(cut: list[tuple[int, int]]) -> bytes:
        bench = Bench(8, memos=True)
        bench.submit(array(1, 4, key=KEY, reuse=(reuse(0, 4),)), task(2, on_array(1), key=OTHER))
        for start, stop in cut:
            bench.tell(recalled(1, start, stop, source=40))
        return bench.recalls[-1].key

    assert key([(0, 4)]) == key([(0, 2), (2, 4)]) == key([(3, 4), (0, 1), (1, 3)])


def test_a_key_after_an_element_says_which_element_it_was() -> None:
    def key(index: int) -> bytes:
        bench = Bench(8, memos=True)
        bench.submit(array(1, 3), task(2, on_element(1, index), key=OTHER))
        bench.end(1, index)
        return bench.recalls[-1].key

    assert key(1) != key(2)
    assert key(1) == key(1)


def test_recalled_facts_are_written() -> None:
    bench = Bench(memos=True)
    bench.submit(task(1, key=KEY))
    assert kinds(bench.tell(recalled(1))) == ["MemoLookedUp", "Placed"]
