"""Several workflows in one machine: fair to each other, and each on its own."""

from __future__ import annotations

from collections import Counter

from bough.core.machine import Machine
from bough.core.queries.facade import Queries
from bough.model.events import facts, news
from bough.model.ids import GroupId
from bough.model.tasks import Dep, On
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies
from bough.testing.builders import array, executor, group, needs, submit, task
from tests.unit.core.core_bench import BOOM, Bench


def opened(run: int, name: str = "", **fields: object) -> facts.RunOpened:
    return facts.RunOpened(run, name or f"w{run}", "h", 1, group=GroupId(run), **fields)  # type: ignore[arg-type]


def service(cores: float, *runs: int) -> Bench:
    bench = Bench(0)
    for run in runs:
        bench.tell(opened(run))
    if cores:
        bench.tell(executor(1, cores))
    return bench


def held(bench: Bench) -> Counter[int]:
    """How many tasks of each workflow are with executors."""
    return Counter(span.record.group.workflow.run for span in bench.machine.state.spans.values())


def test_cores_are_shared_however_early_and_however_much_one_submits() -> None:
    bench = service(4, 2, 3)
    bench.submit(*(task(id_, group=2) for id_ in range(100, 150)))
    assert held(bench) == {2: 4}
    bench.submit(*(task(id_, group=3) for id_ in range(200, 204)))
    for _ in range(2):
        bench.end(min(span.record.id for span in bench.machine.state.spans.values()))
    assert held(bench) == {2: 2, 3: 2}


def test_shares_count_cores_not_tasks() -> None:
    bench = service(6, 2, 3)
    wide = [task(id_, group=2, needs=needs(2)) for id_ in range(100, 105)]
    narrow = [task(id_, group=3) for id_ in range(200, 210)]
    bench.submit(*wide, *narrow)
    assert held(bench)[2] == 2
    assert held(bench)[3] == 2


def test_an_array_does_not_crowd_out_loose_tasks_of_another() -> None:
    bench = service(2, 2, 3)
    bench.submit(array(100, 1000, group=2))
    bench.submit(task(200, group=3))
    bench.end(100, 0)
    assert bench.state(200) == "placed"


def test_a_failure_stops_only_its_own_workflow() -> None:
    bench = Bench(0)
    bench.tell(opened(2, fail_fast=True), opened(3, fail_fast=True), executor(1, 1))
    bench.submit(task(100, group=2), task(101, group=2), task(200, group=3))
    bench.fail(100, 0, BOOM)
    assert bench.states(100, 101, 200) == ["failed", "skipped", "placed"]
    bench.submit(task(102, group=2))
    assert bench.state(102) == "skipped"


def test_what_another_workflow_has_cannot_be_depended_on() -> None:
    bench = service(1, 2, 3)
    bench.submit(task(100, group=2), group(50, "sub", 2))
    assert "in another workflow" in bench.refuse(task(200, 100, group=3))
    assert "in another workflow" in bench.refuse(task(200, Dep(On.GROUP, 50), group=3))
    assert "whole workflow" in bench.refuse(task(101, Dep(On.GROUP, 2), group=2))
    assert "in another workflow" in bench.refuse(task(101, group=2), task(201, 101, group=3))


def test_groups_of_equal_names_live_in_different_workflows() -> None:
    bench = service(1, 2, 3)
    bench.submit(group(50, "align", 2))
    bench.submit(group(60, "align", 3))
    assert [bench.machine.state.groups[id_].path for id_ in (50, 60)] == ["align", "align"]


def test_a_second_workflow_of_a_name_gets_a_group_of_its_own() -> None:
    bench = Bench(0)
    bench.tell(opened(2, "fold"), opened(3, "fold"))
    assert [bench.machine.state.groups[id_].name for id_ in (2, 3)] == ["fold", "fold#3"]


def test_equal_tasks_are_counted_by_workflow() -> None:
    bench = service(0, 2, 3)
    bench.submit(task(100, group=2, key=b"k"), task(101, group=2, key=b"k"), task(200, group=3, key=b"k"))
    assert [bench.task(id_).occurrence for id_ in (100, 101, 200)] == [0, 1, 0]


def test_one_that_is_over_can_be_removed_with_all_it_had() -> None:
    bench = service(1, 2, 3)
    bench.submit(task(100, group=2), group(50, "sub", 2), array(101, 3, group=50), task(200, group=3))
    bench.tell(facts.RunRemoved(2))
    assert 2 in bench.machine.state.workflows, "it goes on"
    bench.end_all()
    bench.tell(news.GroupClosed(GroupId(50)), news.GroupClosed(GroupId(2)))
    assert (2, False) in bench.finished
    bench.tell(facts.RunClosed(2))
    assert not bench.machine.state.stopping
    bench.tell(facts.RunRemoved(2))
    state = bench.machine.state
    assert set(state.records) == {200}
    assert set(state.groups) == {0, 3}
    assert bench.machine.is_idle
    bench.tell(opened(4, "w2"))
    assert state.groups[4].name == "w2"


def test_memos_are_a_workflows_own_matter() -> None:
    bench = Bench(0)
    bench.tell(opened(2, memos=True), opened(3))
    bench.submit(task(100, group=2, key=b"k"), task(200, group=3, key=b"k"))
    assert [order.record for order in bench.recalls] == [100]
    assert bench.states(100, 200) == ["waiting", "ready"]
    assert Queries(bench.machine).run_of(100) == 2


def looks_of_a_turn(workflows: int) -> float:
    """Bids that are computed for each turn in which a task ends and another one is chosen."""
    machine = Machine(Policies(Fifo()))
    machine.turn(0.0, [facts.RunOpened(1, "server", "h", 1), executor(1, 2)])
    for run in range(2, workflows + 2):
        machine.turn(0.0, [opened(run), submit(*(task(10 * run + n, group=run) for n in range(3)))])
    fair, turns = machine.state.fair, 20
    before = fair.looks
    for _ in range(turns):
        span = next(iter(machine.state.spans.values()))
        machine.turn(0.0, [news.WorkSucceeded(span.id, 0, 1, 10.0)])
    return (fair.looks - before) / turns


def test_choosing_between_many_workflows_costs_what_changed() -> None:
    few, many = looks_of_a_turn(20), looks_of_a_turn(400)
    assert few == many
    assert many < 10


def test_what_was_passed_over_because_nothing_fits_costs_no_look_at_each_workflow() -> None:
    bench = service(1, *range(2, 60))
    bench.submit(*(task(100 + run, group=run, needs=needs(4)) for run in range(2, 60)))
    fair = bench.machine.state.fair
    before = fair.looks
    bench.machine.turn(1.0, [submit(task(1000, group=2))])
    assert fair.looks - before < 10
