"""Questions about the core: answered with values that a later turn does not change."""

from __future__ import annotations

import msgspec
import pytest

from bough.core.queries.answers import TaskCounts
from bough.core.queries.facade import Queries
from bough.model.events import facts, news
from bough.model.ids import GroupId
from bough.model.outcomes import Cause, Success
from bough.model.states import TaskState
from bough.model.tasks import Dep, GroupSpec, Limits, On
from bough.testing.builders import BOOM, array, executor, group, limits, on_group, task
from tests.unit.core.core_bench import Bench, on


@pytest.fixture
def bench() -> Bench:
    made = Bench(0)
    made.tell(facts.RunOpened(2, "w", "h", 1, group=GroupId(2), directory="/d", user="ann"))
    return made


@pytest.fixture
def queries(bench: Bench) -> Queries:
    return Queries(bench.machine)


def test_a_task_is_described_by_values_that_stay(bench: Bench, queries: Queries) -> None:
    bench.submit(group(3, "sub", 2), array(1, 3, group=3, name="sim"))
    before = queries.task(1, 2)
    bench.tell(executor(1, 4))
    bench.end(1, 0, 1)
    bench.end(1, 1)
    bench.end(1, 2)

    assert (before.id, before.spec.name, before.path, before.workflow, before.run) == ("1.2", "sim", "sub", "w", 2)
    assert before.state is TaskState.READY
    assert queries.state_of(1, 2) is TaskState.DONE
    assert (queries.length_of(1), queries.path_of(1), queries.label(1, 1)) == (3, "sub/sim", "1.1")
    with pytest.raises(KeyError):
        queries.task(9, 0)
    assert (queries.state_of(9, 0), queries.length_of(9), queries.can_find(9)) == (None, None, False)


def test_answers_cannot_be_written_to(bench: Bench, queries: Queries) -> None:
    bench.submit(task(1, group=2))
    for answer in (queries.task(1, 0), queries.counts(), queries.workflow(2), queries.group(2)):
        assert isinstance(answer, msgspec.Struct)
        with pytest.raises(AttributeError):
            setattr(answer, answer.__struct_fields__[0], None)


def test_attempts_are_found_by_span_executor_and_task(bench: Bench, queries: Queries) -> None:
    bench.tell(executor(1, 4))
    bench.submit(task(1, group=2), task(2, group=2))
    span = bench.span(1)
    (found, other) = queries.attempts()
    assert (found.span, found.record, found.attempt, found.executor, found.left) == (span, 1, 1, 1, ((0, 1),))
    assert queries.attempt(span) == queries.attempt_at(1, 0) == queries.attempt_of(1, span, 0) == found
    assert queries.attempt_of(2, span, 0) is None
    assert queries.attempts_on(1) == [found, other]
    assert queries.spans_on(1) == [span, other.span]

    bench.tell(facts.ExecutorLost(executor().executor))

    late = queries.attempt_of(1, span, 0)
    assert late is not None
    assert late.is_late
    assert queries.attempt(span) is queries.attempt_at(1, 0) is None
    assert queries.is_wanted(span, 1)
    assert queries.is_foreign(news.WorkSucceeded(span, 0, 1, 1.0), 2)
    assert queries.attempts_on(1) == queries.spans_on(1) == []


def test_tasks_are_counted_by_group_and_all_below(bench: Bench, queries: Queries) -> None:
    bench.submit(group(3, "a", 2), group(4, "b", 3), task(1, group=4), array(2, 5, group=3))
    assert str(queries.counts([2])) == str(queries.counts([3])) == str(queries.counts()) == "6 ready"
    assert (queries.counts([4]).ready, queries.counts([99]).unfinished) == (1, 0)
    assert queries.counts_by_group()[GroupId(3)].labels() == {"ready": 5}
    assert [one.id for one in queries.subtree(2)] == [4, 3, 2]
    assert str(TaskCounts((0,) * len(TaskState))) == "no tasks"


def test_workflows_are_found_by_run_and_name(bench: Bench, queries: Queries) -> None:
    bench.tell(facts.RunOpened(3, "w", "h", 1, group=GroupId(3)))
    assert queries.runs() == [1, 2, 3]
    assert [one.run for one in queries.workflows()] == [one.run for one in queries.workflows_named("w")] == [2, 3]
    found = queries.running_workflow("w")
    assert found is not None
    assert (found.run, found.directory, found.user, found.closed) == (2, "/d", "ann", False)
    bench.tell(news.GroupClosed(GroupId(2)), facts.RunClosed(2))
    again = queries.running_workflow("w")
    assert again is not None
    assert again.run == 3
    assert queries.may_retire(2)
    assert queries.workflow_count == 2


def test_outcomes_are_successes_then_failures(bench: Bench, queries: Queries) -> None:
    bench.tell(executor(1, 4))
    bench.submit(array(1, 4, group=2))
    for index in (0, 2):
        bench.end(1, index)
    bench.fail(1, 3)
    bench.tell(news.Cancel(Dep(On.TASK, 1, 1)))

    told = list(queries.outcomes(1, 0))

    assert [one.start for one in told if isinstance(one, Success)] == [0, 2]
    assert [(one[0], one[1].cause) for one in told if isinstance(one, tuple)] == [(1, Cause.CANCELLED), (3, BOOM.cause)]
    assert [one.start for one in queries.outcomes(1, 2) if isinstance(one, Success)] == [2]
    assert list(queries.outcomes(99, 0)) == []
    ended = queries.ended_by(facts.Cancelled(Dep(On.TASK, 1, 1)))
    assert [(record, start, stop) for record, start, stop, _ in ended] == [(1, 1, 2)]


def test_a_group_may_be_retried_until_it_was(bench: Bench, queries: Queries) -> None:
    bench.tell(executor(1, 4))
    bench.submit(GroupSpec(GroupId(3), "g", GroupId(2), retries=1), task(1, group=3), task(2, on(1), group=3))
    assert queries.has_retrying_groups(1, 0)
    assert queries.retrying_group(1, 0) is None  # it is open
    bench.tell(news.GroupClosed(GroupId(3)))
    that = queries.retrying_group(1, 0)
    assert that is not None
    assert queries.may_be_retried(that)
    bench.fail(1)
    assert not queries.may_be_retried(that)  # it was
    assert queries.failed_parts(1, 0, 1) == []


def test_why_a_workflow_stands_still(bench: Bench, queries: Queries) -> None:
    assert queries.why_stuck(2) == ""
    bench.submit(task(1, group=2, limits=limits(retries=1, backoff=5.0)))
    assert "there is no executor" in queries.why_stuck(2)
    bench.tell(executor(1, 1))
    assert queries.why_stuck(2) == ""
    bench.fail(1)
    assert queries.awaits_retry(2)
    assert queries.why_stuck(2) == ""
    bench.tell(news.Hold(on_group(2)))
    bench.wait(6)
    assert "are held; release them with bough release" in queries.why_stuck(2)
    bench.tell(news.Hold(on_group(2), disabled=True))
    assert "is disabled: bough enable" in queries.why_stuck(2)
    assert queries.why_stuck(99) == ""


def test_what_a_returning_client_needs(bench: Bench, queries: Queries) -> None:
    bench.submit(group(3, "a", 2), group(4, "b", 3), task(1, group=4, limits=Limits(retries=2)), array(2, 5, group=3))
    contents = queries.contents(2)
    assert contents is not None
    assert [one.id for one in contents.groups] == [3, 4]
    assert sorted((one.spec.id, one.length, one.is_array, one.group) for one in contents.records) == [
        (1, 1, False, 4),
        (2, 5, True, 3),
    ]
    assert queries.contents(99) is None
    assert queries.has_items([task(1, group=4), group(3, "a", 2)])
    assert not queries.has_items([task(7, group=4)])
    assert queries.records_of(2) == [2, 1]
    assert queries.group_sizes(2) == [(0, 0), (1, 5), (1, 1)]


def test_executors_are_counted_by_what_they_do(bench: Bench, queries: Queries) -> None:
    bench.tell(executor(1, 1), executor(2, 1), executor(3, 1), executor(4, 2))
    bench.submit(task(1, group=2))
    bench.tell(facts.ExecutorDrained(executor(3).executor), facts.ExecutorSuspended(executor(2).executor, 9.0, "x"))
    counts = queries.executor_counts({1, 2, 3})
    assert (counts.active, counts.idle, counts.suspended, counts.draining, counts.missing) == (1, 0, 1, 1, 1)
    assert (counts.allocated, counts.manual, counts.cores) == (4, 0, 5.0)
    assert queries.takes_functions()
    assert (queries.host_of(1) != "", queries.host_of(99)) == (True, "")
