"""Quotas: what a peer may have open at a time; an honest one is slowed down, one that does not read is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest
from server_fakes import FakeTransport

from bough.server.peer_connection import PeerConnection
from bough.server.peer_quotas import FREE, QUOTAS, Quotas
from bough.testing.builders import question
from bough.wire.client_messages import VERSION, Accepted, Answer, Ask, Blob, ClientHello, GroupFinished, Refused, Submit
from bough.wire.executor_messages import FromExecutor, Heartbeat
from bough.wire.file_messages import FilePiece, GetPiece
from bough.wire.framing import frame

HELLO = ClientHello(VERSION, 1, "here")


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))


class Ears:
    """Keeps what arrives, and answers when the test says so."""

    def __init__(self) -> None:
        self.heard_ones: list[object] = []
        self.lost_ones: list[PeerConnection] = []

    def on_messages(self, connection: PeerConnection, messages: list[Any]) -> None:
        self.heard_ones += messages

    def on_lost(self, connection: PeerConnection) -> None:
        self.lost_ones.append(connection)


class Peer:
    def __init__(self, role: str = "read", quotas: Quotas | None = None) -> None:
        self.ears, self.transport = Ears(), FakeTransport()
        self.connection = PeerConnection(self.ears, [], quotas=quotas)
        self.connection.role = role
        self.connection.connection_made(self.transport)

    def say(self, *messages: object) -> None:
        self.connection.data_received(bytes(frame(*messages)))

    @property
    def heard(self) -> list[object]:
        return self.ears.heard_ones

    @property
    def refusals(self) -> list[str]:
        return [message.message for message in self.transport.said() if isinstance(message, Refused)]


def few(**limits: int) -> Quotas:
    return Quotas({role: msgspec.structs.replace(quota, **limits) for role, quota in QUOTAS.items()})


def sized(size: int) -> bytes:
    return size.to_bytes(4, "big")


@pytest.mark.parametrize(("role", "size"), [("read", 1 << 20), ("execute", 1 << 26), ("submit", 1 << 30)])
def test_each_role_has_a_frame_size_and_what_is_over_it_is_refused_by_its_length_alone(role: str, size: int) -> None:
    peer, other = Peer(role), Peer(role)
    peer.connection.data_received(sized(size))
    assert peer.refusals == []
    other.connection.data_received(sized(size + 1))
    assert other.refusals == [f"a frame of {size + 1} bytes is over the limit of {size}"]
    assert other.transport.closed


def test_a_peer_with_many_requests_open_is_read_on_when_some_are_answered() -> None:
    async def work() -> None:
        peer = Peer("read", few(requests=3, at_once=2))
        peer.say(HELLO, *(Ask(number, question("status")) for number in range(1, 9)))
        assert peer.heard == [HELLO, *(Ask(number, question("status")) for number in range(1, 4))]
        assert peer.transport.paused
        peer.connection.send(Answer(2))
        await asyncio.sleep(0)
        assert peer.heard[-1] == Ask(4, question("status"))
        assert peer.transport.paused
        for number in (1, 3, 4, 5, 6):
            peer.connection.send(Answer(number) if number % 2 else Refused("no", number))
            await asyncio.sleep(0)
        assert peer.heard[-1] == Ask(8, question("status"))
        assert not peer.transport.paused

    run(work())


def test_submissions_count_until_they_are_acknowledged_together() -> None:
    async def work() -> None:
        peer = Peer("submit", few(requests=2, at_once=2))
        peer.say(HELLO, *(Submit([], number) for number in range(1, 5)))
        assert peer.heard == [HELLO, Submit([], 1), Submit([], 2)]
        peer.connection.send(Accepted(2))
        await asyncio.sleep(0)
        assert peer.heard[-1] == Submit([], 4)
        peer.say(Submit([], 5))
        assert peer.transport.paused
        peer.connection.send(Refused("no", 3))
        await asyncio.sleep(0)
        assert peer.heard[-1] == Submit([], 5)
        assert not peer.transport.paused

    run(work())


def test_what_needs_no_answer_passes_but_not_what_stands_behind_a_request_that_waits() -> None:
    peer = Peer("execute", few(requests=1, at_once=1))
    get = GetPiece(1, b"d" * 32, 0, 10)
    peer.say(Heartbeat(), get, Heartbeat(), get, Heartbeat())
    peer.say(Heartbeat())
    assert peer.heard == [Heartbeat(), get, Heartbeat()]

    async def work() -> None:
        peer.connection.send(FilePiece(1, 0, b"x"))
        await asyncio.sleep(0)
        assert peer.heard[3:] == [get, Heartbeat(), Heartbeat()]

    run(work())


def test_a_client_that_does_not_read_its_answers_is_asked_to_wait_with_its_next_question() -> None:
    peer = Peer("read")
    peer.connection.pause_writing()
    peer.say(HELLO, Ask(1, question("status")))
    assert peer.heard == [HELLO]
    assert peer.transport.paused
    peer.connection.resume_writing()
    assert peer.heard[-1] == Ask(1, question("status"))
    assert not peer.transport.paused


def test_a_thousand_questions_in_one_frame_of_a_reader_are_refused() -> None:
    peer = Peer("read")
    peer.say(*(Ask(number, question("status")) for number in range(1, 2000)))
    assert peer.refusals == ["1999 messages came at once, the limit is 1000"]
    peer.say(Ask(1, question("status")))  # nobody listens any more
    assert peer.heard == []


def test_who_does_not_read_what_it_is_told_is_cut_off_but_not_for_one_big_answer() -> None:
    peer = Peer("read")
    peer.connection.send(Answer(1, bytes(QUOTAS["read"].unsent + 10)))
    peer.transport.unsent = QUOTAS["read"].unsent + 100
    peer.connection.send(GroupFinished(1, failed=False))
    assert not peer.transport.closed
    peer.transport.unsent *= 3
    peer.connection.send(GroupFinished(2, failed=False))
    assert peer.transport.closed


def test_the_store_and_the_quota_each_stop_reading_for_themselves() -> None:
    async def work() -> None:
        peer = Peer("read", few(requests=1))
        peer.say(HELLO, Ask(1, question("status")))
        peer.connection.pause(on=True)
        peer.connection.send(Answer(1))
        await asyncio.sleep(0)
        assert peer.transport.paused
        peer.connection.pause(on=False)
        assert not peer.transport.paused

    run(work())


def test_connections_of_a_role_are_counted_and_one_that_is_gone_makes_room() -> None:
    quotas = few(connections=2)
    first, second, third = (Peer("read", quotas) for _ in range(3))
    assert third.refusals == ["2 connections of the role read are open already"]
    assert third.transport.closed
    third.connection.connection_lost(None)
    assert Peer("submit", quotas).refusals == []
    first.connection.connection_lost(None)
    second.say(HELLO)
    assert second.heard == [HELLO]
    assert Peer("read", quotas).refusals == []


# --- bytes of incomplete frames ------------------------------------------------------------------------------


def test_incomplete_frames_of_a_role_are_bounded_and_one_of_them_becomes_complete() -> None:
    async def work() -> None:
        quotas = few(held=10 * FREE)
        data = bytes(frame(Blob(b"i" * 16, bytes(8 * FREE))))
        one, other, third = (Peer("submit", quotas) for _ in range(3))
        one.connection.data_received(data[: 6 * FREE])
        other.connection.data_received(data[: 3 * FREE])
        assert not other.transport.paused
        third.connection.data_received(data[: 5 * FREE])  # too much: the one that says so first is read on
        assert not third.transport.paused
        for peer in (one, other):
            peer.connection.data_received(data[:1])
            assert peer.transport.paused
        third.connection.data_received(data[5 * FREE :])
        assert len(third.heard) == 1
        assert not one.transport.paused
        assert not other.transport.paused

        reader = Peer("read", quotas)  # another role has a share of its own
        reader.connection.data_received(data[: 3 * FREE])
        assert not reader.transport.paused

    run(work())


def test_the_bytes_of_a_connection_that_is_gone_count_no_more() -> None:
    async def work() -> None:
        quotas = few(held=5 * FREE)
        one, other, third = (Peer("submit", quotas) for _ in range(3))
        for peer in (one, other, third):
            peer.connection.data_received(sized(8 * FREE) + bytes(2 * FREE))
        assert third.connection.is_stopped is False  # it is the one that is read on
        one.connection.data_received(b"x")
        assert one.transport.paused
        third.connection.connection_lost(None)
        other.connection.connection_lost(None)
        assert not one.transport.paused

    run(work())


def test_a_frame_that_does_not_grow_while_others_wait_for_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bough.server.peer_quotas._PATIENCE", 0.01)

    async def work() -> None:
        quotas = few(held=5 * FREE)
        stalled, waiting = Peer("execute", quotas), Peer("execute", quotas)
        stalled.connection.data_received(sized(64 * FREE) + bytes(6 * FREE))
        waiting.connection.data_received(sized(8 * FREE) + bytes(2 * FREE))
        assert waiting.transport.paused
        while not stalled.transport.closed:
            await asyncio.sleep(0.005)
        stalled.connection.connection_lost(None)
        assert not waiting.transport.paused

    run(work())


def test_small_incomplete_frames_are_nobody_s_concern() -> None:
    quotas = few(held=1)
    for _ in range(3):
        peer = Peer("read", quotas)
        peer.connection.data_received(sized(FREE) + bytes(FREE - 10))
        assert not peer.transport.paused


def test_what_is_kept_grows_with_what_has_arrived_and_not_with_what_is_promised() -> None:
    import tracemalloc

    peer = Peer("submit")
    tracemalloc.start()
    peer.connection.data_received(sized(1 << 30))
    for _ in range(64):
        peer.connection.data_received(bytes(4096))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 << 20


def test_all_messages_that_are_counted_are_ones_that_executors_or_clients_say() -> None:
    from bough.server import peer_connection
    from bough.wire.client_messages import FromClient

    said = set((FromClient | FromExecutor).__args__)
    assert said >= peer_connection._ANSWERED
