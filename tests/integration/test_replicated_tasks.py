"""Replication with real executors: a task that hangs is run by an idle executor, too, and the first success counts."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from service_client import Service, is_alive, until

import bough

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module

# The attempt that comes first says who it is; what `{}` stands for is done by it, and what follows by the other one.
FIRST = "if mkdir first 2>/dev/null; then echo $$ > pid1; {}; else echo $$ > pid2; {}; fi"
WAIT = "until [ -e go ]; do sleep 0.05; done"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made = Service(tmp_path)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("BOUGH_HOME", str(made.home))
    yield made
    made.clean_up()


def session(service: Service) -> bough.Session:
    return bough.Session(f"unix:{service.address}", name="w", progress=False)


def is_there(path: str) -> bool:
    """Whether a file is there that says something."""
    return os.path.exists(path) and os.path.getsize(path) > 0


def pid_in(path: str) -> int:
    until(lambda: is_there(path), f"the file {path}")
    return int(Path(path).read_text())


def sql(service: Service, statement: str) -> list[dict[str, object]]:
    return json.loads(service.bough("sql", statement, "--json").stdout)


def attempts(service: Service) -> list[tuple[object, ...]]:
    rows = sql(service, "select attempt, state, executor from attempts order by attempt")
    return [(row["attempt"], row["state"], row["executor"]) for row in rows]


def test_a_task_that_hangs_is_done_by_an_idle_executor_also_over_a_crash_of_the_server(service: Service) -> None:
    service.start("--replication", "wqr:age=0.5s")
    service.executor()
    with session(service) as s:
        command = FIRST.format("exec sleep 600", f"{WAIT}; echo made")
        task = s.command(f"({command}) > {{out:w}}", out="result.txt")
        hanging = pid_in("pid1")
        until(lambda: task.state == "running", "the task to run")
        service.executor()
        other = pid_in("pid2")
        until(lambda: "2 executors at once" in task.explain(), "two attempts")
        assert "attempt 2" in task.explain()
        assert "a replica, because executors had nothing else to do" in task.explain()
        service.kill()
        service.start("--replication", "wqr:age=0.5s")
        until(lambda: is_alive(hanging) and is_alive(other), "both to go on")
        Path("go").touch()
        done = task.result(timeout=120)
        assert done.exit_code == 0
        assert Path("result.txt").read_text() == "made\n"
        until(lambda: not is_alive(hanging), "the other attempt to be ended")
    until(lambda: [row[:2] for row in attempts(service)] == [(1, "superseded"), (2, "done")], "the jobs database")
    assert {executor for _, _, executor in attempts(service)} == {1, 2}
    status = json.loads(service.bough("status", "--name", "w", "--json").stdout)["replication"]
    assert status["superseded"] == 1
    assert status["core_seconds"] > 0.4
    assert status["cpu_waste"] > 0
    assert status["network_waste"] == 0
    [usage] = sql(service, "select sum(wasted) as wasted from workflow_usage")
    assert usage["wasted"] == pytest.approx(status["core_seconds"])
    assert "replicas: 1 attempt was superseded" in service.bough("status", "--name", "w").stdout
    until(lambda: "replicas     1, 1 attempt superseded" in service.bough("stats").stdout, "the statistics")
    left = [name for name in os.listdir(".") if name.startswith(".")]
    until(lambda: not [name for name in os.listdir(".") if "result" in name and name != "result.txt"], f"only {left}")


def test_the_first_attempt_keeps_what_it_writes_and_wins_if_it_is_faster(service: Service) -> None:
    service.start("--replication", "wqr:age=0.2s")
    service.executor()
    with session(service) as s:
        first = f"echo first > {{out:w}}; {WAIT}"
        second = "echo second > {out:w}; exec sleep 600"
        task = s.command(FIRST.format(first, second), out="result.txt")
        pid_in("pid1")
        service.executor()
        replica = pid_in("pid2")
        Path("go").touch()
        task.result(timeout=120)
        assert Path("result.txt").read_text() == "first\n"
        until(lambda: not is_alive(replica), "the replica to be ended")
        assert Path("result.txt").read_text() == "first\n"
    until(lambda: [row[:2] for row in attempts(service)] == [(1, "done"), (2, "superseded")], "the jobs database")


def hang_once(folder: str, number: int) -> tuple[int, int]:
    """The first call for each odd number hangs."""
    if number % 2:
        try:
            os.mkdir(os.path.join(folder, f"first{number}"))
        except FileExistsError:
            pass
        else:
            Path(folder, f"pid{number}").write_text(str(os.getpid()))
            time.sleep(600)
    return number, os.getpid()


def test_elements_of_an_array_of_calls_are_replicated_and_a_failed_replica_costs_nothing(service: Service) -> None:
    service.start("--replication", "tail:age=0.5s,cap=2")
    service.executor(cores=2)
    with session(service) as s:
        array = s.map(hang_once, [os.getcwd()] * 4, range(4))
        hanging = [pid_in("pid1"), pid_in("pid3")]
        service.executor()
        found = array.results()
        assert [number for number, _ in found] == [0, 1, 2, 3]
        assert found[1][1] not in hanging
        until(lambda: not any(map(is_alive, hanging)), "the hanging workers to be ended")
    ended = sql(service, "select idx, attempt, state from attempts order by idx")
    assert [(row["idx"], row["attempt"], row["state"]) for row in ended] == [(1, 1, "superseded"), (3, 1, "superseded")]


def test_a_task_that_is_not_idempotent_runs_once(service: Service) -> None:
    service.start("--replication", "wqr")
    service.executor()
    with session(service) as s:
        once = s.command(f"echo x >> once; {WAIT}", idempotent=False)
        until(lambda: once.state == "running", "the task to run")
        service.executor()
        more = s.command(f"echo x >> more; {WAIT}", name="more")
        until(lambda: more.state == "running", "the other task to run")
        service.executor()
        until(lambda: is_there("more") and len(Path("more").read_text().split()) == 2, "a replica of the other task")
        Path("go").touch()
        once.result(timeout=120)
        more.result(timeout=120)
    assert Path("once").read_text() == "x\n"
    assert [
        row["attempt"] for row in sql(service, "select attempt from attempts where id in (select min(id) from tasks)")
    ] == [1]


def test_a_session_is_told_when_the_server_does_not_replicate_as_it_wants(service: Service) -> None:
    service.start("--replication", "wqr:cap=2")
    with pytest.raises(bough.UserError, match="the server was started with 'wqr:cap=2'"):
        bough.Session(f"unix:{service.address}", name="w", replication="tail")
    with bough.Session(f"unix:{service.address}", name="w", replication="wqr:cap=2", progress=False):
        pass
    with pytest.raises(bough.UserError, match="there is no replication policy 'wrq'"):
        bough.Session(f"unix:{service.address}", name="w", replication="wrq")
