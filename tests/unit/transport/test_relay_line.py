from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from bough.transport.relay_line import Channel, RelayLine
from bough.wire.executor_messages import Heartbeat
from bough.wire.framing import Frames, frame
from bough.wire.relay_channels import (
    WINDOW,
    ChannelClosed,
    ChannelData,
    ChannelOpened,
    FromRelay,
    RelayWelcome,
    ToRelay,
)

DEADLINE = 60.0
_joined: list[RelayLine] = []  # what a test has to hang up at its end


def run(work: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                await work
        finally:
            for line in _joined:
                line.abort("the test is over")
            await asyncio.sleep(0.01)
            _joined.clear()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(in_time())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


class Peer(asyncio.Protocol):
    """Notes what happens to it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lost = 0
        self.paused: list[bool] = []
        self.transport: Channel | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def pause_writing(self) -> None:
        self.paused.append(True)

    def resume_writing(self) -> None:
        self.paused.append(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost += 1


class Server:
    """A server's end: for every channel a peer."""

    def __init__(self) -> None:
        self.peers: dict[int, Peer] = {}
        self.reasons: list[str] = []
        self.line = RelayLine(FromRelay, opens=False, on_opened=self.opened, on_lost=self.reasons.append)

    def opened(self, channel: Channel, _: str) -> None:
        peer = self.peers[channel.number] = Peer()
        channel.begin(peer)


async def join(relay: RelayLine, server: Server) -> None:
    """Tie both ends together by a socket."""
    one, other = socket.socketpair()
    loop = asyncio.get_running_loop()
    _joined.extend((relay, server.line))
    await loop.create_unix_connection(lambda: relay, sock=one)
    await loop.create_unix_connection(lambda: server.line, sock=other)


async def make_pair() -> tuple[RelayLine, Server]:
    relay, server = RelayLine(ToRelay, opens=True), Server()
    await join(relay, server)
    return relay, server


class Wire(asyncio.Transport):
    """A transport that keeps every write apart."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    def messages(self) -> list[list[object]]:
        return [Frames(FromRelay | RelayWelcome).feed(data) for data in self.writes]


def test_streams_of_many_channels_arrive_whole_in_both_directions() -> None:
    async def work() -> None:
        dice = random.Random(1)
        relay, server = await make_pair()
        near = [Peer() for _ in range(20)]
        for peer in near:
            relay.open(peer, "here")
        await until(lambda: len(server.peers) == 20)
        far = list(server.peers.values())
        sent = {peer: bytearray() for peer in (*near, *far)}
        for _ in range(300):
            peer = dice.choice([*near, *far])
            data = dice.randbytes(dice.choice((1, 100, 10_000, 300_000)))
            sent[peer] += data
            peer.transport.write(data)
        for one, other in zip(near, far, strict=True):
            await until(lambda one=one, other=other: len(one.data) == len(sent[other]))
            await until(lambda one=one, other=other: len(other.data) == len(sent[one]))
            assert one.data == sent[other]
            assert other.data == sent[one]
        relay.abort("over")
        await until(lambda: all(peer.lost for peer in (*near, *far)))

    run(work())


def test_all_that_is_written_in_one_round_leaves_in_one_write() -> None:
    async def work() -> None:
        line, wire = RelayLine(ToRelay, opens=True), Wire()
        line.connection_made(wire)
        peers = [Peer() for _ in range(5)]
        for peer in peers:
            line.open(peer, "")
        await asyncio.sleep(0)
        wire.writes.clear()

        for _ in range(2):
            for peer in peers:
                peer.transport.write(b"x")
        assert wire.writes == []
        await asyncio.sleep(0)

        assert wire.messages() == [[ChannelData(number, b"xx") for number in range(1, 6)]]

    run(work())


def test_a_reader_that_pauses_holds_up_its_own_writer_and_nobody_else() -> None:
    async def work() -> None:
        relay, server = await make_pair()
        slow, quick = Peer(), Peer()
        relay.open(slow, "")
        relay.open(quick, "")
        await until(lambda: len(server.peers) == 2)
        server.peers[1].transport.pause_reading()
        assert not server.peers[1].transport.is_reading()

        slow.transport.write(bytes(3 * WINDOW))
        quick.transport.write(bytes(3 * WINDOW))
        await until(lambda: len(server.peers[2].data) == 3 * WINDOW)

        assert len(server.peers[1].data) == 0
        assert slow.transport.get_write_buffer_size() == 2 * WINDOW
        assert slow.paused == [True]
        assert quick.paused == [True, False]

        server.peers[1].transport.resume_reading()
        await until(lambda: len(server.peers[1].data) == 3 * WINDOW)
        await until(lambda: slow.paused == [True, False])

    run(work())


def test_a_line_that_cannot_send_makes_the_writers_pause_until_it_can() -> None:
    async def work() -> None:
        line, wire, peer = RelayLine(ToRelay, opens=True), Wire(), Peer()
        line.connection_made(wire)
        line.open(peer, "")
        await asyncio.sleep(0)
        wire.writes.clear()
        line.pause_writing()

        for _ in range(10):
            peer.transport.write(bytes(50_000))
        await asyncio.sleep(0)
        assert wire.writes == []
        assert peer.paused == [True]

        line.resume_writing()
        await asyncio.sleep(0)
        assert sum(len(message.data) for batch in wire.messages() for message in batch) == 500_000
        assert peer.paused == [True, False]

    run(work())


def test_a_channel_that_is_closed_delivers_its_last_words_and_ends_at_both_sides() -> None:
    async def work() -> None:
        relay, server = await make_pair()
        near = Peer()
        relay.open(near, "")
        await until(lambda: server.peers)
        far = server.peers[1]
        far.transport.write(bytes(1_000_000))
        far.transport.close()
        far.transport.write(b"never")

        await until(lambda: near.lost)
        assert len(near.data) == 1_000_000
        await until(lambda: far.lost)
        assert far.transport.is_closing()
        assert near.transport.is_closing()
        assert len(relay) == len(server.line) == len(relay.channels) == len(server.line.channels) == 0
        near.transport.close()
        near.transport.abort()
        await asyncio.sleep(0.01)
        assert (near.lost, far.lost) == (1, 1)
        assert relay.is_open

    run(work())


def test_what_was_kept_for_a_paused_reader_is_passed_on_when_the_channel_ends() -> None:
    async def work() -> None:
        relay, server = await make_pair()
        near = Peer()
        relay.open(near, "")
        await until(lambda: server.peers)
        near.transport.pause_reading()
        server.peers[1].transport.write(b"last word")
        server.peers[1].transport.close()
        await until(lambda: near.lost)
        assert near.data == b"last word"

    run(work())


def test_a_line_on_a_channel_of_a_line_carries_channels_too() -> None:
    async def work() -> None:
        outer, server = await make_pair()
        inner, behind = RelayLine(ToRelay, opens=True), Server()

        def second_server(channel: Channel, _: str) -> None:
            channel.begin(behind.line)

        server.line._on_opened = second_server
        outer.open(inner, "the second relay")
        near = Peer()
        inner.open(near, "an executor")
        await until(lambda: behind.peers)
        near.transport.write(bytes(3 * WINDOW))
        behind.peers[1].transport.write(bytes(3 * WINDOW))
        await until(lambda: len(near.data) == len(behind.peers[1].data) == 3 * WINDOW)

        outer.abort("cut")
        await until(lambda: near.lost and behind.peers[1].lost and behind.reasons)

    run(work())


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff\xff", b"\0\0\0\x01\xc1", b"\0\0\0\x05hello"])
def test_a_peer_that_speaks_nonsense_loses_its_line(garbage: bytes) -> None:
    async def work() -> None:
        server = Server()
        one, other = socket.socketpair()
        await asyncio.get_running_loop().create_unix_connection(lambda: server.line, sock=other)
        with one:
            one.sendall(garbage)
            await until(lambda: server.reasons)
        assert "frame" in server.reasons[0]

    run(work())


def test_a_silent_line_is_kept_alive_and_a_dead_one_is_given_up() -> None:
    async def work() -> None:
        relay, server = await make_pair()
        relay.watch(0.2)
        server.line.watch(0.2)
        await asyncio.sleep(0.6)
        assert relay.is_open
        assert server.line.is_open

        dead, wire = RelayLine(ToRelay, opens=True), Wire()
        dead.connection_made(wire)
        dead.watch(0.1)
        await until(lambda: wire.aborted)
        assert [Heartbeat()] in [Frames(FromRelay).feed(data) for data in wire.writes]

    run(work())


def test_an_end_that_opens_channels_without_end_and_reads_nothing_is_cut_off() -> None:
    async def work() -> None:
        line, wire = RelayLine(FromRelay, opens=False, on_opened=lambda channel, _: channel.abort()), Wire()
        line.connection_made(wire)
        line.pause_writing()
        for number in range(1, 200_000, 1000):
            line.data_received(bytes(frame(*(ChannelOpened(number + at) for at in range(1000)))))
            if wire.aborted:
                break
        assert wire.aborted
        assert line.channels.unsaid < 100_000

    run(work())


def test_an_aborted_channel_says_so_before_anything_else() -> None:
    async def work() -> None:
        line, wire, peer = RelayLine(ToRelay, opens=True), Wire(), Peer()
        line.open(peer, "10.0.0.7")
        peer.transport.write(b"never")
        peer.transport.abort()
        line.connection_made(wire)
        await asyncio.sleep(0)
        assert wire.messages() == [[ChannelOpened(1, "10.0.0.7"), ChannelClosed(1)]]
        assert peer.lost == 1

    run(work())
