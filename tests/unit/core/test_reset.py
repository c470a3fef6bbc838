"""Administration by group: reset, declaring done, disabling and enabling."""

from __future__ import annotations

from msgspec.structs import replace

from bough.core.queries.facade import Queries
from bough.model.events import facts, news
from bough.model.tasks import Dep, Kind, On, TaskExtras, TaskSpec
from bough.testing.builders import array, group, on_array, on_group, task
from tests.unit.core.core_bench import Bench, on


def command(id_: int, *after: int | Dep, **fields: object) -> TaskSpec:
    return replace(task(id_, *after, **fields), kind=Kind.COMMAND)


def reset(bench: Bench, target: Dep, stop: int = 0, *, cascade: bool = False) -> list[str]:
    """Reset a target; what was left out."""
    deed = news.Reset(target, stop, cascade)
    left = Queries(bench.machine).preview(deed).not_changed
    bench.tell(deed)
    return left


def close(bench: Bench, *groups: int) -> None:
    for number in groups:
        bench.tell(news.GroupClosed(number))  # type: ignore[arg-type]


# --- reset -----------------------------------------------------------------------------------------


def test_what_is_done_runs_again_and_its_attempts_go_on() -> None:
    bench = Bench(1)
    bench.submit(task(1))
    bench.end(1)
    assert reset(bench, on(1)) == []
    assert bench.state(1) == "placed"
    assert bench.attempt(1) == 2
    bench.end(1)
    assert bench.state(1) == "done"


def test_dependents_that_have_not_started_wait_again() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2, 1), task(3, 1))
    bench.end(1)
    bench.tell(news.Hold(on(2)), news.Hold(on(3)))
    assert bench.states(2, 3) == ["placed", "held"]
    bench.tell(news.WorkReturned(bench.span(2), 0, 1))
    assert bench.states(2, 3) == ["held", "held"]
    assert reset(bench, on(1)) == []
    assert bench.states(1, 2, 3) == ["placed", "waiting", "waiting"]
    bench.end(1)
    assert bench.states(2, 3) == ["held", "held"]


def test_it_is_refused_while_something_runs() -> None:
    bench = Bench(1)
    bench.submit(group(1, "g"), task(1, group=1), task(2, group=1))
    bench.end(1)
    (why,) = reset(bench, on_group(1))
    assert why == "task 2: not reset while it runs; end it first: bough kill"
    assert bench.states(1, 2) == ["done", "placed"]


def test_it_is_refused_if_something_that_depends_on_it_has_started() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2, 1), task(3, 2))
    bench.end(1)
    bench.end(2)
    (why,) = reset(bench, on(1))
    assert why == "task 2, task 3: has started and depends on it; reset it too: --cascade"
    assert bench.states(1, 2, 3) == ["done", "done", "placed"]


def test_a_cascade_resets_what_has_started_and_ends_what_runs() -> None:
    bench = Bench(2)
    bench.submit(task(1), task(2, 1), task(3, 2), task(4))
    for number in (1, 4, 2):
        bench.end(number)
    assert reset(bench, on(1), cascade=True) == []
    assert bench.states(1, 2, 3, 4) == ["placed", "waiting", "waiting", "done"]
    assert len(bench.stops) == 1
    bench.end_all()
    assert bench.states(1, 2, 3) == ["done", "done", "done"]


def test_what_was_not_run_because_of_it_waits_again() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2, 1), task(3, 2))
    bench.fail(1)
    assert bench.states(2, 3) == ["skipped", "skipped"]
    reset(bench, on(1))
    assert bench.states(1, 2, 3) == ["placed", "waiting", "waiting"]
    bench.end_all()
    assert bench.states(1, 2, 3) == ["done", "done", "done"]


def test_a_group_is_reset_as_a_whole_and_is_over_again_when_it_is_done_again() -> None:
    bench = Bench(4)
    bench.submit(group(1, "g"), group(2, "sub", 1), task(1, group=1), task(2, group=2), task(3, on_group(1)))
    close(bench, 2, 1)
    bench.tell(news.Hold(on(3)))
    bench.end(1)
    bench.end(2)
    assert bench.state(3) == "held"
    assert reset(bench, on_group(1)) == []
    assert bench.states(1, 2, 3) == ["placed", "placed", "waiting"]
    bench.end_all()
    assert bench.state(3) == "held"
    assert [number for number, _ in bench.finished] == [2, 1, 2, 1]


def test_a_group_whose_gate_closes_waits_with_all_in_it_and_with_who_waits_for_it() -> None:
    bench = Bench(1)
    bench.submit(task(1), group(1, ".gate", 0, Dep(On.TASK, 1)), group(2, "g", 0, on_group(1)), task(2, group=2))
    close(bench, 1)
    bench.tell(news.Hold(on(2)))
    bench.end(1)
    assert bench.state(2) == "held"
    reset(bench, on(1))
    assert bench.states(1, 2) == ["placed", "waiting"]
    bench.end(1)
    assert bench.state(2) == "held"


def test_what_a_released_group_let_start_is_not_reset_with_what_came_after_the_release() -> None:
    bench = Bench(4)
    bench.submit(group(1, "slice"), task(1, group=1, extras=TaskExtras(release=True)), task(2, 1, group=1))
    bench.submit(task(3, on_group(1)), task(4, Dep(On.END, 1)))
    close(bench, 1)
    bench.end(1)
    bench.end(2)
    bench.end(3)
    (why,) = reset(bench, on(2))
    assert why.startswith("task 4: has started")
    assert reset(bench, on(2), cascade=True) == []
    assert bench.states(1, 2, 3, 4) == ["done", "placed", "done", "waiting"]
    bench.end(2)
    bench.end(4)
    (why,) = reset(bench, on(1))
    assert why.startswith("task 2, task 3, task 4: has started"), "who was let start built on the release"


def test_elements_of_arrays_are_reset_one_by_one() -> None:
    bench = Bench(4)
    bench.submit(array(1, 6), task(2, Dep(On.TASK, 1, 4)), task(3, on_array(1)))
    bench.tell(news.Hold(on(2)), news.Hold(on(3)))
    bench.end_all()
    assert bench.states(2, 3) == ["held", "held"]
    assert reset(bench, on(1, 1), 3) == []
    assert bench.states(1) == ["done", "placed", "placed", "done", "done", "done"]
    assert bench.states(2, 3) == ["held", "waiting"]
    assert bench.attempt(1, 1) == 2
    assert bench.array(1).success_of(1) is None
    bench.restart()
    bench.end_all()
    assert bench.states(2, 3) == ["held", "held"]
    assert bench.array(1).success_of(1).attempt == 2  # type: ignore[union-attr]


def test_what_is_reset_is_not_looked_up_among_earlier_runs() -> None:
    bench = Bench(1, memos=True)
    bench.submit(task(1, key=b"k" * 16))
    (order,) = bench.recalls
    bench.tell(facts.MemoLookedUp(order.record, 0, 1, True, 77, 0, 1, 5))
    assert bench.state(1) == "done"
    reset(bench, on(1))
    assert bench.state(1) == "placed"
    assert len(bench.recalls) == 1


def test_a_reset_survives_a_restart_with_what_the_task_was_given() -> None:
    bench = Bench(1)
    bench.submit(replace(task(1), payload=b"P" * 50))
    bench.end(1)
    bench.restart()
    reset(bench, on(1))
    assert bench.task(1).spec.payload == b"P" * 50


# --- done by hand ----------------------------------------------------------------------------------


def test_what_waits_is_declared_done_and_who_waits_for_it_goes_on() -> None:
    bench = Bench(1)
    bench.submit(group(1, "g"), command(1), command(2, 1, group=1), command(3, 2, group=1), command(4, 3))
    close(bench, 1)
    assert Queries(bench.machine).preview(news.DeclareDone(on_group(1))).count == 2
    bench.tell(news.DeclareDone(on_group(1)))
    assert bench.states(1, 2, 3, 4) == ["placed", "done", "done", "ready"]
    bench.end(1)
    assert bench.states(1, 2, 3, 4) == ["done", "done", "done", "placed"]


def test_what_failed_is_declared_done_and_what_was_not_run_because_of_it_runs() -> None:
    bench = Bench(1)
    bench.submit(command(1), command(2, 1), command(3, 2))
    bench.fail(1)
    bench.tell(news.DeclareDone(on(1)))
    assert bench.states(1, 2, 3) == ["done", "placed", "waiting"]


def test_a_function_whose_value_is_taken_is_left_out() -> None:
    bench = Bench(1)
    taker = replace(task(3, 2), inputs=(Dep(On.TASK, 2),))
    bench.submit(group(1, "g"), task(1), task(2, 1, group=1), taker, command(4, 1, group=1))
    deed = news.DeclareDone(on_group(1))
    assert Queries(bench.machine).preview(deed).not_changed == ["task 2: a task takes its value, and there is none"]
    bench.tell(deed)
    assert bench.states(2, 4) == ["waiting", "done"]
    bench.tell(news.DeclareDone(Dep(On.GROUP, 0)))
    assert bench.states(1, 2, 3, 4) == ["placed", "done", "done", "done"], "with its taker it may"


def test_what_runs_is_not_declared_done() -> None:
    bench = Bench(1)
    bench.submit(command(1))
    deed = news.DeclareDone(on(1))
    assert Queries(bench.machine).preview(deed).not_changed == ["task 1: running; end it first: bough kill"]
    assert bench.tell(deed).facts == []


def test_declaring_an_array_of_commands_done_costs_nothing_for_each() -> None:
    bench = Bench(0)
    bench.submit(replace(array(1, 100_000), kind=Kind.COMMAND))
    [done] = bench.tell(news.DeclareDone(on_array(1))).facts
    assert isinstance(done, facts.SpanEnded)
    assert (done.start, done.stop, done.details) == (0, 100_000, ())


# --- disable and enable ----------------------------------------------------------------------------


def test_a_disabled_group_is_named_and_only_that_is_enabled() -> None:
    bench = Bench(1)
    bench.submit(group(1, "g"), group(2, "sub", 1), task(1), task(2, group=2))
    bench.tell(news.Hold(on_group(1), disabled=True))
    assert bench.machine.explain(2) == ["task 2 is held: its group g is disabled; let it start with: bough enable g"]
    enable = news.Release(on_group(2), enabled=True)
    assert Queries(bench.machine).preview(enable).not_changed == ["group g/sub: is not disabled"]
    assert bench.tell(enable).facts == []
    bench.restart()
    assert bench.machine.explain(2)[0].endswith("bough enable g")
    bench.tell(news.Release(on_group(1), enabled=True))
    assert bench.state(2) == "ready"


def test_a_disabled_group_says_what_runs_on() -> None:
    bench = Bench(1)
    bench.submit(group(1, "g"), task(1, group=1), task(2, group=1))
    deed = news.Hold(on_group(1), disabled=True)
    assert Queries(bench.machine).preview(deed).not_changed == [
        "1 running task of group g; to end what runs as well: bough stop --disable g"
    ]


def test_a_held_group_can_be_released_but_not_enabled() -> None:
    bench = Bench(1)
    bench.submit(group(1, "g"), task(1), task(2, group=1))
    bench.tell(news.Hold(on_group(1)))
    assert Queries(bench.machine).preview(news.Release(on_group(1), enabled=True)).count == 0
    bench.tell(news.Release(on_group(1)))
    assert bench.state(2) == "ready"
