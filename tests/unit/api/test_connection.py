"""The client's end of the connection: gathering, acknowledging, refusing, holding back."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from bough.api.client import outbox
from bough.api.client.connection import Connection
from bough.api.client.reconnect import GiveUp
from bough.errors import BoughError, InvalidWorkload, PeerLost, UserError
from bough.model.events.news import Cancel, PagesAdded
from bough.model.ids import BlobId, RecordId
from bough.model.tasks import Dep, Item, On, TaskSpec
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
from bough.wire.framing import Frames, frame, server_frames

BLOB = BlobId(b"b" * 16)


class Pair:
    """A connection, and the server's end of it, which the test plays."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        self.theirs.settimeout(10)
        self.heard: list[ToClient] = []
        self.refusals: list[tuple[Item | PagesAdded, BoughError]] = []
        self.lost: list[BoughError | None] = []
        self.client = Connection(
            GiveUp(ours), self._hear, lambda *refused: self.refusals.append(refused), self.lost.append
        )
        self._frames: Frames[object] = server_frames()  # type: ignore[assignment]
        self._waiting: list[object] = []
        self.client.start(ClientHello(1, 2, "here", owner=True))
        assert isinstance(self.next(), ClientHello)
        self.say(Welcome(1, 1, 10, 5, "/store"))
        assert self.client.welcome().first_id == 10

    def _hear(self, messages: Sequence[ToClient]) -> None:
        self.heard += messages

    def next(self) -> object:
        while not self._waiting:
            data = self.theirs.recv(1 << 16)
            assert data, "the client hung up"
            self._waiting = list(self._frames.feed(data))
        return self._waiting.pop(0)

    def say(self, *messages: object) -> None:
        self.theirs.sendall(frame(*messages))

    def submit(self, *records: int) -> None:
        for record in records:
            self.client.submit(task(record), 100, ((BLOB, b"function"),))

    def has_nothing(self) -> bool:
        self.theirs.settimeout(0.05)
        try:
            return not self._waiting and not self.theirs.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.theirs.settimeout(10)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.theirs.close()
    assert made.client.ended.wait(60)


def ids(message: object) -> list[int]:
    assert isinstance(message, Submit)
    return [item.id for item in message.items if isinstance(item, TaskSpec)]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_what_no_server_takes_is_refused_before_it_is_sent_and_nothing_waits_for_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MOST_BYTES", 1000)
    wanted = r"takes 1.2 kB, and no more than 1.0 kB can be sent at once: write the data to a file, and give its path"
    with pytest.raises(UserError, match=rf"the function or table of .* {wanted}"):
        pair.client.submit(task(1), 100, ((BLOB, bytes(1200)),))
    with pytest.raises(UserError, match=f"what is given to .* {wanted}"):
        pair.client.submit(task(1), 1200, ())
    with pytest.raises(UserError, match=f"an item of an array {wanted}"):
        pair.client.add_pages(RecordId(1), [], 1200, last=True)
    pair.submit(2)
    assert pair.next() == Blob(BLOB, b"function")
    assert ids(pair.next()) == [2]


def test_messages_that_are_too_big_together_leave_one_by_one(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bough.wire.framing.MAX_FRAME", 1000)
    pair.client.post(Blob(BLOB, bytes(800)), Blob(BlobId(b"c" * 16), bytes(900)))
    assert pair.next() == Blob(BLOB, bytes(800))
    assert pair.next() == Blob(BlobId(b"c" * 16), bytes(900))
    with pytest.raises(UserError, match="what is asked for cannot be sent at once: a message of"):
        pair.client.ask(question("sql", statement="x" * 2000))
    pair.submit(2)
    assert pair.next() == Blob(BLOB, b"function")


def test_the_first_submission_leaves_at_once_and_later_ones_gather(pair: Pair) -> None:
    pair.submit(1, 2, 3)
    assert pair.next() == Blob(BLOB, b"function")
    assert ids(pair.next()) == [1]
    assert pair.has_nothing()
    pair.say(Accepted(1))
    assert ids(pair.next()) == [2, 3]


def test_a_blob_is_sent_once(pair: Pair) -> None:
    pair.submit(1)
    assert isinstance(pair.next(), Blob)
    assert ids(pair.next()) == [1]
    pair.say(Accepted(1))
    pair.submit(2)
    assert ids(pair.next()) == [2]


def test_questions_and_deeds_leave_at_once_behind_what_came_before(pair: Pair) -> None:
    pair.submit(1, 2)
    pair.client.act(Cancel(Dep(On.TASK, 2)))
    said = [pair.next() for _ in range(4)]
    assert [type(message) for message in said] == [Blob, Submit, Submit, DoAction]
    assert ids(said[2]) == [2]


def test_an_answer_reaches_who_asked(pair: Pair) -> None:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(pair.client.ask(question("explain", record=3))))
    thread.start()
    asked = pair.next()
    assert isinstance(asked, Ask)
    assert asked.question == question("explain", record=3)
    pair.say(Answer(asked.request, ["because"]))
    thread.join(60)
    assert found == [["because"]]


def test_a_refused_question_raises(pair: Pair) -> None:
    def refuse() -> None:
        asked = pair.next()
        assert isinstance(asked, Ask)
        pair.say(Refused("no such task", asked.request, "UnknownName"))

    threading.Thread(target=refuse).start()
    with pytest.raises(UserError, match="no such task"):
        pair.client.ask(question("explain", record=3))


def test_of_a_refused_request_only_the_wrong_items_fail(pair: Pair) -> None:
    pair.submit(1, 2, 3)
    pair.next()
    pair.next()
    pair.say(Accepted(1))
    gathered = pair.next()
    assert ids(gathered) == [2, 3]
    assert isinstance(gathered, Submit)
    pair.say(Refused("2 is wrong", gathered.request, "InvalidWorkload"))
    second, third = pair.next(), pair.next()
    assert (ids(second), ids(third)) == ([2], [3])
    assert isinstance(second, Submit)
    assert isinstance(third, Submit)
    pair.say(Refused("2 is wrong", second.request, "InvalidWorkload"), Accepted(third.request))
    until(lambda: pair.refusals)
    ((item, error),) = pair.refusals
    assert isinstance(item, TaskSpec)
    assert item.id == 2
    assert isinstance(error, InvalidWorkload)


def test_callers_are_held_back_while_too_much_is_unheard(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "UNHEARD_ITEMS", 3)
    pair.submit(1, 2, 3)
    thread = threading.Thread(target=pair.submit, args=(4,))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    pair.next()
    pair.next()
    pair.say(Accepted(1))
    thread.join(60)
    assert not thread.is_alive()


def test_what_the_socket_does_not_take_is_sent_on(pair: Pair) -> None:
    payload = b"x" * (4 << 20)
    pair.client.submit(TaskSpec(RecordId(1), task(1).kind, BLOB, payload), len(payload))
    pair.client.submit(task(2), 100)
    message = pair.next()
    assert isinstance(message, Submit)
    assert message.items[0].payload == payload  # type: ignore[union-attr]
    pair.say(Accepted(1))
    assert ids(pair.next()) == [2]


def test_news_reaches_the_ledger_in_order(pair: Pair) -> None:
    news = [TasksSucceeded(RecordId(n), 0, 1, 1) for n in range(1, 4)]
    pair.say(*news[:2])
    pair.say(news[2])
    until(lambda: len(pair.heard) == 3)
    assert pair.heard == news


def test_a_closed_connection_ends_in_good_order(pair: Pair) -> None:
    pair.client.close("drain")
    assert pair.next() == CloseSession("drain")
    pair.say(Closed("done"))
    assert pair.client.ended.wait(60)
    assert pair.lost == [None]
    with pytest.raises(UserError, match="closed"):
        pair.submit(1)


def test_a_lost_server_wakes_everybody(pair: Pair) -> None:
    found: list[BaseException] = []

    def ask() -> None:
        try:
            pair.client.ask(question("status"))
        except PeerLost as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    pair.next()
    pair.theirs.shutdown(socket.SHUT_RDWR)
    thread.join(60)
    assert found
    assert isinstance(pair.lost[0], PeerLost)
    with pytest.raises(PeerLost):
        pair.submit(1)


def test_a_refused_hello_is_raised_by_welcome() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        client = Connection(GiveUp(ours), lambda _: None, lambda *_: None, lambda _: None)
        client.start(ClientHello(1, 2, "here"))
        theirs.sendall(frame(Refused("pid 7 holds it", kind="StoreHeld")))
        with pytest.raises(UserError, match="pid 7"):
            client.welcome()
    assert client.ended.wait(60)


def test_nonsense_from_the_server_ends_the_connection(pair: Pair) -> None:
    pair.theirs.sendall(b"\x00\x00\x00\x02hi")
    assert pair.client.ended.wait(60)
    assert pair.lost[0] is not None
