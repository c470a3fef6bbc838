"""Executors at a relay that shares out work: what one of them says concerns nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bough.relay.member_connections import MemberConnection
from bough.wire.client_messages import Refused
from bough.wire.executor_messages import Heartbeat
from bough.wire.framing import Frames, frame
from bough.wire.handshake import ROLE_FRAME


class Socket(asyncio.Transport):
    """A transport without a network."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


class Broken:
    """A relay that cannot handle what it hears."""

    def heard(self, link: MemberConnection, messages: list[Any]) -> None:
        raise KeyError("span 7")

    def lost(self, link: MemberConnection) -> None:
        pass


def come() -> tuple[MemberConnection, Socket]:
    link, sock = MemberConnection(Broken()), Socket()
    link.connection_made(sock)
    return link, sock


def test_what_cannot_be_handled_is_logged_and_cuts_off_who_said_it(capsys: pytest.CaptureFixture[str]) -> None:
    link, sock = come()
    link.data_received(bytes(frame(Heartbeat())))
    assert sock.closed
    assert "what an executor sent could not be handled" in capsys.readouterr().err


def test_a_frame_over_the_limit_of_executors_is_refused_by_its_length_alone() -> None:
    link, sock = come()
    link.data_received((ROLE_FRAME["execute"] + 1).to_bytes(4, "big"))
    (refused,) = Frames[Refused](Refused).feed(sock.sent)
    assert "over the limit" in refused.message
    assert sock.closed


@pytest.mark.parametrize(
    ("place", "local"),
    [
        (("127.0.0.1", 1), True),
        (("::1", 1, 0, 0), True),
        ("", True),
        (("::ffff:127.0.0.1", 1, 0, 0), True),
        (("10.0.0.1", 1), False),
        (("fe80::1%2", 1), False),
    ],
)
def test_who_comes_from_this_host_is_known_by_the_network(place: object, local: bool) -> None:
    connection = MemberConnection(Broken())  # type: ignore[arg-type]
    assert not connection.is_local
    socket = Socket()
    socket._extra = {"peername": place}  # type: ignore[attr-defined]
    connection.connection_made(socket)
    assert connection.is_local is local
