"""Finished workflows that left the server's memory: who asks is answered, who acts has them back, nothing is lost."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from service_client import Service, until

from bough.model.events.news import GroupClosed, Retry
from bough.model.ids import number_of
from bough.model.outcomes import Cause
from bough.model.tasks import Dep, GroupSpec, On
from bough.server.service.upkeep.finished_workflows import KEPT
from bough.testing.builders import question
from bough.wire.client_messages import Answer, DoAction, Refused, TasksFailed, TasksSucceeded
from tests.postgres_server import PostgresServer


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    made.start()
    made.executor(cores=2)
    yield made
    made.clean_up()


class Old:
    """A workflow with a success, a failure, and what was not run because of it; it has left the server's memory."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.flag = folder / "flag"
        client = service.client("old")
        self.run = client.welcomed.run
        group = client.welcomed.first_group
        client.submit(GroupSpec(group, "part", client.group))
        self.good = client.command("echo hello", group=group, name="good")
        self.bad = client.command(f"[ -e {self.flag} ] || exit 3", group=group, name="bad")
        self.after = client.command("true", name="after", after=(Dep(On.TASK, self.bad),))
        client.say(GroupClosed(group))
        client.close()
        for number in range(KEPT + 1):
            other = service.client(f"other{number}")
            other.command("true")
            other.close()
        until(lambda: not self.is_here(service), "its leaving")

    def is_here(self, service: Service) -> bool:
        return any(one["run"] == self.run for one in ask(service, "workflows"))


def ask(service: Service, what: str, **arguments: object) -> object:
    client = service.client("")
    try:
        return client.ask(what, **arguments)
    finally:
        client.sock.close()


def shown(service: Service, *words: str) -> object:
    return json.loads(service.bough(*words, "--json").stdout)


def act(service: Service, deed: object) -> dict[str, object]:
    client = service.client("")
    client.request += 1
    client.say(DoAction(client.request, deed))
    value = client.wait(Answer, lambda answer: answer.request == client.request).value
    client.sock.close()
    return value


def test_all_questions_about_a_retired_workflow_are_answered(service: Service, tmp_path: Path) -> None:
    old = Old(service, tmp_path)

    listed = {one["run"]: one for one in shown(service, "status")["workflows"]}
    assert listed[old.run]["closed"]
    assert listed[old.run]["counts"] == {"done": 1, "failed": 1, "skipped": 1}
    states = {row["name"]: row["state"] for row in shown(service, "status", "old:all")}
    assert states == {"good": "done", "bad": "failed", "after": "skipped"}
    assert service.bough("log", f"{old.good}").stdout == "hello\n"
    assert "exit code 3" in service.bough("explain", f"{old.bad}").stdout
    assert "was skipped" in service.bough("explain", f"{old.after}").stdout
    assert "3" in service.bough("sql", f"select count(*) from tasks where run = {old.run}").stdout
    assert ask(service, "output", record=old.good)["data"] == b"hello\n"
    assert ask(service, "task", record=old.good)["id"] == str(number_of(old.good))

    client = service.client("")
    assert client.ask("outcomes", records=[old.good, old.bad, old.after, 999_999]) == 3
    assert client.wait(TasksSucceeded).record == old.good
    assert client.wait(TasksFailed, lambda told: told.record == old.bad).failure.cause is Cause.EXIT
    assert not old.is_here(service), "asking does not bring it back"


def test_what_failed_in_a_retired_workflow_is_tried_again(service: Service, tmp_path: Path) -> None:
    old = Old(service, tmp_path)
    old.flag.touch()

    assert service.bough("retry", "--failed", "--name", "old").stdout == "1 task will be retried\n"

    def states() -> set[str]:
        return {row["state"] for row in shown(service, "status", "old:all")}

    until(lambda: states() == {"done"}, "the retry")
    assert old.is_here(service)
    for number in range(KEPT + 1):
        other = service.client(f"another{number}")
        other.command("true")
        other.close()
    until(lambda: not old.is_here(service), "its leaving again")
    assert shown(service, "status", f"{old.after}")[0]["state"] == "done"
    assert act(service, Retry(Dep(On.TASK, old.bad))) == {"tasks": 0}, "there is nothing to be tried again"


def test_a_task_of_a_retired_workflow_is_reset(service: Service, tmp_path: Path) -> None:
    old = Old(service, tmp_path)
    assert service.bough("reset", f"{old.good}").stdout.startswith("1 task ")

    def ran_twice() -> bool:
        row = shown(service, "status", f"{old.good}")[0]
        return (row["state"], row["attempt"]) == ("done", 2)

    until(ran_twice, "the second run")


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restart_brings_back_only_what_is_not_retired(service: Service, tmp_path: Path, how: str) -> None:
    old = Old(service, tmp_path)
    assert act(service, Retry(Dep(On.TASK, old.bad))) == {"tasks": 1}
    until(lambda: shown(service, "status", f"{old.bad}")[0]["attempt"] == 2, "the second attempt")
    getattr(service, how)()
    service.start()
    assert old.is_here(service), "somebody had acted on it"
    old.flag.touch()
    assert act(service, Retry(Dep(On.TASK, old.bad))) == {"tasks": 1}
    service.executor(cores=2)
    until(lambda: shown(service, "status", f"{old.bad}")[0]["state"] == "done", "the third attempt")
    assert len(ask(service, "workflows")) <= KEPT + 3


def test_retired_workflows_are_removed_by_name_and_by_age_and_leave_nothing(service: Service, tmp_path: Path) -> None:
    old = Old(service, tmp_path)
    again = Old(service, tmp_path)
    database = service.home / "server" / "store" / "journal.db"

    def kept() -> set[int]:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
            return {run for (run,) in opened.execute("select run from snapshots")}

    assert {old.run, again.run} <= kept()
    assert "nothing" not in service.bough("remove", f"old#{old.run}").stdout
    assert [one["run"] for one in shown(service, "status")["workflows"] if one["name"] == "old"] == [again.run]
    until(lambda: old.run not in kept(), "the end of what was kept of it")
    assert again.run in kept()
    assert isinstance(refused(service, "explain", record=old.good), list | Refused)

    gone = shown(service, "prune", "--older-than", "0.001s")
    assert again.run in {one["run"] for one in gone}
    until(lambda: again.run not in kept(), "the end of the other one")
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
        until(lambda: opened.execute("select count(*) from sweeps").fetchone() == (0,), "the sweep")
        assert opened.execute("select count(*) from tasks").fetchone() == (0,)


def refused(service: Service, what: str, **arguments: object) -> object:
    client = service.client("")
    client.request += 1
    from bough.wire.client_messages import Ask

    client.say(Ask(client.request, question(what, **arguments)))
    found = client.wait(Answer | Refused, lambda said: said.request == client.request)
    client.sock.close()
    return found.value if isinstance(found, Answer) else found


def test_a_later_workflow_of_the_name_reuses_what_a_retired_one_did(service: Service, tmp_path: Path) -> None:
    first = service.client("again")
    first.command("echo once", key=b"k" * 16)
    first.close()
    for number in range(KEPT + 1):
        other = service.client(f"other{number}")
        other.command("true")
        other.close()
    run = first.welcomed.run
    until(lambda: all(one["run"] != run for one in ask(service, "workflows")), "its leaving")

    second = service.client("again")
    assert second.welcomed.memos
    task = second.command("echo once", key=b"k" * 16)
    assert second.outcome(task).reused


def test_a_retired_workflow_in_postgresql_is_looked_at_tried_again_and_removed(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'bough[postgres]'")
    database, service = PostgresServer(), Service(tmp_path)
    try:
        service.start("--store", database.url())
        service.executor(cores=2)
        old = Old(service, tmp_path)
        assert "exit code 3" in service.bough("explain", f"{old.bad}").stdout
        assert old.run in {one["run"] for one in shown(service, "status")["workflows"]}
        old.flag.touch()
        assert service.bough("retry", "--failed", "--name", "old").stdout == "1 task will be retried\n"
        until(lambda: shown(service, "status", f"{old.after}")[0]["state"] == "done", "the retry")
        again = Old(service, tmp_path)
        assert {one["run"] for one in shown(service, "remove", "old")} == {old.run, again.run}
        assert "no workflow" in service.bough("remove", "old", check=False).stderr
    finally:
        service.clean_up()
        database.remove()
