"""Redundant edges and the cost of supergroups: by hand, against TrellisDAG's model runs, and on random plans."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from bough.analysis.description_check import (
    check_lines,
    minimal_makespan,
    redundant_edges,
    supergroup_costs,
)
from bough.analysis.recorded_workloads import in_order
from bough.describe.plan import Plan, PlanGroup, PlanTask
from bough.describe.task_graph import of_plan
from bough.sim.studies.trellisdag_workloads import DATABASES, SUPER_TIMES


def _task(name: str, seconds: float = 1.0, after: list[str] | None = None, **others: object) -> PlanTask:
    said = {"seconds": f"{seconds}"}
    return PlanTask("true", name, after or [], attributes=said, **others)  # type: ignore[arg-type]


def _plan(*groups: PlanGroup, tasks: list[PlanTask] | None = None) -> Plan:
    return Plan(root=PlanGroup("", pipeline=False, groups=list(groups), tasks=tasks or []))


def _told(plan: Plan) -> list[tuple[str, str]]:
    return [(one.waiting, one.on) for one in redundant_edges(plan)]


def test_what_others_imply_is_named_with_the_reason() -> None:
    plan = _plan(
        PlanGroup("a", tasks=[_task("a1")]),
        PlanGroup("b", after=["a"], tasks=[_task("b1")]),
        PlanGroup("c", after=["a", "b"], tasks=[_task("c1"), _task("c2", after=["c1", "a1"])]),
    )
    assert _told(plan) == [("c", "a"), ("c2", "c1"), ("c2", "a1")]
    assert redundant_edges(plan)[0].because == "it waits for b, which comes after that"
    plan.root.groups[2].after = ["b"]
    plan.root.groups[2].tasks[1].after = []
    assert _told(plan) == []
    assert list(check_lines([], [])) == ["no dependency is redundant"]


def test_of_an_edge_that_is_said_twice_one_is_needed() -> None:
    plan = _plan(PlanGroup("a", tasks=[_task("a1")]), PlanGroup("b", after=["a", "a"], tasks=[_task("b1")]))
    assert _told(plan) == [("b", "a")]


def test_a_file_is_a_dependency_too() -> None:
    plan = _plan(tasks=[_task("a", writes=["x"]), _task("b", reads=["x"], after=["a"])])
    assert _told(plan) == [("b", "a")]


def _pieces() -> Plan:
    """The medium experiment with supergroups: a number of pieces waits for all smaller ones."""
    groups = []
    for pieces in range(2, 8):
        inner = []
        for one in DATABASES:
            if sum(one) == pieces:
                times = SUPER_TIMES[one]
                run, ver = _task(f"run{one}", times.run, release=True), _task(f"ver{one}", times.ver)
                inner.append(PlanGroup(f"{one[0]}{one[1]}00", tasks=[run, ver]))
        groups.append(PlanGroup(f"p{pieces}", after=[f"p{n}" for n in range(2, pieces)], groups=inner))
    return _plan(*groups)


def test_the_model_run_of_the_medium_experiment_is_the_published_one_and_its_edges_are_known() -> None:
    plan = _pieces()
    assert minimal_makespan(plan) == pytest.approx(4002.35, abs=0.011)
    assert len(redundant_edges(plan)) == 1 + 2 + 3 + 4  # each needs only the one before
    costs = {one.path: one for one in supergroup_costs(plan)}
    assert set(costs) == {f"p{n}" for n in range(2, 8)}
    alone = SUPER_TIMES[4, 3]
    # databases of seven pieces that wait for nobody take their own time, or end after those of six
    assert costs["p7"].free == pytest.approx(max(alone.run + alone.ver, _until_six(plan)), abs=0.011)
    assert costs["p7"].cost > 0
    assert supergroup_costs(plan)[0].cost == max(one.cost for one in costs.values())


def _until_six(plan: Plan) -> float:
    return minimal_makespan(_plan(*plan.root.groups[:-1]))


def test_matching_subgroups_save_what_a_barrier_costs() -> None:
    first = PlanGroup("x", groups=[PlanGroup(n, tasks=[_task(f"x{n}", s)]) for n, s in (("1", 10.0), ("2", 1.0))])
    then = PlanGroup(
        "y", after=["x"], groups=[PlanGroup(n, tasks=[_task(f"y{n}", s)]) for n, s in (("1", 1.0), ("2", 10.0))]
    )
    (cost, other) = supergroup_costs(_plan(first, then))
    assert (cost.path, cost.makespan, cost.free, cost.cost) == ("x", 20.0, 10.0, 10.0)
    assert (other.path, other.matched) == ("y", 11.0)
    assert "match=yes would save 9.00 s" in "\n".join(check_lines([], [other]))


def _random_plan(dice: Random) -> Plan:
    names: list[str] = []
    number = 0

    def task(others: list[str]) -> PlanTask:
        nonlocal number
        number += 1
        return _task(f"t{number}", 1.0, dice.sample(others, min(len(others), dice.randint(0, 1))))

    def group(path: str, siblings: list[str], deep: int) -> PlanGroup:
        made = PlanGroup(path.rpartition("/")[2], after=dice.sample(siblings, dice.randint(0, min(3, len(siblings)))))
        made.pipeline = dice.random() < 0.6
        inner: list[str] = []
        for n in range(dice.randint(1, 3) if deep and dice.random() < 0.5 else 0):
            made.groups.append(group(f"{path}/g{n}", inner, deep - 1))
            inner.append(f"{path}/g{n}")
        made.tasks = []
        for _ in range(dice.randint(1, 3)):
            made.tasks.append(task([one.name for one in made.tasks]))
        return made

    groups = []
    for n in range(dice.randint(2, 6)):
        groups.append(group(f"g{n}", names, 2))
        names.append(f"g{n}")
    return _plan(*groups)


def _closure(plan: Plan) -> set[tuple[str, str]]:
    """Which task comes before which, by the lowered plan."""
    graph = of_plan(plan, "w")
    above: dict[str, set[str]] = {}
    for one in in_order(graph):
        above[one.id] = set(one.before).union(*(above[before] for before in one.before))
    joints = {one.id for one in graph.tasks if one.is_joint}
    return {(one, before) for one, some in above.items() for before in some if not {one, before} & joints}


def _without(plan: Plan, edges: set[tuple[str, str]]) -> Plan:
    copied = msgspec.convert(msgspec.to_builtins(plan), Plan)
    for path, group in copied.walk():
        group.after = [text for text in group.after if (path, text) not in edges]
        for task in group.tasks:
            task.after = [text for text in task.after if (task.name, text) not in edges]
    return copied


@pytest.mark.parametrize("seed", range(40))
def test_exactly_the_redundant_edges_can_be_left_out(seed: int) -> None:
    plan = _random_plan(Random(seed))
    told = set(_told(plan))
    whole = _closure(plan)
    assert _closure(_without(plan, told)) == whole
    every = {(path, text) for path, group in plan.walk() for text in group.after}
    every |= {(task.name, text) for _, group in plan.walk() for task in group.tasks for text in task.after}
    for edge in every - told:
        assert _closure(_without(plan, {edge})) != whole, edge
