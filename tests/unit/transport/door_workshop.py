"""A door on the loopback with a real TLS server behind it, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import uvloop

from bough.server.peer_connection import PeerConnection
from bough.transport.access import Access, make_tokens, read_token, secret
from bough.transport.admission import PeerListener
from bough.transport.dial import Dialled, dial
from bough.transport.tls import client_context, make_certificate, server_context
from bough.wire.client_messages import VERSION, ClientHello
from bough.wire.framing import frame

DEADLINE = 60.0
HELLO = ClientHello(VERSION, 42, "elsewhere")


class Inside:
    """Who is told of the peers that were let in."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, object]] = []  # role, message
        self.connections: list[PeerConnection] = []
        self.lost_count = 0
        self.answer: Callable[[PeerConnection, object], None] = lambda _connection, _message: None

    def on_messages(self, connection: PeerConnection, messages: list) -> None:
        if connection not in self.connections:
            self.connections.append(connection)
        for message in messages:
            self.messages.append((connection.role, message))
            self.answer(connection, message)

    def on_lost(self, connection: PeerConnection) -> None:
        self.lost_count += 1


class Door:
    """The door as its neighbours see it."""

    def __init__(self, port: int, fingerprint: str, inside: Inside, lines: list[str]) -> None:
        self.address = f"127.0.0.1:{port}"
        self.port = port
        self.fingerprint = fingerprint
        self.inside = inside
        self.lines = lines
        self.loop = asyncio.get_running_loop()

    def call(self, deed: Callable[[], None]) -> None:
        """Do something where the server runs."""
        self.loop.call_soon_threadsafe(deed)

    def access(self, role: str = "submit", token: str = "", fingerprint: str = "") -> Access:
        return Access(self.address, fingerprint or self.fingerprint, role, token or read_token(role))

    def enter(self, role: str = "submit") -> Dialled:
        """A good handshake, to its end."""
        dialled = dial(self.access(role), DEADLINE)
        dialled.sock.settimeout(DEADLINE)
        before = len(self.inside.messages)
        dialled.sock.sendall(frame(dialled.proof, HELLO))
        wait_for(lambda: len(self.inside.messages) > before)
        return dialled

    def still_serves(self) -> bool:
        """Whether an honest peer gets in after whatever was done."""
        with self.enter().sock:
            return self.inside.messages[-1] == ("submit", HELLO)

    def raw(self) -> ssl.SSLSocket:
        """A TLS connection on which nothing was said."""
        sock = socket.create_connection(("127.0.0.1", self.port), DEADLINE)
        return client_context().wrap_socket(sock)


@contextlib.contextmanager
def open_door(*, fast: bool = True, most: int = 64, patience: float = DEADLINE) -> Iterator[Door]:
    """A door with the user's certificate and tokens; `$BOUGH_HOME` says where they are."""
    cert, key, fingerprint = make_certificate()
    make_tokens()
    inside, lines = Inside(), []
    ready: list[Door] = []
    problems: list[str] = []
    started, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: problems.append(str(context)))
        dirty: list[PeerConnection] = []
        doorman = PeerListener(
            lambda: PeerConnection(inside, dirty),
            secret,
            fingerprint,
            proof_within=patience,
            most=most,
            say=lines.append,
        )
        port = await doorman.listen("127.0.0.1", 0, server_context(cert, key))
        ready.append(Door(port, fingerprint, inside, lines))
        started.set()
        await stop.wait()
        await doorman.close()
        for connection in inside.connections:
            connection.abort()
        await asyncio.sleep(0)

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if fast else asyncio.new_event_loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert started.wait(DEADLINE)
        yield ready[0]
    finally:
        ready[0].call(stop.set)
        thread.join(DEADLINE)
    assert not thread.is_alive()
    assert problems == []


def wait_for(condition: Callable[[], bool]) -> None:
    """Until it is so; fails when it never is."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.002)


def hear_end(sock: ssl.SSLSocket) -> bytes:
    """All that the server says until it hangs up."""
    sock.settimeout(DEADLINE)
    data = b""
    try:
        while chunk := sock.recv(65536):
            data += chunk
    except (ConnectionError, ssl.SSLError):
        pass
    return data
