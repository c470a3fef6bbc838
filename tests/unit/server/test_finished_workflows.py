"""Which workflows leave the memory of a server, and when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_service_life import Harness, Peer

from bough.core import retirement as core
from bough.errors import StoreFailed
from bough.model.events.facts import RunRetired
from bough.model.events.news import Retry, WorkSucceeded
from bough.model.tasks import Dep, On
from bough.server.service.upkeep import finished_workflows
from bough.stores.sql.sqlite import SqliteStore
from bough.testing.builders import question
from bough.wire.client_messages import VERSION, Answer, Ask, ClientHello, Closed, CloseSession, DoAction, Welcome
from bough.wire.executor_messages import Report, RunSpan


class Office(Harness):
    """A service that keeps few workflows that are over."""

    def finish(self, name: str, tasks: int = 1) -> int:
        """Run a workflow to its end; its number."""
        client, executor = self.client(name), self.executor()
        client.submit(tasks)
        reports = 0
        while runs := executor.said(RunSpan):
            for run in runs:
                reports += 1
                executor.say(Report(reports, [WorkSucceeded(run.span, run.start, run.stop, 0.1)]))
        client.say(CloseSession("drain"))
        assert client.said(Closed)
        client.hang_up()
        executor.hang_up()
        self.loop.run()
        return client.welcome.run

    @property
    def here(self) -> list[int]:
        return [run for run in self.shell.queries.runs() if run > 1]

    def wait(self, seconds: float = 1.0) -> None:
        for _ in range(10):
            self.loop.advance(seconds / 10)


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    monkeypatch.setattr(finished_workflows, "KEPT", 2)
    made = Office(tmp_path)
    yield made
    made.numbers.close()


def test_the_oldest_leave_when_there_are_too_many(office: Office) -> None:
    runs = [office.finish(f"w{number}") for number in range(4)]
    office.wait()
    assert office.here == runs[2:]
    assert [fact.run for fact in office.facts(RunRetired)] == runs[:2]
    assert [run for _, run, _ in office.store.snapshots] == runs[:2]
    for _, _, data in office.store.snapshots:
        assert sum(len(piece.tasks) for piece in core.unpack(data)) == 1


def test_those_that_are_too_big_leave_though_they_are_few(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_workflows, "KEPT_RECORDS", 5)
    office.finish("big", tasks=10)
    office.wait()
    assert office.here == []


def test_the_last_one_leaves_after_a_while(office: Office) -> None:
    run = office.finish("one")
    office.wait(finished_workflows.KEPT_FOR / 2)
    assert office.here == [run]
    office.wait(finished_workflows.KEPT_FOR)
    assert office.here == []


def test_one_that_goes_on_stays(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_workflows, "KEPT", 0)
    client = office.client("open")
    client.submit(1)
    office.wait(2 * finished_workflows.KEPT_FOR)
    assert office.here == [client.welcome.run]


def test_what_cannot_be_written_stays_until_it_can(office: Office) -> None:
    def refuse(*_: object) -> None:
        raise StoreFailed("the disk is full", transient=True)

    saved, office.store.save_snapshot = office.store.save_snapshot, refuse
    runs = [office.finish(f"w{number}") for number in range(4)]
    office.wait()
    assert office.here == runs
    office.store.save_snapshot = saved
    office.wait(20)
    assert office.here == runs[2:]


def test_a_big_one_leaves_in_slices(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "PIECE", 2)
    monkeypatch.setattr(finished_workflows, "_SLICE", 0.0)
    monkeypatch.setattr(finished_workflows, "KEPT", 0)
    run = office.finish("big", tasks=9)
    office.wait(0.51)
    assert office.here == [run], "its first piece is kept"
    assert not office.facts(RunRetired)
    office.wait(5)
    assert office.here == []
    ((_, _, data),) = office.store.snapshots
    assert [len(piece.tasks) for piece in core.unpack(data)] == [2, 2, 2, 2, 1]


def test_results_and_numbers_of_one_that_left_are_forgotten(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_workflows, "KEPT", 0)
    run = office.finish("one", tasks=3)
    assert office.shell.results._spans
    assert run in office.numbers._by_run
    office.wait()
    assert not office.shell.results._spans
    assert run not in office.numbers._by_run


def test_a_deed_for_what_does_not_exist_is_answered(office: Office) -> None:
    peer = Peer(office)
    peer.say(ClientHello(VERSION, 9, "there"))
    assert peer.said(Welcome)
    peer.say(DoAction(1, Retry(Dep(On.TASK, 999))))
    assert [answer.value for answer in peer.said(Answer)] == [{"tasks": 0}]


def test_what_is_looked_at_is_bounded_and_forgotten_after_a_while(
    office: Office, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(finished_workflows, "KEPT", 0)
    monkeypatch.setattr(finished_workflows, "MOST_RECORDS", 5)
    store = SqliteStore(tmp_path)
    tasks = []
    for name in ("one", "two", "three"):
        run = office.finish(name, tasks=3)
        tasks.append(office.shell.queries.records_of(run)[0])
        office.wait()
    for turn, now, facts in office.store.rows:
        store.append(turn, now, facts)
    for turn, run, data in office.store.snapshots:
        store.save_snapshot(turn, run, data)
    store.project()
    peer = Peer(office)
    peer.say(ClientHello(VERSION, 9, "there"))
    for number, task in enumerate(tasks, 1):
        peer.say(Ask(number, question("explain", record=task)))
        (answer,) = peer.said(Answer)
        assert "is done" in answer.value[0]
    find = office.shell.queries.can_find
    assert [find(task) for task in tasks] == [False, False, True], "two of them would be more than may be"
    assert office.here == []
    office.wait(finished_workflows._LOOKED_AT_FOR + 1)
    assert not any(map(find, tasks))
    store.close()
