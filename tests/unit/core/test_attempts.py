"""Attempts of tasks: found without a search through all of them; of several at once the first success counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bough.core.invariants import check
from bough.core.records.attempts import MOST_LATE, AttemptIndex, Span
from bough.model.events import facts, news
from bough.model.events.orders import StopSpan
from bough.model.ids import ExecutorId, RecordId, SpanId
from bough.model.states import TaskState
from bough.testing.builders import BOOM, array, executor, task
from tests.unit.core.core_bench import Bench, on

MANY = 10_000


class Unsearchable(dict[int, Span]):
    """Spans by number: a lookup is allowed, a walk through all of them is not."""

    def _refuse(self) -> Any:
        raise AssertionError("the spans were searched")

    def __iter__(self) -> Iterator[int]:
        return self._refuse()

    values = items = keys = _refuse  # type: ignore[assignment]


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the spans that were asked what they hold."""
    seen: list[int] = []

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(span: Span, *arguments: int) -> Any:
            seen.append(span.id)
            return method(span, *arguments)

        return call

    for name in ("has", "parts", "take"):
        monkeypatch.setattr(Span, name, counted(getattr(Span, name)))
    return seen


def many_spans(bench: Bench, *, loose: bool) -> None:
    """Ten thousand spans with an executor, of one array or of as many tasks."""
    items = [task(number) for number in range(1, MANY + 1)] if loose else [array(1, MANY)]
    bench.machine.turn(0.0, [facts.Submitted(items)])  # type: ignore[arg-type]
    for record in bench.machine.state.records.values():
        record.runtime.note(1, 100.0)  # long ones go one by one
    bench.machine.turn(0.0, [executor(1, MANY)])
    state = bench.machine.state
    assert len(state.spans) == MANY
    state.attempts.current = state.spans = Unsearchable(state.spans)


@pytest.mark.parametrize("loose", [False, True])
@pytest.mark.parametrize("action", [news.Kill, news.Cancel])
def test_one_of_ten_thousand_spans_is_ended_without_looking_at_the_others(
    looked_at: list[int], loose: bool, action: type[news.Kill | news.Cancel]
) -> None:
    bench = Bench(0)
    many_spans(bench, loose=loose)
    looked_at.clear()
    turn = bench.machine.turn(0.0, [action(on(5_000) if loose else on(1, 5_000))])
    (stop,) = [order for order in turn.orders if isinstance(order, StopSpan)]
    assert bench.machine.state.spans.get(stop.span) is None
    assert len(looked_at) <= 100
    assert bench.machine.explain(*((5_001, 0) if loose else (1, 5_001)))


def test_what_an_executor_says_late_is_found_without_a_search(looked_at: list[int]) -> None:
    bench = Bench(0)
    many_spans(bench, loose=False)
    bench.machine.turn(0.0, [executor(2, 1)])
    span = bench.machine.state.spans[7_000]
    elements = (span.start, span.stop)
    bench.machine.turn(1.0, [facts.ExecutorLost(ExecutorId(1), "gone")])
    assert len(bench.machine.state.attempts.late) == MANY == MOST_LATE
    looked_at.clear()
    turn = bench.machine.turn(2.0, [news.WorkSucceeded(SpanId(7_000), *elements, 1.0)])
    assert [type(fact) for fact in turn.facts] == [facts.SpanEnded]
    assert len(looked_at) <= 100


# --- replicas -------------------------------------------------------------------------------------------


def with_replica(*, of_array: bool = False) -> Bench:
    """Task 1 (of an array: its elements 0 to 3, all in one span) is with executor 1, and once more with executor 2."""
    bench = Bench(0)
    bench.submit(array(1, 4) if of_array else task(1))
    if of_array:  # all of it goes at once
        for machine in (bench.machine, bench.twin):
            machine.state.records[1].runtime.note(1, 0.0001)
    bench.tell(executor(1, 1))
    bench.tell(executor(2, 4))
    (span,) = bench.machine.state.spans.values()
    for index in range(span.start, span.stop):
        number = SpanId(span.id + 1 + index)
        replica = facts.Replicated(number, RecordId(1), index, span.attempt + 1, ExecutorId(2))
        for machine in (bench.machine, bench.twin):
            machine.replay(machine.state.turn + 1, bench.now, [replica])
    bench.tell()
    assert len(bench.machine.state.spans) == (5 if of_array else 2)
    return bench


def stopped(bench: Bench) -> list[tuple[int, int, int]]:
    return [(order.span, order.start, order.stop) for order in bench.orders if isinstance(order, StopSpan)]


@pytest.mark.parametrize("winner", [1, 2])
def test_the_first_success_counts_and_the_other_attempt_is_ended(winner: int) -> None:
    bench = with_replica()
    spans = sorted(bench.machine.state.spans)
    turn = bench.tell(news.WorkSucceeded(SpanId(spans[winner - 1]), 0, 1, 1.0))
    assert bench.state(1) == "done"
    assert stopped(bench) == [(spans[2 - winner], 0, 1)]
    assert not bench.machine.state.spans
    record = bench.machine.state.records[1]
    success = record.success_of(0)
    assert success is not None
    assert success.attempt == winner
    assert [fact.attempt for fact in turn.facts if isinstance(fact, facts.SpanEnded)] == [winner]
    assert bench.tell(news.WorkSucceeded(SpanId(spans[2 - winner]), 0, 1, 1.0)).facts == []


def test_one_of_two_attempts_may_fail_be_given_back_or_get_lost() -> None:
    for said in (
        lambda span: news.WorkFailed(span, 0, BOOM),
        lambda span: news.WorkReturned(span, 0, 1),
        lambda span: facts.ExecutorLost(ExecutorId(2), "gone"),
    ):
        bench = with_replica()
        first, second = sorted(bench.machine.state.spans)
        bench.tell(said(SpanId(second)))
        assert bench.state(1) == "placed"
        assert set(bench.machine.state.spans) == {first}
        bench.tell(news.WorkSucceeded(SpanId(first), 0, 1, 1.0))
        assert bench.state(1) == "done"


def test_the_failure_of_the_last_attempt_is_that_of_the_task() -> None:
    bench = with_replica()
    for span in sorted(bench.machine.state.spans):
        bench.tell(news.WorkFailed(SpanId(span), 0, BOOM))
    assert bench.state(1) == "failed"
    assert bench.machine.state.records[1].failures_of(0) == (1, 0)


def test_replicas_of_elements_end_one_by_one() -> None:
    bench = with_replica(of_array=True)
    first, *others = sorted(bench.machine.state.spans)
    bench.tell(*(news.WorkSucceeded(SpanId(others[index]), index, index + 1, 1.0) for index in (0, 1)))
    assert stopped(bench) == [(first, 0, 1), (first, 1, 2)]
    bench.tell(news.WorkReturned(SpanId(first), 2, 3))
    assert [bench.machine.state.records[1].state_of(index) for index in range(4)][:2] == [TaskState.DONE] * 2
    bench.tell(news.Kill(on(1, 3)))
    assert sorted(stopped(bench)) == sorted([(first, 0, 1), (first, 1, 2), (first, 3, 4), (others[3], 3, 4)])
    bench.tell(news.WorkSucceeded(SpanId(others[2]), 2, 3, 1.0))
    assert not bench.machine.state.spans
    check(bench.machine.state)


def test_an_index_forgets_what_has_ended() -> None:
    bench = with_replica()
    bench.end(1)
    index = bench.machine.state.attempts
    empty = AttemptIndex()
    assert all(getattr(index, name) == getattr(empty, name) for name in AttemptIndex.__slots__)
