"""The executor's connection by TLS: nothing hides in the layers below, and nothing is lost on a full socket."""

from __future__ import annotations

import os
import select
import socket
import time
from pathlib import Path

import pytest
from door_workshop import DEADLINE, Door, open_door, wait_for

from bough.errors import PeerLost, UserError
from bough.executor.server_connection import ServerConnection, connect
from bough.model.sites.resources import OWN_PYTHON, Needs
from bough.transport.access import Access, write_access
from bough.wire.client_messages import VERSION, Blob
from bough.wire.executor_messages import Acknowledged, ExecutorHello, Heartbeat, OutputRead
from bough.wire.framing import frame

HELLO = ExecutorHello(VERSION, "far", "node", 1, Needs(1), OWN_PYTHON)


def greet(door: Door, connection: ServerConnection) -> None:
    connection.send(frame(*connection.greeting, HELLO))
    wait_for(lambda: ("execute", HELLO) in door.inside.messages)


def pump(connection: ServerConnection, enough) -> list[object]:
    """The loop of an executor, as far as its connection goes."""
    found: list[object] = []
    deadline = time.monotonic() + DEADLINE
    with select.epoll() as epoll:
        epoll.register(connection.fileno(), select.EPOLLIN)
        while not enough(found):
            assert time.monotonic() < deadline, f"only {len(found)} messages came"
            epoll.modify(connection.fileno(), select.EPOLLIN | (select.EPOLLOUT if connection.pending else 0))
            for _ in epoll.poll(0.1):
                connection.write()
                found += connection.read()
    return found


def test_an_executor_greets_with_its_proof_and_is_heard() -> None:
    with open_door() as door:
        connection = connect(door.access("execute"))
        assert len(connection.greeting) == 1
        greet(door, connection)
        assert door.inside.messages == [("execute", HELLO)]
        connection.close()


def test_an_executor_finds_its_server_by_an_access_file_or_address(tmp_path: Path) -> None:
    with open_door() as door:
        path = str(tmp_path / "access.json")
        write_access(path, door.access("execute"))
        connection = connect(path)
        greet(door, connection)
        connection.close()
        with pytest.raises(UserError, match="use an access file"):
            connect(door.address)


@pytest.mark.parametrize("count", [1, 3, 300])
def test_what_comes_together_is_read_though_epoll_speaks_once(count: int) -> None:
    sizes = [0, 1, 100, 16_384, 16_385, 262_144, 1_000_000]
    blobs = [
        Blob(bytes((n % 256,)) * 16, os.urandom(sizes[n % len(sizes)] // (1 + count // 100))) for n in range(count)
    ]
    with open_door() as door:

        def answer(peer, message) -> None:
            for blob in blobs:
                peer.send(blob)
            peer.send(Acknowledged(1))

        door.inside.answer = answer
        connection = connect(door.access("execute"))
        connection.send(frame(*connection.greeting, HELLO))
        found = pump(connection, lambda found: len(found) > count)
        assert found == [*blobs, Acknowledged(1)]
        connection.close()


def test_a_frame_bigger_than_every_buffer_arrives() -> None:
    blob = Blob(b"x" * 16, os.urandom(1 << 20) * 24)
    with open_door() as door:
        door.inside.answer = lambda peer, _message: peer.send(blob)
        connection = connect(door.access("execute"))
        connection.send(frame(*connection.greeting, HELLO))
        assert pump(connection, len) == [blob]
        connection.close()


def test_much_is_sent_though_the_server_does_not_read_for_a_while() -> None:
    with open_door() as door:
        peers: list = []

        def answer(peer, message) -> None:
            if isinstance(message, ExecutorHello):
                peer.pause(on=True)
                peers.append(peer)
            elif isinstance(message, Heartbeat):
                peer.send(Acknowledged(9))

        door.inside.answer = answer
        connection = connect(door.access("execute"))
        connection.send(frame(*connection.greeting, HELLO))
        wait_for(lambda: bool(peers))
        pieces = [OutputRead(n, os.urandom(1000) * 3000) for n in range(8)]
        for piece in pieces:
            connection.send(frame(piece))
        assert connection.pending
        connection.send(frame(Heartbeat()))
        door.call(lambda: peers[0].pause(on=False))
        assert pump(connection, len) == [Acknowledged(9)]
        assert not connection.pending
        assert [message for _, message in door.inside.messages] == [HELLO, *pieces, Heartbeat()]
        connection.close()


def test_a_server_that_hangs_up_is_noticed_by_reading() -> None:
    with open_door() as door:
        door.inside.answer = lambda peer, _message: (peer.send(Acknowledged(3)), peer.close())
        connection = connect(door.access("execute"))
        connection.send(frame(*connection.greeting, HELLO))
        assert pump(connection, lambda _: connection.lost) == [Acknowledged(3)]
        connection.send(frame(Heartbeat()))  # never fails
        connection.close()


def test_a_server_that_speaks_another_language_counts_as_lost(capsys: pytest.CaptureFixture[str]) -> None:
    with open_door() as door:
        door.inside.answer = lambda peer, _message: peer._transport.write(b"\xff" * 100)
        connection = connect(door.access("execute"))
        connection.send(frame(*connection.greeting, HELLO))
        assert pump(connection, lambda _: connection.lost) == []
        assert "over the limit" in capsys.readouterr().err
        connection.close()


def test_a_connection_is_opened_while_it_is_read_and_written() -> None:
    with open_door() as door:
        door.inside.answer = lambda peer, _message: peer.send(Acknowledged(4))
        connection = connect(door.access("execute"), wait=False)
        number = connection.fileno()
        connection.send(frame(*connection.greeting, HELLO))
        assert pump(connection, len) == [Acknowledged(4)]
        assert connection.fileno() == number
        assert door.inside.messages == [("execute", HELLO)]
        connection.close()


def test_an_opening_that_fails_is_noticed_by_reading(capsys: pytest.CaptureFixture[str]) -> None:
    with open_door() as door:
        access = door.access("execute")
        wrong = connect(door.access("execute", fingerprint="0" * 64), wait=False)
        wrong.send(frame(HELLO))
        assert pump(wrong, lambda _: wrong.lost) == []
        assert "is not the one whose certificate" in capsys.readouterr().err
        assert wrong.fileno() >= 0  # so that it can be unregistered
        wrong.close()
        assert door.inside.messages == []
    gone = connect(access, wait=False)
    assert pump(gone, lambda _: gone.lost) == []
    gone.close()
    assert capsys.readouterr().err == ""


def test_an_opening_does_not_wait_for_a_silent_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        connection = connect(Access(address, "0" * 64, "execute", "A" * 43), wait=False)
        connection.send(frame(HELLO))
        rounds = []
        pump(connection, lambda _: rounds.append(1) or len(rounds) > 3)
        assert not connection.lost
        connection.close()


def test_a_unix_socket_has_no_greeting(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        connection = connect(f"unix:{path}")
        assert connection.greeting == []
        connection.close()


def test_a_server_that_is_not_there_is_a_transient_loss(tmp_path: Path) -> None:
    with pytest.raises(PeerLost) as found:
        connect(f"unix:{tmp_path / 's'}")
    assert found.value.transient
    with pytest.raises(UserError, match="use unix:PATH"):
        connect("unix:")
