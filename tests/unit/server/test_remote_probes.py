"""What remote monitors ask a server: passed on to the executor that has the task, answered or refused once."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_task_requests import House, Peer

from bough.model.events.news import WorkStarted
from bough.model.tasks import Kind, TaskSpec
from bough.server.remote_probes import PATIENCE
from bough.wire.client_messages import Answer, Ask, Refused
from bough.wire.executor_messages import ProbeAnswer, ProbeTask, Report
from bough.wire.probes import CommandRan, Exists, FileData, FileThere, ReadPart, SendSignal, SignalSent
from bough.wire.questions import Probe, ProbeReply, read_reply


class Desk(House):
    """A server with one executor, which runs task 1."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.submit(TaskSpec(1, Kind.COMMAND, b"", b"call"))
        self.executor.say(Report(1, [WorkStarted(self.runs[1].span, 0, 1)]))
        self.number = 50

    def ask_task(self, question: object, **fields: object) -> int:
        self.number += 1
        probe = Probe(fields.pop("record", 1), question, **fields)  # type: ignore[arg-type]
        self.client.say(Ask(self.number, probe))
        return self.number

    def passed_on(self) -> ProbeTask:
        [found] = self.executor.said(ProbeTask)
        assert isinstance(found, ProbeTask)
        return found

    def refusal(self) -> Refused:
        [found] = self.client.said(Refused)
        assert isinstance(found, Refused)
        return found

    @property
    def open(self) -> int:
        return len(self.reception.remote_probes._open)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_question_is_passed_on_and_its_answer_says_where_it_is_from(desk: Desk) -> None:
    question = ReadPart("log.txt", 10, 20, "score")
    number = desk.ask_task(question)
    asked = desk.passed_on()
    assert (asked.record, asked.index, asked.attempt, asked.question) == (1, 0, 1, question)
    desk.executor.say(ProbeAnswer(asked.request, FileData(b"x", 11, 12)))
    [answer] = desk.client.said(Answer)
    assert answer.request == number
    found = read_reply(Probe(1, question), answer.value)
    assert found == ProbeReply(FileData(b"x", 11, 12), 1, 1, "node")
    assert desk.open == 0


@pytest.mark.parametrize(
    ("fields", "kind"),
    [({"record": 9}, "UnknownName"), ({"attempt": 2}, "AttemptEnded")],
)
def test_what_cannot_be_asked_is_refused(desk: Desk, fields: dict[str, int], kind: str) -> None:
    desk.ask_task(Exists("a"), **fields)
    assert desk.refusal().kind == kind
    assert desk.executor.said(ProbeTask) == []


def test_what_waits_is_not_running_and_what_ended_has_ended(desk: Desk) -> None:
    desk.submit(*(TaskSpec(n, Kind.COMMAND, b"", b"call") for n in range(2, 7)))
    desk.ask_task(Exists("a"), record=6)
    assert desk.refusal().kind == "NotRunning"
    desk.ask_task(Exists("a"), record=6, attempt=1)
    assert desk.refusal().kind == "AttemptEnded"
    desk.end(1, 2)
    desk.ask_task(Exists("a"))
    assert desk.refusal().kind == "TaskEnded"


def test_an_end_that_comes_with_the_answer_counts_first(desk: Desk) -> None:
    desk.ask_task(Exists("a"))
    asked = desk.passed_on()
    desk.end(1, 2)
    desk.executor.say(ProbeAnswer(asked.request, error="attempt 1 at the task has ended", kind="AttemptEnded"))
    assert desk.refusal().kind == "TaskEnded"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("MissingFile", "MissingFile"),
        ("BadValue", "BadValue"),
        ("InternalError", "SiteError"),
        ("SystemExit", "SiteError"),
        ("annotations", "SiteError"),
        ("", "SiteError"),
        ("__builtins__", "SiteError"),
        ("PeerLost", "PeerLost"),
        ("StoreFailed", "SiteError"),
    ],
)
def test_an_executor_says_only_what_concerns_the_question(desk: Desk, kind: str, said: str) -> None:
    desk.ask_task(Exists("a"))
    desk.executor.say(ProbeAnswer(desk.passed_on().request, error="why", kind=kind))
    refusal = desk.refusal()
    assert (refusal.kind, refusal.message) == (said, "why")


def test_an_answer_to_something_else_is_none(desk: Desk) -> None:
    desk.ask_task(SendSignal(10))
    asked = desk.passed_on()
    desk.executor.say(ProbeAnswer(asked.request + 5, SignalSent()))  # nobody asked
    assert desk.client.said(Answer) == []
    desk.executor.say(ProbeAnswer(asked.request, CommandRan(0)))
    assert desk.refusal().kind == "ProtocolError"
    desk.executor.say(ProbeAnswer(asked.request, SignalSent()))  # too late
    assert desk.client.said(Answer) == []


def test_only_the_executor_that_was_asked_may_answer(desk: Desk) -> None:
    from bough.model.sites.resources import OWN_PYTHON, Needs
    from bough.wire.client_messages import VERSION
    from bough.wire.executor_messages import ExecutorHello

    other = Peer(desk)
    other.say(ExecutorHello(VERSION, "local", "node", 8, Needs(4), OWN_PYTHON))
    desk.ask_task(Exists("a"))
    asked = desk.passed_on()
    other.say(ProbeAnswer(asked.request, FileThere(True)))
    assert desk.client.said(Answer) == []
    desk.executor.say(ProbeAnswer(asked.request, FileThere(False)))
    assert len(desk.client.said(Answer)) == 1


def test_nobody_waits_for_an_executor_that_is_lost_or_silent(desk: Desk) -> None:
    desk.ask_task(Exists("a"))
    desk.passed_on()
    desk.loop.advance(PATIENCE)
    assert "does not answer" in desk.refusal().message
    desk.ask_task(Exists("b"))
    desk.executor.connection.connection_lost(None)
    desk.loop.run()
    assert desk.refusal().kind == "PeerLost"
    assert desk.open == 0
