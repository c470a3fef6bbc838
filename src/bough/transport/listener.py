"""Letting peers in: accepting, TLS, and the time between a first packet and a proof.

A listener gives every unproven peer a `HandshakeProtocol` to talk to: the server's own asks for a proof, a relay's
passes everything on to the server. There are at most so many unproven peers, and when another one comes the oldest
gives way. A peer that knows its token proves it within milliseconds. One that holds a connection without doing so
delays others for a moment only: `SILENT` seconds if it has said nothing at all, `SPEAKING` seconds if its handshake
is under way. Peers that come while none has been there for so long wait in the kernel's queue, so that a crowd of
honest peers does not push itself out.

Rules: an unproven peer costs one socket and a few small objects; TLS begins only when it speaks, and of many that
speak at once only a few begin in one round of the loop. Neither memory nor the log grows with their number. Addresses
do not count: many peers share one on a login node or behind a NAT. Connections never take the last descriptors, which
the peers inside need for their files: a peer that comes then is dropped with a line in the log, and accepting is
tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import ssl
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from bough.errors import SiteError

MOST = 256  # unproven peers
SILENT = 0.25  # seconds after which a peer that has said nothing gives way to others
SPEAKING = 2.0  # the same for one whose handshake is under way
_MOST_LINES, _WINDOW = 20, 10.0  # lines in the log about refusals, in so many seconds
_SPARE = 64  # descriptors that connections leave to files and processes
_PAUSE = 0.2  # seconds to wait when there are none left
_USED_UP = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_BACKLOG = 4096  # connections that may wait in the kernel, which may allow less
_AT_ONCE = 8  # TLS handshakes that begin in one round of the loop


class Refusals:
    """Lines in the log about peers that were not let in: a few at a time, the others are counted.

    Times are the caller's, in seconds.
    """

    def __init__(self, say: Callable[[str], None], *, most: int = _MOST_LINES, window: float = _WINDOW) -> None:
        self._say = say
        self._most = most  # lines within a window
        self._window = window
        self._lines: deque[float] = deque()
        self._unsaid = 0

    def refused(self, peer: str, reason: str, now: float) -> None:
        """A peer was not let in."""
        self.note(f"a connection from {peer} was refused: {reason}", now)

    def note(self, text: str, now: float) -> None:
        """Write a line to the log, unless there were many lately; those are counted."""
        while self._lines and now - self._lines[0] > self._window:
            self._lines.popleft()
        if len(self._lines) >= self._most:
            self._unsaid += 1
            return
        self._lines.append(now)
        if self._unsaid:
            self._say(f"{self._unsaid} more refusals were not logged")
            self._unsaid = 0
        self._say(text)


def allow_many_files() -> None:
    """One descriptor for each peer: as many as the system lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def accept(
    listener: socket.socket,
    receive: Callable[[socket.socket, str], Awaitable[None]],
    refusals: Refusals,
    give_way: Callable[[], bool] = lambda: False,
) -> None:
    """Give every connection to `receive`, with the peer's address, until cancelled.

    `give_way` drops a connection that matters less than a new one; whether there was one.
    """
    listener.setblocking(False)
    loop = asyncio.get_running_loop()
    while True:
        try:
            sock, address = await loop.sock_accept(listener)
        except OSError as error:
            if error.errno in _USED_UP:
                refusals.note(f"no peer can be let in for a moment: {error.strerror}", loop.time())
                give_way()
                await asyncio.sleep(_PAUSE)
            continue  # else it left at once
        if _is_one_of_the_last(sock) and not give_way():
            sock.close()
            used = f"nearly all of the {_limit()} descriptors are used up, see ulimit -n"
            refusals.note(f"no peer can be let in for a moment: {used}", loop.time())
            await asyncio.sleep(_PAUSE)
            continue
        peer = str(address[0]) if isinstance(address, tuple) else "this host"
        try:
            await receive(sock, peer)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it concerns this peer: the next one is received
            sock.close()
            refusals.refused(peer, f"{type(error).__name__}: {error}", loop.time())
        await asyncio.sleep(0)  # the next one may be there already: others first


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _is_one_of_the_last(sock: socket.socket) -> bool:
    """The kernel gives the lowest number that is free: a high one says how many are taken."""
    limit = _limit()
    return limit != resource.RLIM_INFINITY and sock.fileno() >= limit - min(_SPARE, limit // 4)


class Acceptor:
    """Accepts every peer that comes to a Unix socket, whose file's permissions say which may."""

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        say: Callable[[str], None],
    ) -> None:
        self._listener = listener
        self._make = make
        self._task = asyncio.ensure_future(accept(listener, self._receive, Refusals(say)))

    async def _receive(self, sock: socket.socket, _: str) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(self._make, sock)

    def close(self) -> None:
        """Accept no more; peers inside stay."""
        self._task.cancel()
        self._task.add_done_callback(lambda _: self._listener.close())


class UnprovenPeer:
    """A peer that has not proven anything yet. `drop` ends its connection."""

    __slots__ = ("drop", "since")

    def __init__(self, drop: Callable[[], None], since: float) -> None:
        self.drop = drop
        self.since = since


class UnprovenPeers:
    """Peers that have not proven anything yet. Times are the caller's, in seconds."""

    def __init__(self, most: int, *, silent: float = SILENT, speaking: float = SPEAKING) -> None:
        self._most = most
        self._silent_for = silent
        self._speaking_for = speaking
        self._silent: OrderedDict[UnprovenPeer, None] = OrderedDict()
        self._speaking: OrderedDict[UnprovenPeer, None] = OrderedDict()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._silent) + len(self._speaking)

    @property
    def is_full(self) -> bool:
        """Whether one must give way before another one may come."""
        return len(self) >= self._most

    def add(self, unproven: UnprovenPeer, *, speaks: bool) -> None:
        """One more."""
        (self._speaking if speaks else self._silent)[unproven] = None

    def spoke(self, unproven: UnprovenPeer) -> None:
        """It has said its first word."""
        if unproven in self._silent:
            del self._silent[unproven]
            self._speaking[unproven] = None

    def remove(self, unproven: UnprovenPeer) -> None:
        """It was let in, or closed its connection."""
        self._silent.pop(unproven, None)
        self._speaking.pop(unproven, None)

    def free_at(self) -> float:
        """From when on one gives way."""
        return min((since for since, _ in self._first()), default=0.0)

    def drop_due(self) -> None:
        """Drop the one that gives way first."""
        _, those = min(self._first(), key=lambda found: found[0])
        those.popitem(last=False)[0].drop()

    def drop_oldest(self) -> bool:
        """Drop one that has said nothing, else the oldest; whether there was any."""
        those = self._silent or self._speaking
        if not those:
            return False
        those.popitem(last=False)[0].drop()
        return True

    def _first(self) -> list[tuple[float, OrderedDict[UnprovenPeer, None]]]:
        """When the oldest of both kinds give way."""
        kinds = ((self._silent, self._silent_for), (self._speaking, self._speaking_for))
        return [(next(iter(those)).since + seconds, those) for those, seconds in kinds if those]


class HandshakeProtocol(asyncio.Protocol, ABC):
    """What a peer talks to until it has proven itself. `over`: it was let in, or closed its connection."""

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_connected = False  # its socket has an owner, which closes it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It can speak now."""
        self.is_connected = True

    @abstractmethod
    def give_up(self, reason: str) -> None:
        """Hang up, unless it was let in; without a reason nothing is said of it."""


class TlsListener(ABC):
    """Listens. `proof_within`: seconds from the first packet to the proof; `most`: unproven peers at a time."""

    def __init__(self, say: Callable[[str], None], *, proof_within: float, most: int = MOST) -> None:
        self.proof_within = proof_within
        self.refusals = Refusals(say)
        self._unproven = UnprovenPeers(most)
        self._left = asyncio.Event()  # one of them was let in, or closed its connection
        self._ready: deque[asyncio.Future[None]] = deque()  # peers that speak, and wait for their turn to begin
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    def gate(self, peer: str) -> HandshakeProtocol:
        """What the next peer talks to."""

    async def listen(self, host: str, port: int, context: ssl.SSLContext) -> int:
        """Listen at an address; port 0 takes any free one. The port."""
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
        """Serve a socket that listens already; without a context it is a Unix socket."""
        self._listeners.append(listener)

        async def receive(sock: socket.socket, peer: str) -> None:
            await self._make_room()
            self._welcome(sock, peer, context)

        self._start(accept(listener, receive, self.refusals, self._unproven.drop_oldest))

    async def close(self) -> None:
        """Listen no more; peers inside stay."""
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
        while self._unproven.is_full:
            wait = self._unproven.free_at() - loop.time()
            if wait <= 0:
                self._unproven.drop_due()
                return
            self._left.clear()
            timer = loop.call_later(wait, self._left.set)
            await self._left.wait()
            timer.cancel()

    def _welcome(self, sock: socket.socket, peer: str, context: ssl.SSLContext | None) -> None:
        """One more unproven peer."""
        loop = asyncio.get_running_loop()
        gate = self.gate(peer)

        def drop() -> None:
            gate.give_up("others came, and it had not proven anything")
            task.cancel()

        unproven = UnprovenPeer(drop, loop.time())
        self._unproven.add(unproven, speaks=context is None)
        task = self._start(self._receive(sock, context, gate, unproven))

    async def _receive(
        self, sock: socket.socket, context: ssl.SSLContext | None, gate: HandshakeProtocol, unproven: UnprovenPeer
    ) -> None:
        """One unproven peer, until it is let in or refused."""
        loop = asyncio.get_running_loop()
        why = ""  # it is not listened any more
        try:
            async with asyncio.timeout(self.proof_within):
                if context is None:
                    await loop.connect_accepted_socket(lambda: gate, sock)
                else:
                    from bough.transport.dial import tune  # late: an embedded server accepts, and never dials

                    tune(sock)
                    await _until_it_speaks(sock)
                    self._unproven.spoke(unproven)
                    await self._turn()
                    await loop.connect_accepted_socket(
                        lambda: gate,
                        sock,
                        ssl=context,
                        ssl_handshake_timeout=self.proof_within,
                        ssl_shutdown_timeout=1.0,
                    )
                await asyncio.shield(gate.over)  # that we do not wait any longer is not its end
        except TimeoutError:
            why = "no proof in time"
        except OSError as error:  # ssl.SSLError is one
            why = f"no TLS: {getattr(error, 'reason', None) or error.strerror or error}"
        finally:
            self._unproven.remove(unproven)
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
