"""Plans as steps: what waits for what, in which order things are submitted, and what is refused."""

from __future__ import annotations

import pytest

from bough.describe.plan import Plan, PlanGroup, PlanTask, Where
from bough.describe.steps import For, Step, What, steps
from bough.errors import InvalidWorkload
from tests.unit.describe.description_scripts import SURVEY, WAVE, described


def plan_of(*groups: PlanGroup, tasks: tuple[PlanTask, ...] = ()) -> Plan:
    plan = Plan()
    plan.root.groups = list(groups)
    plan.root.tasks = list(tasks)
    return plan


def run(*commands: str, **options: object) -> list[PlanTask]:
    return [PlanTask(command, **options) for command in commands]  # type: ignore[arg-type]


class Lowered:
    """The steps of a plan by the names of what is in them."""

    def __init__(self, plan: Plan) -> None:
        self.steps = steps(plan)
        self.groups = {step.number: step.name for step in self.steps if step.what is What.OPEN}
        self.tasks = {step.number: step.task.command for step in self.steps if step.task is not None}

    def order(self) -> list[str]:
        return list(self.tasks.values())

    def _shown(self, step: Step) -> str:
        words = {For.RELEASE: "", For.END: "end of "}
        names = [self.tasks[n] if on is For.TASK else words[on] + self.groups[n] for on, n in step.waits]
        return ", ".join(names)

    def task(self, command: str) -> str:
        return next(self._shown(step) for step in self.steps if step.task is not None and step.task.command == command)

    def group(self, name: str) -> str:
        return next(self._shown(step) for step in self.steps if step.what is What.OPEN and step.name == name)


def test_own_tasks_of_a_group_run_one_after_the_other() -> None:
    found = Lowered(plan_of(PlanGroup("g", tasks=run("a", "b", "c"))))
    assert [found.task(name) for name in "abc"] == ["", "a", "b"]


def test_tasks_outside_of_groups_run_side_by_side() -> None:
    found = Lowered(plan_of(tasks=(PlanTask("a"), PlanTask("b"))))
    assert (found.task("b"), found.steps[0].group) == ("", 0)


def test_the_order_in_a_group() -> None:
    inner = [PlanGroup("x", tasks=run("x1")), PlanGroup("y", tasks=run("y1"))]
    group = PlanGroup("g", prologue=run("p1", "p2"), groups=inner, tasks=run("own"), epilogue=run("e1", "e2"))
    found = Lowered(plan_of(group))
    assert found.order() == ["p1", "p2", "x1", "y1", "own", "e1", "e2"]
    assert (found.group("prologue"), found.task("p1"), found.task("p2")) == ("", "", "p1")
    assert (found.group("x"), found.group("y"), found.task("x1")) == ("end of prologue", "end of prologue", "")
    assert found.task("own") == "end of prologue, end of x, end of y"
    assert (found.task("e1"), found.task("e2")) == ("own", "e1")


def test_dependencies_of_groups_are_on_their_release() -> None:
    found = Lowered(described(WAVE, 2))
    assert found.group("Tile_1_1") == "Tile_0_1, Tile_1_0"
    assert found.task("./sweep 1 1") == ""
    beside = {step.task.command: step.near for step in found.steps if step.task is not None}
    assert beside["./check 0 0"] == 1
    assert beside["./sweep 0 1"] == 0


def test_every_night_waits_for_the_night_before() -> None:
    found = Lowered(described(SURVEY, 2, 2))
    assert found.group("Night_1") == "Night_0"
    assert found.group("Field_1_1") == "end of prologue"
    assert found.task("./mosaic 1") == "end of prologue, end of Field_1_0, end of Field_1_1"


def test_many_tasks_after_many_groups_cost_no_more_than_their_sum() -> None:
    inner = [PlanGroup(f"g{number}", tasks=run("true")) for number in range(300)]
    group = PlanGroup("g", groups=inner, tasks=run(*(f"own{n}" for n in range(300))), pipeline=False)
    found = steps(plan_of(group))
    assert sum(len(step.waits) for step in found) == 600
    assert [step.name for step in found if step.name.startswith(".")] == [".own"]


def test_what_is_waited_for_is_submitted_before_who_waits_for_it() -> None:
    later = PlanGroup("later", tasks=run("two"), after=["first/inner"])
    first = PlanGroup("first", groups=[PlanGroup("inner", tasks=run("one")), PlanGroup("other", tasks=run("three"))])
    assert Lowered(plan_of(later, first)).order() == ["one", "two", "three"]


def test_tasks_may_wait_for_groups_and_tasks_anywhere() -> None:
    named = PlanGroup("g", groups=[PlanGroup("h", tasks=[PlanTask("deep", "deep")])])
    found = Lowered(plan_of(named, tasks=(PlanTask("a", after=["deep", "g/h"]), PlanTask("b", after=["g"]))))
    assert (found.task("a"), found.task("b")) == ("deep, h", "g")


def test_matched_subgroups_wait_for_their_namesakes_only() -> None:
    first = PlanGroup("one", groups=[PlanGroup("x", tasks=run("1x")), PlanGroup("y", tasks=run("1y"))])
    inner = [PlanGroup("x", tasks=run("2x")), PlanGroup("z", tasks=run("2z"))]
    second = PlanGroup("two", after=["one"], match=True, groups=inner, tasks=run("2"))
    found = Lowered(plan_of(first, second))
    gates = [found._shown(step) for step in found.steps if step.what is What.OPEN and step.group == 4]
    assert found.groups[4] == "two"
    assert found.group("two") == ""
    assert gates == ["x", "one"]
    assert found.task("2") == "one, end of x, end of z"


def test_a_group_without_barrier_orders_nothing() -> None:
    seen = PlanGroup("seen", after=["first"], barrier=False, groups=[PlanGroup("x", tasks=run("a"))], tasks=run("own"))
    found = Lowered(plan_of(PlanGroup("first", tasks=run("1")), seen))
    assert (found.group("seen"), found.group("x"), found.task("own")) == ("", "", "")


def test_what_follows_a_final_task_waits_for_success_all_the_same() -> None:
    group = PlanGroup("g", tasks=run("a"), epilogue=[PlanTask("clean", final=True), PlanTask("tell")])
    found = Lowered(plan_of(group))
    assert (found.task("clean"), found.task("tell")) == ("a", "clean, a")


def test_groups_close_after_all_that_is_in_them() -> None:
    found = steps(plan_of(PlanGroup("g", groups=[PlanGroup("h", tasks=run("a"))])))
    assert [(step.what, step.number) for step in found] == [
        *[(What.OPEN, 1), (What.OPEN, 2), (What.TASK, 1), (What.CLOSE, 2), (What.CLOSE, 1)],
    ]


def test_a_long_chain_needs_no_deep_stack() -> None:
    groups = [PlanGroup(f"g{n}", after=[f"g{n + 1}"] if n < 4999 else [], tasks=run(str(n))) for n in range(5000)]
    assert Lowered(plan_of(*groups)).order()[0] == "4999"


# --- mistakes ---------------------------------------------------------------------------------------


def error_of(plan: Plan) -> str:
    with pytest.raises(InvalidWorkload) as caught:
        steps(plan)
    return str(caught.value)


def at(line: int) -> Where:
    return Where("f", line)


def test_a_cycle_is_named_element_by_element() -> None:
    ring = [PlanGroup("a", after=["b"], where=at(1)), PlanGroup("b", after=["c"], where=at(2))]
    error = error_of(plan_of(*ring, PlanGroup("c", after=["a"], where=at(3))))
    assert error == "f:1: these wait for each other: a (line 1) -> b (line 2) -> c (line 3) -> a (line 1)"


def test_a_task_cannot_wait_for_the_group_it_is_in() -> None:
    group = PlanGroup("g", tasks=[PlanTask("a", "me", after=["g"], where=at(4))], where=at(3))
    assert error_of(plan_of(group)) == "f:3: these wait for each other: g (line 3) -> me (line 4) -> g (line 3)"


def test_what_does_not_exist_is_named() -> None:
    assert (
        error_of(plan_of(PlanGroup("a", after=["b"], where=at(7)))) == "f:7: group a waits for b, which does not exist"
    )
    missing = error_of(plan_of(tasks=(PlanTask("true", after=["b"], where=at(2)),)))
    assert missing == "f:2: true waits for b, which does not exist"


def test_what_is_there_twice_is_named() -> None:
    twice = error_of(plan_of(PlanGroup("a", where=at(1)), PlanGroup("a", where=at(5))))
    assert twice == "f:5: there are two groups a; the other one is at f:1"
    names = (PlanTask("x", "n", where=at(1)), PlanTask("y", "n", where=at(2)))
    assert error_of(plan_of(tasks=names)) == "f:2: the name 'n' is taken by f:1"


def test_names_of_groups_are_checked() -> None:
    assert "no name of a group" in error_of(plan_of(PlanGroup("a/b")))
    assert "no name of a group" in error_of(plan_of(PlanGroup(".hidden")))
    assert "orders nothing" in error_of(plan_of(PlanGroup("a", barrier=False, prologue=run("x"))))
    clash = PlanGroup("a", prologue=run("x"), groups=[PlanGroup("prologue")])
    assert "rename the subgroup" in error_of(plan_of(clash))


def test_a_task_without_a_command_is_refused() -> None:
    assert "has no command" in error_of(plan_of(tasks=(PlanTask(" "),)))
