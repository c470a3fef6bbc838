"""What running tasks ask a server for: who is listened to, who gets a lock, what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from server_fakes import FakeLoop, FakeStore, FakeTransport

from bough.core.machine import Machine
from bough.model.events.facts import LockFreed, LockTaken, RunOpened
from bough.model.events.news import WorkObserved, WorkSucceeded
from bough.model.monitoring.observations import Fired, Observation, Points
from bough.model.sites.resources import OWN_PYTHON, Needs
from bough.model.states import TaskState
from bough.model.tasks import Dep, GroupSpec, Kind, On, TaskExtras, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.server.message_handlers import MessageHandlers
from bough.server.peer_connection import PeerConnection
from bough.server.turns.run_info import RunInfo
from bough.server.turns.shell import Shell
from bough.testing.builders import here_question, question
from bough.wire.client_messages import VERSION, Answer, Ask, ClientHello, Submit
from bough.wire.executor_messages import ExecutorHello, Report, RunSpan, TaskAnswer, TaskRequest
from bough.wire.framing import frame


class Peer:
    """Somebody who is connected."""

    def __init__(self, house: House, *, trusted: bool = False) -> None:
        self.house = house
        self.transport = FakeTransport()
        self.transport.to_executor = not trusted
        self.connection = PeerConnection(house.reception, house.shell.dirty, trusted=trusted)
        self.connection.connection_made(self.transport)

    def say(self, *messages: object) -> None:
        self.connection.data_received(bytes(frame(*messages)))
        self.house.loop.run()

    def said(self, kind: type) -> list[object]:
        return [message for message in self.transport.said() if isinstance(message, kind)]


class House:
    """A session's server with one executor of four cores."""

    def __init__(self, folder: Path) -> None:
        self.loop, self.store = FakeLoop(), FakeStore()
        machine = Machine(load_policies("fifo"))
        turn = machine.turn(0, [RunOpened(1, "w", "here", 1)])
        self.store.append(turn.number, 0, turn.facts)
        self.shell = Shell(self.loop, machine, self.store, RunInfo(1, str(folder), "t:1"))
        self.reception = MessageHandlers(self.shell, lambda _: None, lambda: None)
        self.client = Peer(self, trusted=True)
        self.client.say(ClientHello(VERSION, 1, "here", owner=True))
        self.executor = Peer(self)
        self.executor.say(ExecutorHello(VERSION, "local", "node", 7, Needs(4), OWN_PYTHON))
        self.runs: dict[int, RunSpan] = {}
        self.requests = self.observed = 0
        self.others: dict[int, TaskAnswer] = {}  # that came with one that was waited for

    def submit(self, *items: object) -> None:
        self.client.say(Submit(list(items), 1))
        self.runs |= {run.record: run for run in self.executor.said(RunSpan)}

    def ask(self, record: int, what: str, **arguments: object) -> int:
        """A task asks; the number of its question."""
        run = self.runs[record]
        self.requests += 1
        self.executor.say(
            TaskRequest(self.requests, run.span, record, 0, run.attempt, here_question(what, **arguments))
        )
        return self.requests

    def answers(self) -> dict[int, TaskAnswer]:
        return {answer.request: answer for answer in self.executor.said(TaskAnswer)}

    def answer(self, record: int, what: str, **arguments: object) -> TaskAnswer:
        number = self.ask(record, what, **arguments)
        answers = self.answers()
        self.others |= answers
        return answers[number]

    def end(self, record: int, number: int) -> None:
        self.executor.say(Report(number, [WorkSucceeded(self.runs[record].span, 0, 1, 0.1)]))

    def observe(self, record: int, *observations: Observation) -> None:
        self.observed += 1
        self.executor.say(Report(self.observed, [WorkObserved(self.runs[record].span, 0, list(observations))]))

    def facts(self, kind: type) -> list[object]:
        return [fact for _, _, facts in self.store.rows for fact in facts if isinstance(fact, kind)]


@pytest.fixture
def house(tmp_path: Path) -> House:
    made = House(tmp_path)
    extras = TaskExtras(attributes=(("colour", "red"),))
    made.submit(
        GroupSpec(1, "outer", attributes=(("colour", "blue"), ("size", "big"))),
        TaskSpec(1, Kind.COMMAND, b"", b"call", group=1, name="one", extras=extras),
        TaskSpec(2, Kind.COMMAND, b"", b"call"),
        TaskSpec(3, Kind.COMMAND, b"", b"call"),
    )
    return made


def test_attributes_are_the_tasks_own_its_groups_and_the_systems(house: House) -> None:
    found = house.answer(1, "attributes").value
    assert (found["colour"], found["size"], found["name"], found["group"]) == ("red", "big", "one", "outer")
    assert (found["record"], found["attempt"], found["cores"], found["host"]) == (1, 1, 1, "node")


def test_what_tasks_say_is_told_until_they_end(house: House) -> None:
    house.answer(1, "status", text="busy")
    house.answer(1, "progress", share=0.5)

    def said() -> list[object]:
        house.client.say(Ask(9, question("said")))
        (answer,) = house.client.said(Answer)
        return [(one["id"], one["text"], one["progress"]) for one in answer.value]

    assert said() == [("1", "busy", 0.5)]
    house.end(1, 1)
    assert said() == []


@pytest.mark.parametrize(
    ("what", "arguments", "message"),
    [
        ("unlock", {"name": "x"}, "it is not locked"),
        ("release", {}, "in no group"),
    ],
)
def test_what_cannot_be_done_is_refused(house: House, what: str, arguments: dict[str, object], message: str) -> None:
    answer = house.answer(2, what, **arguments)
    assert answer.kind == "UserError"
    assert message in answer.error


def test_only_a_task_that_is_there_is_listened_to(house: House) -> None:
    house.end(1, 1)
    assert "has ended" in house.answer(1, "status", text="still here").error
    run = house.runs[2]
    house.executor.say(
        TaskRequest(50, run.span, 2, 0, run.attempt + 1, here_question("alive")),
        TaskRequest(51, run.span, 2, 5, 1, here_question("alive")),
    )
    assert all(answer.error for answer in house.answers().values())


def test_those_who_wait_for_a_lock_get_it_in_order(house: House) -> None:
    assert house.answer(1, "lock", name="a").value == {"taken": True, "new": True}
    assert house.answer(1, "lock", name="a").value == {"taken": True, "new": False}
    first, second = house.ask(2, "lock", name="a"), house.ask(3, "lock", name="a")
    assert house.answers() == {}
    assert house.answer(1, "unlock", name="a").value == {"freed": True}
    assert house.others[first].value["taken"]
    assert second not in house.others
    house.end(2, 1)
    assert house.answers()[second].value["taken"]
    assert len(house.facts(LockTaken)) == 3
    assert len(house.facts(LockFreed)) == 1


def test_who_does_not_want_to_wait_is_told_who_has_it(house: House) -> None:
    house.ask(1, "lock", name="a")
    house.answers()
    assert house.answer(2, "lock", name="a", wait=False).value == {"taken": False, "new": False, "owner": "1"}
    assert house.answer(2, "lock", name="b", wait=False).value == {"taken": True, "new": True}


def test_who_waits_no_more_is_passed_over(house: House) -> None:
    house.ask(1, "lock", name="a")
    gave_up, waits = house.ask(2, "lock", name="a"), house.ask(3, "lock", name="a")
    run = house.runs[2]
    house.executor.say(TaskRequest(gave_up, run.span, 2, 0, run.attempt, here_question("forget")))
    house.answers()
    house.end(1, 1)
    assert list(house.answers()) == [waits]


def test_tasks_that_wait_for_each_other_are_told(house: House) -> None:
    for record, name in ((1, "a"), (2, "b"), (3, "c")):
        house.ask(record, "lock", name=name)
    house.ask(1, "lock", name="b")
    house.ask(2, "lock", name="c")
    house.answers()
    assert "would never end" in house.answer(3, "lock", name="a").error


def test_an_executor_that_is_lost_leaves_no_one_waiting(house: House) -> None:
    house.ask(1, "lock", name="a")
    house.ask(2, "lock", name="a")
    house.executor.connection.connection_lost(None)
    house.loop.run()
    assert house.shell.queries.lock_owner("a") is None


def test_a_released_group_lets_others_start(house: House) -> None:
    house.submit(TaskSpec(4, Kind.COMMAND, b"", b"call", after=(Dep(On.GROUP, 1),)))
    assert house.answer(1, "release").value == {"released": True}
    assert house.answer(1, "release").value == {"released": False}
    assert house.shell.queries.state_of(4, 0) is not TaskState.WAITING


def test_what_was_seen_of_running_tasks_is_told_with_what_they_say(house: House) -> None:
    house.answer(1, "status", text="busy")
    fired = Fired(7.0, "hot", action="tag", name="warm")
    points = Points("score", tuple((float(step), float(step), -float(step)) for step in range(1, 101)), 200)
    house.observe(1, points, fired)
    house.observe(2, Points("loss", ((1.0, 2.0, 3.0),)))
    house.client.say(Ask(9, question("said")))
    (answer,) = house.client.said(Answer)
    first, second = answer.value
    assert (first["id"], first["text"], first["progress"], first["tags"]) == ("1", "busy", 0.5, ["warm"])
    score = first["metrics"]["score"]
    assert (score["step"], score["value"], score["total"], len(score["recent"])) == (100, -100, 200, 64)
    assert (second["id"], second["text"], second["progress"]) == ("2", "", None)
    assert second["metrics"]["loss"]["value"] == 3.0
