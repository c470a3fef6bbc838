from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from bough.relay.forward import ForwardedPeer, ForwardedPeers
from bough.transport.relay_line import RelayLine
from bough.wire.client_messages import Refused
from bough.wire.framing import Frames, frame
from bough.wire.relay_channels import (
    CHUNK,
    WINDOW,
    ChannelClosed,
    ChannelCredit,
    ChannelData,
    ChannelOpened,
    FromRelay,
    ToRelay,
)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))


class Socket(asyncio.Transport):
    """A transport without a network."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.7", 1)})
        self.sent = bytearray()
        self.closed = False
        self.reading = True

    def write(self, data: bytes) -> None:
        self.sent += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def take(self, union: object) -> list[object]:
        data, self.sent = bytes(self.sent), bytearray()
        return Frames(union).feed(data)


def linked() -> tuple[ForwardedPeers, RelayLine, Socket]:
    """Guests with a line whose other end is in our hands."""
    upstream, line = Socket(), RelayLine(ToRelay, opens=True)
    line.connection_made(upstream)
    guests = ForwardedPeers()
    guests.line = line
    return guests, line, upstream


def come(guests: ForwardedPeers) -> tuple[ForwardedPeer, Socket]:
    guest, sock = guests.gate("10.0.0.7"), Socket()
    guest.connection_made(sock)
    return guest, sock


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_bytes_of_a_guest_go_up_its_channel_and_answers_come_down() -> None:
    async def work() -> None:
        guests, line, upstream = linked()
        guest, sock = come(guests)
        guest.data_received(b"hello")
        await settle()
        assert upstream.take(FromRelay) == [ChannelOpened(1, "10.0.0.7"), ChannelData(1, b"hello")]

        line.data_received(bytes(frame(ChannelData(1, b"answer"))))
        assert sock.sent == b"answer"

    run(work())


def test_a_guest_that_leaves_shuts_its_channel_behind_its_last_words() -> None:
    async def work() -> None:
        guests, _, upstream = linked()
        guest, _ = come(guests)
        guest.data_received(b"bye")
        guest.connection_lost(None)
        await settle()
        assert upstream.take(FromRelay)[1:] == [ChannelData(1, b"bye"), ChannelClosed(1)]
        assert guest.over.done()

    run(work())


def test_a_channel_that_the_server_shuts_closes_the_guest_behind_the_last_words() -> None:
    async def work() -> None:
        guests, line, _ = linked()
        _, sock = come(guests)
        line.data_received(bytes(frame(ChannelData(1, b"no"), ChannelClosed(1))))
        await settle()
        assert sock.sent == b"no"
        assert sock.closed

    run(work())


def test_a_slow_server_pauses_the_guests_and_a_slow_guest_grants_nothing() -> None:
    async def work() -> None:
        guests, line, upstream = linked()
        (flooding, flood), (_, calm) = come(guests), come(guests)
        await settle()
        line.pause_writing()
        flooding.data_received(bytes(CHUNK + 1))
        assert not flood.reading
        assert calm.reading
        line.resume_writing()
        await settle()
        assert flood.reading
        upstream.sent.clear()

        flooding.pause_writing()
        for _ in range(WINDOW // CHUNK):
            line.data_received(bytes(frame(ChannelData(1, bytes(CHUNK)), ChannelData(2, bytes(CHUNK)))))
        await settle()
        assert flood.sent == b""
        assert len(calm.sent) == WINDOW
        assert {message.channel for message in upstream.take(FromRelay) if type(message) is ChannelCredit} == {2}

        flooding.resume_writing()
        await settle()
        assert len(flood.sent) == WINDOW
        assert {message.channel for message in upstream.take(FromRelay) if type(message) is ChannelCredit} == {1}

    run(work())


def test_all_guests_are_let_go_with_the_line_and_new_ones_are_told_why() -> None:
    async def work() -> None:
        guests, line, _ = linked()
        _, sock = come(guests)
        line.connection_lost(None)
        guests.line = None
        await settle()
        assert sock.closed

        guest, late = come(guests)
        assert late.closed
        assert [message.kind for message in late.take(Refused)] == ["PeerLost"]
        guest.connection_lost(None)

    run(work())


def test_a_guest_is_a_stranger_until_the_server_speaks_to_it_again() -> None:
    async def work() -> None:
        guests, line, _ = linked()
        (one, one_sock), (other, other_sock) = come(guests), come(guests)
        line.data_received(bytes(frame(ChannelData(1, b"challenge"), ChannelData(2, b"challenge"))))
        assert not one.over.done()
        line.data_received(bytes(frame(ChannelData(1, b"appointed"))))
        assert one.over.done()

        for guest in (one, other):
            guest.give_up("others came")
        assert not one_sock.closed
        assert other_sock.closed

    run(work())
