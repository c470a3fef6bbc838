"""Dialling: who does not answer, or answers in another language, is told apart."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from door_workshop import DEADLINE, open_door

from bough.errors import BoughError, PeerLost, ProtocolError, UserError
from bough.transport.access import Access
from bough.transport.dial import _look_up, dial, places
from bough.transport.tls import make_certificate, server_context
from bough.wire.client_messages import VERSION, Challenge, Refused
from bough.wire.framing import frame

TOKEN = "A" * 43


def serve_once(deed: Callable[[socket.socket], None]) -> tuple[str, threading.Thread]:
    """A server of one connection; its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with listener:
            sock, _ = listener.accept()
        with sock:
            sock.settimeout(DEADLINE)
            deed(sock)

    thread = threading.Thread(target=run)
    thread.start()
    return f"127.0.0.1:{listener.getsockname()[1]}", thread


def dialling_fails(deed: Callable[[socket.socket], None], fingerprint: str = "0" * 64) -> BoughError:
    address, thread = serve_once(deed)
    with pytest.raises(BoughError) as found:
        dial(Access(address, fingerprint, "submit", TOKEN), DEADLINE)
    thread.join(DEADLINE)
    assert address in str(found.value)
    return found.value


def says(*data: bytes) -> tuple[Callable[[socket.socket], None], str]:
    """A TLS server that says this, and waits until the other one hangs up."""
    cert, key, fingerprint = make_certificate()

    def deed(sock: socket.socket) -> None:
        with server_context(cert, key).wrap_socket(sock, server_side=True) as secure:
            for piece in data:
                secure.sendall(piece)
            try:
                while secure.recv(1000):
                    pass
            except (ssl.SSLError, ConnectionError):
                pass

    return deed, fingerprint


def test_a_server_without_tls_is_a_protocol_error() -> None:
    def deed(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            sock.recv(1)

    error = dialling_fails(deed)
    assert isinstance(error, ProtocolError)
    assert "does not speak TLS 1.3" in str(error)


def test_a_server_that_hangs_up_is_a_transient_loss() -> None:
    error = dialling_fails(lambda sock: None)
    assert isinstance(error, PeerLost)
    assert error.transient


def test_a_server_that_does_not_answer_in_time_is_a_transient_loss() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(PeerLost, match="no answer in time") as found:
        dial(Access(f"127.0.0.1:{silent.getsockname()[1]}", "0" * 64, "submit", TOKEN), 0.1)
    assert found.value.transient


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"\xff\xff\xff\xff", ProtocolError, "another language"),
        (b"\0\0\0\0", ProtocolError, "another language"),
        (bytes(frame(Challenge(VERSION, b"short"))), ProtocolError, "another language"),
        (bytes(frame(Challenge(VERSION + 1, b"n" * 32))), ProtocolError, "install the same Bough on both"),
        (bytes(frame(Refused("go away"))), UserError, "refused by the server at 127.0.0.1"),
        (bytes(frame("nonsense")), ProtocolError, "another language"),
    ],
    ids=["4GB", "empty", "nonce", "version", "refused", "nonsense"],
)
def test_a_bad_challenge_is_told_apart(data: bytes, kind: type[BoughError], text: str) -> None:
    deed, fingerprint = says(data)
    address, thread = serve_once(deed)
    with pytest.raises(kind, match=text):
        dial(Access(address, fingerprint, "submit", TOKEN), DEADLINE)
    thread.join(DEADLINE)


def test_a_challenge_in_pieces_is_understood_and_what_follows_is_kept() -> None:
    challenge = bytes(frame(Challenge(VERSION, b"n" * 32)))
    deed, fingerprint = says(*(challenge[n : n + 1] for n in range(len(challenge) - 1)), challenge[-1:] + b"more")
    address, thread = serve_once(deed)
    sock, proof, leftover = dial(Access(address, fingerprint, "submit", TOKEN), DEADLINE)
    assert proof is not None
    assert sock.gettimeout() is None
    assert leftover == b"more"
    sock.close()
    thread.join(DEADLINE)


def test_a_name_with_several_addresses_is_tried_through() -> None:
    with open_door() as door:
        access = Access(f"localhost:{door.port}", door.fingerprint, "read", door.access("read").token)
        for _ in range(3):
            dial(access, DEADLINE).sock.close()


def test_a_name_nobody_knows_is_a_transient_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_args: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(PeerLost, match="Name or service not known") as found:
        dial(Access("nobody.invalid:1", "0" * 64, "submit", TOKEN), DEADLINE)
    assert found.value.transient


def test_a_name_that_cannot_be_one_is_the_users_error() -> None:
    with pytest.raises(UserError, match="names no host"):
        dial(Access(f"{'x' * 70}:1", "0" * 64, "submit", TOKEN), DEADLINE)


def test_a_text_that_is_no_token_is_noticed_at_once() -> None:
    with pytest.raises(UserError, match="holds no token"):
        dial(Access("127.0.0.1:1", "0" * 64, "submit", "what"), DEADLINE)


def test_a_unix_socket_has_no_proof(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with pytest.raises(PeerLost) as found:
        dial(Access(f"unix:{path}"), DEADLINE)
    assert found.value.transient
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        sock, proof, leftover = dial(Access(f"unix:{path}"), DEADLINE)
        assert (proof, leftover) == (None, b"")
        sock.close()


# --- several addresses -----------------------------------------------------------------------------------


def test_a_server_is_found_at_another_of_its_addresses_and_first_there_the_next_time() -> None:
    deed, fingerprint = says(bytes(frame(Challenge(VERSION, b"n" * 32))))
    address, thread = serve_once(deed)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = f"127.0.0.1:{unused.getsockname()[1]}"
    access = Access(
        f"nowhere.invalid:{address.rpartition(':')[2]}", fingerprint, "submit", TOKEN, "", (closed, address)
    )
    dial(access, DEADLINE).sock.close()
    thread.join(DEADLINE)
    assert [place[1][1] for place in places(access)] == [int(one.rpartition(":")[2]) for one in (address, closed)]


def test_somebody_else_at_one_address_does_not_hide_the_server_at_another() -> None:
    stranger, thread = serve_once(lambda sock: sock.sendall(b"220 mail ready\r\n"))
    deed, fingerprint = says(bytes(frame(Challenge(VERSION, b"n" * 32))))
    address, other = serve_once(deed)
    dial(Access(stranger, fingerprint, "submit", TOKEN, "", (address,)), DEADLINE).sock.close()
    thread.join(DEADLINE)
    other.join(DEADLINE)


def test_an_address_that_swallows_everything_leaves_the_others_their_time() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as mute:
        deed, fingerprint = says(bytes(frame(Challenge(VERSION, b"n" * 32))))
        address, thread = serve_once(deed)
        silent = f"127.0.0.1:{mute.getsockname()[1]}"
        dial(Access(silent, fingerprint, "submit", TOKEN, "", (address,)), 4.0).sock.close()
        thread.join(DEADLINE)


def test_of_several_problems_the_one_that_may_pass_is_told() -> None:
    stranger, thread = serve_once(lambda sock: sock.sendall(b"220 mail ready\r\n"))
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = f"127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(PeerLost):
        dial(Access(closed, "0" * 64, "submit", TOKEN, "", (stranger,)), DEADLINE)
    thread.join(DEADLINE)
    with pytest.raises(PeerLost, match=r"nowhere\.invalid"):
        dial(Access("nowhere.invalid:1", "0" * 64, "submit", TOKEN, "", ("elsewhere.invalid:1",)), DEADLINE)


def test_a_socket_that_is_seen_here_is_a_place_only_in_a_folder_of_our_own(tmp_path: Path) -> None:
    """Somebody else may have made one of the same name on a host that does not have ours."""
    folder = tmp_path / "site"
    folder.mkdir(mode=0o700)
    access = Access("127.0.0.1:1", "0" * 64, "submit", TOKEN, "none", (f"unix:{folder}/server",))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/server")
        listener.listen()
        folder.chmod(0o755)
        assert _look_up(access) == [(socket.AF_INET, ("127.0.0.1", 1))]
        folder.chmod(0o700)
        assert _look_up(access)[1:] == [(socket.AF_UNIX, f"{folder}/server")]

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(bytes(frame(Challenge(VERSION, b"n" * 32))))
                peer.recv(100)

        thread = threading.Thread(target=answer)
        thread.start()
        dialled = dial(access, DEADLINE)
        assert dialled.proof is not None
        dialled.sock.close()
        thread.join(DEADLINE)
