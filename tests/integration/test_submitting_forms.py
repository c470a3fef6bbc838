"""`bough submit` with every form of workflow files at a real server: each becomes a workflow that runs to its end."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from service_client import Service

from tests.unit.describe.description_scripts import SURVEY

PATIENCE = 90.0
NEEDS_MAKE = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make: apt-get install make")


class Site:
    """A service with an executor, and folders from which people submit."""

    def __init__(self, folder: Path) -> None:
        self.service = Service(folder)
        self.service.start()
        self.service.executor(cores=2)

    def desk(self, folder: Path) -> Desk:
        return Desk(self, folder)


class Desk:
    """A folder from which somebody submits."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._site = site
        self.folder = folder

    def write(self, name: str, text: str, *, runs: bool = False) -> None:
        (self.folder / name).write_text(text)
        if runs:
            (self.folder / name).chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        return self._site.service.environment

    def bough(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "bough.cli.main", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def submit(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.bough("submit", "--wait", "--name", name, *words)

    def counts(self, name: str) -> dict[str, int]:
        found: dict[str, int] = self.status(name)["counts"]
        return {state: number for state, number in found.items() if number}

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.bough("status", "--name", name, "--json").stdout)
        return found

    def groups(self, name: str) -> set[str]:
        return {group["path"] for group in self.status(name)["groups"]}

    def diary(self) -> list[str]:
        return (self.folder / "diary").read_text().splitlines()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("s"))
    yield made
    made.service.clean_up()


@pytest.fixture
def desk(site: Site, tmp_path: Path) -> Desk:
    return site.desk(tmp_path)


def test_a_description_script_with_arguments(desk: Desk) -> None:
    for name in ("stage_in", "reduce", "mosaic", "archive"):
        desk.write(name, f'#!/bin/sh\necho "{name} $*" >> diary\n', runs=True)
    desk.write("survey.py", SURVEY)
    done = desk.submit("survey", "survey.py", "2", "2")
    assert done.returncode == 0, done.stderr
    words = [line.split()[0] for line in desk.diary()]
    assert words == ["stage_in", "reduce", "reduce", "mosaic", "archive"] * 2
    assert "Night_1/Field_1_0" in desk.groups("survey")


def test_a_makefile_with_levels_and_attributes(desk: Desk) -> None:
    desk.write(
        "pack.make",
        "#AutoMakefile\n#VS\nall: pack\npack: crunch audit\n#attribute affinity=yes\n\techo pack >> diary\n"
        "crunch:\n#attribute release=yes\n#attribute est=40\n\techo crunch >> diary\n"
        "audit: crunch\n\techo audit >> diary\n",
    )
    done = desk.submit("pack", "pack.make")
    assert done.returncode == 0, done.stderr
    assert desk.diary() == ["crunch", "audit", "pack"]
    assert {"pack", "crunch", "audit"} <= desk.groups("pack")
    [row] = json.loads(desk.bough("sql", "--json", "select kind, name, value from attributes").stdout)
    assert row == {"kind": "task", "name": "est", "value": "40"}


@NEEDS_MAKE
def test_an_ordinary_makefile_about_files(desk: Desk) -> None:
    desk.write("Makefile", "all: b.txt\nb.txt: a.txt\n\tcat a.txt a.txt > b.txt\na.txt:\n\techo one > a.txt\n")
    done = desk.submit("files", "Makefile")
    assert done.returncode == 0, done.stderr
    assert (desk.folder / "b.txt").read_text() == "one\none\n"
    assert desk.counts("files") == {"done": 2}


def test_a_flat_list_with_groups_and_a_plain_one(desk: Desk) -> None:
    lines = ["group=b deps=a :: echo b >> diary", "group=a :: echo a1 >> diary", "group=a :: echo a2 >> diary"]
    desk.write("list.txt", "\n".join(lines))
    done = desk.submit("grouped", "list.txt")
    assert done.returncode == 0, done.stderr
    assert desk.diary() == ["a1", "a2", "b"]
    desk.write("plain.txt", "one: :: echo one > one\nafter=one :: cp one two\n")
    done = desk.submit("plain", "plain.txt")
    assert done.returncode == 0, done.stderr
    assert (desk.folder / "two").read_text() == "one\n"


def test_a_script_of_mqsub(desk: Desk) -> None:
    desk.write("calls.sh", 'mqsub -l a -deps "" -c "echo a >> diary"\nmqsub -l b -deps "a" -c "echo b >> diary"\n')
    done = desk.submit("calls", "calls.sh")
    assert done.returncode == 0, done.stderr
    assert desk.diary() == ["a", "b"]


def test_a_dag_of_dagman(desk: Desk) -> None:
    desk.write("say.sub", "executable = /bin/sh\narguments = \"-c 'echo $(JOB) >> diary'\"\nqueue\n")
    desk.write("inner.dag", "JOB X say.sub\nJOB Y say.sub\nPARENT X CHILD Y\n")
    desk.write(
        "my.dag",
        "JOB A say.sub\nSPLICE S inner.dag\nJOB B say.sub\nRETRY B 1\nFINAL F say.sub\n"
        "PARENT A CHILD S\nPARENT S CHILD B\n",
    )
    done = desk.submit("dag", "my.dag")
    assert done.returncode == 0, done.stderr
    assert desk.diary() == ["A", "S+X", "S+Y", "B", "F"]


def test_a_recorded_workflow(desk: Desk) -> None:
    tasks = [{"name": f"t{i}", "id": f"t{i}", "parents": [f"t{i - 1}"] if i else [], "children": []} for i in range(3)]
    commands = [{"program": "sh", "arguments": ["-c", f"'echo t{i} >> diary'"]} for i in range(3)]
    ran = [{"id": f"t{i}", "runtimeInSeconds": 0.01, "command": command} for i, command in enumerate(commands)]
    execution = {"makespanInSeconds": 1, "executedAt": "x", "tasks": ran}
    workflow = {"specification": {"tasks": tasks}, "execution": execution}
    desk.write("trace.json", json.dumps({"name": "t", "schemaVersion": "1.5", "workflow": workflow}))
    done = desk.submit("trace", "trace.json")
    assert done.returncode == 0, done.stderr
    assert desk.counts("trace") == {"done": 3}
    assert desk.diary() == ["t0", "t1", "t2"]


def test_a_plan_in_json_that_another_form_became(desk: Desk) -> None:
    desk.write("list.txt", "group=a :: echo a >> diary\ngroup=b deps=a :: echo b >> diary\n")
    desk.write("plan.json", desk.bough("describe", "list.txt", "--to", "json").stdout)
    done = desk.submit("plan", "plan.json")
    assert done.returncode == 0, done.stderr
    assert desk.diary() == ["a", "b"]


def test_a_mistake_in_any_form_submits_nothing(desk: Desk) -> None:
    desk.write("loop.dag", "JOB A a.sub\nJOB B a.sub\nPARENT A CHILD B\nPARENT B CHILD A\n")
    desk.write("a.sub", "executable = /bin/true\nqueue\n")
    desk.write("loop.make", "#AutoMakefile\na: b\n\ttrue\nb: a\n\ttrue\n")
    for name, word in (("loop.dag", "A"), ("loop.make", "a")):
        done = desk.submit("mistakes", name)
        assert done.returncode == 2
        assert f"wait for each other: {word} (" in done.stderr or "cycle" in done.stderr
    assert desk.bough("status", "--name", "mistakes").returncode == 2


# --- sites that are not there ---------------------------------------------------------------------------


def test_a_site_that_is_not_there_is_told_when_tasks_are_submitted_and_as_long_as_they_wait(desk: Desk) -> None:
    desk.write("list.txt", "first: :: true\nafter=first sites=ghost2 :: true\nsites=ghost :: true\n")
    done = desk.bough("submit", "--name", "haunted", "list.txt")
    assert done.returncode == 0
    for name in ("ghost", "ghost2"):
        assert f"bough: there is no site {name} yet: its tasks wait until it is added with" in done.stderr
    told = desk.bough("submit", "--sites", "ghost,phantom", "--into", "haunted-too", "--", "true").stderr
    assert "no site ghost yet" in told
    assert "no site phantom yet" in told
    hint = "tasks wait for site ghost, which is not there: add it with bough site add ghost"
    assert hint in desk.bough("status", "--name", "haunted").stdout
    assert desk.status("haunted")["missing_sites"] in (["ghost"], ["ghost", "ghost2"])
    assert desk.bough("status").stdout.count(hint) == 1
    command = [sys.executable, "-m", "bough.cli.main", "watch", "--name", "haunted"]
    with subprocess.Popen(command, cwd=desk.folder, env=desk.environment, stderr=subprocess.PIPE, text=True) as watch:
        assert watch.stderr is not None
        said = iter(watch.stderr.readline, "")
        assert any(hint in line for line in said)
        watch.kill()
    assert desk.bough("cancel", "--name", "haunted", "all").returncode == 0
    assert "ghost" not in desk.bough("status", "--name", "haunted").stdout
