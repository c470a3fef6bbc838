"""Administration from the command line, without a session: what is shown, and what is refused."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable

import pytest
from cli_workshop import Workshop

from bough.cli.commands.act import _VERBS, _lines

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def past(workshop: Workshop) -> Workshop:
    """Two runs of a workflow with a group and a subgroup; the second is not over."""
    workshop.store()
    for run in (1, 2):
        workshop.insert("runs", run=run, name="wf", opened=float(run), closed=9.0, reason="done")
        first = 10 * run
        workshop.insert("groups", id=0, run=run, parent=None, name="", path="", closed=1)
        for number, parent, name, path in (
            (1, 0, "align", "align"),
            (2, 1, "sub", "align/sub"),
            (3, 0, "plot", "plot"),
        ):
            workshop.insert(
                "groups", id=first + number, run=run, parent=parent and first + parent, name=name, path=path
            )
        workshop.insert("group_after", id=first + 3, run=run, on_kind="group", on_id=first + 1, on_idx=0)
        state = {"state": "done", "started": 5.0, "ended": 7.0, "seconds": 2.0, "done": 1}
        workshop.task(first + 1, grp=first + 1, run=run, host="a", **state)
        workshop.insert(
            "attempts", id=first + 1, idx=0, attempt=1, host="a", started=5.0, ended=7.0, state="done", span=1
        )
        left = state if run == 1 else {"state": "waiting", "done": 0}
        workshop.task(first + 2, grp=first + 2, run=run, **left)
        workshop.task(first + 3, grp=first + 3, run=run, **left)
    return workshop


def test_the_history_of_a_group_has_a_line_for_each_run(past: Workshop, bough: Call) -> None:
    code, out, _ = bough("history", "align", "--json")
    assert code == 0
    assert [(row["run"], row["tasks"], row["done"], row["took"], row["hosts"]) for row in json.loads(out)] == [
        (1, 2, 2, 2.0, ["a"]),
        (2, 2, 1, 2.0, ["a"]),
    ]
    code, out, _ = bough("history", "align/sub")
    assert code == 0
    assert len(out.splitlines()) == 3


def test_the_history_of_a_group_that_never_was_is_refused(past: Workshop, bough: Call) -> None:
    code, _, err = bough("history", "nowhere")
    assert (code, err) == (2, "bough: no run has a group 'nowhere'; see bough status\n")


def test_the_tree_of_a_group_shows_its_levels_and_who_depends_on_it(past: Workshop, bough: Call) -> None:
    code, out, _ = bough("status", "align", "--tree")
    assert code == 0
    assert out.splitlines()[:2] == ["align   1 waiting, 1 done", "└─ sub  1 waiting"]
    assert "what depends on it: group plot" in out
    assert "waits for group align (1 not ended)" in bough("status", "plot", "--tree")[1]
    assert bough("status", "nowhere", "--tree")[0] == 2


def test_the_tree_says_what_is_released(past: Workshop, bough: Call) -> None:
    assert "released" not in bough("status", "align", "--tree")[1]
    past.change("update tasks set releases = 1 where id = 21")
    assert "released: align\n" in bough("status", "align", "--tree")[1]
    past.change("update groups set released = 1 where path = 'align/sub'")
    assert json.loads(bough("status", "--tree", "--json")[1])["released"] == ["align", "align/sub"]
    past.change("update tasks set state = 'done' where run = 2")
    past.change("update groups set closed = 1")
    assert "released" not in bough("status", "align", "--tree")[1]


def test_the_analysis_of_a_run_that_is_not_there_is_refused(past: Workshop, bough: Call) -> None:
    code, _, err = bough("status", "--analyse", "--run", "7")
    assert code == 2
    assert "there is no run 7" in err
    code, out, _ = bough("status", "--analyse", "--run", "1", "--json")
    assert code == 0
    assert json.loads(out)["minimal"] == 4.0, "the group, then what comes after it"


@pytest.mark.parametrize("command", ["enable", "disable", "reset", "stop"])
def test_without_a_session_there_is_nothing_to_act_on(past: Workshop, bough: Call, command: str) -> None:
    code, _, err = bough(command, "align", "plot")
    assert code == 2
    assert f"there is nothing to {command}" in err


def test_an_exit_code_is_not_for_groups(past: Workshop, bough: Call) -> None:
    code, _, err = bough("done", "align", "--exit-code", "1")
    assert code == 2
    assert "about one task that you took" in err


def test_without_textual_the_extra_is_named(past: Workshop, bough: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: object, **more: object) -> object:
        if name.startswith(("textual", "bough.cli.browser")):
            raise ImportError(name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", missing)
    code, _, err = bough("browse")
    assert code == 3
    assert "bough[tui]" in err


def test_an_action_that_concerned_no_task_says_why() -> None:
    none = "none of them is running; bough cancel is for those that wait"
    assert _lines({"killed": 0}, [], none) == [f"0 tasks killed: {none}"]
    assert _lines({"killed": 1}, [], none) == ["1 task killed"]
    assert _lines({"killed": 0}, ["2: it is done"], none) == ["0 tasks killed", "not changed: 2: it is done"]
    assert all(verb.none for verb in _VERBS.values())
