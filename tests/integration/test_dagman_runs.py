"""DAGMan files run as HTCondor would run them: what decides, what is asked for while they run, what comes late."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from server_client import until

from bough.describe.dagman.dag_plan import read
from bough.describe.steps import steps
from bough.errors import BoughError
from tests.integration.test_foreign_workflows import PATIENCE, Shop

DAGS = os.environ.get("BOUGH_DAGMAN", "")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    write(made, "say.sub", "executable = /bin/echo\narguments = $(JOB)\noutput = $(JOB).out\nqueue\n")
    write(made, "fail.sub", "executable = /bin/false\nqueue\n")
    write(made, "long.sub", "executable = /bin/sleep\narguments = 600\nqueue\n")
    return made


def write(shop: Shop, name: str, text: str, *, program: bool = False) -> None:
    path = shop.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if program else 0o644)


def script(shop: Shop, name: str, text: str) -> None:
    write(shop, name, f"#!/bin/sh\n{text}\n", program=True)


def test_the_final_node_knows_how_the_dag_fared_and_decides(shop: Shop) -> None:
    script(shop, "pre.sh", 'echo "$@" > pre.out')
    write(
        shop,
        "final.sub",
        "executable = /bin/sh\noutput = final.out\n"
        "arguments = \"-c 'echo $(DAG_STATUS) $(FAILED_COUNT); exit $(code)'\"\n",
    )
    nodes = "JOB A fail.sub\nJOB B say.sub\nJOB C say.sub\nPARENT A CHILD B\nJOB N many.sub\nFINAL F final.sub\n"
    write(shop, "many.sub", "executable = /bin/sh\narguments = \"-c 'exit $(Process)'\"\nqueue 3\n")
    macros = "$DAG_STATUS $FAILED_COUNT $DONE_COUNT $FUTILE_COUNT $NODE_COUNT"
    write(shop, "my.dag", f'{nodes}VARS F code="0"\nSCRIPT PRE F pre.sh {macros}\n')
    ended = shop.run("my.dag")
    assert (shop.folder / "pre.out").read_text() == "2 2 1 1 5\n"  # N has failed once, although two of its jobs have
    assert (shop.folder / "final.out").read_text() == "2 2\n"
    assert (ended["failed"], ended["exit_code"]) == (3, 0)
    write(shop, "my.dag", 'JOB C say.sub\nFINAL F final.sub\nVARS F code="3"\n')
    ended = shop.run("my.dag")
    assert (shop.folder / "final.out").read_text() == "0 0\n"
    assert (ended["done"], ended["exit_code"]) == (1, 1)


def test_a_node_can_end_the_dag(shop: Shop) -> None:
    write(shop, "five.sub", "executable = /bin/sh\narguments = \"-c 'echo x >> tries; exit 5'\"\n")
    write(shop, "status.sub", "executable = /bin/echo\narguments = $(DAG_STATUS)\noutput = status.out\n")
    nodes = "JOB A five.sub\nJOB L long.sub\nJOB B say.sub\nPARENT L CHILD B\nRETRY A 3\n"
    write(shop, "my.dag", f"{nodes}ABORT-DAG-ON A 5 RETURN 7\n")
    ended = shop.run("my.dag")
    assert (ended["exit_code"], ended["failed"], ended["cancelled"] + ended["skipped"]) == (7, 1, 2)
    assert (shop.folder / "tries").read_text() == "x\n"
    write(shop, "other.dag", f"{nodes}ABORT-DAG-ON A 5 RETURN 7\nFINAL F status.sub\n")
    assert shop.run("other.dag")["exit_code"] == 0
    assert (shop.folder / "status.out").read_text() == "3\n"


def test_a_sub_dag_may_be_written_by_an_earlier_node_or_by_its_own_script(shop: Shop) -> None:
    script(shop, "make.sh", 'printf "JOB X say.sub\\nJOB Y $2\\nPARENT X CHILD Y\\n" > "$1"')
    write(shop, "make.sub", "executable = make.sh\narguments = inner.dag say.sub\n")
    script(shop, "post.sh", 'echo "$@" > post.out')
    write(
        shop,
        "my.dag",
        "JOB A make.sub\nSUBDAG EXTERNAL U inner.dag\nJOB B say.sub\nPARENT A CHILD U\nPARENT U CHILD B\n"
        "SUBDAG EXTERNAL V other.dag\nSCRIPT PRE V make.sh other.dag fail.sub\n"
        "SCRIPT POST V post.sh $RETURN $SUCCESS\n",
    )
    ended = shop.run("my.dag")
    assert (ended["done"], ended["exit_code"]) == (4, 0)
    assert (shop.folder / "Y.out").read_text() == "Y\n"
    assert (shop.folder / "post.out").read_text() == "1 False\n"
    assert shop.run("my.dag")["reused"] == 4


def test_a_sub_dag_with_a_final_node_succeeds_if_that_does(shop: Shop) -> None:
    write(shop, "inner.dag", "JOB X fail.sub\nFINAL F say.sub\n")
    write(shop, "my.dag", "SUBDAG EXTERNAL U inner.dag\nJOB B say.sub\nPARENT U CHILD B\n")
    ended = shop.run("my.dag")
    assert (ended["done"], ended["exit_code"]) == (2, 0)


def test_a_submit_description_may_be_written_by_the_script_of_its_node(shop: Shop) -> None:
    text = r"executable = /bin/echo\narguments = $(x) $ENV(COLOUR)\noutput = late.out\n"
    script(shop, "folder/pre.sh", f"printf '{text}' > late.sub")
    write(
        shop,
        "my.dag",
        'JOB A late.sub DIR folder\nVARS A x="it works"\nSCRIPT PRE A pre.sh\nENV SET COLOUR=red\n',
    )
    done = shop.bough("run", "my.dag")
    assert done.returncode == 0
    assert "my.dag:1: folder/late.sub is not there yet; it is read when the node is due" in done.stderr
    assert (shop.folder / "folder" / "late.out").read_text() == "it works red\n"


def test_a_late_description_knows_how_the_dag_fared(shop: Shop) -> None:
    text = r"executable = /bin/echo\narguments = $(DAG_STATUS) $(FAILED_COUNT) $(RETRY)\noutput = late.out\n"
    script(shop, "write.sh", f"printf '{text}' > late.sub; exit 1")
    write(shop, "write.sub", "executable = write.sh\n")
    write(shop, "my.dag", "JOB A write.sub\nFINAL F late.sub\n")
    assert shop.run("my.dag")["exit_code"] == 0
    assert (shop.folder / "late.out").read_text() == "2 1 0\n"


@pytest.mark.parametrize("description", ["", "# nothing to run\nqueue\n"])
def test_a_post_script_judges_a_node_that_cannot_be_submitted(shop: Shop, description: str) -> None:
    if description:
        write(shop, "bad.sub", description)
    script(shop, "post.sh", 'echo "$@" > post.out')
    write(shop, "my.dag", "JOB A bad.sub\nSCRIPT POST A post.sh $JOB $RETURN $SUCCESS\n")
    done = shop.bough("run", "my.dag")
    assert done.returncode == 0
    assert "bad.sub" in done.stderr  # a note says so before anything runs
    assert (shop.folder / "post.out").read_text() == "A -1001 False\n"


def test_nodes_of_a_sub_dag_have_the_names_of_its_file_and_those_of_a_splice_do_not(shop: Shop) -> None:
    script(shop, "post.sh", 'echo "$@" > post.$1')
    inner = "JOB X say.sub\nSCRIPT POST X post.sh $JOB $RETURN\n"
    write(shop, "splice.dag", "JOB S say.sub\n")
    write(shop, "inner.dag", f"{inner}SPLICE P splice.dag\nJOB L late.sub\nPARENT X CHILD L\n")
    write(shop, "write.sub", "executable = /bin/cp\narguments = say.sub late.sub\n")
    write(shop, "my.dag", "JOB W write.sub\nSUBDAG EXTERNAL U inner.dag\nPARENT W CHILD U\n")
    ended = shop.run("my.dag")
    assert (ended["done"], ended["exit_code"]) == (5, 0)  # with the check that inner.dag is as it was read
    assert (shop.folder / "post.X").read_text() == "X 0\n"
    for name in ("X", "P+S", "L"):
        assert (shop.folder / f"{name}.out").read_text() == f"{name}\n"


def test_scripts_of_a_sub_dag_are_told_of_its_nodes_alone(shop: Shop) -> None:
    script(shop, "post.sh", 'echo "$@" > post.out')
    write(shop, "inner.dag", "JOB X say.sub\nSCRIPT POST X post.sh $NODE_COUNT $FAILED_COUNT $DAG_STATUS\n")
    write(shop, "my.dag", "JOB A fail.sub\nJOB B say.sub\nSUBDAG EXTERNAL U inner.dag\nPARENT B CHILD U\n")
    shop.run("my.dag")
    assert (shop.folder / "post.out").read_text() == "1 0 0\n"


def test_services_run_beside_the_dag_and_a_provisioner_before_it(shop: Shop) -> None:
    write(
        shop,
        "watch.sub",
        "executable = /bin/sh\narguments = \"-c 'echo up > up; sleep 600'\"\n",
    )
    script(shop, "wait.sh", "while [ ! -e up ]; do sleep 0.05; done")
    write(shop, "wait.sub", "executable = wait.sh\nrequest_cpus = 2\n")
    script(shop, "ready.sh", "echo ready > ready")
    write(shop, "ready.sub", "executable = ready.sh\n")
    script(shop, "check.sh", "test -e ready")
    write(
        shop,
        "my.dag",
        "SERVICE S watch.sub\nPROVISIONER P ready.sub\nJOB A wait.sub\nSCRIPT PRE A check.sh\n",
    )
    ended = shop.run("my.dag")
    assert (ended["exit_code"], ended["failed"], ended["cancelled"]) == (0, 0, 1)


def test_a_rescue_file_is_used(shop: Shop) -> None:
    write(shop, "my.dag", "JOB A fail.sub\nJOB B say.sub\nPARENT A CHILD B\n")
    write(shop, "my.dag.rescue001", "# made by HTCondor\nDONE A\n")
    done = shop.bough("run", "my.dag")
    assert (done.returncode, (shop.folder / "B.out").read_text()) == (0, "B\n")
    assert "my.dag.rescue001: HTCondor has done 1 node of it already" in done.stderr


def test_while_a_halt_file_is_there_no_node_starts(shop: Shop) -> None:
    wait = "until test -e $(JOB).go; do sleep 0.05; done; touch $(JOB).out"
    write(shop, "wait.sub", f"executable = /bin/sh\narguments = \"-c '{wait}'\"\n")
    nodes = "".join(f"JOB {name} wait.sub\n" for name in "ABC")
    write(shop, "my.dag", f"{nodes}PARENT A CHILD B\nPARENT B CHILD C\nFINAL F say.sub\n")
    halt, err = shop.folder / "my.dag.halt", shop.folder / "err.txt"

    def is_there(name: str) -> bool:
        return (shop.folder / name).exists()

    def says(text: str, times: int) -> None:
        until(lambda: err.read_text().count(text) == times, text)

    for name in "AC":
        (shop.folder / f"{name}.go").touch()
    halt.touch()
    words = [sys.executable, "-m", "bough.cli.main", "run", "--cores", "2", "my.dag"]
    with open(err, "w") as file:
        run = subprocess.Popen(words, cwd=shop.folder, env=shop.environment, stderr=file)
    try:
        says("halted: my.dag.halt is there; no other node starts until you remove it", 1)
        until(lambda: "the whole workflow is held" in shop.bough("explain", "A").stdout, "a node that is held")
        halt.unlink()
        says("my.dag.halt is gone; the workflow goes on", 1)
        until(lambda: "running" in shop.bough("explain", "B").stdout, "the second node")
        halt.touch()
        says("halted: my.dag.halt is there", 2)
        (shop.folder / "B.go").touch()
        until(lambda: "task 3 (C) is held: the whole workflow" in shop.bough("explain", "C").stdout, "the third one")
        assert is_there("B.out")  # what runs goes on
        assert not is_there("C.out")
        assert not is_there("F.out")
        halt.unlink()
        assert run.wait(PATIENCE) == 0, err.read_text()
    finally:
        run.kill()
        run.wait()
    assert is_there("C.out")
    assert (shop.folder / "F.out").read_text() == "F\n"


# --- HTCondor's own files ---------------------------------------------------------------------------------

# A reason that HTCondor would give, too: what it says of the file, or of a node that it cannot submit.
REASONS = (
    r"these wait for each other",
    r"cannot read the submit description \S+: No such file",
    r"cannot read the DAG file \S+: No such file",
    r"the submit description has no executable",
    r"is no name of a node: it has no \+",
    r"REJECT: the file says that it must not be run",
    r"CONNECT: there is no splice",
    r"CONNECT: .* pins? ",
    r"CONNECT: node \S+ of splice \S+ waits for nothing",
    r"there is no node",
)


@pytest.mark.skipif(
    not DAGS, reason="there are no files of HTCondor's tests: set BOUGH_DAGMAN to a folder of .dag files"
)
def test_files_of_htcondors_own_tests_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DAGS)
    paths = sorted(Path().glob("*.dag"))
    assert paths
    refused: dict[str, str] = {}
    for path in paths:
        try:
            steps(read(str(path)))
        except BoughError as error:
            refused[str(path)] = str(error)
    unexplained = {
        name: reason for name, reason in refused.items() if not any(re.search(known, reason) for known in REASONS)
    }
    assert unexplained == {}
    assert all(re.match(r"[\w.+-]+:\d+: [^\n]+\Z", reason) for reason in refused.values())
    assert len(refused) <= len(paths) / 10
