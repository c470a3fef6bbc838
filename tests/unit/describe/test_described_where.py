"""Sites, requirements and queues in workflow descriptions: read, written, and refused with their line."""

from __future__ import annotations

import pytest

from bough.describe import flat_list, grouped_list
from bough.describe.formats import left_out
from bough.describe.plan import Plan, PlanTask, of_task, put_on_task
from bough.errors import InvalidWorkload

LINE = """queue=night sites=beta,alpha requires='memory_gb >= 64 and "avx512" in cpu' :: ./simulate"""


def test_a_flat_list_says_where_its_tasks_run() -> None:
    (task,) = flat_list.read(LINE, "list.txt")
    assert task.sites == ("alpha", "beta")
    assert task.requires == 'memory_gb >= 64 and "avx512" in cpu'
    (step,) = flat_list.flat_steps([task], "list.txt")
    assert step.task is not None
    assert (step.task.sites, step.task.requires) == (["alpha", "beta"], task.requires)
    assert task.queue == step.task.queue == "night"
    (again,) = flat_list.read(flat_list.write([task]), "again.txt")
    assert again == task


@pytest.mark.parametrize("requires", ["cores > 1", "'avx512' in cpu and cores > 1", 'arch == "x 100%"', "rack"])
def test_a_list_with_groups_reads_back_what_it_wrote(requires: str) -> None:
    plan = grouped_list.read("group=align release=yes :: ./first", "list.txt")
    task = plan.root.groups[0].tasks[0]
    task.sites, task.requires, task.queue = ["alpha", "beta"], requires, "night"
    again = grouped_list.read(grouped_list.write(plan), "again.txt").root.groups[0].tasks[0]
    assert (again.sites, again.requires, again.queue) == (task.sites, task.requires, "night")


def test_they_are_attributes_as_others_are() -> None:
    task = PlanTask("true")
    put_on_task(task, "sites", "beta,alpha")
    put_on_task(task, "requires", "cores > 1")
    put_on_task(task, "queue", "night")
    assert dict(of_task(task)) == {"sites": "alpha,beta", "requires": "cores > 1", "queue": "night"}
    plan = Plan()
    plan.root.tasks = [task]
    said = "wfformat has no place for sites, requirements and queues: those of 1 task are left out"
    assert left_out(plan, "wfformat").startswith(said)
    assert not left_out(plan, "flat")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sites=alpha,, :: true", "list.txt:1: sites=alpha,,: give one name or several"),
        ("requires='cores >' :: true", "list.txt:1: true: requires is 'cores >'; it is not an expression"),
        ("queue=a/b :: true", "list.txt:1: queue=a/b: a queue's name has letters"),
        ("requires=open() :: true", "list.txt:1: true: requires is 'open()'; Call cannot stand in it"),
        (f"sites={'x' * 300} :: true", "list.txt:1: true: sites is"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(line: str, said: str) -> None:
    with pytest.raises(InvalidWorkload) as error:
        flat_list.flat_steps(flat_list.read(line, "list.txt"), "list.txt")
    assert str(error.value).startswith(said)


def test_a_description_says_whether_a_task_may_run_twice_at_once() -> None:
    (task,) = flat_list.read("idempotent=no :: ./order", "list.txt")
    assert task.idempotent is False
    (step,) = flat_list.flat_steps([task], "list.txt")
    assert step.task is not None
    assert step.task.idempotent is False
    assert flat_list.read(flat_list.write([task]), "again.txt") == [task]
    assert flat_list.read("./order", "list.txt")[0].idempotent is None
    (again,) = flat_list.read("idempotent=yes :: ./order", "list.txt")
    assert again.idempotent is True
    assert flat_list.read(flat_list.write([again]), "again.txt")[0].idempotent is True
    for word, said in (("no", False), ("yes", True)):
        plan = grouped_list.read(f"group=g idempotent={word} :: ./order", "list.txt")
        assert plan.root.groups[0].tasks[0].idempotent is said
        assert grouped_list.read(grouped_list.write(plan), "again.txt").root.groups[0].tasks[0].idempotent is said
        assert list(of_task(plan.root.groups[0].tasks[0])) == [("idempotent", word)]
    assert list(of_task(grouped_list.read("group=g :: ./order", "list.txt").root.groups[0].tasks[0])) == []
    with pytest.raises(InvalidWorkload, match="idempotent=maybe: expected yes or no"):
        flat_list.read("idempotent=maybe :: ./order", "list.txt")


def test_a_line_says_that_what_it_writes_is_temporary() -> None:
    (task,) = flat_list.read("keep=no out=raw.dat :: ./simulate > raw.dat", "list.txt")
    assert not task.keep
    assert "keep=no" in flat_list.write([task])


def test_a_task_may_say_that_what_it_writes_is_written_back_later() -> None:
    (task,) = flat_list.read("keep=later out=raw.dat :: ./simulate > raw.dat", "list.txt")
    assert task.keep == "later"
    assert "keep=later" in flat_list.write([task])
    with pytest.raises(InvalidWorkload, match="keep=soon: expected yes, no or later"):
        flat_list.read("keep=soon :: true", "list.txt")
    planned = PlanTask("true")
    put_on_task(planned, "keep", "Later")
    assert ("keep", "later") in list(of_task(planned))
    put_on_task(planned, "keep", "yes")
    assert "keep" not in dict(of_task(planned))
