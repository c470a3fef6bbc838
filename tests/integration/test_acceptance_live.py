"""The acceptance list of TrellisDAG, as far as real processes show it: each test names its item.

What runs waits for what must be running at the same time, and looks for what must be over, so that nothing here depends
on how long things take.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_client import Service, until

from tests.unit.describe.description_scripts import KINGS, KINGS_VIEW

PATIENCE = 90

# Waits until a file is there, for half a minute.
AWAIT = 'await() { n=0; until [ -e "$1" ]; do n=$((n + 1)); [ $n -lt 3000 ] || exit 9; sleep 0.01; done; }\n'
RUN = (
    f"#!/bin/sh\n{AWAIT}"
    "touch started-$1$2\n"
    'case "$MODE $1$2" in\n'
    '"free 42") await started-61 ;;\n'  # it runs while 6100 does, which has one piece more
    '"barred 61") [ -e done-42 ] && [ -e done-33 ] && [ -e done-51 ] || exit 8 ;;\n'
    "esac\n"
    "touch done-$1$2\n"
)
# The verification of the first database is still running when the last one is begun: early release, across levels.
VER = f'#!/bin/sh\n{AWAIT}[ -e done-$1$2 ] || exit 7\n[ "$1$2" != 11 ] || await started-43\n'

THREE_LEVELS = """
Levels = [["A", 1], ["B", 2], ["C", 3]]
def generateGroup(level, sup): return [[1], [2]] if level == "A" else [[*sup, 1], [*sup, 2]]
def isDependent(level, one, other, sup): return level != "C" and one[-1] == other[-1] + 1
def word(kind): return lambda level, g: ["./note"]
def text(kind): return lambda level, g: [kind + " " + level + "_" + "_".join(map(str, g))]
getPrologueExecutables = getJobsExecutables = getEpilogueExecutables = word("")
getPrologueParameters, getJobsParameters, getEpilogueParameters = text("before"), text("own"), text("after")
"""

PACK = (
    "pack: crunch audit\n#attribute affinity=yes\n\techo pack >> diary\n"
    "crunch:\n#attribute est=40\n\techo crunch >> diary\naudit: crunch\n\techo audit >> diary\n"
)
PLACEHOLDER = """
while :; do
    "$BOUGH" -m bough.cli.main take --as "$1" --queue pack > "$1".task 2> /dev/null
    answer=$?
    [ $answer != 10 ] || { sleep 0.02; continue; }
    [ $answer = 0 ] || exit $answer
    { read -r id; command=$(cat); } < "$1".task
    "$BOUGH" -m bough.cli.main here status "with $1" --task $id --as "$1" || exit 99
    sh -c "$command"
    "$BOUGH" -m bough.cli.main done $id --as "$1" --exit-code $? > /dev/null
done
"""


class Desk:
    """A folder in which `bough` is called."""

    def __init__(self, folder: Path, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.environment = environment or {key: value for key, value in os.environ.items() if key[:5] != "BOUGH"}

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def bough(self, *words: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "bough.cli.main", *words],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.mark.parametrize(
    ("script", "args", "mode"), [(KINGS, (), "free"), (KINGS, ("pieces",), "barred"), (KINGS_VIEW, (), "free")]
)
def test_item_4_the_medium_workload_on_five_workers_keeps_its_order_and_no_more(
    tmp_path: Path, script: str, args: tuple[str, ...], mode: str
) -> None:
    desk = Desk(tmp_path)
    desk.write("run", RUN)
    desk.write("ver", VER)
    desk.write("kings.py", script)
    counts = json.loads(desk.bough("run", "--json", "--cores", "5", "kings.py", *args, MODE=mode))
    assert counts["done"] == 24
    rows = json.loads(desk.bough("sql", "--json", "select command, started, ended from tasks"))
    times = {tuple(row["command"].split()[:3]): (row["started"], row["ended"]) for row in rows}
    assert times["./ver", "1", "1"][1] > times["./run", "4", "3"][0]


def test_item_10_prologue_subgroups_own_and_epilogue_are_in_order_at_every_level(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.write("note", '#!/bin/sh\necho "$1 $2" >> diary\n')
    desk.write("levels.py", THREE_LEVELS)
    counts = json.loads(desk.bough("run", "--json", "--cores", "4", "levels.py"))
    lines = (tmp_path / "diary").read_text().splitlines()
    groups = [f"A_{a}" for a in (1, 2)]
    groups += [f"B_{a}_{b}" for a in (1, 2) for b in (1, 2)]
    groups += [f"C_{a}_{b}_{c}" for a in (1, 2) for b in (1, 2) for c in (1, 2)]
    assert counts["done"] == len(lines) == 3 * len(groups)
    at = {line: number for number, line in enumerate(lines)}
    for group in groups:
        numbers = group.partition("_")[2]
        inside = [other for other in groups if other.partition("_")[2].startswith(f"{numbers}_")]
        below = [at[line] for line in lines if line.split()[1] in inside]
        own = [at[f"before {group}"], *sorted(below), at[f"own {group}"], at[f"after {group}"]]
        assert own == sorted(own)
    for first, then in (("A_1", "A_2"), ("B_1_1", "B_1_2"), ("B_2_1", "B_2_2")):
        assert at[f"after {first}"] < at[f"before {then}"]


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("s"))
    made.start()
    yield made
    made.clean_up()


def test_item_8_placeholders_that_are_plain_loops_of_a_shell_run_a_workflow_without_any_executor(
    service: Service, tmp_path: Path
) -> None:
    desk = Desk(tmp_path, {**service.environment, "BOUGH": sys.executable})
    desk.write("pack.make", PACK)
    desk.write("placeholder", PLACEHOLDER)
    desk.bough("submit", "pack.make")
    first = json.loads(desk.bough("sql", "--json", "select id from tasks order by id limit 1"))[0]["id"]
    assert desk.bough("attribute", str(first), "est") == "40\n"
    loops = [
        subprocess.Popen(["sh", "placeholder", name], cwd=tmp_path, env=desk.environment)
        for name in ("1@here", "2@there")
    ]
    assert [loop.wait(PATIENCE) for loop in loops] == [11, 11]  # everything has ended
    assert (tmp_path / "diary").read_text().split() == ["crunch", "audit", "pack"]


def test_item_9_a_disabled_remainder_is_named_and_who_asks_for_work_is_told_so(
    service: Service, tmp_path: Path
) -> None:
    desk = Desk(tmp_path, service.environment)
    desk.write("list.txt", "group=one :: touch 1\ngroup=two deps=one :: touch 2\ngroup=three deps=two :: touch 3\n")
    desk.bough("submit", "--name", "stages", "list.txt")
    desk.bough("disable", "stages:two")
    service.executor()

    def counts() -> dict[str, int]:
        return dict(json.loads(desk.bough("status", "--name", "stages", "--json"))["counts"])

    def answer() -> int:
        return service.bough("take", "--queue", "stages", check=False).returncode

    until(lambda: counts()["done"] == 1, "the first stage")
    until(lambda: answer() == 12, "the answer that nothing can become ready until somebody acts")
    tree = json.loads(desk.bough("status", "stages:two", "--tree", "--json"))
    assert tree["disabled"] == ["two"]
    assert not (tmp_path / "3").exists()
    desk.bough("enable", "stages:two")
    until(lambda: counts()["done"] == 3, "the rest")


def test_running_tasks_are_listed_with_command_host_start_and_what_they_say(service: Service, tmp_path: Path) -> None:
    desk = Desk(tmp_path, service.environment)
    says = f"{sys.executable} -m bough.cli.main here status 'reading 3'; touch said; {AWAIT.strip()}; await over"
    desk.write("list.txt", f"group=g name=reader :: {says}\n")
    service.executor()
    desk.bough("submit", "--name", "running", "list.txt")
    until((tmp_path / "said").exists, "the status text")
    header, line = desk.bough("status", "--name", "running", "--running").splitlines()
    assert header.split() == ["ID", "STATE", "NAME", "GROUP", "ATTEMPT", "SINCE", "HOST", "SAYS", "WHAT"]
    assert "reading 3" in line
    [row] = json.loads(desk.bough("status", "--name", "running", "--running", "--json"))
    assert (row["said"], row["name"], row["command"]) == ("reading 3", "reader", says)
    assert row["started"]
    assert row["host"] in line
    (tmp_path / "over").touch()


def test_a_group_that_a_running_task_released_is_shown_as_such(service: Service, tmp_path: Path) -> None:
    desk = Desk(tmp_path, service.environment)
    bough = f"{sys.executable} -m bough.cli.main"
    first = f"group=g :: {bough} here release; {AWAIT.strip()}; await over\n"
    desk.write("list.txt", f"{first}group=h deps=g :: touch begun\n")
    service.executor(cores=2)
    desk.bough("submit", "--name", "released", "list.txt")
    until((tmp_path / "begun").exists, "what waits for the group")
    assert json.loads(desk.bough("status", "released:g", "--tree", "--json"))["released"] == ["g"]
    (tmp_path / "over").touch()

    def released() -> list[str]:
        found: list[str] = json.loads(desk.bough("status", "released:g", "--tree", "--json"))["released"]
        return found

    until(lambda: released() == [], "the end of the group")
