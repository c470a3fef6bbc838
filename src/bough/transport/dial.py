"""Connect to a server, make sure it is the right one, and have the proof ready that it asks for.

Blocking, with one deadline for all of it; the caller decides what comes after. Rule: an unreachable
server is a transient `PeerLost`, one that is not the pinned one a `UserError`.
"""

from __future__ import annotations

import select
import socket
import time

from bough.errors import PeerLost
from bough.transport.access import Access
from bough.transport.opening import Dialled, Opening, Place, places, try_next_place, unreachable

__all__ = ["Dialled", "dial"]


def dial(access: Access, timeout: float = 10.0) -> Dialled:
    """Connect; at most about `timeout` seconds later there is a connection or an error. The socket is blocking.

    The caller sends one frame next: the proof, if there is one, then its hello.
    """
    if not access.is_proven:
        return Dialled(_dial_unix(access.path, timeout), None, b"")
    deadline = time.monotonic() + timeout
    found = places(access)
    for place in found[:-1]:
        try:
            return _open(access, place, deadline)
        except PeerLost:
            try_next_place(access)
    return _open(access, found[-1], deadline)


def _open(access: Access, place: Place, deadline: float) -> Dialled:
    opening = Opening(access, place)
    try:
        while (dialled := opening.step()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise unreachable(access.address, TimeoutError())
            poll = select.poll()
            poll.register(opening.fileno(), select.POLLOUT if opening.wants_write else select.POLLIN)
            poll.poll(1000 * left)
    except BaseException:
        opening.close()
        raise
    dialled.sock.setblocking(True)
    return dialled


def _dial_unix(path: str, timeout: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(path)
        sock.settimeout(None)
    except OSError as error:
        sock.close()
        raise unreachable(path, error) from error
    return sock
