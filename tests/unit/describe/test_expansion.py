"""The expansion of descriptions, number by number as the original system made it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.describe.plan import Plan, PlanGroup, PlanTask
from bough.describe.trellisdag.description_script import read_script
from bough.describe.trellisdag.expansion import (
    ExpandedTarget,
    before_rows,
    declared_edges,
    jobs,
    reduced,
    rules,
    targets,
)
from bough.errors import InvalidWorkload
from tests.unit.describe.description_scripts import KINGS, RUNNING_EXAMPLE, TWO_LEVELS, described

CHECKERS = Path(__file__).parents[3] / "examples" / "checkers"


def checkers(script: str, *args: int) -> Plan:
    return read_script((CHECKERS / script).read_bytes(), str(CHECKERS / script), [str(arg) for arg in args])


# --- the two-level script, three pieces ------------------------------------------------------------


@pytest.fixture
def three() -> list[ExpandedTarget]:
    return targets(described(TWO_LEVELS, 3))


def test_targets_have_the_numbers_of_the_original(three: list[ExpandedTarget]) -> None:
    slices = ["2_1_0_0", "2_0_0_1", "1_1_1_0", "1_0_1_1", "0_1_2_0", "0_0_2_1"]
    expected = ["VS_2_1_prologue"]
    for one in slices:
        expected += [f"Slice_{one}_prologue", f"Slice_{one}"]
    assert [target.name for target in three] == [*expected, "VS_2_1"]
    assert [target.id for target in three] == list(range(1, 15))
    assert [target.level for target in three] == [0, *[1] * 12, 0]


def test_jobs_have_the_numbers_of_the_original(three: list[ExpandedTarget]) -> None:
    rows = jobs(three)
    assert len(rows) == 20
    assert [job.id for job in rows if not job.command] == [1, 2, 5, 8, 11, 14, 17, 20]
    assert [job.target for job in rows if not job.command] == [1, 2, 4, 6, 8, 10, 12, 14]
    assert [(job.id, job.target) for job in rows if job.command.endswith("comp")] == [
        *[(3, 3), (6, 5), (9, 7), (12, 9), (15, 11), (18, 13)],
    ]
    assert rows[2].command == "2100comp"
    assert rows[3].command == "2100ver"


def test_before_has_the_rows_of_the_original(three: list[ExpandedTarget]) -> None:
    text = "1>2 2>3 3>4 4>5 3>6 6>7 5>8 7>8 8>9 7>10 10>11 9>12 11>12 12>13 13>14 11>14 9>14 7>14 5>14 3>14"
    expected = [tuple(map(int, pair.split(">"))) for pair in text.split()]
    assert before_rows(three) == expected


def test_four_pieces_make_46_targets() -> None:
    found = targets(described(TWO_LEVELS, 4))
    number = {target.name: target.id for target in found}
    wanted = ["VS_2_1_prologue", "VS_2_1", "VS_2_2_prologue", "VS_2_2", "VS_3_1_prologue", "VS_3_1"]
    assert [number[name] for name in wanted] == [1, 14, 15, 28, 29, 46]
    assert len(found) == 46
    rows = jobs(found)
    assert (len(rows), sum(1 for job in rows if not job.command)) == (66, 26)


# --- the running example ----------------------------------------------------------------------------


def test_the_running_example_has_20_groups_and_47_dependencies_35_of_which_matter() -> None:
    plan = described(RUNNING_EXAMPLE)
    edges = declared_edges(plan)
    assert (len(plan.root.groups), len(edges), len(reduced(edges))) == (20, 47, 35)


def test_the_reduced_dependencies_are_those_of_the_table() -> None:
    table = {
        "2100": "",
        "1110": "2100",
        "2001": "2100",
        "0120": "1110",
        "1011": "1110 2001",
        "0021": "0120 1011",
        "3100": "2100",
        "2110": "1110 3100",
        "3001": "2001 3100",
        "2011": "1011 2110 3001",
        "1120": "0120 2110",
        "1021": "0021 1120 2011",
        "0031": "0130 1021",
        "2200": "2100",
        "1210": "1110 2001 2200",
        "0130": "1120",
        "0220": "0120 1210",
        "1111": "1011 1210",
        "0121": "0021 0220 1111",
        "0022": "0121",
    }
    found: dict[str, list[str]] = {name: [] for name in table}
    for before, after in reduced(declared_edges(described(RUNNING_EXAMPLE))):
        found[after.removeprefix("Slice_").replace("_", "")].append(before.removeprefix("Slice_").replace("_", ""))
    assert {name: " ".join(sorted(before)) for name, before in found.items()} == table


def test_only_generated_groups_are_depended_upon() -> None:
    [group] = [group for group in described(RUNNING_EXAMPLE).root.groups if group.name == "Slice_2_0_1_1"]
    assert group.after == ["Slice_3_0_0_1", "Slice_2_1_1_0", "Slice_1_0_1_1", "Slice_2_0_0_1"]


# --- all kings --------------------------------------------------------------------------------------

ORDER = ["11", "21", "31", "22", "41", "32", "51", "42", "33", "61", "52", "43"]


def numbers(plan: Plan) -> dict[str, tuple[int, ...]]:
    """By slice: the numbers of its two jobs."""
    found = {target.name: target.jobs for target in targets(plan)}
    return {pair: found[f"Rank_{pair[0]}_{pair[1]}_0_0_0_0"] for pair in ORDER}


def test_all_kings_up_to_seven_pieces() -> None:
    plan = described(KINGS)
    edges = declared_edges(plan)
    assert (len(plan.root.groups), plan.task_count, len(edges), len(reduced(edges))) == (12, 24, 48, 15)
    assert numbers(plan) == {pair: (3 * k + 2, 3 * k + 3) for k, pair in enumerate(ORDER)}


def test_all_kings_with_supergroups() -> None:
    first = [3, 8, 13, 16, 21, 24, 29, 32, 35, 40, 43, 46]
    assert numbers(described(KINGS, "pieces")) == {pair: (one, one + 1) for pair, one in zip(ORDER, first, strict=True)}


# --- four against three -----------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["checkers.py", "checkers_modern.py"])
def test_four_against_three(script: str) -> None:
    plan = checkers(script, 4, 3)
    levels = [group.level for path, group in plan.walk() if path]
    assert [levels.count(level) for level in ("VS", "Slice", "Rank")] == [1, 20, 638]
    assert plan.task_count == 1276
    edges = [after.rpartition("/")[2].partition("_")[0] for _, after in declared_edges(plan)]
    assert (edges.count("Slice"), edges.count("Rank")) == (31, 1050)
    found = targets(plan)
    rows = jobs(found)
    assert len(found) == 1318
    assert (len(rows), sum(1 for job in rows if not job.command)) == (1956, 680)
    assert len(before_rows(found)) == 2398


@pytest.mark.parametrize(("pieces", "groups"), [(3, 177), (4, 515), (5, 1077), (7, 3638)])
def test_all_parts_up_to_some_pieces(pieces: int, groups: int) -> None:
    plan = checkers("checkers_modern.py", pieces)
    assert sum(1 for _, group in plan.walk() if group.level == "Rank") == groups
    assert plan.task_count == 2 * groups + 1  # the program is compiled first


# --- rules ------------------------------------------------------------------------------------------


def rule(plan: Plan, name: str) -> tuple[str, ...]:
    return next(rule.needs for rule in rules(plan) if rule.name == name)


def test_a_group_above_the_lowest_level_without_subgroups_keeps_its_prologue() -> None:
    plan = Plan(["A", "B"])
    plan.root.groups = [PlanGroup("A_1", "A"), PlanGroup("A_2", "A", after=["A_1"], prologue=[PlanTask("true")])]
    assert rule(plan, "A_2") == ("A_2_prologue",)
    assert rule(plan, "A_2_prologue") == ("A_1",)


def test_groups_of_the_same_name_are_told_apart_by_their_paths() -> None:
    plan = Plan(["A", "B"])
    plan.root.groups = [PlanGroup("A_1", groups=[PlanGroup("b")]), PlanGroup("A_2", groups=[PlanGroup("b")])]
    assert rule(plan, "A_1") == ("A_1/b",)


def test_what_waits_for_itself_has_no_order() -> None:
    plan = Plan()
    plan.root.groups = [PlanGroup("a", after=["b"]), PlanGroup("b", after=["a"])]
    with pytest.raises(InvalidWorkload, match="waits for itself"):
        targets(plan)
