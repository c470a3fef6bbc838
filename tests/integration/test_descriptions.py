"""Workflow descriptions run to their end: the four forms of the specification, and 4 against 3 pieces of checkers."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from service_client import Service, until

from bough.describe.trellisdag.description_script import read_script
from bough.describe.trellisdag.expansion import declared_edges
from tests.unit.describe.description_scripts import SURVEY, SURVEY_SHORT, WAVE, WAVE_SHORT

CHECKERS = Path(__file__).parents[2] / "examples" / "checkers"
PIPE = "group=pipe :: ./a\ngroup=pipe :: ./b\ngroup=pipe :: ./c\n"
PACK = "pack: crunch audit\n#attribute affinity=yes\n\t./pack all\ncrunch:\n\t./crunch 7\naudit: crunch\n\t./audit\n"
# by name: the file of the first form it has, its text, its arguments
EXAMPLES = {
    "wave": ("wave.py", WAVE, ["3"]),
    "wave, short": ("wave.py", WAVE_SHORT, ["3"]),
    "survey": ("survey.py", SURVEY, ["2", "3"]),
    "survey, short": ("survey.py", SURVEY_SHORT, ["2", "3"]),
    "pipe": ("pipe.txt", PIPE, []),
    "pack": ("pack.make", PACK, []),
}


class Desk:
    """A folder in which `bough` is called, with programs that write down that they ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in (
            "sweep",
            "check",
            "stage_in",
            "reduce",
            "mosaic",
            "archive",
            "a",
            "b",
            "c",
            "pack",
            "crunch",
            "audit",
        ):
            program = folder / name
            program.write_text(f'#!/bin/sh\necho "{name} $*" >> diary\n')
            program.chmod(0o755)

    def bough(self, *words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "bough.cli.main", *words],
            cwd=self.folder,
            env={**os.environ, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def workflow(self, name: str) -> list[object]:
        """What the jobs database holds of a workflow that ran: groups, tasks and dependencies, by number."""
        with closing(sqlite3.connect(self.folder / ".bough" / name / "journal.db")) as database:
            ask = database.execute
            return [
                ask("select id, parent, path, closed from groups order by id").fetchall(),
                ask("select * from group_after order by 1, 2, 3, 4, 5").fetchall(),
                ask("select id, grp, command, state from tasks order by id").fetchall(),
            ]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize("name", EXAMPLES)
def test_all_forms_submit_the_same_workflow(desk: Desk, name: str) -> None:
    file, text, args = EXAMPLES[name]
    (desk.folder / file).write_text(text)
    files = {"original": [file, *args]}
    for form, other in (("make", "form.make"), ("flat", "form.txt"), ("json", "form.json")):
        written = desk.bough("describe", file, *args, "--to", form)
        assert written.returncode == 0, written.stderr
        (desk.folder / other).write_text(written.stdout)
        files[form] = [other]
    found = []
    for form, words in files.items():
        (desk.folder / "diary").unlink(missing_ok=True)
        done = desk.bough("run", "--name", form, *words)
        assert done.returncode == 0, done.stderr
        assert len((desk.folder / "diary").read_text().splitlines()) == len(desk.workflow(form)[2])
        found.append(desk.workflow(form))
    assert found[0] == found[1] == found[2] == found[3]
    assert found[0][2]


def test_a_night_is_in_order(desk: Desk) -> None:
    (desk.folder / "survey.py").write_text(SURVEY)
    assert desk.bough("run", "survey.py", "2", "2").returncode == 0
    lines = (desk.folder / "diary").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["stage_in", "reduce", "reduce", "mosaic", "archive"] * 2
    status = json.loads(desk.bough("status", "--json").stdout)
    assert {"Night_0/prologue", "Night_1/Field_1_1"} <= {group["path"] for group in status["groups"]}


def test_the_makefile_runs_under_make_too(desk: Desk) -> None:
    (desk.folder / "survey.py").write_text(SURVEY)
    (desk.folder / "M").write_text(desk.bough("describe", "survey.py", "2", "2", "--to", "make").stdout)
    subprocess.run(["make", "-s", "-f", "M"], cwd=desk.folder, check=True, capture_output=True)
    lines = (desk.folder / "diary").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["stage_in", "reduce", "reduce", "mosaic", "archive"] * 2


def test_make_runs_a_command_in_its_folder_and_environment_and_with_its_shell(desk: Desk) -> None:
    (desk.folder / "raw data").mkdir()
    (desk.folder / "list.txt").write_text(
        "cwd=raw%20data env.N=$3 env.TEXT=it's%20 timeout=1h :: [[ $N = '$3' ]] && echo \"$TEXT|\" | cat > out\n"
        "bad: :: false | cat\n"
    )
    described = desk.bough("describe", "list.txt", "--to", "make")
    assert described.stderr == "bough: make passes over timeout of its comments, which Bough reads\n"
    (desk.folder / "M").write_text(described.stdout)
    done = subprocess.run(["make", "-k", "-f", "M"], cwd=desk.folder, check=False, capture_output=True, text=True)
    assert (desk.folder / "raw data" / "out").read_text() == "it's |\n"
    assert done.returncode == 2
    assert "bad" in done.stderr
    assert desk.bough("describe", "M", "--to", "make").stdout == described.stdout


def test_a_list_with_groups_comes_by_standard_input(desk: Desk) -> None:
    assert desk.bough("run", "-", stdin=PIPE).returncode == 0
    assert (desk.folder / "diary").read_text().split() == ["a", "b", "c"]


def test_what_has_been_done_is_not_done_again(desk: Desk) -> None:
    (desk.folder / "wave.py").write_text(WAVE)
    desk.bough("run", "wave.py", "2")
    again = json.loads(desk.bough("run", "--json", "wave.py", "2").stdout)
    assert (again["done"], again["reused"]) == (8, 8)


def test_mistakes_submit_nothing(desk: Desk) -> None:
    (desk.folder / "list.txt").write_text("group=a deps=b :: ./a\ngroup=b deps=a :: ./b\n")
    done = desk.bough("run", "list.txt")
    assert done.returncode == 2
    assert done.stderr == "bough: list.txt:1: these wait for each other: a (line 1) -> b (line 2) -> a (line 1)\n"
    assert not (desk.folder / ".bough").exists()
    (desk.folder / "wave.py").write_text(WAVE)
    assert desk.bough("run", "wave.py").stderr == "bough: wave.py:3: IndexError: list index out of range\n"
    (desk.folder / "session.py").write_text("import bough\n")
    assert "submits by itself" in desk.bough("describe", "session.py").stderr


def test_a_description_says_what_it_would_run(desk: Desk) -> None:
    (desk.folder / "wave.py").write_text(WAVE)
    assert "8 tasks in 4 groups" in desk.bough("describe", "wave.py", "2").stdout
    dry = desk.bough("run", "--dry-run", "wave.py", "2").stdout.splitlines()
    assert dry[-1] == "group=Tile_1_1 affinity=yes :: ./check 1 1"
    assert json.loads(desk.bough("describe", "--json", "wave.py", "2").stdout)["dependencies"] == 8
    assert not (desk.folder / ".bough").exists()


def test_a_script_of_mqsub_runs_as_it_stands(desk: Desk) -> None:
    (desk.folder / "pack.make").write_text(PACK)
    (desk.folder / "pack.sh").write_text(desk.bough("describe", "pack.make", "--to", "mqsub").stdout)
    assert desk.bough("run", "pack.sh").returncode == 0
    assert (desk.folder / "diary").read_text().splitlines() == ["crunch 7", "audit ", "pack all"]


# --- four against three ------------------------------------------------------------------------------


def test_four_against_three_in_order(desk: Desk) -> None:
    script = str(CHECKERS / "checkers.py")
    done = desk.bough(
        "run", "--json", "--name", "large", script, "4", "3", CHECKERS_RUN="true run", CHECKERS_VER="true ver"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done"] == 1276
    with closing(sqlite3.connect(desk.folder / ".bough" / "large" / "journal.db")) as database:
        rows = database.execute(
            "select path, command, started, ended from tasks join groups on groups.id = grp"
        ).fetchall()
    times = {(path, command.split()[1]): (started, ended) for path, command, started, ended in rows}
    plan = read_script(Path(script).read_bytes(), script, ["4", "3"])
    ranks = [(before, after) for before, after in declared_edges(plan) if "/Rank" in after]
    assert len(ranks) == 1050
    slack = 0.005  # both ends of a time are rounded
    assert all(times[before, "run"][1] <= times[after, "run"][0] + slack for before, after in ranks)
    assert all(times[path, "run"][1] <= times[path, "ver"][0] + slack for path, what in times if what == "ver")


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("s"))  # the address of a socket is short
    yield made
    made.clean_up()


def test_four_against_three_on_emulated_executors(desk: Desk, service: Service) -> None:
    service.start()
    log = service.folder / "emulated.log"
    service.executors.append(service._spawn(["executor", "start", "--emulate", "18"], log))
    until(lambda: "have joined" in log.read_text(), "the emulated executors")
    here = {**service.environment, "CHECKERS_RUN": "sleep 0.01; :", "CHECKERS_VER": "sleep 0.003; :"}
    script = str(CHECKERS / "checkers_modern.py")
    words = ["submit", "--server", f"unix:{service.address}", "--wait", "--name", "large", script, "4", "3"]
    done = desk.bough(*words, **here)
    assert done.returncode == 0, done.stderr
    status = service.bough("status", "--name", "large", "--json").stdout
    counts = {group["path"]: group["counts"] for group in json.loads(status)["groups"]}
    assert counts["VS_4_3"]["done"] == 1276
    assert len(counts) == 659
