"""Graphs of tasks alone: groups replaced by what is in them, and the pictures drawn of them."""

from __future__ import annotations

from bough.describe import dot
from bough.describe.plan import Plan, PlanGroup, PlanTask
from bough.describe.task_graph import GraphNode, Ordering, RecordedTask, TaskGraph, of_plan


def task(number: int) -> GraphNode:
    return GraphNode("task", number)


def end(number: int) -> GraphNode:
    return GraphNode("end", number)


def test_who_waits_for_a_group_waits_for_all_in_it() -> None:
    ordering = Ordering()
    ordering.add_group(1, 0)
    ordering.add_group(2, 1)
    ordering.add_task(1, 1)
    ordering.add_task(2, 2)
    ordering.add_task(3, 0, [end(1)])
    assert ordering.arcs().tasks == {1: [], 2: [], 3: [task(1), task(2)]}


def test_what_is_in_a_group_waits_for_what_the_group_waits_for() -> None:
    ordering = Ordering()
    ordering.add_task(1, 0)
    ordering.add_group(1, 0, [task(1)])
    ordering.add_group(2, 1)
    ordering.add_task(2, 2)
    assert ordering.arcs().tasks[2] == [task(1)]


def test_an_empty_group_hands_on_what_it_waits_for() -> None:
    ordering = Ordering()
    ordering.add_task(1, 0)
    ordering.add_group(1, 0, [task(1)])
    ordering.add_group(2, 0, [end(1)])
    ordering.add_task(2, 0, [end(2)])
    assert ordering.arcs().tasks[2] == [task(1)]


def test_who_waits_for_a_group_waits_only_for_what_releases_it() -> None:
    ordering = Ordering()
    ordering.add_group(1, 0)
    ordering.add_task(1, 1, release=True)
    ordering.add_task(2, 1)
    ordering.add_task(3, 0, [end(1)])
    assert ordering.arcs().tasks[3] == [task(1)]


def test_many_that_wait_for_many_wait_for_a_joint() -> None:
    ordering = Ordering()
    ordering.add_group(1, 0)
    ordering.add_group(2, 0, [end(1)])
    for number in range(100):
        ordering.add_task(number, 1)
        ordering.add_task(100 + number, 2)
    arcs = ordering.arcs()
    assert sum(len(some) for some in (*arcs.tasks.values(), *arcs.joints.values())) == 200
    [joint] = arcs.joints
    assert arcs.tasks[150] == [joint]


def test_a_long_chain_of_groups_needs_no_deep_stack() -> None:
    ordering = Ordering()
    ordering.add_task(1, 0)
    ordering.add_group(1, 0, [task(1)])
    for number in range(2, 20_000):
        ordering.add_group(number, 0, [end(number - 1)])
    ordering.add_task(2, 19_999)
    assert ordering.arcs().tasks[2] == [task(1)]


def test_a_plan_becomes_tasks_and_arcs() -> None:
    plan = Plan()
    first = PlanGroup("g", prologue=[PlanTask("p", name="p")], tasks=[PlanTask("a", name="a"), PlanTask("b", name="b")])
    plan.root.groups = [first, PlanGroup("h", after=["g"], tasks=[PlanTask("c", name="c")])]
    record = of_plan(plan, "w")
    assert {one.id: one.before for one in record.tasks} == {"p": [], "a": ["p"], "b": ["a"], "c": ["a", "b", "p"]}
    assert [one.group for one in record.tasks] == ["g/prologue", "g", "g", "h"]


def test_a_picture_has_groups_states_and_quoted_names() -> None:
    record = TaskGraph(
        'say "hi"',
        [
            RecordedTask("1", 'a "b"\\', state="done", seconds=1.234, group="g/h"),
            RecordedTask("2", "c", state="failed", before=["1"]),
            RecordedTask("j", "joint", before=["2"], is_joint=True),
        ],
    )
    assert dot.write(record).splitlines() == [
        'digraph "say \\"hi\\"" {',
        "  rankdir=TB;",
        "  node [shape=box, style=filled, fillcolor=white];",
        '  "2" [label="c", fillcolor=salmon];',
        '  "j" [shape=point];',
        '  subgraph "cluster_g" {',
        '    label="g";',
        '    subgraph "cluster_g/h" {',
        '      label="h";',
        '      "1" [label="a \\"b\\"\\\\\\n1.23 s", fillcolor=palegreen];',
        "    }",
        "  }",
        '  "1" -> "2";',
        '  "2" -> "j";',
        "}",
    ]
