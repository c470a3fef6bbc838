"""What is told of a description that was changed and submitted again."""

from __future__ import annotations

import pytest

from bough.api.submit.command_lines.plans import Amendment, Names
from bough.cli.output import Text
from bough.cli.runs.submit_files import Foreseen, told
from bough.describe.plan import PlanTask
from bough.describe.steps import Step, What


def amendment(**fields: object) -> Amendment:
    nothing = {"added": [], "changed": [], "removed": [], "unchanged": 7, "again": [], "retried": 0, "groups": Names()}
    return Amendment(**{**nothing, **fields})  # type: ignore[arg-type]


def test_the_line_counts_tasks_and_tells_of_groups_only_if_they_are_different() -> None:
    found = amendment(added=["a"], changed=["b", "c"])
    assert told("w", found) == "workflow w: 1 added, 2 changed, 0 removed, 7 unchanged"
    found = amendment(removed=["a"], again=["x"], retried=2, groups=Names(added=["g"], removed=["h", "i"]))
    assert found.line() == (
        "0 added, 0 changed, 1 removed, 7 unchanged, 1 of them run again; groups: 1 added, 2 removed; 2 will be retried"
    )


def test_a_workflow_that_is_what_the_description_says_goes_on_as_it_is() -> None:
    assert amendment().is_empty
    assert told("w", amendment()) == "workflow w is running as it is: 7 unchanged"
    assert not amendment(retried=1).is_empty
    assert not amendment(groups=Names(changed=["g"])).is_empty


def test_numbers_are_not_part_of_what_programs_are_told() -> None:
    assert set(amendment(ids=[1, 2], group_ids=[3]).as_json()) == {
        "added", "changed", "removed", "unchanged", "again", "retried", "groups",
    }  # fmt: skip


def test_a_dry_run_shows_everything_that_is_different_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    found = amendment(added=["g/a"], changed=["b"], removed=["c"], again=["d"], groups=Names(added=["g"]))
    Foreseen("w", found, []).show(Text())
    assert capsys.readouterr().out.splitlines() == [
        "+ g/",
        "+ g/a",
        "~ b",
        "- c",
        "= d",
        "workflow w: 1 added, 1 changed, 1 removed, 7 unchanged, 1 of them run again; groups: 1 added",
    ]
    Foreseen("w", None, [Step(What.TASK, 1, task=PlanTask("echo", "x"))]).show(Text())
    assert capsys.readouterr().out.splitlines() == ["+ x", "workflow w: 1 would be submitted"]
