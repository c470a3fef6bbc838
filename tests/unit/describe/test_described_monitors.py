"""Monitors in descriptions: every form keeps them or says that it does not, and a wrong one is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bough.describe import flat_list, formats, grouped_list
from bough.describe.plan import Plan, PlanGroup, PlanTask, tidy
from bough.describe.steps import steps
from bough.describe.trellisdag import mqsub, trellis_makefile
from bough.describe.trellisdag.description_script import read_script
from bough.errors import InvalidWorkload, UserError
from bough.model.monitoring.monitor_text import read_monitor

TEXTS = ["plateau:score=(-?[0-9.]+),25,1e-4", "regex:it's 100% -> fail", "silent:10min -> restart 3"]


def plan(monitors: list[str], of_group: list[str]) -> Plan:
    ran = {"seconds": "1"}  # so that WfFormat has a place for the commands
    tasks = [PlanTask("echo 1", "first", monitors=monitors, attributes=ran), PlanTask("echo 2", attributes=ran)]
    return Plan(root=PlanGroup("", groups=[PlanGroup("g", tasks=tasks, monitors=of_group)], pipeline=False))


def monitors_of(found: Plan) -> tuple[list[str], list[str]]:
    [(_, group)] = [(path, group) for path, group in found.walk() if path]
    return group.monitors, group.tasks[0].monitors


@pytest.mark.parametrize("form", ["flat", "make", "json", "mqsub"])
def test_forms_keep_the_monitors_of_tasks(form: str) -> None:
    text = formats.write(plan(TEXTS, TEXTS[:1]), form)
    read = {"flat": grouped_list.read, "make": trellis_makefile.read, "json": formats.read_json, "mqsub": mqsub.read}
    groups, tasks = monitors_of(read[form](text, "x"))
    assert tasks == TEXTS
    assert groups == ([] if form == "mqsub" else TEXTS[:1])
    said = formats.left_out(plan(TEXTS, TEXTS[:1]), form)
    others = {
        "mqsub": "mqsub has no place for monitors: those of 1 group are left out",
        "make": "make passes over monitor of its comments, which Bough reads",
    }
    assert said == others.get(form, "")


@pytest.mark.parametrize("form", ["dot", "wfformat"])
def test_forms_without_a_place_for_monitors_say_so(form: str) -> None:
    assert formats.left_out(plan(TEXTS, TEXTS), form).endswith("those of 1 task and 1 group are left out")
    assert not formats.left_out(plan([], []), form)


words = st.text(st.sampled_from("abAB09 ,:=->%'\"\\()[]{}é\t#$"), min_size=1, max_size=15)


def is_monitor(text: str) -> bool:
    """Whether it says what to watch for; `created:a -> b` names an action that there is not."""
    try:
        read_monitor(text)
    except UserError:
        return False
    return True


@given(st.lists(words.map(lambda word: f"created:a{word}b").filter(is_monitor), max_size=3))
@example(["created:a->b"])
def test_a_flat_list_reads_back_as_the_same_monitors(texts: list[str]) -> None:
    task = flat_list.FlatTask("true", "a", monitors=tuple(texts))
    [found] = flat_list.read(flat_list.write([task]), "list.txt")
    assert found.monitors == tuple(texts)
    [step] = [step for step in steps(grouped_list.read(flat_list.write([task]), "list.txt")) if step.task is not None]
    assert step.task is not None
    assert step.task.monitors == texts


def test_a_line_may_have_several_in_quotes_or_with_escapes() -> None:
    line = "a: monitor='regex:x y -> fail' cores=2 monitor=regex:p%20q monitor=after:1h :: run it\n"
    [task] = flat_list.read(line, "list.txt")
    assert (task.cores, task.monitors) == (2, ("regex:x y -> fail", "regex:p q", "after:1h"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("monitor=regex:( :: x", "list.txt:1: x: monitor 'regex:(': '(' is no regular expression"),
        ("monitor= :: x", "begins with a kind"),
        ("monitor='after:1h :: x", 'monitor "\'after:1h"'),
    ],
)
def test_a_wrong_one_is_told_with_its_line(line: str, message: str) -> None:
    with pytest.raises(InvalidWorkload) as refused:
        flat_list.flat_steps(flat_list.read(line, "list.txt"), "list.txt")
    assert message in str(refused.value)


def test_scripts_say_them_as_options_or_as_attributes(tmp_path: Path) -> None:
    short = tmp_path / "short.py"
    short.write_text(
        "from bough.describe import level\n"
        "@level([(0,)], monitors='after:1h -> fail')\n"
        "def Night(group, n):\n"
        f"    group.task('echo 1', monitors={TEXTS!r})\n"
    )
    assert monitors_of(read_script(short.read_text(), str(short))) == (["after:1h -> fail"], TEXTS)
    thesis = tmp_path / "thesis.py"
    thesis.write_text(
        "Levels = [['Night', 1]]\n"
        "def generateGroup(level, above): return [[0]]\n"
        "def getJobsExecutables(level, vector): return ['echo']\n"
        "def getJobsParameters(level, vector): return ['1']\n"
        f"def getJobsAttributes(level, vector): return [['monitor=' + text for text in {TEXTS!r}]]\n"
    )
    assert monitors_of(read_script(thesis.read_text(), str(thesis))) == ([], TEXTS)


def test_equal_plans_stay_equal() -> None:
    assert tidy(formats.read_json(formats.write(plan(TEXTS, TEXTS), "json"), "x")) == plan(TEXTS, TEXTS)
