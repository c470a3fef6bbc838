"""Workflows of other systems run by the command line: a C project, a DAGMan file, a recorded workflow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bough.describe.wfformat import read
from tests.unit.describe.wfstructure import check_wfformat

PATIENCE = 120.0
PROJECT = Path(__file__).resolve().parents[2] / "examples" / "cproject"
HAS_TOOLS = all(map(shutil.which, ("make", "cc", "ar")))
NEEDS_TOOLS = pytest.mark.skipif(not HAS_TOOLS, reason="make, cc or ar is not installed: apt-get install make gcc")


class Shop:
    """A folder in which `bough` is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        hidden = {"BOUGH_SERVER", "BOUGH_HOME", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
        self.environment = {key: value for key, value in os.environ.items() if key not in hidden}

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def bough(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.call(sys.executable, "-m", "bough.cli.main", *words)

    def run(self, *words: str) -> dict[str, Any]:
        done = self.bough("run", "--json", "--cores", "2", *words)
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def would_make(self) -> set[str]:
        """What Bough would make of the Makefile here."""
        done = self.bough("run", "--json", "--dry-run", "Makefile")
        return {task["name"] for task in json.loads(done.stdout)}

    def make_would(self) -> set[str]:
        """What make would."""
        lines = self.call("make", "-n", "--trace").stdout.splitlines()
        return {line.split("'")[1] for line in lines if " target '" in line and line.startswith("Makefile:")}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@NEEDS_TOOLS
def test_a_c_project_becomes_the_same_program_as_with_make(tmp_path: Path) -> None:
    ours, theirs = Shop(tmp_path / "ours"), Shop(tmp_path / "theirs")
    for one in (ours, theirs):
        shutil.copytree(PROJECT, one.folder, ignore=shutil.ignore_patterns("build", ".bough"))
    assert theirs.call("make", "check").returncode == 0
    built = ours.run("Makefile", "check")
    assert (built["failed"], built["skipped"], built["exit_code"]) == (0, 0, 0)
    for name in ("tally", "libtally.a", "primes.h", "lib_table.o", "check.txt"):
        assert (ours.folder / "build" / name).read_bytes() == (theirs.folder / "build" / name).read_bytes()

    assert ours.would_make() == set()
    assert ours.run("Makefile")["done"] == 0

    os.utime(ours.folder / "src" / "lib_sort.c", (2e9, 2e9))
    wanted = ours.make_would()
    assert wanted == {"build/lib_sort.o", "build/libtally.a", "build/tally"}
    assert ours.would_make() == wanted
    assert ours.run("Makefile")["done"] == 3
    assert (ours.folder / "build" / "tally").read_bytes() == (theirs.folder / "build" / "tally").read_bytes()


@NEEDS_TOOLS
def test_a_generated_header_that_did_not_change_rebuilds_nothing(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "project")
    shutil.copytree(PROJECT, shop.folder, ignore=shutil.ignore_patterns("build", ".bough"))
    assert shop.run("Makefile")["exit_code"] == 0
    program = (shop.folder / "build" / "tally").stat().st_mtime_ns
    later = (shop.folder / "build" / "mkprimes").stat().st_mtime + 10
    os.utime(shop.folder / "tools" / "mkprimes.c", (later, later))
    assert shop.run("Makefile")["exit_code"] == 0
    assert (shop.folder / "build" / "tally").stat().st_mtime_ns == program


@NEEDS_TOOLS
def test_a_recipe_that_fails_keeps_what_needs_it_from_running(shop: Shop) -> None:
    (shop.folder / "Makefile").write_text("all: a b\n\techo all\na:\n\texit 3\nb:\n\ttouch b\n")
    ended = shop.run("Makefile")
    assert (ended["done"], ended["failed"], ended["skipped"], ended["exit_code"]) == (1, 1, 1, 1)
    assert ended["failures"][0]["name"] == "a"


@NEEDS_TOOLS
def test_a_mistake_in_a_makefile_is_told_and_nothing_runs(shop: Shop) -> None:
    (shop.folder / "Makefile").write_text("all: a nosuch\n\techo\na:\n\ttouch a\n")
    done = shop.bough("run", "Makefile")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "bough: Makefile:2: no rule makes 'nosuch', which 'all' needs; there is no such file\n"
    assert os.listdir(shop.folder) == ["Makefile"]


def test_a_dag_of_dagman_runs_with_scripts_retries_limits_and_a_final_node(shop: Shop) -> None:
    folder = shop.folder
    (folder / "say.sub").write_text("executable = /bin/sh\narguments = \"-c 'echo $(JOB) >> log'\"\nqueue\n")
    (folder / "flaky.sub").write_text(
        "executable = /bin/sh\narguments = \"-c 'echo try$(RETRY) >> log; [ $(RETRY) = 2 ]'\"\nqueue\n"
    )
    (folder / "fail.sub").write_text("executable = /bin/false\nqueue\n")
    (folder / "post.sh").write_text('#!/bin/sh\necho "post $1 $2" >> log\n')
    (folder / "post.sh").chmod(0o755)
    (folder / "inner.dag").write_text("JOB X say.sub\nJOB Y say.sub\nPARENT X CHILD Y\n")
    (folder / "my.dag").write_text(
        "JOB A say.sub\nJOB B flaky.sub\nRETRY B 3\nSPLICE S inner.dag\nJOB C fail.sub\n"
        "SCRIPT POST C ./post.sh $JOB $RETURN\nJOB D fail.sub\nJOB E say.sub\nFINAL F say.sub\n"
        "PARENT A CHILD B\nPARENT B CHILD S\nPARENT S CHILD C\nPARENT C CHILD D\nPARENT D CHILD E\n"
        "CATEGORY A one\nCATEGORY B one\nMAXJOBS one 1\n"
    )
    ended = shop.run("my.dag")
    lines = (folder / "log").read_text().splitlines()
    assert lines == ["A", "try0", "try1", "try2", "S+X", "S+Y", "post C 1", "F"]
    assert (ended["done"], ended["failed"], ended["skipped"]) == (6, 1, 1)
    again = shop.run("my.dag")
    assert again["reused"] == 5
    assert (folder / "log").read_text().splitlines()[len(lines) :] == ["F"]


def test_a_recorded_workflow_is_replayed_and_its_run_recorded_again(shop: Shop) -> None:
    tasks = [{"name": f"t{i}", "id": f"t{i}", "parents": [f"t{i - 1}"] if i else [], "children": []} for i in range(4)]
    ran = [{"id": f"t{i}", "runtimeInSeconds": 3} for i in range(4)]
    execution = {"makespanInSeconds": 1, "executedAt": "x", "tasks": ran}
    workflow = {"specification": {"tasks": tasks}, "execution": execution}
    (shop.folder / "trace.json").write_text(json.dumps({"name": "t", "schemaVersion": "1.5", "workflow": workflow}))
    done = shop.bough("run", "trace.json", "--emulate", "--scale", "0.01", "--json")
    assert json.loads(done.stdout)["done"] == 4

    text = shop.bough("describe", "--run", "trace", "--to", "wfformat").stdout
    found = json.loads(text)
    check_wfformat(found)
    assert all(task["runtimeInSeconds"] >= 0.03 for task in found["workflow"]["execution"]["tasks"])
    assert found["workflow"]["execution"]["machines"][0]["cpu"]["coreCount"] >= 1
    again = read(text, "again.json")
    assert [len(task.after) for task in again.root.tasks] == [0, 1, 1, 1]

    picture = shop.bough("describe", "--run", "trace", "--to", "dot").stdout
    assert picture.count("->") == 3
    assert picture.count("palegreen") == 4


SCRIPT = """
import bough

def square(x):
    return x * x

with bough.Session() as s:
    first = s.options(name="squares").map(square, range(20))
    with s.group("second", after=[first]) as group:
        made = group.command("printf abc > {o:w}", o="made.txt", name="make")
        group.command("cat {i:r}", i=made, name="use")
"""


def test_any_run_is_written_with_its_arrays_groups_and_files(shop: Shop) -> None:
    (shop.folder / "flow.py").write_text(SCRIPT)
    assert shop.run("flow.py")["exit_code"] == 0
    found = json.loads(shop.bough("describe", "--run", "flow").stdout)
    check_wfformat(found)
    tasks = {task["name"]: task for task in found["workflow"]["specification"]["tasks"]}
    assert len(found["workflow"]["specification"]["tasks"]) == 22
    assert len(tasks["make"]["parents"]) == 20
    assert tasks["make"]["id"] in tasks["use"]["parents"]
    assert tasks["use"]["inputFiles"] == tasks["make"]["outputFiles"] == [str(shop.folder / "made.txt")]
    assert found["workflow"]["specification"]["files"][0]["sizeInBytes"] == 3


def test_options_of_a_replay_are_checked(shop: Shop) -> None:
    (shop.folder / "list.txt").write_text("echo a\n")
    for words, message in (
        (("list.txt", "--emulate"), "list.txt is no recorded workflow (WfFormat); there is nothing to emulate"),
        (("list.txt", "--scale", "2"), "--scale goes with --emulate"),
        (("list.txt", "--emulate", "dance"), "'dance' is not one of sleep, cpu"),
    ):
        done = shop.bough("run", *words)
        assert done.returncode == 2
        assert message in done.stderr
