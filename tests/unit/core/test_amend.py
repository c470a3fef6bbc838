"""Changing the description of a workflow that goes on."""

from __future__ import annotations

import msgspec

from bough.core.actions.amend import why_not
from bough.core.actions.difference import find_difference, why_taken, why_wrong
from bough.model.events import facts, news
from bough.model.ids import GroupId, RecordId
from bough.model.tasks import Dep, On
from bough.testing.builders import array, task
from tests.unit.core.amending_bench import Flow, items
from tests.unit.core.core_bench import kinds, on

# --- what is different -----------------------------------------------------------------------------


def test_the_same_description_makes_no_difference() -> None:
    lines = ("a", "g/ < a", "g/b < a", "g/c < g/b", "d < g/")
    flow = Flow(*lines)
    found = flow.difference(*lines)
    assert found.is_empty
    assert found.unchanged == 4
    assert sorted(found.ids) == sorted(flow.ids.values())


def test_what_is_added_changed_and_removed_is_named_by_its_path() -> None:
    flow = Flow("a", "g/", "g/b", "h/", "h/c")
    found = flow.difference("a = other", "g/", "g/b", "g/new < a", "i/", "i/c")
    assert (found.added, found.changed, found.removed) == (["g/new", "i/c"], ["a"], ["h/c"])
    assert (found.added_groups, found.changed_groups, found.removed_groups) == (["i"], [], ["h"])
    assert found.unchanged == 1


def test_a_task_that_was_moved_is_removed_there_and_added_here() -> None:
    flow = Flow("g/", "g/a", "h/")
    found = flow.difference("g/", "h/", "h/a")
    assert (found.added, found.removed) == (["h/a"], ["g/a"])


def test_the_order_of_dependencies_is_no_difference_but_another_one_is() -> None:
    flow = Flow("a", "b", "c < a, b", "g/ < a, b")
    assert flow.difference("a", "b", "c < b, a", "g/ < b, a").is_empty
    found = flow.difference("a", "b", "c < a", "g/ < b")
    assert (found.changed, found.changed_groups) == (["c"], ["g"])


def test_of_tasks_of_one_name_those_with_equal_commands_are_the_same() -> None:
    flow = Flow("sim = 1", "sim = 2", "sim = 3", "sim = 3")
    kept = {record.payload: record.id for record in flow.bench.machine.state.records.values()}
    found = flow.difference("sim = 0", "sim = 3", "sim = 1")
    assert (found.added, found.changed, found.removed, found.unchanged) == ([], ["sim"], ["sim"], 2)
    assert found.ids == [kept[b"2"], kept[b"3"] - 1, kept[b"1"]]


def test_a_cycle_or_an_unknown_reference_is_found_before_anything_is_compared() -> None:
    flow = Flow("a", "b")
    state = flow.bench.machine.state
    first, second = items(("a", "b < a"), 900)
    ring = [msgspec.structs.replace(first, after=(Dep(On.TASK, second.id),)), second]
    assert why_wrong(state, state.workflows[2], ring) == "cycle: a -> b -> a; a task cannot wait for itself"
    lost = [msgspec.structs.replace(first, after=(Dep(On.TASK, 7),))]
    assert why_wrong(state, state.workflows[2], lost) == "a depends on 7, which does not exist"
    taken = [msgspec.structs.replace(first, id=RecordId(flow.ids["a"]), name="other")]
    fact = find_difference(state.workflows[2], taken).news
    assert why_taken(state, fact) == f"the id {flow.ids['a']} is taken"


def test_only_a_workflow_of_commands_that_goes_on_and_is_whole_can_be_changed() -> None:
    flow = Flow("a")
    state = flow.bench.machine.state
    assert why_not(state, 2) is None
    assert why_not(state, 3) == "the workflow has ended meanwhile; submit it again"
    flow.end("a")
    assert why_not(state, 2) == "the workflow has ended meanwhile; submit it again"
    assert flow.amend("b").added == ["b"]
    assert flow.states == {"a": "done"}


def test_a_workflow_that_no_description_made_is_left_alone() -> None:
    for item in (task(1, group=50), array(1, 3, group=50)):
        flow = Flow("a", is_closed=False)
        state = flow.bench.machine.state
        assert (why_not(state, 2) or "").startswith("more may come into the workflow flow;")
        flow.bench.submit(item)
        flow.bench.tell(news.GroupClosed(GroupId(50)))
        assert (why_not(state, 2) or "").startswith("the workflow flow holds more than commands:")
        flow.bench.tell(news.Amend(2, removed=(RecordId(1),)))
        assert 1 in state.records


# --- tasks -----------------------------------------------------------------------------------------


def test_what_is_not_changed_is_left_alone_in_whatever_state_it_is() -> None:
    flow = Flow("a", "b", "c < b", "x")
    flow.end("a")
    span = flow.bench.span(flow.ids["b"])
    flow.amend("a", "b", "c < b")
    assert flow.states == {"a": "done", "b": "placed", "c": "waiting"}
    assert flow.bench.span(flow.ids["b"]) == span
    flow.end("b", "c")
    assert flow.is_over


def test_nothing_is_recorded_if_nothing_is_different() -> None:
    flow = Flow("a", "b < a")
    assert kinds(flow.bench.tell(flow.difference("a", "b < a").news)) == []


def test_what_is_new_may_wait_for_what_is_there_and_what_has_not_started_for_what_is_new() -> None:
    flow = Flow("a", "b < a", cores=1)
    flow.amend("a", "new < a", "b < new")
    assert flow.states == {"a": "placed", "b": "waiting", "new": "waiting"}
    flow.end("a", "new", "b")
    assert flow.is_over


def test_a_changed_task_that_runs_is_ended_and_run_anew_by_the_same_number() -> None:
    flow = Flow("a", "b < a")
    before, span = flow.ids["a"], flow.bench.span(flow.ids["a"])
    flow.bench.start(before)
    flow.amend("a = other", "b < a")
    assert [order.span for order in flow.bench.stops] == [span]
    assert flow.ids["a"] == before
    assert flow.bench.record(before).spec.payload == b"other"
    assert flow.bench.attempt(before) == 2
    flow.bench.tell(news.WorkSucceeded(span, 0, 1, 1.0))  # the old one was faster than the order to end
    assert flow.states["a"] == "placed"
    flow.end("a", "b")
    assert flow.is_over


def test_a_changed_task_that_is_done_runs_again_and_so_does_all_that_depends_on_it() -> None:
    lines = ("a", "b < a", "c < b", "d", "e < d")
    flow = Flow(*lines, cores=4)
    flow.end("a", "d", "b", "e")
    found = flow.amend("a = other", "b < a", "c < b", "d", "e < d")
    assert found.changed == ["a"]
    assert flow.again == ["b", "c"]
    assert flow.states == {"a": "placed", "b": "waiting", "c": "waiting", "d": "done", "e": "done"}
    flow.end("a", "b", "c")
    assert flow.is_over


def test_a_changed_task_that_has_not_started_is_run_as_it_is_now() -> None:
    flow = Flow("a", "b < a", "c < a", cores=1)
    flow.amend("a", "b", "c = other < a")
    assert flow.states == {"a": "placed", "b": "ready", "c": "waiting"}
    flow.end("a", "b", "c")
    assert flow.bench.record(flow.ids["c"]).spec.payload == b"other"


def test_what_has_begun_is_left_alone_if_it_only_waits_for_less() -> None:
    flow = Flow("a", "x", "c < a", "d < a", "e < a, x", "g/ < a", "g/f", "h/ < x", "h/i", cores=4)
    flow.end("a", "c")
    span = flow.bench.span(flow.ids["d"])
    flow.amend("x", "c", "d", "e < x", "g/", "g/f", "h/", "h/i")
    assert flow.states == {
        "x": "placed", "c": "done", "d": "placed", "e": "waiting", "g/f": "placed", "h/i": "placed",
    }  # fmt: skip
    assert flow.bench.span(flow.ids["d"]) == span
    assert flow.bench.stops == []
    flow.end("x", "d", "e", "g/f", "h/i")
    assert flow.is_over


def test_what_is_removed_is_withdrawn_or_forgotten() -> None:
    flow = Flow("a", "b", "c < a", "d < b, c", "e", cores=3)
    flow.end("a")
    gone = flow.ids
    found = flow.amend("b", "d < b")
    assert found.removed == ["a", "c", "e"]
    assert flow.states == {"b": "placed", "d": "waiting"}
    assert {order.span for order in flow.bench.stops}
    assert not {gone["a"], gone["c"], gone["e"]} & flow.bench.machine.state.records.keys()
    flow.end("b", "d")
    assert flow.is_over


def test_a_workflow_from_which_all_that_was_left_is_removed_is_over() -> None:
    flow = Flow("a", "b", "g/", "g/c < a")
    flow.end("b")
    flow.amend("b")
    assert flow.is_over
    assert flow.bench.finished[-1] == (50, False)


def test_a_change_of_needs_ends_what_runs_but_nothing_that_is_done() -> None:
    flow = Flow("a", "b", "c < b", cores=2)
    flow.end("a")
    flow.amend("a ; cores=2", "b ; cores=2", "c < b ; cores=2")
    assert flow.states == {"a": "done", "b": "placed", "c": "waiting"}
    assert len(flow.bench.stops) == 1
    assert flow.bench.machine.state.executors[1].cores_free == 0
    flow.end("b", "c")


def test_a_change_of_limits_ends_nothing_and_holds_for_the_next_attempt() -> None:
    flow = Flow("a", "b")
    span = flow.bench.span(flow.ids["a"])
    assert flow.amend("a ; retries=1", "b").changed == ["a"]
    assert flow.bench.span(flow.ids["a"]) == span
    flow.fail("a")
    assert flow.states["a"] in {"waiting", "placed", "ready"}


def test_what_failed_and_is_still_wanted_is_tried_again() -> None:
    flow = Flow("a", "b < a", "c", "d < a")
    flow.fail("a")
    assert flow.states == {"a": "failed", "b": "skipped", "c": "placed", "d": "skipped"}
    turn = flow.bench.tell(flow.difference("a", "b < a", "c").news)
    assert kinds(turn)[:2] == ["Retried", "Amended"]
    assert flow.states == {"a": "placed", "b": "waiting", "c": "placed"}


def test_what_was_not_run_because_of_a_task_that_is_removed_is_run() -> None:
    flow = Flow("g/", "g/bad", "g/good", "h/ < g/", "h/x", "y < g/", "z", cores=3)
    flow.end("g/good")
    flow.fail("g/bad")
    assert flow.states["h/x"] == flow.states["y"] == "skipped"
    flow.amend("g/", "g/good", "h/ < g/", "h/x", "y < g/", "z")
    assert flow.states == {"g/good": "done", "h/x": "placed", "y": "placed", "z": "placed"}
    flow.end("h/x", "y", "z")
    assert flow.is_over


def test_a_task_that_somebody_holds_stays_held() -> None:
    flow = Flow("a", "b < a")
    flow.bench.tell(news.Hold(on(flow.ids["b"])))
    flow.amend("a", "b = other")
    assert flow.states["b"] == "held"


def test_a_travelling_or_waiting_result_of_the_old_task_does_not_count() -> None:
    flow = Flow("a", cores=1)
    lost = flow.bench.span(flow.ids["a"])
    flow.bench.start(flow.ids["a"])
    flow.bench.tell(facts.ExecutorLost(1, "gone"))  # type: ignore[arg-type]
    flow.amend("a = other")
    flow.bench.tell(news.WorkSucceeded(lost, 0, 1, 1.0))  # type: ignore[arg-type]
    assert flow.states["a"] != "done"


def test_a_lookup_of_the_old_task_is_not_heard() -> None:
    flow = Flow("a", "b", memos=True)
    state = flow.bench.machine.state
    for record in list(state.records.values()):
        assert not record.awaits_memo  # they have no keys
    flow.amend("a = other", "b")
    flow.bench.tell(facts.MemoLookedUp(RecordId(flow.ids["a"]), 0, 1, found=True))
    assert flow.states["a"] == "placed"


# --- groups ----------------------------------------------------------------------------------------


def test_what_waits_for_a_group_waits_for_what_is_new_in_it() -> None:
    flow = Flow("g/", "g/a", "b < g/", "other", cores=3)
    flow.end("g/a", "b")
    flow.amend("g/", "g/a", "g/new", "b < g/", "other")
    assert flow.states == {"g/a": "done", "g/new": "placed", "b": "waiting", "other": "placed"}
    flow.end("g/new", "b", "other")
    assert flow.is_over


def test_what_waits_for_a_group_that_only_lost_something_is_left_alone() -> None:
    flow = Flow("g/", "g/a", "g/b", "c < g/", "other", cores=3)
    flow.end("g/a", "g/b", "c")
    flow.amend("g/", "g/a", "c < g/", "other")
    assert flow.states == {"g/a": "done", "c": "done", "other": "placed"}


def test_a_group_that_was_released_stays_so() -> None:
    flow = Flow("g/", "g/a ; release", "g/verify < g/a", "b < g/", cores=3)
    flow.end("g/a")
    assert flow.states["b"] == "placed"
    flow.amend("g/", "g/a ; release", "g/verify < g/a", "g/more < g/a", "b < g/")
    assert flow.states == {"g/a": "done", "g/verify": "placed", "b": "placed", "g/more": "placed"}


def test_a_group_that_comes_to_wait_for_something_begins_anew() -> None:
    flow = Flow("a", "g/", "g/x", "g/h/", "g/h/y", "z < g/", "other", cores=4)
    flow.end("g/x", "g/h/y", "z")
    found = flow.amend("a", "g/ < a", "g/x", "g/h/", "g/h/y", "z < g/", "other")
    assert (found.changed, found.changed_groups) == ([], ["g"])
    assert flow.states == {
        "a": "placed", "g/x": "waiting", "g/h/y": "waiting", "z": "waiting", "other": "placed",
    }  # fmt: skip
    flow.end("a", "g/x", "g/h/y", "z", "other")
    assert flow.is_over


def test_a_new_group_in_one_that_was_over_is_waited_for() -> None:
    flow = Flow("g/", "g/a", "b < g/", "other", cores=4)
    flow.end("g/a", "b")
    flow.amend("g/", "g/a", "g/h/ < g/a", "g/h/x", "b < g/", "other")
    assert flow.states == {"g/a": "done", "g/h/x": "placed", "b": "waiting", "other": "placed"}
    flow.end("g/h/x", "b", "other")
    assert flow.is_over


def test_a_removed_group_is_gone_with_all_in_it_and_its_name_is_free() -> None:
    flow = Flow("g/", "g/h/", "g/h/a", "g/b", "c < g/", "other", cores=4)
    found = flow.amend("c", "other")
    assert found.removed_groups == ["g", "g/h"]
    assert flow.states == {"c": "placed", "other": "placed"}
    flow.amend("c", "other", "g/", "g/h/", "g/h/a")
    assert flow.states == {"c": "placed", "other": "placed", "g/h/a": "placed"}
    flow.end("c", "other", "g/h/a")
    assert flow.is_over


def test_what_fails_later_does_not_remember_a_group_that_waited_for_it_and_is_gone() -> None:
    flow = Flow("a", "c", "g/ < a, c", "g/x", cores=2)
    flow.amend("a", "c")
    flow.fail("a")
    flow.amend("a", "c", "d")
    assert flow.states == {"a": "placed", "c": "placed", "d": "ready"}


def test_an_empty_new_group_is_over_when_what_it_waits_for_is() -> None:
    flow = Flow("a", "b")
    flow.amend("a", "b", "g/ < a", "c < g/")
    assert flow.states == {"a": "placed", "b": "placed", "c": "waiting"}
    flow.end("a", "c", "b")
    assert flow.is_over


def test_limits_of_groups_come_change_and_go() -> None:
    flow = Flow("g/", "g/a", "g/b", "g/c", "g/d", cores=4)
    names = ("g/a", "g/b", "g/c", "g/d", "g/e", "g/f")
    flow.amend("g/ ; limit=4", *names)
    assert list(flow.states.values()).count("placed") == 4
    flow.end("g/a", "g/b", "g/c")
    flow.amend("g/ ; limit=3", *names, "g/h/ ; limit=1", "g/h/x", "g/h/y")
    assert list(flow.states.values()).count("placed") == 3
    flow.end("g/d", "g/e")
    assert flow.states["g/h/x"] == "placed"
    assert flow.states["g/h/y"] == "ready"
    flow.amend("g/", *names)
    flow.bench.end_all()
    assert flow.is_over


def test_a_time_limit_of_a_group_that_is_changed_holds_from_its_first_start() -> None:
    flow = Flow("g/ ; timeout=10", "g/a", "b")
    flow.bench.wait(5.0)
    flow.amend("g/ ; timeout=20", "g/a", "b")
    flow.bench.wait(10.0)
    assert flow.states["g/a"] == "placed"
    flow.bench.wait(6.0)
    assert flow.states["g/a"] == "failed"


def test_a_snapshot_of_a_changed_workflow_goes_on_with_it() -> None:
    flow = Flow("a", "b < a", "g/", "g/c < b")
    flow.end("a")
    flow.amend("a = other", "b < a", "g/", "g/c < b", "g/d < b", "e < g/")
    flow.bench.restart()
    assert flow.states == {"a": "placed", "b": "waiting", "g/c": "waiting", "g/d": "waiting", "e": "waiting"}
    flow.end("a", "b", "g/c", "g/d", "e")
    assert flow.is_over
