"""The ids that people see: 1, 2, 3 in each workflow of a service, over restarts, and what a bare one means."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from service_client import Service, until

from bough import Session

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    made = Service(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(made.home))
    made.start()
    yield made
    made.clean_up()


def submit(service: Service, *words: str, queue: str) -> list[int]:
    ids: list[int] = json.loads(service.bough("submit", "--json", "--into", queue, *words).stdout)["ids"]
    return ids


def square(x: int) -> int:
    return x * x


def test_each_workflow_counts_from_one_over_restarts_and_sessions(service: Service) -> None:
    assert submit(service, "--", "echo a1", queue="a") == [1]
    assert submit(service, "--", "echo b1", queue="b") == [1]
    assert submit(service, "--array", "5-9", "--", "echo {index}", queue="a") == [2]
    service.kill()
    service.start()
    assert submit(service, "--", "echo a3", queue="a") == [3]
    with Session(f"unix:{service.address}", name="b") as session:
        assert [session.submit(square, 2).id, session.map(square, range(3)).id] == [2, 3]
        session.detach()
    assert submit(service, "--", "echo b4", queue="b") == [4]
    rows = json.loads(service.bough("sql", "--json", "select name, number, indices, id from tasks order by id").stdout)
    assert [row["number"] for row in rows] == [1, 2, 3, 1, 2, 3, 4]
    assert rows[1]["indices"] == "5-9"
    assert len({row["id"] for row in rows}) == 7


def test_a_bare_number_is_of_the_workflow_submitted_to_last_and_looking_changes_nothing(service: Service) -> None:
    service.executor(cores=1)
    for queue, text in (("a", "echo in a"), ("a", "echo second"), ("b", "echo in b")):
        submit(service, "--", text, queue=queue)
    until(lambda: "2 done" in service.bough("status", "--queue", "a").stdout, "the end of a")
    until(lambda: "1 done" in service.bough("status", "--queue", "b").stdout, "the end of b")
    for _ in range(2):
        said = service.bough("log", "1")
        assert said.stdout == "in b\n"
        assert "1 is in the workflow b" in said.stderr
        service.bough("status", "--queue", "a")
        assert service.bough("log", "a:1").stdout == "in a\n"
    missing = service.bough("log", "2", check=False)
    assert missing.returncode == 2
    assert "there is no 2 in the workflow b, which was submitted to last; there is a:2" in missing.stderr


def test_names_are_looked_for_in_every_workflow_and_acting_on_several_is_refused(service: Service) -> None:
    for queue in ("a", "b"):
        submit(service, "--name", "plot", "--", "sleep 100", queue=queue)
    submit(service, "--name", "only", "--", "true", queue="a")
    submit(service, "--", "true", queue="b")

    refused = service.bough("cancel", "plot", check=False)
    assert refused.returncode == 2
    assert "several running workflows have plot; say which: a:plot, b:plot" in refused.stderr
    found = service.bough("status", "only")
    assert "only is in the workflow a" in found.stderr
    assert "1 task cancelled" in service.bough("cancel", "a:plot").stdout
    assert "1 task cancelled" in service.bough("cancel", "only").stdout

    for wrong, said in (
        ("nosuch", "bough: nothing is named 'nosuch' in any workflow; see bough status\n"),
        ("b", "bough: no task or group is named 'b'; it is a workflow, and b:all means all of its tasks\n"),
        ("all", "bough: several workflows are running: a, b; say which, as in b:all\n"),
    ):
        refused = service.bough("status", wrong, check=False)
        assert (refused.returncode, refused.stderr) == (2, said)


def test_what_a_failed_run_advises_works_beside_a_service_and_names_are_found_in_stores_here(service: Service) -> None:
    submit(service, "--name", "plot", "--", "true", queue="a")
    Path("mine.txt").write_text("bad: :: echo wrong >&2; exit 3\nlater: after=bad :: true\n")
    ended = service.bough("run", "mine.txt", check=False)
    assert ended.returncode == 1
    advice = ended.stderr.splitlines()[-1]
    assert advice == "why: bough explain --failed --name mine; what it printed: bough log --failed --name mine"
    assert "exit code 3" in service.bough("explain", "--failed", "--name", "mine").stdout
    assert "wrong" in service.bough("log", "--failed", "--name", "mine").stdout

    found = service.bough("explain", "later")
    assert "later is in the workflow mine" in found.stderr
    assert "skipped" in found.stdout
    assert "plot" in service.bough("status", "plot").stdout  # the service goes before


def test_indexes_are_those_that_were_written(service: Service) -> None:
    service.executor(cores=1)
    submit(service, "--array", "5-9", "--", "echo {index}; test {index} != 7", queue="a")
    until(lambda: "1 failed" in service.bough("status", "--queue", "a").stdout, "the end")

    assert service.bough("log", "1.7").stdout == "7\n"
    assert "==> 1.8 echo stdout <==\n8" in service.bough("log", "1.8-9").stdout
    assert "task 1.7 (echo) failed" in service.bough("explain", "1").stdout
    rows = json.loads(service.bough("status", "--failed", "--json").stdout)
    assert [(row["id"], row["record"], row["index"]) for row in rows] == [("1.7", 1, 7)]
    for wrong in ("1.4", "1.9-10", "1.0"):
        assert service.bough("log", wrong, check=False).returncode == 2
    assert "1 task will be retried" in service.bough("retry", "1.7").stdout


FED = """
import sys, time, bough
def endless():
    print("fed", flush=True)
    time.sleep(600)
    yield 1
session = bough.Session(sys.argv[1], name="fed")
session.feed(abs, endless())
time.sleep(600)
"""


def test_what_is_still_fed_is_not_removed(service: Service, tmp_path: Path) -> None:
    (tmp_path / "fed.py").write_text(FED)
    words = [sys.executable, str(tmp_path / "fed.py"), f"unix:{service.address}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=service.environment) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == b"fed\n"
        until(lambda: "fed" in service.bough("status").stdout, "the workflow")
        refused = service.bough("remove", "fed", check=False)
        script.kill()
    assert refused.returncode == 2, refused
    assert "is running: " in refused.stderr
    until(lambda: "takes more tasks" in service.bough("remove", "fed", check=False).stderr, "the end of the client")
    assert "removed fed" in service.bough("remove", "fed", "--kill").stdout
