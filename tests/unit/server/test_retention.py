from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from server_fakes import FakeStore
from test_service_life import Harness, Peer

from bough.errors import StoreFailed
from bough.model.events.facts import Cancelled, Fact, RunRemoved
from bough.model.events.news import WorkSucceeded
from bough.model.tasks import GroupSpec
from bough.server.service.upkeep.retention import Retention
from bough.stores.sql.sqlite import SqliteStore
from bough.testing.builders import question
from bough.wire import questions
from bough.wire.client_messages import VERSION, Answer, Ask, ClientHello, Closed, CloseSession, Refused, Submit, Welcome
from bough.wire.executor_messages import Report, RunSpan


class SweptStore(FakeStore):
    """Needs several calls, and a snapshot after the removal; its jobs database is a real one."""

    def __init__(self, folder: Path, rows: list[tuple[int, float, list[Fact]]]) -> None:
        super().__init__()
        self.real = SqliteStore(folder)
        for turn, now, facts in rows:
            self.append(turn, now, facts)
        self.slices = 3
        self.calls: list[int] = []  # the snapshots there were at each call
        self.files: list[str] = []
        self.refusing: StoreFailed | None = None

    def append(self, turn: int, now: float, facts: Sequence[Fact]) -> None:
        super().append(turn, now, facts)
        self.real.append(turn, now, facts)

    def project(self, at_most: int = 0) -> bool:
        return self.real.project()  # all at once: how much is done at a time depends on how fast this machine is

    def remove_runs(self, runs: Sequence[int] = (), at_most: int = 500) -> bool:
        self.calls.append(len(self.snapshots))
        if self.refusing is not None:
            raise self.refusing
        self.slices -= 1
        return self.slices <= 0

    def forgotten_files(self) -> list[str]:
        files, self.files = self.files, []
        return files


class Shed(Harness):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "out").mkdir()
        self.store = self.shell.store = swept = SweptStore(folder, self.store.rows)
        self.shell.background._store = swept
        self.removing = Retention(self.shell, str(folder))

        self.reception.answers.add({questions.Remove: self.removing.remove})

    def remove(self, *names: str, kill: bool = False) -> object:
        peer = Peer(self)
        peer.say(ClientHello(VERSION, 9, "there"))
        assert peer.said(Welcome)
        peer.say(Ask(1, question("remove", workflows=list(names), kill=kill)))
        (said,) = peer.said(Answer | Refused)
        peer.hang_up()
        return said.value if isinstance(said, Answer) else said


@pytest.fixture
def shed(tmp_path: Path) -> Shed:
    made = Shed(tmp_path)
    yield made
    made.numbers.close()
    made.store.real.close()


def run_one(shed: Shed, name: str, *, drain: bool = True) -> Peer:
    client, executor = shed.client(name), shed.executor()
    client.submit(1)
    (run,) = executor.said(RunSpan)
    executor.say(Report(1, [WorkSucceeded(run.span, 0, 1, 0.1)]))
    if drain:
        client.say(CloseSession("drain"))
        assert client.said(Closed)
    client.hang_up()
    executor.hang_up()
    return client


def test_a_workflow_is_forgotten_then_a_snapshot_is_saved_then_the_journal_is_swept(shed: Shed) -> None:
    run_one(shed, "survey")

    assert shed.remove("survey") == [{"run": 2, "name": "survey"}]

    assert [fact.run for fact in shed.facts(RunRemoved)] == [2]
    assert shed.shell.queries.record_count == 0
    assert shed.store.snapshots[-1][0] == shed.shell.queries.turn
    shed.loop.advance(1)
    shed.loop.advance(1)
    assert shed.store.calls == [1, 1, 1]
    assert isinstance(shed.remove("survey"), Refused)


def test_a_queue_in_which_all_has_ended_can_be_removed(shed: Shed) -> None:
    client = run_one(shed, "queue", drain=False)
    group = client.welcome.first_group
    back = shed.client("queue")
    back.say(Submit([GroupSpec(group, "left open", back.welcome.group)], 7))
    assert "it has a client" in shed.remove("queue").message
    back.hang_up()

    assert shed.remove("queue") == [{"run": 2, "name": "queue"}]
    assert list(shed.shell.queries.counts_by_group()) == [0]


def test_what_goes_on_is_refused_unless_it_is_to_be_killed(shed: Shed) -> None:
    client = shed.client("survey")
    client.submit(3)

    refused = shed.remove("survey")
    assert "is running: 3 ready" in refused.message
    assert shed.facts(Cancelled) == []
    assert shed.remove("survey", kill=True) == [{"run": 2, "name": "survey"}]
    assert client.said(Closed)


def test_one_run_of_several_can_be_named(shed: Shed) -> None:
    run_one(shed, "survey")
    run_one(shed, "survey")

    assert shed.remove("survey#2") == [{"run": 2, "name": "survey"}]
    assert shed.remove("3") == [{"run": 3, "name": "survey"}]


def test_files_of_removed_results_are_deleted_in_the_store_alone(shed: Shed, tmp_path: Path) -> None:
    run_one(shed, "survey")
    inside, outside = tmp_path / "results" / "a", tmp_path.parent / f"{tmp_path.name}-outside"
    inside.parent.mkdir()
    inside.touch()
    outside.touch()
    shed.store.files = [str(inside), str(outside), str(tmp_path / "gone")]

    shed.remove("survey")

    assert not inside.exists()
    assert outside.exists()


def test_a_store_that_cannot_be_swept_is_tried_again_later(shed: Shed) -> None:
    run_one(shed, "survey")
    shed.store.refusing = StoreFailed("the disk is full", transient=True)
    assert shed.remove("survey") == [{"run": 2, "name": "survey"}]
    shed.loop.advance(1)
    assert len(shed.store.calls) == 1

    shed.store.refusing = None
    for _ in range(4):
        shed.loop.advance(61)
    assert shed.store.slices == 0


@pytest.mark.parametrize("name", ["9" * 5000, "²", "x#" + "9" * 5000, "x#²", "9223372036854775808"])
def test_a_number_that_no_run_has_names_nothing(shed: Shed, name: str) -> None:
    said = shed.remove(name)
    assert isinstance(said, Refused)
    assert "there is no workflow" in said.message
