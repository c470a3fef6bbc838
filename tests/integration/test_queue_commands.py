"""Named queues at a real server: made by commands, named by tasks, enforced, shown, and there after a crash."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from service_client import Service, until

from bough import Session, TaskFailed, UserError, product

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module

GATED = "while [ ! -e gate ]; do sleep 0.02; done"


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


def queues(service: Service) -> dict[str, dict[str, Any]]:
    return {one["queue"]: one for one in json.loads(service.bough("queue", "list", "--json").stdout)}


def test_limits_are_enforced_shown_and_there_after_a_crash(service: Service, tmp_path: Path) -> None:
    said = service.bough("queue", "add", "night", "--max-cores", "1", "--max-time", "2h").stdout
    assert said == "queue night: up to 1 cores, at most 7200 s a task, share 1\n"
    assert "already" in service.bough("queue", "add", "night", check=False).stderr
    service.executor(cores=2)
    service.bough("submit", "--queue", "night", "--into", "sweeps", "--array", "1-3", "--", GATED)
    service.bough("submit", "--into", "others", "--", GATED)
    until(lambda: queues(service)[""]["running"] == 1 and queues(service)["night"]["running"] == 1, "one of each")
    assert queues(service)["night"]["waiting"] == 2
    assert queues(service)["night"]["cores"] == 1.0
    told = service.bough("explain", "--name", "sweeps", "1.3").stdout
    assert "its queue night holds 1 of the 1 cores that it may have at once" in told
    table = service.bough("queue", "list").stdout.splitlines()
    assert table[1].split()[:4] == ["night", "2", "1", "1/1"]
    service.kill()
    service.start()
    until(lambda: queues(service)["night"]["running"] == 1, "the executor is back with what it had")
    assert queues(service)["night"]["limits"]["max_time"] == 7200.0
    service.bough("queue", "change", "night", "--max-cores", "2")
    (tmp_path / "work" / "gate").touch()
    until(lambda: "3 done" in service.bough("status", "--name", "sweeps").stdout, "the end")
    assert "was removed" in service.bough("queue", "remove", "night").stdout
    assert "there is no queue night" in service.bough("queue", "show", "night", check=False).stderr


def test_every_way_to_name_a_queue(service: Service, tmp_path: Path) -> None:
    service.bough("queue", "add", "short", "--max-time", "0.3s")
    service.executor(cores=2)
    (tmp_path / "work" / "list.txt").write_text("one: queue=short :: sleep 60\n")
    service.bough("submit", "list.txt")
    (tmp_path / "work" / "plain.txt").write_text("sleep 61\n")
    service.bough("submit", "--queue", "short", "plain.txt")
    with Session(f"unix:{service.address}", name="script") as session:
        tasks = [
            session.command("sleep 62", queue="short"),
            session.options(queue="short").command("sleep 63"),
            session.group("g", queue="short").command("sleep 64"),
            session.sweep("sleep {n}", product(n=[65]), queue="short")[0],
        ]
        for task in tasks:
            with pytest.raises(TaskFailed, match="ran longer than"):
                task.result()
        assert "queue short lets no task run for more than 0.3 s" in tasks[0].explain()
        with pytest.raises(UserError, match="there is no such queue"):
            session.command("true", queue="shrot")
        with pytest.raises(UserError, match="a queue's name has letters"):
            session.command("true", queue="a b")
    for name in ("list", "plain"):
        until(lambda name=name: "1 failed" in service.bough("status", "--name", name).stdout, f"the end of {name}")


def test_a_name_that_no_queue_has_is_a_workflow_and_a_note_says_so(service: Service) -> None:
    service.executor(cores=1)
    ran = service.bough("submit", "--queue", "sims", "--wait", "--", "true")
    assert "there is no queue sims: it is taken as the name of a workflow; say --into sims" in ran.stderr
    assert "1 done" in service.bough("status", "--name", "sims").stdout
    refused = service.bough("submit", "--queue", "sims", "--into", "w", "--", "true", check=False)
    assert refused.returncode != 0
    assert "there is no such queue" in refused.stderr


def test_an_embedded_session_has_no_queues(tmp_path: Path) -> None:
    with (
        Session(name="own", store=tmp_path / "store", cores=1) as session,
        pytest.raises(UserError, match="bough queue add"),
    ):
        session.command("true", queue="night")
