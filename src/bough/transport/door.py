"""A door to other machines: listening, TLS, and the time between a first packet and a proof.

What an unproven peer talks to is a `Gate`, which somebody else makes: the server's own asks for a proof, a relay's
passes everything on to the server. Rule: an unproven peer costs one socket and a few small objects, whatever it does;
TLS begins only when it speaks, and of many that speak at once only a few begin in one round of the loop, so that peers
inside do not wait for them.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from bough.errors import SiteError
from bough.transport.accepting import accept
from bough.transport.opening import tune
from bough.transport.refusals import Refusals
from bough.transport.strangers import Stranger, Strangers

_BACKLOG = 4096  # the kernel may allow less
_AT_ONCE = 8  # TLS handshakes that begin in one round of the loop
MOST = 256  # unproven peers


class Gate(asyncio.Protocol, ABC):
    """What a peer talks to until it has proven itself. `over`: it was let in, or is gone."""

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_connected = False  # its socket has an owner, who closes it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It can speak now."""
        self.is_connected = True

    @abstractmethod
    def give_up(self, reason: str) -> None:
        """Hang up, unless it was let in; without a reason nothing is said of it."""


class Door(ABC):
    """See the module. `patience`: seconds from the first packet to the proof; `most`: unproven peers at a time."""

    def __init__(self, say: Callable[[str], None], *, patience: float, most: int = MOST) -> None:
        self.patience = patience
        self.refusals = Refusals(say)
        self._strangers = Strangers(most)
        self._left = asyncio.Event()  # one of them was let in, or is gone
        self._ready: deque[asyncio.Future[None]] = deque()  # who speaks, and waits for its turn to begin
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    def gate(self, peer: str) -> Gate:
        """What the next peer talks to."""

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
        self._listeners.append(listener)

        async def receive(sock: socket.socket, peer: str) -> None:
            await self._make_room()
            self._welcome(sock, peer, context)

        self._start(accept(listener, receive, self.refusals, self._strangers.drop_oldest))

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
        self.refusals.refused(peer, reason, asyncio.get_running_loop().time())

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _make_room(self) -> None:
        """Wait until one more may come: mostly not at all."""
        loop = asyncio.get_running_loop()
        while self._strangers.is_full:
            wait = self._strangers.free_at() - loop.time()
            if wait <= 0:
                self._strangers.drop_due()
                return
            self._left.clear()
            timer = loop.call_later(wait, self._left.set)
            await self._left.wait()
            timer.cancel()

    def _welcome(self, sock: socket.socket, peer: str, context: ssl.SSLContext | None) -> None:
        """One more stranger."""
        loop = asyncio.get_running_loop()
        gate = self.gate(peer)

        def drop() -> None:
            gate.give_up("others came, and it had not proven anything")
            task.cancel()

        stranger = Stranger(drop, loop.time())
        self._strangers.add(stranger, speaks=context is None)
        task = self._start(self._receive(sock, context, gate, stranger))

    async def _receive(
        self, sock: socket.socket, context: ssl.SSLContext | None, gate: Gate, stranger: Stranger
    ) -> None:
        """One stranger, until it is let in or refused."""
        loop = asyncio.get_running_loop()
        why = ""  # the door is shut
        try:
            async with asyncio.timeout(self.patience):
                if context is None:
                    await loop.connect_accepted_socket(lambda: gate, sock)
                else:
                    tune(sock)
                    await _until_it_speaks(sock)
                    self._strangers.spoke(stranger)
                    await self._turn()
                    await loop.connect_accepted_socket(
                        lambda: gate, sock, ssl=context, ssl_handshake_timeout=self.patience, ssl_shutdown_timeout=1.0
                    )
                await asyncio.shield(gate.over)  # that we do not wait any longer is not its end
        except TimeoutError:
            why = "no proof in time"
        except OSError as error:  # ssl.SSLError is one
            why = f"no TLS: {getattr(error, 'reason', None) or error.strerror or error}"
        finally:
            self._strangers.remove(stranger)
            self._left.set()
            gate.give_up(why)
            if not gate.is_connected:
                sock.close()

    async def _turn(self) -> None:
        """Wait for the next round if many begin in this one."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._ready:
            asyncio.get_running_loop().call_soon(self._begin_some)
        self._ready.append(turn)
        await turn

    def _begin_some(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._ready))):
            turn = self._ready.popleft()
            if not turn.done():
                turn.set_result(None)
        if self._ready:
            asyncio.get_running_loop().call_soon(self._begin_some)


async def _until_it_speaks(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    spoken: asyncio.Future[None] = loop.create_future()

    def hear() -> None:
        if not spoken.done():
            spoken.set_result(None)

    loop.add_reader(sock, hear)
    try:
        await spoken
    finally:
        loop.remove_reader(sock)


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
