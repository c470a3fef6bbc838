"""Structured workflows: early release, final tasks, limits, retries and time limits of groups, and places."""

from __future__ import annotations

import pytest

from bough.model.events import facts, news
from bough.model.ids import ExecutorId
from bough.model.tasks import Dep, GroupSpec, On, TaskExtras, TaskSpec
from bough.testing.builders import array, executor, group, limits, needs, on_group, task
from tests.unit.core.core_bench import BOOM, Bench

RELEASE = TaskExtras(release=True)
FINAL = TaskExtras(final=True)


def at_end(id_: int) -> Dep:
    return Dep(On.END, id_)


def part(id_: int, where: int, *after: int | Dep, **extras: object) -> TaskSpec:
    return task(id_, *after, group=where, extras=TaskExtras(**extras))  # type: ignore[arg-type]


# --- release ---------------------------------------------------------------------------------------


def test_who_waits_for_a_group_starts_when_a_task_releases_it() -> None:
    bench = Bench(4)
    bench.submit(group(1, "slice"), part(1, 1, release=True), part(2, 1, 1))
    bench.submit(task(3, on_group(1)), task(4, at_end(1)))
    bench.tell(news.GroupClosed(1))  # type: ignore[arg-type]
    bench.end(1)
    assert bench.states(2, 3, 4) == ["placed", "placed", "waiting"]
    bench.end(2)
    assert bench.state(4) == "placed"


def test_a_group_that_is_still_open_can_be_released() -> None:
    bench = Bench(4)
    bench.submit(group(1, "slice"), part(1, 1, release=True), task(3, on_group(1)))
    bench.end(1)
    assert bench.state(3) == "placed"


def test_a_supergroup_without_tasks_of_its_own_is_released_with_its_subgroups() -> None:
    bench = Bench(8)
    bench.submit(group(1, "piece"), group(2, "a", 1), group(3, "b", 1))
    bench.submit(part(1, 2, release=True), part(2, 2, 1), part(3, 3, release=True), part(4, 3, 3))
    bench.submit(task(9, on_group(1)), task(10, at_end(1)))
    for closed in (2, 3, 1):
        bench.tell(news.GroupClosed(closed))  # type: ignore[arg-type]
    bench.end(1)
    assert bench.state(9) == "waiting"
    bench.end(3)
    assert bench.states(9, 10) == ["placed", "waiting"]
    bench.end(2)
    bench.end(4)
    assert bench.state(10) == "placed"


def test_a_supergroup_with_a_task_of_its_own_is_not_released_before_that_has_ended() -> None:
    bench = Bench(8)
    bench.submit(group(1, "piece"), group(2, "a", 1), part(1, 2, release=True), part(2, 2, 1))
    bench.submit(part(3, 1, at_end(2)), task(9, on_group(1)))
    for closed in (2, 1):
        bench.tell(news.GroupClosed(closed))  # type: ignore[arg-type]
    bench.end(1)
    assert bench.states(3, 9) == ["waiting", "waiting"]
    bench.end(2)
    bench.end(3)
    assert bench.state(9) == "placed"


def test_a_failure_after_the_release_stops_only_who_waits_for_the_end() -> None:
    bench = Bench(8)
    bench.submit(group(1, "slice"), part(1, 1, release=True), part(2, 1, 1))
    bench.submit(task(3, on_group(1)), task(4, at_end(1)))
    bench.tell(news.GroupClosed(1))  # type: ignore[arg-type]
    bench.end(1)
    bench.fail(2)
    assert bench.states(3, 4) == ["placed", "skipped"]
    bench.submit(task(5, on_group(1)))
    assert bench.state(5) == "placed", "who comes later may start too"


# --- final tasks -----------------------------------------------------------------------------------


def test_a_final_task_runs_after_a_failure() -> None:
    bench = Bench(4)
    bench.submit(task(1), task(2, 1), task(3, 2, extras=FINAL), task(4, 2))
    bench.fail(1)
    assert bench.states(2, 3, 4) == ["skipped", "placed", "skipped"]


def test_a_final_task_waits_for_everything_all_the_same() -> None:
    bench = Bench(4)
    bench.submit(group(1, "all"), task(1, group=1), task(2, group=1), task(3, at_end(1), extras=FINAL))
    bench.tell(news.GroupClosed(1))  # type: ignore[arg-type]
    bench.fail(1)
    assert bench.state(3) == "waiting"
    bench.end(2)
    assert bench.state(3) == "placed"


def test_a_final_task_that_comes_after_the_failure_runs_at_once() -> None:
    bench = Bench(4)
    bench.submit(task(1))
    bench.fail(1)
    bench.submit(task(2, 1, extras=FINAL))
    assert bench.state(2) == "placed"


def test_a_final_task_runs_although_the_workflow_stops_at_the_first_failure() -> None:
    bench = Bench(1, fail_fast=True)
    bench.submit(task(1), task(2), task(3, 1, 2, extras=FINAL))
    bench.fail(1)
    assert bench.states(2, 3) == ["skipped", "placed"]


def test_a_final_task_in_a_group_whose_dependency_failed_runs() -> None:
    bench = Bench(4)
    bench.submit(task(1), group(1, "g", 0, Dep(On.TASK, 1)), task(2, group=1), task(3, 2, group=1, extras=FINAL))
    bench.fail(1)
    assert bench.states(2, 3) == ["skipped", "placed"]


def test_a_retry_by_hand_does_not_run_a_final_task_twice() -> None:
    bench = Bench(4)
    bench.submit(task(1), task(2, 1, extras=FINAL))
    bench.fail(1)
    bench.end(2)
    bench.tell(news.Retry(Dep(On.TASK, 1)))
    bench.end(1)
    assert bench.states(1, 2) == ["done", "done"]


# --- limits ----------------------------------------------------------------------------------------


def limited(id_: int, limit: int, parent: int = 0) -> GroupSpec:
    return GroupSpec(id_, f"g{id_}", parent, limit=limit)  # type: ignore[arg-type]


def test_no_more_tasks_of_a_group_are_out_than_it_allows() -> None:
    bench = Bench(8)
    bench.submit(limited(1, 2), *(task(id_, group=1) for id_ in range(1, 6)), task(9))
    assert bench.states(1, 2, 3, 4, 5, 9) == ["placed", "placed", "ready", "ready", "ready", "placed"]
    bench.end(1)
    assert bench.states(3, 4) == ["placed", "ready"]


def test_the_limit_of_a_group_counts_what_is_below_it() -> None:
    bench = Bench(8)
    bench.submit(limited(1, 3), limited(2, 2, 1), group(3, "free", 1))
    bench.submit(*(task(id_, group=2) for id_ in (1, 2, 3)), *(task(id_, group=3) for id_ in (4, 5)))
    assert bench.states(1, 2, 3, 4, 5) == ["placed", "placed", "ready", "placed", "ready"]


def test_an_array_in_a_limited_group_runs_in_so_many_slots() -> None:
    bench = Bench(8)
    bench.submit(limited(1, 3), array(1, 20, group=1))
    assert len(bench.machine.state.spans) == 3


def test_explain_names_the_limit() -> None:
    bench = Bench(8)
    bench.submit(limited(1, 1), task(1, group=1), task(2, group=1))
    assert "limit" in bench.machine.explain(2)[0]
    assert "g1" in bench.machine.explain(2)[0]


# --- retries and time limits of groups -------------------------------------------------------------


def test_a_group_is_tried_again_as_a_whole() -> None:
    bench = Bench(4)
    bench.submit(GroupSpec(1, "g", retries=1), task(1, group=1), task(2, 1, group=1), task(3, on_group(1)))  # type: ignore[arg-type]
    bench.tell(news.GroupClosed(1))  # type: ignore[arg-type]
    bench.fail(1)
    assert bench.states(1, 2, 3) == ["placed", "waiting", "waiting"]
    bench.end(1)
    bench.end(2)
    assert bench.state(3) == "placed"


def test_a_group_that_fails_too_often_has_failed() -> None:
    bench = Bench(4)
    bench.submit(GroupSpec(1, "g", retries=1), task(1, group=1), task(3, on_group(1)))  # type: ignore[arg-type]
    bench.tell(news.GroupClosed(1))  # type: ignore[arg-type]
    bench.fail(1)
    bench.fail(1)
    assert bench.states(1, 3) == ["failed", "skipped"]


def test_what_was_cancelled_or_killed_is_not_tried_again() -> None:
    bench = Bench(4)
    bench.submit(GroupSpec(1, "g", retries=3), task(1, group=1))  # type: ignore[arg-type]
    bench.tell(news.GroupClosed(1))  # type: ignore[arg-type]
    bench.tell(news.Kill(Dep(On.GROUP, 1)))
    assert bench.state(1) == "failed"


def test_the_time_of_a_group_begins_with_its_first_task_and_ends_all_of_it() -> None:
    bench = Bench(1)
    bench.submit(GroupSpec(1, "g", timeout=10.0), task(1, group=1), task(2, group=1), task(3, on_group(1)))  # type: ignore[arg-type]
    bench.tell(news.GroupClosed(1))  # type: ignore[arg-type]
    bench.wait(9.0)
    assert bench.states(1, 2) == ["placed", "ready"]
    bench.wait(1.5)
    assert bench.states(1, 2, 3) == ["failed", "skipped", "skipped"]
    assert "time limit of group g" in bench.machine.explain(1)[0]


def test_a_group_that_ended_in_time_is_left_alone() -> None:
    bench = Bench(1)
    bench.submit(GroupSpec(1, "g", timeout=10.0), task(1, group=1))  # type: ignore[arg-type]
    bench.tell(news.GroupClosed(1))  # type: ignore[arg-type]
    bench.end(1)
    bench.wait(20.0)
    assert bench.state(1) == "done"


# --- places ----------------------------------------------------------------------------------------


@pytest.fixture
def two_hosts() -> Bench:
    bench = Bench(1)
    bench.tell(executor(2, 1))
    return bench


def test_a_task_with_affinity_runs_where_its_predecessor_ran(two_hosts: Bench) -> None:
    bench = two_hosts
    bench.submit(task(1), task(2), task(3, 2, extras=TaskExtras(same_host_as=2)))
    first = bench.machine.state.spans[bench.span(2)].executor.id
    bench.end(2)
    assert bench.machine.state.spans[bench.span(3)].executor.id == first


def test_it_runs_there_also_if_the_predecessor_had_ended_before_it_came(two_hosts: Bench) -> None:
    bench = two_hosts
    bench.submit(task(1), task(2))
    home = bench.machine.state.spans[bench.span(2)].executor
    bench.end(2)
    bench.end(1)
    bench.submit(task(3, 2, extras=TaskExtras(same_host_as=2)))
    assert bench.machine.state.spans[bench.span(3)].executor is home


def test_it_waits_for_that_host_while_others_go_elsewhere(two_hosts: Bench) -> None:
    bench = two_hosts
    bench.submit(task(1), task(2), task(3, 2, extras=TaskExtras(same_host_as=2)), task(4))
    home = bench.machine.state.spans[bench.span(2)].executor
    bench.submit(task(5, 1))
    bench.end(2)
    assert bench.machine.state.spans[bench.span(3)].executor is home
    bench.submit(task(6, 3, extras=TaskExtras(same_host_as=3)), task(7, extras=TaskExtras(host=home.host)))
    bench.end(1)
    assert bench.state(7) == "ready"
    assert bench.state(4) == "placed", "it went to the other host, past the one that waits"


def test_it_goes_anywhere_when_its_host_is_gone(two_hosts: Bench) -> None:
    bench = two_hosts
    bench.submit(task(1), task(2), task(3, 2, extras=TaskExtras(same_host_as=2)))
    home = bench.machine.state.spans[bench.span(2)].executor
    bench.tell(executor(3, 1))
    bench.tell(facts.ExecutorDrained(ExecutorId(home.id)))
    bench.end(2)
    assert bench.state(3) == "placed"
    assert bench.machine.state.spans[bench.span(3)].executor is not home


def test_a_host_that_was_never_there_binds_nobody() -> None:
    bench = Bench(1)
    bench.submit(task(1, extras=TaskExtras(host="nowhere")))
    assert bench.state(1) == "placed"


def test_explain_names_the_host_that_is_busy(two_hosts: Bench) -> None:
    bench = two_hosts
    bench.submit(task(1, extras=TaskExtras(host="host1")), task(2, extras=TaskExtras(host="host1"), needs=needs(1)))
    assert "host1" in bench.machine.explain(2)[0]


def test_limits_of_tasks_and_groups_are_independent() -> None:
    bench = Bench(4)
    bench.submit(GroupSpec(1, "g", retries=1), task(1, group=1, limits=limits(retries=1)))  # type: ignore[arg-type]
    bench.tell(news.GroupClosed(1))  # type: ignore[arg-type]
    for _ in range(3):
        bench.fail(1, failure=BOOM)
    assert bench.state(1) in {"placed", "failed"}
