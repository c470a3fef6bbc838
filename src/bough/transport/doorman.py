"""The door to other machines, of a server or of a relay that shares out work: TLS, a challenge, a proof.

Only then does anybody inside hear of a peer.

Rule: an unproven peer costs one socket, at most one small frame and a few seconds; whatever it does, it
is refused with one line in the log, and nobody else notices.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast

from bough.errors import BoughError, ProtocolError, SiteError
from bough.transport.opening import tune
from bough.transport.strangers import Strangers
from bough.wire.framing import frame
from bough.wire.handshake import NONCE, ROLES, check, split_first
from bough.wire.messages import VERSION, Challenge, Refused

_BACKLOG = 512
_BREATH = 0.2  # seconds to wait when the system has no descriptors left
_WRONG = "the token was refused: it may have been rotated, get a new access file with bough server access"


class Peer(Protocol):
    """What a peer talks to once it is let in: an asyncio protocol that has a role."""

    role: str

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is let in."""

    def data_received(self, data: bytes) -> None:
        """It spoke."""


class Doorman:
    """Lets in who proves to know the token of a role.

    `make_connection` makes what a peer talks to from then on; its `role` is set before it hears anything.
    `token_of` gives the token of a role, asked at every handshake, so that tokens may be rotated.
    """

    def __init__(
        self,
        make_connection: Callable[[], Peer],
        token_of: Callable[[str], bytes],
        fingerprint: str,
        *,
        patience: float = 5.0,
        most: int = 64,
        strangers: Strangers | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.make_connection = make_connection
        self.token_of = token_of
        self.fingerprint = fingerprint
        self.patience = patience  # seconds from the first packet to the proof
        self._strangers = strangers or Strangers(say)
        self._room = asyncio.Semaphore(most)  # who finds no room waits in the kernel's queue
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, context: ssl.SSLContext) -> int:
        """Open the door at an address; port 0 takes any free one. The port."""
        loop = asyncio.get_running_loop()
        listeners: list[socket.socket] = []
        problem: OSError | None = None
        try:
            found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            raise SiteError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        for family, *_, address in dict.fromkeys(found):
            try:
                listeners.append(_bind(family, (address[0], port or address[1], *address[2:])))
            except OSError as error:  # a name may have addresses that this machine cannot use
                problem = error
                continue
            port = int(listeners[-1].getsockname()[1])
        if not listeners:
            reason = problem.strerror if problem else "it has no address"
            raise SiteError(f"cannot listen on {host}:{port}: {reason}") from problem
        for listener in listeners:
            self.serve(listener, context)
        return port

    def serve(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        """Open the door at a socket that listens already; without a context it is a Unix socket."""
        listener.setblocking(False)
        self._listeners.append(listener)
        self._start(self._accept(listener, context))

    async def close(self) -> None:
        """Shut the door; who is inside stays."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def refused(self, peer: str, reason: str) -> None:
        """Note a peer that was not let in."""
        self._strangers.failed(peer, reason, asyncio.get_running_loop().time())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                sock, address = await loop.sock_accept(listener)
            except OSError as error:  # descriptors used up, or a peer that left at once
                self._room.release()
                self._strangers.note(f"nobody can be let in for a moment: {error.strerror}", loop.time())
                await asyncio.sleep(_BREATH)
                continue
            except BaseException:
                self._room.release()
                raise
            peer = str(address[0]) if context is not None else "this host"
            if context is not None and self._strangers.is_barred(peer, loop.time()):
                sock.close()
                self._room.release()
            else:
                self._start(self._receive(sock, peer, context))

    async def _receive(self, sock: socket.socket, peer: str, context: ssl.SSLContext | None) -> None:
        """One stranger, until it is let in or refused."""
        loop = asyncio.get_running_loop()
        gate = Gate(self, peer, loop.time() + self.patience)
        try:
            if context is None:
                await loop.connect_accepted_socket(lambda: gate, sock)
            else:
                tune(sock)
                await loop.connect_accepted_socket(
                    lambda: gate, sock, ssl=context, ssl_handshake_timeout=self.patience, ssl_shutdown_timeout=1.0
                )
            await gate.over
        except OSError as error:  # ssl.SSLError is one
            sock.close()
            self.refused(peer, f"no TLS: {getattr(error, 'reason', None) or error.strerror or error}")
        finally:
            gate.hang_up()
            self._room.release()


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


class Gate(asyncio.Protocol):
    """What a peer talks to until it has proven itself."""

    def __init__(self, doorman: Doorman, peer: str, deadline: float) -> None:
        self._doorman = doorman
        self._peer = peer
        self._deadline = deadline
        self._nonce = secrets.token_bytes(NONCE)
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a proof."""
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_at(self._deadline, self._refuse, "no proof in time", "")
        self._transport.write(bytes(frame(Challenge(VERSION, self._nonce))))

    def data_received(self, data: bytes) -> None:
        """Wait for one small frame; look at it; let the peer in or not."""
        if self.over.done():
            return
        self._buffer += data
        try:
            first = split_first(self._buffer)
            if first is None:
                return
            proof, rest = first
            if proof.role not in ROLES:
                self._refuse("no such role", _WRONG)
            elif not check(proof, self._doorman.token_of(proof.role), self._nonce, self._doorman.fingerprint):
                self._refuse(f"its proof for the role {proof.role} does not hold", _WRONG)
            else:
                self._let_in(proof.role, rest)
        except ProtocolError as error:
            self._refuse(str(error), str(error), "ProtocolError")
        except BoughError as error:  # our own token cannot be used: the line in the log says what to do
            self._refuse(str(error), "the server cannot check tokens now, its log says why", "SiteError")

    def eof_received(self) -> bool:
        """The peer says no more, so it will not prove anything."""
        self._refuse("it hung up before its proof", "")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer left."""
        self._transport = None
        self._end("it hung up before its proof")

    def hang_up(self) -> None:
        """Close what was not let in."""
        if self._transport is not None:
            self._transport.abort()
        self._end("")

    def _let_in(self, role: str, rest: bytes) -> None:
        transport, self._transport = self._transport, None
        assert transport is not None
        self._end("")
        connection = self._doorman.make_connection()
        connection.role = role
        transport.set_protocol(cast("asyncio.Protocol", connection))
        connection.connection_made(transport)
        if rest:
            connection.data_received(rest)

    def _refuse(self, reason: str, answer: str, kind: str = "UserError") -> None:
        """Say why, as far as the peer may know, and hang up."""
        transport, self._transport = self._transport, None
        self._end(reason)
        if transport is None:
            return
        if answer:
            transport.write(bytes(frame(Refused(answer, kind=kind))))
            transport.close()
        else:
            transport.abort()

    def _end(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buffer = bytearray()
        if not self.over.done():
            self.over.set_result(None)
            if reason:
                self._doorman.refused(self._peer, reason)
