"""Accepting connections one after the other, also when the process runs out of descriptors.

Rule: connections never take the last descriptors, which those inside need for their files. Who comes then is let go at
once, with a line in the log now and then, and everybody inside is served on; it is tried again all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
from collections.abc import Awaitable, Callable

from bough.transport.refusals import Refusals

_SPARE = 64  # descriptors that connections leave to files and processes
_BREATH = 0.2  # seconds to wait when there are none left
_USED_UP = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


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

    `give_way` lets go of a connection that matters less than a new one; whether there was one.
    """
    listener.setblocking(False)
    loop = asyncio.get_running_loop()
    while True:
        try:
            sock, address = await loop.sock_accept(listener)
        except OSError as error:
            if error.errno in _USED_UP:
                refusals.note(f"nobody can be let in for a moment: {error.strerror}", loop.time())
                give_way()
                await asyncio.sleep(_BREATH)
            continue  # else it left at once
        if _is_one_of_the_last(sock) and not give_way():
            sock.close()
            used = f"nearly all of the {_limit()} descriptors are used up, see ulimit -n"
            refusals.note(f"nobody can be let in for a moment: {used}", loop.time())
            await asyncio.sleep(_BREATH)
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
    """Accepts whoever comes to a Unix socket, whose file's permissions say who may."""

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
        """Accept nobody any more; who is inside stays."""
        self._task.cancel()
        self._task.add_done_callback(lambda _: self._listener.close())
