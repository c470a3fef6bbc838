"""Ordinary Makefiles as plans; GNU make itself is asked, so these need it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bough.describe.formats import Source, find_reader
from bough.describe.make.makefile import read
from bough.describe.plan import Plan
from bough.describe.steps import steps
from bough.errors import InvalidWorkload, UserError

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="GNU make is not installed: apt-get install make")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "with blank"
    place.mkdir()
    return place


def plan_of(folder: Path, text: str, *words: str) -> Plan:
    (folder / "Makefile").write_text(text)
    return read(str(folder / "Makefile"), words)


def after(plan: Plan) -> dict[str, list[str]]:
    return {task.name: task.after for task in plan.root.tasks}


def commands(plan: Plan) -> dict[str, str]:
    return {task.name: task.command for task in plan.root.tasks}


def error_of(folder: Path, text: str, *words: str) -> str:
    with pytest.raises(InvalidWorkload) as caught:
        plan_of(folder, text, *words)
    return str(caught.value)


def run(plan: Plan) -> None:
    """As a session would, one after the other."""
    for step in steps(plan):
        if step.task is not None:
            task = step.task
            subprocess.run(
                ["/bin/bash", "-eo", "pipefail", "-c", task.command],
                cwd=task.cwd,
                env=os.environ | task.env,
                check=True,
                capture_output=True,
            )


PROJECT = """
OBJ = a.o b.o
.PHONY: all
all: prog
prog: $(OBJ) | out
\techo link $^ > $@
%.o: %.c gen.h
\techo compile $< > $@
gen.h: gen.in
\tcp $< $@
out:
\tmkdir $@
"""


def prepared(folder: Path) -> Path:
    for name in ("a.c", "b.c", "gen.in"):
        (folder / name).write_text(name)
    return folder


def test_targets_are_tasks_and_prerequisites_dependencies(folder: Path) -> None:
    plan = plan_of(prepared(folder), PROJECT)
    assert after(plan) == {"gen.h": [], "a.o": ["gen.h"], "b.o": ["gen.h"], "out": [], "prog": ["a.o", "b.o", "out"]}
    assert commands(plan)["gen.h"] == "cp gen.in gen.h"
    assert commands(plan)["a.o"] == "/bin/sh -c 'echo compile a.c > a.o'"
    assert plan.root.tasks[0].cwd == str(folder)
    assert not any(task.memo for task in plan.root.tasks)
    assert plan.root.tasks[0].where.line == 10


def test_reading_makes_nothing(folder: Path) -> None:
    plan_of(prepared(folder), PROJECT + "\nextra:\n\t+touch touched\n\t$(MAKE) -C nowhere\n", "all", "extra")
    assert sorted(os.listdir(folder)) == ["Makefile", "a.c", "b.c", "gen.in"]


def test_what_is_up_to_date_is_not_made_again(folder: Path) -> None:
    run(plan_of(prepared(folder), PROJECT))
    assert plan_of(folder, PROJECT).root.tasks == []
    os.utime(folder / "b.c", (2e9, 2e9))
    assert after(plan_of(folder, PROJECT)) == {"b.o": [], "prog": ["b.o"]}


def test_a_prerequisite_that_did_not_change_rebuilds_nothing(folder: Path) -> None:
    text = PROJECT.replace("\tcp $< $@", "\tcmp -s $< $@ || cp $< $@")
    run(plan_of(prepared(folder), text))
    before = (folder / "prog").stat().st_mtime_ns
    os.utime(folder / "gen.in", (2e9, 2e9))  # newer, but the same
    again = plan_of(folder, text)
    assert set(after(again)) == {"gen.h", "a.o", "b.o", "prog"}
    run(again)
    assert (folder / "prog").stat().st_mtime_ns == before


def test_everything_is_made_again_when_asked(folder: Path) -> None:
    run(plan_of(prepared(folder), PROJECT))
    assert len(plan_of(folder, PROJECT, "-B").root.tasks) == 5


def test_goals_and_variables_are_those_of_the_command_line(folder: Path) -> None:
    text = "X = 1\nall: a b\na:\n\techo $(X)\nb:\n\techo b\n"
    assert commands(plan_of(folder, text, "a", "X=2 3")) == {"a": "echo 2 3"}


def test_other_options_of_make_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="-j4: behind a Makefile stand goals"):
        plan_of(folder, "all:\n", "-j4")


def test_a_dash_ignores_a_failure_and_lines_have_shells_of_their_own(folder: Path) -> None:
    run(plan_of(folder, "all:\n\t-false\n\t@cd /; X=1\n\tpwd > where; echo $$X >> where\n"))
    assert (folder / "where").read_text() == f"{folder}\n\n"


def test_the_first_line_that_fails_ends_a_recipe(folder: Path) -> None:
    plan = plan_of(folder, "all:\n\ttrue\n\tsh -c 'exit 7'\n\ttouch never\n")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(plan)
    assert caught.value.returncode == 7
    assert not (folder / "never").exists()


def test_one_shell_for_all_lines_if_the_makefile_says_so(folder: Path) -> None:
    run(plan_of(folder, ".ONESHELL:\nall:\n\tX=1\n\techo $$X > out\n"))
    assert (folder / "out").read_text() == "1\n"


def test_a_half_made_file_is_deleted_only_if_the_makefile_says_so(folder: Path) -> None:
    text = "half:\n\techo half > $@; false\n"
    for extra, left in (("", True), (".DELETE_ON_ERROR:\n", False)):
        with pytest.raises(subprocess.CalledProcessError):
            run(plan_of(folder, text + extra))
        assert (folder / "half").exists() is left
        (folder / "half").unlink(missing_ok=True)


def test_exported_variables_and_shells_reach_recipes_also_those_of_single_targets(folder: Path) -> None:
    text = """export ALL = everywhere
one: SHELL := /bin/bash
one: export OWN = here
one: two
\t[[ 1 == 1 ]] && echo $$ALL $$OWN > one
two:
\techo $$ALL $$OWN > two
three:
\techo $$ALL $$OWN > three
"""
    run(plan_of(folder, text, "one", "three"))
    assert [(folder / name).read_text() for name in ("one", "two", "three")] == [
        "everywhere here\n",
        "everywhere here\n",
        "everywhere\n",
    ]


def test_a_recipe_that_calls_make_runs_as_it_stands_with_the_variables_given(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "Makefile").write_text("all:\n\techo $(X) $(MAKELEVEL) > out\n")
    plan = plan_of(folder, "X = 1\nall:\n\t$(MAKE) -C sub\n", "X=a b")
    assert list(commands(plan).values()) == ["make -C sub"]
    run(plan)
    assert (folder / "sub" / "out").read_text() == "a b 1\n"


def test_one_recipe_that_makes_several_files_is_one_task(folder: Path) -> None:
    (folder / "x.in").touch()
    text = "all: x.c x.h z\n%.c %.h: %.in\n\ttouch x.c x.h\nz: x.h\n\ttouch z\n"
    assert after(plan_of(folder, text)) == {"x.c": [], "z": ["x.c"]}


def test_double_colon_rules_are_one_task(folder: Path) -> None:
    plan = plan_of(folder, ".PHONY: e a b\ne:: a\n\techo 1\ne:: b\n\techo 2\na b:\n\techo $@\n", "e")
    assert after(plan)["e"] == ["a", "b"]
    assert commands(plan)["e"] == "echo 1 || exit $?; echo 2 || exit $?"


def test_files_in_between_are_removed_at_the_end(folder: Path) -> None:
    (folder / "x.a").touch()
    text = "all: x.c\n%.c: %.b\n\tcp $< $@\n%.b: %.a\n\tcp $< $@\n"
    run(plan_of(folder, text))
    assert sorted(os.listdir(folder)) == ["Makefile", "x.a", "x.c"]


def test_who_waits_for_a_target_without_a_recipe_waits_for_what_it_needs(folder: Path) -> None:
    text = ".PHONY: some\nlast: some\n\ttouch $@\nsome: a b\na b:\n\ttouch $@\n"
    assert after(plan_of(folder, text))["last"] == ["a", "b"]


def test_many_behind_a_target_without_a_recipe_cost_no_square(folder: Path) -> None:
    names = " ".join(f"a{i}" for i in range(100))
    users = " ".join(f"b{i}" for i in range(100))
    text = f".PHONY: some\nall: {users}\nsome: {names}\n{names}:\n\ttouch $@\n{users}: some\n\ttouch $@\n"
    plan = plan_of(folder, text)
    assert after(plan)["b7"] == ["join-1"]
    assert len(plan.root.groups[0].after) == 100
    assert sum(len(step.waits) for step in steps(plan)) == 200


def test_what_info_says_is_no_part_of_a_recipe(folder: Path) -> None:
    plan = plan_of(folder, "all: a b\n$(info reading)\na:\n\techo a\nb:\n\t$(info making $@)\n\techo b\n")
    assert commands(plan) == {"a": "echo a", "b": "echo b"}


def test_included_makefiles_are_made_first(folder: Path) -> None:
    plan = plan_of(folder, "all:\n\techo $(Y)\ninclude made.mk\nmade.mk:\n\techo Y = $(shell echo 7) > $@\n")
    assert commands(plan) == {"all": "echo 7"}


def test_not_parallel_is_one_after_the_other(folder: Path) -> None:
    plan = plan_of(folder, ".NOTPARALLEL:\nall: a b\na b:\n\techo $@\n")
    assert after(plan) == {"a": [], "b": ["a"]}


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("all:\n\techo\n", ("nosuch",), "Makefile: no rule makes 'nosuch', and there is no such file"),
        ("all: x\n\techo\n", (), "Makefile:2: no rule makes 'x', which 'all' needs; there is no such file"),
        ("all:\n        echo\n", (), "Makefile:2: missing separator"),
        ("all: a\na: b\n\techo\nb: a\n\techo\n", (), "Makefile: these targets wait for each other: b -> a"),
        ("a:\n\techo 1\na:\n\techo 2\n", (), "Makefile:4: target 'a' has a recipe already, at Makefile:2"),
        ("$(error this is wrong)\nall:\n", (), "Makefile:1: this is wrong"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(folder: Path, text: str, words: tuple[str, ...], message: str) -> None:
    assert error_of(folder, text, *words).startswith(message)


def test_makefiles_are_known_by_their_names_and_those_of_trellisdag_have_their_own_reader() -> None:
    def form(path: str, text: str) -> str:
        reader = find_reader(Source(path, text))
        return "" if reader is None else reader.form

    assert form("x/Makefile", "all:\n\techo\n") == "make"
    assert form("rules.mk", "all:\n\techo\n") == "make"
    assert form("Makefile", "#AutoMakefile\nall:\n\techo\n") == "trellis"
