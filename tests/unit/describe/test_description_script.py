"""Description scripts: which files are some, what they may say, and how their mistakes are told."""

from __future__ import annotations

import pytest

from bough.describe.plan import tidy
from bough.describe.trellisdag.description_script import is_description
from bough.errors import InvalidWorkload
from tests.unit.describe.description_scripts import SURVEY, SURVEY_SHORT, WAVE, WAVE_SHORT, described


def error_of(script: str, *args: object) -> str:
    with pytest.raises(InvalidWorkload) as caught:
        described(script, *args)
    return str(caught.value)


@pytest.mark.parametrize("script", [WAVE, SURVEY, WAVE_SHORT, SURVEY_SHORT])
def test_description_scripts_are_known_without_running_them(script: str) -> None:
    assert is_description("raise SystemExit\n" + script)


@pytest.mark.parametrize(
    "script",
    [
        "import bough\nwith bough.Session() as s:\n    s.submit(print)\n",
        "# generateGroup\nLevels = 3\n",
        "def generateGroup(level, sup): return []\n",
        "import bough.describe\n",
        "def generateGroup(: Levels = 2",
    ],
)
def test_other_scripts_are_not(script: str) -> None:
    assert not is_description(script)


def test_both_forms_describe_the_same() -> None:
    assert tidy(described(WAVE, 3)) == tidy(described(WAVE_SHORT, 3))
    assert tidy(described(SURVEY, 2, 3)) == tidy(described(SURVEY_SHORT, 2, 3))


def test_groups_is_another_word_for_levels_and_most_functions_may_be_left_out() -> None:
    plan = described("Groups = [['A', 1]]\ndef generateGroup(level, sup): return [[1], [2]]\n")
    assert [group.name for group in plan.root.groups] == ["A_1", "A_2"]
    assert (plan.levels, plan.task_count) == (["A"], 0)


def test_a_vector_of_the_wrong_length_is_reported() -> None:
    error = error_of("Levels = [['A', 2]]\ndef generateGroup(level, sup): return [[1]]\n")
    assert error == "script.py:2: generateGroup gave [1] for level A, whose vectors have 2 numbers"
    more = "def generateGroup(level, sup): return [[1]]\ndef getDependent(l, g, s): return [[1, 2]]\n"
    assert "getDependent gave [1, 2]" in error_of("Levels = [['A', 1]]\n" + more)


def test_lists_of_different_lengths_are_reported() -> None:
    script = (
        "Levels = [['A', 1]]\ndef generateGroup(level, sup): return [[1]]\n"
        "def getJobsExecutables(l, g): return ['a', 'b']\ndef getJobsParameters(l, g): return ['x']\n"
    )
    assert error_of(script).startswith("script.py:3: A_1: getJobsExecutables gives 2 entries, getJobsParameters 1")


def test_a_reflexive_dependency_is_ignored() -> None:
    script = (
        "Levels = [['A', 1]]\ndef generateGroup(l, s): return [[1], [2]]\ndef isDependent(l, a, b, s): return a >= b\n"
    )
    assert [group.after for group in described(script).root.groups] == [[], ["A_1"]]


def test_attributes_of_the_system_and_of_the_user() -> None:
    script = (
        "Levels = [['A', 1]]\ndef generateGroup(l, s): return [[1]]\n"
        "def getJobsExecutables(l, g): return ['a']\ndef getJobsParameters(l, g): return ['']\n"
        "def getJobsAttributes(l, g): return [['release=yes', 'affinity=no', 'est=3', 'timeout=1h', 'cores=2']]\n"
    )
    [task] = described(script).root.groups[0].tasks
    assert (task.command, task.release, task.affinity, task.timeout, task.cores) == ("a", True, False, 3600, 2)
    assert task.attributes == {"est": "3"}
    assert "release=maybe: expected yes or no" in error_of(script.replace("release=yes", "release=maybe"))


def test_mistakes_are_told_with_their_line() -> None:
    assert error_of(WAVE) == "script.py:3: IndexError: list index out of range"
    assert error_of(WAVE_SHORT).startswith("script.py:3: script.py takes 1 argument, not 0")
    assert "'x' is no int" in error_of(WAVE_SHORT, "x")
    assert error_of("Levels = [\n").startswith("script.py:")
    assert error_of("import sys\nsys.exit('no data')\n") == "script.py: no data"
    assert "describes nothing" in error_of("Levels = []\n")
    assert "Levels is []" in error_of("Levels = []\ndef generateGroup(l, s): return []\n")


def test_what_a_script_prints_is_kept_from_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    described("print('hello')\n" + SURVEY, 1, 1)
    assert capsys.readouterr() == ("", "hello\n")


def test_levels_of_the_short_form_know_options_and_groups_anywhere() -> None:
    plan = described("""
from bough.describe import level
@level(["a", "b"], limit=2, match=True)
def Top(g, name):
    g.after("zzz", name)
    g.attributes(colour="red")
@level(lambda name: [(name, 1)], within=Top, barrier=False)
def Low(g, name, n):
    if name == "b":
        g.after(Low["a", 1])
    g.task("true", timeout="1m", est=4)
""")
    top, low = plan.root.groups[1], plan.root.groups[1].groups[0]
    assert (top.name, top.limit, top.match, top.attributes, top.after) == ("Top_b", 2, True, {"colour": "red"}, [])
    assert (low.name, low.barrier, low.after) == ("Low_b_1", False, ["Top_a/Low_a_1"])
    assert (low.tasks[0].timeout, low.tasks[0].attributes) == (60, {"est": "4"})


def test_a_level_is_not_called() -> None:
    script = "from bough.describe import level\n@level([1])\ndef A(g, n): pass\nA(1)\n"
    assert "A[...] names one of its groups" in error_of(script)
