"""The connection of an emulated executor, against a socket that takes little and says things in pieces."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bough.errors import PeerLost, ProtocolError
from bough.testing.emulated_connection import EmulatedConnection, EmulatedReader
from bough.transport.access import Access
from bough.wire.executor_messages import Acknowledged, Drain
from bough.wire.framing import frame

Ends = tuple[EmulatedConnection, socket.socket]


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        line = EmulatedConnection(Access(f"unix:{tmp_path / 'socket'}"), bytearray(b"hello"))
        server, _ = listener.accept()
    with server:
        assert server.recv(100) == b"hello"
        yield line, server
        line.close()


def test_messages_that_come_in_pieces_are_put_together(ends: Ends) -> None:
    line, server = ends
    reader = EmulatedReader()
    data = bytes(frame(Acknowledged(1), Acknowledged(2)) + frame(Drain()))
    heard = []
    for at in range(len(data)):
        server.sendall(data[at : at + 1])
        heard += line.read(reader)
    assert heard == [Acknowledged(1), Acknowledged(2), Drain()]
    server.sendall(data[:3])
    assert line.read(reader) == []
    server.sendall(data[3:] + data[:7])
    assert line.read(reader) == [Acknowledged(1), Acknowledged(2), Drain()]


def test_what_is_sent_is_left_as_it_is_and_arrives_whole(ends: Ends) -> None:
    """A report is kept for being said again, so that nobody may change it."""
    line, server = ends
    big = bytearray(range(256)) * 20_000
    kept = bytes(big)
    line.send(big)
    line.send(big)
    assert line.wants_write
    arrived = bytearray()
    while len(arrived) < 2 * len(kept):
        arrived += server.recv(1 << 20)
        line.write()
    assert arrived == kept + kept
    assert big == kept
    assert not line.wants_write


def test_the_end_of_the_stream_is_noticed_by_reading(ends: Ends) -> None:
    line, server = ends
    server.sendall(bytes(frame(Drain())))
    server.close()
    reader = EmulatedReader()
    assert line.read(reader) == [Drain()]
    assert line.read(reader) == []
    assert line.lost
    line.send(bytearray(b"nobody hears this"))


def test_a_frame_over_the_limit_is_refused(ends: Ends) -> None:
    line, server = ends
    server.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(ProtocolError, match="over the limit"):
        line.read(EmulatedReader())


def test_nobody_there_is_a_lost_peer(tmp_path: Path) -> None:
    with pytest.raises(PeerLost, match="cannot be reached"):
        EmulatedConnection(Access(f"unix:{tmp_path / 'nothing'}"), bytearray(b"hello"))
