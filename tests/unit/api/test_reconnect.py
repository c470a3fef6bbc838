"""A connection that outlives its server: what is said again, what waits, what ends it. The test plays the server."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from bough.api.client import reconnect
from bough.api.client.connection import Connection
from bough.api.client.reconnect import DialAgain, Dialled
from bough.errors import BoughError, PeerLost, SessionClosed, UserError
from bough.model.events.news import Cancel, GroupClosed
from bough.model.ids import BlobId, GroupId
from bough.model.tasks import Dep, On
from bough.testing.builders import question, task
from bough.wire.client_messages import (
    Accepted,
    Answer,
    Ask,
    Blob,
    ClientHello,
    Closed,
    CloseSession,
    DoAction,
    Refused,
    Submit,
    TasksSucceeded,
    ToClient,
    Welcome,
)
from bough.wire.framing import frame, server_frames

BLOB = BlobId(b"b" * 16)
WELCOME = Welcome(1, 1, 10, 5, "/store", group=3, embedded=False)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Far:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.settimeout(10)
        self._frames = server_frames()
        self._heard: list[object] = []

    def next(self) -> object:
        while not self._heard:
            data = self._sock.recv(1 << 16)
            assert data, "the client hung up"
            self._heard = list(self._frames.feed(data))
        return self._heard.pop(0)

    def say(self, *messages: object) -> None:
        for message in messages:
            self._sock.sendall(frame(message))

    def hang_up(self) -> None:
        self._sock.close()

    def greeted(self) -> ClientHello:
        hello = self.next()
        assert isinstance(hello, ClientHello)
        self.say(WELCOME)
        return hello


class Stage:
    """A client and the servers that it finds one after the other."""

    def __init__(self) -> None:
        self.ends: queue.Queue[socket.socket] = queue.Queue()
        self.heard: list[ToClient] = []
        self.lost: list[BoughError | None] = []
        self.unended: list[int] = []
        far = self.new_server()
        reconnect = DialAgain(self._dial, "there", lambda: self.unended)
        self.client = Connection(reconnect, self._hear, lambda *_: None, self.lost.append)
        self.client.start(ClientHello(1, 2, "here", workflow="w"))
        assert far.greeted().workflow == "w"
        assert self.client.welcome() == WELCOME
        self.far = far

    def new_server(self) -> Far:
        ours, theirs = socket.socketpair()
        self.ends.put(ours)
        return Far(theirs)

    def _dial(self) -> Dialled:
        try:
            return Dialled(self.ends.get(timeout=0.05))
        except queue.Empty:
            raise PeerLost("nobody is there") from None

    def _hear(self, messages: Sequence[ToClient]) -> None:
        for message in messages:
            self.heard.append(message)
            if isinstance(message, TasksSucceeded) and message.record in self.unended:
                self.unended.remove(message.record)

    def restart(self) -> Far:
        """The server goes away and comes back; what it hears first is a client that joins."""
        self.far.hang_up()
        self.far = self.new_server()
        hello = self.far.greeted()
        assert (hello.workflow, hello.join) == ("w", True)
        return self.far


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(reconnect, "FIRST_PAUSE", 0.01)
    made = Stage()
    yield made
    made.client.leave(SessionClosed("the test is over"))
    made.far.hang_up()


def test_what_was_not_acknowledged_is_said_again_with_its_blobs_in_order(stage: Stage) -> None:
    client = stage.client
    client.submit(task(10), 100, [(BLOB, b"body")])
    client.submit(task(11), 100)
    client.post(GroupClosed(GroupId(5)))
    first = [stage.far.next() for _ in range(4)]
    assert [type(message) for message in first] == [Blob, Submit, Submit, GroupClosed]
    stage.far.say(Accepted(first[1].request))  # type: ignore[attr-defined]
    stage.far.say(Accepted(first[1].request))  # type: ignore[attr-defined]
    stage.unended = [10, 11]
    far = stage.restart()
    again = [far.next() for _ in range(3)]
    assert again[0] == first[2]
    assert again[1] == first[3]
    assert isinstance(again[2], Ask)
    assert again[2].question == question("outcomes", records=[10, 11])


def test_a_blob_whose_submission_was_not_acknowledged_travels_again(stage: Stage) -> None:
    stage.client.submit(task(10), 100, [(BLOB, b"body")])
    first = [stage.far.next(), stage.far.next()]
    far = stage.restart()
    assert [far.next(), far.next()] == first


def test_submissions_and_questions_while_the_server_is_away_wait_for_it(stage: Stage) -> None:
    stage.far.hang_up()
    far = stage.far = stage.new_server()
    hello = far.next()
    assert isinstance(hello, ClientHello)
    stage.client.submit(task(10), 100)
    answers: list[object] = []
    asking = threading.Thread(target=lambda: answers.append(stage.client.ask(question("processors"))))
    asking.start()
    until(lambda: bool(stage.client._replies))
    far.say(WELCOME)
    heard = [far.next(), far.next()]
    submit = next(message for message in heard if isinstance(message, Submit))
    ask = next(message for message in heard if isinstance(message, Ask))
    far.say(Accepted(submit.request), Answer(ask.request, {"local": 2}))
    asking.join(60)
    assert answers == [{"local": 2}]
    assert stage.client.wait_acknowledged(10)


def test_an_act_is_said_again_until_it_is_answered(stage: Stage) -> None:
    stage.client.act(Cancel(Dep(On.TASK, 10)))
    stage.client.act(Cancel(Dep(On.TASK, 11)))
    one, two = stage.far.next(), stage.far.next()
    assert isinstance(one, DoAction)
    stage.far.say(Answer(one.request, {"tasks": 1}))
    until(lambda: list(stage.client._outbox._loose) == [two])
    stage.client.submit(task(12), 100)
    submit = stage.far.next()
    far = stage.restart()
    assert [far.next(), far.next()] == [two, submit]


def test_a_good_bye_is_said_again(stage: Stage) -> None:
    stage.client.close("drain")
    assert stage.far.next() == CloseSession("drain")
    far = stage.restart()
    assert far.next() == CloseSession("drain")
    far.say(Closed("done"))
    assert stage.client.ended.wait(60)
    assert stage.lost == [None]


def test_a_server_that_still_believes_in_the_old_connection_is_tried_again(stage: Stage) -> None:
    stage.far.hang_up()
    far = stage.far = stage.new_server()
    assert isinstance(far.next(), ClientHello)
    far.say(Refused("the workflow has a client already", kind="WorkflowTaken"))
    far.hang_up()
    stage.far = stage.new_server()
    assert stage.far.greeted().join
    stage.client.submit(task(10), 100)
    assert isinstance(stage.far.next(), Submit)


def test_a_workflow_that_ended_meanwhile_is_asked_for_and_over(stage: Stage) -> None:
    stage.unended = [10]
    stage.far.hang_up()
    far = stage.far = stage.new_server()
    assert isinstance(far.next(), ClientHello)
    far.say(Refused("no workflow of that name goes on", kind="UnknownName"))
    far.hang_up()
    far = stage.far = stage.new_server()
    assert far.greeted().workflow == ""
    ask = far.next()
    assert isinstance(ask, Ask)
    assert ask.question == question("outcomes", records=[10])
    far.say(Answer(ask.request, 1), TasksSucceeded(10, 0, 1, 1))  # type: ignore[arg-type]
    assert stage.client.ended.wait(60)
    assert stage.lost == [None]


def test_a_workflow_that_is_unknown_fails_what_still_waits(stage: Stage) -> None:
    stage.unended = [10]
    stage.far.hang_up()
    far = stage.far = stage.new_server()
    assert isinstance(far.next(), ClientHello)
    far.say(Refused("no workflow of that name goes on", kind="UnknownName"))
    far.hang_up()
    far = stage.far = stage.new_server()
    far.greeted()
    ask = far.next()
    assert isinstance(ask, Ask)
    far.say(Answer(ask.request, 0))
    assert stage.client.ended.wait(60)
    assert isinstance(stage.lost[0], UserError)


def test_leaving_tells_those_who_wait_why(stage: Stage) -> None:
    stage.client.leave(SessionClosed("left"))
    assert stage.client.ended.is_set()
    assert str(stage.lost[0]) == "left"


def test_leaving_works_while_the_server_is_away(stage: Stage) -> None:
    stage.far.hang_up()
    until(lambda: stage.client.is_away)
    stage.client.leave(SessionClosed("left"))
    assert stage.client.ended.is_set()


def test_a_question_after_leaving_is_refused_and_does_not_wait(stage: Stage) -> None:
    stage.far.hang_up()
    until(lambda: stage.client.is_away)
    stage.client.leave(SessionClosed("left"))
    with pytest.raises(SessionClosed):
        stage.client.ask(question("processors"))


def test_who_is_refused_at_first_does_not_come_back() -> None:
    ours, theirs = socket.socketpair()
    reconnect = DialAgain(lambda: Dialled(ours), "there", list)
    client = Connection(reconnect, lambda _: None, lambda *_: None, lambda _: None)
    client.start(ClientHello(1, 2, "here", workflow="w"))
    far = Far(theirs)
    far.next()
    far.say(Refused("no such luck"))
    far.hang_up()
    with pytest.raises(UserError, match="no such luck"):
        client.welcome()
    assert client.ended.wait(60)
