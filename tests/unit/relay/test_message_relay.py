"""Questions that a dispatching relay passes on to the executor of a task: answered once, or by an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bough.relay.member_connections import MessageRelay
from bough.wire.executor_messages import OutputRead, ProbeAnswer, ProbeTask, ReadOutput
from bough.wire.probes import Exists, FileThere

ASKED = ProbeTask(7, 3, 0, 1, Exists("a"))
READ = ReadOutput(8, 3, 0, "stdout", "", 0, 10)


class Connection:
    """To an executor."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, messages: list[Any]) -> int:
        self.sent += messages
        return 0


class Site:
    """A relay with one executor, number 5, that has task 3."""

    def __init__(self) -> None:
        self.connection = Connection()
        self.peer: Any = SimpleNamespace(connection=self.connection)
        self.part: Any = SimpleNamespace(has=lambda index: index == 0, member=SimpleNamespace(number=5))
        self.span: Any = SimpleNamespace(run=SimpleNamespace(record=3), parts={1: self.part})
        self.said: list[Any] = []
        distributor = SimpleNamespace(server_spans={1: self.span})
        self.server: Any = SimpleNamespace(distributor=distributor, say=self.said.append)
        self.relay = MessageRelay(lambda _: None, {5: self.peer}.get, lambda _, answer: answer)

    def ask(self, message: Any = ASKED) -> Any:
        self.relay.ask(self.server, message)
        return self.connection.sent.pop() if self.connection.sent else None


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_question_and_its_answer_have_the_numbers_of_those_who_hear_them(site: Site) -> None:
    first, second = site.ask(), site.ask(READ)
    assert first.request != second.request
    assert (first.question, second.record) == (ASKED.question, 3)
    site.relay.on_answer(site.peer, OutputRead(second.request, b"x"))
    site.relay.on_answer(site.peer, ProbeAnswer(first.request, FileThere(True)))
    assert site.said == [OutputRead(8, b"x"), ProbeAnswer(7, FileThere(True))]
    site.relay.on_answer(site.peer, ProbeAnswer(first.request, FileThere(False)))  # twice
    assert len(site.said) == 2


def test_only_the_executor_that_was_asked_may_answer(site: Site) -> None:
    asked = site.ask()
    other: Any = SimpleNamespace(connection=Connection())
    site.relay.on_answer(other, ProbeAnswer(asked.request, FileThere(True)))
    assert site.said == []


def test_a_task_that_has_not_begun_or_has_ended_is_told_apart(site: Site) -> None:
    site.span.parts.clear()
    assert site.ask() is None
    site.server.distributor.server_spans.clear()
    assert site.ask() is None
    assert [(answer.request, answer.kind) for answer in site.said] == [(7, "NotRunning"), (7, "AttemptEnded")]


def test_an_executor_that_is_lost_answers_by_an_error(site: Site) -> None:
    site.ask()
    site.ask(READ)
    site.relay.on_lost(site.peer)
    assert [(answer.request, bool(answer.error)) for answer in site.said] == [(7, True), (8, True)]
    assert site.said[0].kind == "PeerLost"
    site.relay.on_lost(site.peer)
    assert len(site.said) == 2


def test_what_a_server_asked_that_is_gone_is_forgotten(site: Site) -> None:
    asked = site.ask()
    site.relay.forget(site.server)
    site.relay.on_answer(site.peer, ProbeAnswer(asked.request, FileThere(True)))
    site.relay.on_lost(site.peer)
    assert site.said == []
