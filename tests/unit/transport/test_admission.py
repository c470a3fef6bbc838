"""The door: an honest peer gets in, everybody else is refused with a line in the log, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import threading

import pytest
from door_workshop import DEADLINE, HELLO, Door, hear_end, open_door, wait_for

from bough.errors import PeerLost, ProtocolError, SiteError, UserError
from bough.server.peer_connection import PeerConnection
from bough.transport.access import rotate_token, secret, token_path
from bough.transport.admission import PeerListener
from bough.transport.dial import dial
from bough.transport.tls import client_context, make_certificate, server_context
from bough.wire import handshake
from bough.wire.client_messages import VERSION, Ask, Proof, Refused
from bough.wire.framing import frame, to_client_frames
from tests.builders import question


@pytest.mark.parametrize("fast", [True, False], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("role", ["submit", "execute", "read"])
def test_who_knows_the_token_of_a_role_gets_in_with_that_role(role: str, fast: bool) -> None:
    with open_door(fast=fast) as door, door.enter(role).sock as sock:
        sock.sendall(frame(Ask(7, question("status"))))
        wait_for(lambda: len(door.inside.messages) == 2)
        assert door.inside.messages == [(role, HELLO), (role, Ask(7, question("status")))]
        assert door.lines == []


def test_what_comes_right_behind_the_proof_is_heard_in_order() -> None:
    with open_door() as door:
        sock, proof, _ = dial(door.access(), DEADLINE)
        asks = [Ask(n, question("status")) for n in range(500)]
        with sock:
            sock.sendall(frame(proof, HELLO) + frame(*asks[:250]) + frame(*asks[250:]))
            wait_for(lambda: len(door.inside.messages) == 501)
        assert [message for _, message in door.inside.messages] == [HELLO, *asks]


def test_a_first_frame_may_come_byte_by_byte() -> None:
    with open_door() as door:
        sock, proof, _ = dial(door.access(), DEADLINE)
        with sock:
            for byte in bytes(frame(proof, HELLO)):
                sock.sendall(bytes((byte,)))
            wait_for(lambda: door.inside.messages == [("submit", HELLO)])


def test_the_end_of_a_peer_that_was_let_in_is_told() -> None:
    with open_door() as door:
        door.enter().sock.close()
        wait_for(lambda: door.inside.lost_count == 1)
        assert door.lines == []


def test_a_wrong_token_is_refused() -> None:
    with open_door() as door:
        sock, proof, _ = dial(door.access("submit", token="A" * 43), DEADLINE)
        with sock:
            sock.sendall(frame(proof, HELLO))
            (refused,) = to_client_frames().feed(hear_end(sock))
        assert isinstance(refused, Refused)
        assert "the token was refused" in refused.message
        assert door.inside.messages == []
        assert door.lines == ["a connection from 127.0.0.1 was refused: its proof for the role submit does not hold"]
        assert door.still_serves()


def test_a_token_of_one_role_is_none_of_another() -> None:
    with open_door() as door:
        read = door.access("read").token
        sock, proof, _ = dial(door.access("submit", token=read), DEADLINE)
        with sock:
            sock.sendall(frame(proof, HELLO))
            assert b"refused" in hear_end(sock)
        assert door.inside.messages == []


def test_a_rotated_token_counts_at_once_and_the_old_one_no_more() -> None:
    with open_door() as door:
        old = door.access().token
        rotate_token("submit")
        sock, proof, _ = dial(door.access(token=old), DEADLINE)
        with sock:
            sock.sendall(frame(proof, HELLO))
            assert b"refused" in hear_end(sock)
        assert door.still_serves()


def test_a_token_that_others_can_read_lets_nobody_in() -> None:
    import os

    with open_door() as door:
        sock, proof, _ = dial(door.access(), DEADLINE)
        os.chmod(token_path("submit"), 0o644)
        with sock:
            sock.sendall(frame(proof, HELLO))
            assert b"cannot check tokens" in hear_end(sock)
        assert door.inside.messages == []
        assert f"chmod 600 {token_path('submit')}" in door.lines[0]
        os.chmod(token_path("submit"), 0o600)
        assert door.still_serves()


def test_a_replayed_handshake_is_refused() -> None:
    with open_door() as door:
        sock, proof, _ = dial(door.access(), DEADLINE)
        recorded = bytes(frame(proof, HELLO))
        with sock:
            sock.sendall(recorded)
            wait_for(lambda: door.inside.messages == [("submit", HELLO)])
        with door.raw() as again:
            again.sendall(recorded)
            assert b"the token was refused" in hear_end(again)
        assert len(door.inside.messages) == 1
        assert door.still_serves()


def test_a_server_of_another_version_is_noticed_before_anything_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bough.transport.admission.VERSION", VERSION + 1)
    with open_door() as door, pytest.raises(ProtocolError, match="install the same Bough on both"):
        dial(door.access(), DEADLINE)


def test_a_proof_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_door() as door:
        with monkeypatch.context() as patch:
            patch.setattr(handshake, "VERSION", VERSION + 1)
            sock, proof, _ = dial(door.access(), DEADLINE)
        with sock:
            sock.sendall(frame(proof, HELLO))
            assert b"the token was refused" in hear_end(sock)
        assert door.still_serves()


@pytest.mark.parametrize("role", ["owner", "", "root", "../submit"])
def test_a_role_that_is_none_is_refused(role: str) -> None:
    with open_door() as door, door.raw() as sock:
        sock.sendall(frame(Proof(role, b"n" * 32, b"m" * 32), HELLO))
        assert b"the token was refused" in hear_end(sock)
        assert door.inside.messages == []


@pytest.mark.parametrize("fast", [True, False], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\xff" * 4000,
        b"\xff\xff\xff\xff",  # a frame of 4 GB
        b"\0\0\0\0",
        bytes(frame(HELLO)),
        b"\0\0\0\x05hello",
        bytes(frame(b"x" * 70000)),
    ],
    ids=["http", "noise", "4GB", "empty", "no proof", "no list", "too long"],
)
def test_garbage_inside_tls_is_refused(data: bytes, fast: bool) -> None:
    with open_door(fast=fast) as door:
        with door.raw() as sock:
            with contextlib.suppress(ConnectionError, ssl.SSLError):  # it may have hung up in the middle
                sock.sendall(data)
            hear_end(sock)
        wait_for(lambda: len(door.lines) == 1)
        assert door.inside.messages == []
        assert door.still_serves()


@pytest.mark.parametrize("fast", [True, False], ids=["uvloop", "asyncio"])
def test_garbage_in_place_of_tls_is_refused(fast: bool) -> None:
    with open_door(fast=fast) as door:
        with socket.create_connection(("127.0.0.1", door.port), DEADLINE) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                while sock.recv(1000):
                    pass
        wait_for(lambda: len(door.lines) == 1)
        assert "no TLS" in door.lines[0]
        assert door.still_serves()


def test_older_tls_is_refused() -> None:
    with open_door() as door:
        context = client_context()
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
        with socket.create_connection(("127.0.0.1", door.port), DEADLINE) as sock, pytest.raises(ssl.SSLError):
            context.wrap_socket(sock)
        wait_for(lambda: len(door.lines) == 1)
        assert door.still_serves()


@pytest.mark.parametrize("fast", [True, False], ids=["uvloop", "asyncio"])
def test_silence_without_tls_ends_by_the_deadline(fast: bool) -> None:
    with open_door(fast=fast, patience=0.2) as door:
        with socket.create_connection(("127.0.0.1", door.port), DEADLINE) as sock, contextlib.suppress(ConnectionError):
            assert sock.recv(100) == b""
        wait_for(lambda: len(door.lines) == 1)


@pytest.mark.parametrize("fast", [True, False], ids=["uvloop", "asyncio"])
def test_half_a_frame_and_silence_ends_by_the_deadline(fast: bool) -> None:
    with open_door(fast=fast, patience=1.5) as door:
        with door.raw() as sock:
            sock.sendall(b"\0\0\0\x50half")
            hear_end(sock)
        wait_for(lambda: len(door.lines) == 1)
        assert door.lines[0].endswith("no proof in time")


def test_a_peer_that_leaves_before_its_proof_is_noted() -> None:
    with open_door() as door:
        dial(door.access(), DEADLINE).sock.close()
        wait_for(lambda: len(door.lines) == 1)
        assert "hung up before its proof" in door.lines[0]


@pytest.mark.parametrize("fast", [True, False], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("speaks", [False, True], ids=["silent", "half a handshake"])
def test_a_crowd_that_proves_nothing_does_not_keep_an_honest_peer_out(speaks: bool, fast: bool) -> None:
    with open_door(fast=fast, most=4) as door, contextlib.ExitStack() as crowd:
        for _ in range(9):
            sock = crowd.enter_context(socket.create_connection(("127.0.0.1", door.port), DEADLINE))
            if speaks:
                sock.sendall(b"\x16\x03\x01")
        assert door.still_serves()  # long before the deadline of those nine
        assert len(door.lines) >= 6
        assert all("others came" in line for line in door.lines)


def test_a_crowd_of_honest_peers_does_not_push_itself_out() -> None:
    with open_door(most=4) as door:
        crowd = [dial_in_thread(door) for _ in range(24)]
        for thread in crowd:
            thread.join(DEADLINE)
        wait_for(lambda: len(door.inside.messages) == 24)
        assert door.lines == []


def dial_in_thread(door: Door) -> threading.Thread:
    def enter() -> None:
        sock, proof, _ = dial(door.access(), DEADLINE)
        sock.sendall(frame(proof, HELLO))
        wait_for(lambda: len(door.inside.messages) == 24)
        sock.close()

    thread = threading.Thread(target=enter)
    thread.start()
    return thread


def test_used_up_descriptors_keep_people_waiting_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    accept, tries = asyncio.SelectorEventLoop.sock_accept, []

    async def flawed(loop, listener):
        tries.append(1)
        if len(tries) <= 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(loop, listener)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", flawed)
    with open_door(fast=False, most=1) as door:
        assert door.still_serves()
        assert door.lines == ["nobody can be let in for a moment: Too many open files"] * 2


def test_a_port_that_is_taken_is_named() -> None:
    with open_door() as door:
        cert, key, fingerprint = make_certificate()
        doorman = PeerListener(lambda: PeerConnection(door.inside, []), secret, fingerprint)
        with pytest.raises(SiteError, match=f"cannot listen on 127.0.0.1:{door.port}: Address already"):
            asyncio.run(doorman.listen("127.0.0.1", door.port, server_context(cert, key)))


def test_bad_proofs_keep_nobody_of_their_address_out() -> None:
    with open_door() as door:
        for _ in range(30):
            with door.raw() as sock:
                sock.sendall(b"\xff" * 8)
                hear_end(sock)
        assert door.still_serves()
        assert 1 <= len(door.lines) <= 20


def test_a_wrong_pin_is_noticed_before_anything_is_said() -> None:
    with open_door() as door:
        with pytest.raises(UserError, match=r"is not the one whose certificate has the fingerprint 0{16}"):
            dial(door.access(fingerprint="0" * 64), DEADLINE)
        with pytest.raises(UserError, match="is not the one"):
            dial(door.access(fingerprint="é"), DEADLINE)
        assert door.inside.messages == []


def test_a_server_that_is_not_there_is_a_transient_loss() -> None:
    with open_door() as door:
        access = door.access()
    with pytest.raises(PeerLost) as found:
        dial(access, DEADLINE)
    assert found.value.transient
    assert access.address in str(found.value)
