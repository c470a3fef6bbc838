"""Reading contents from other executors, by TLS. It blocks: each transfer has a thread.

Rules: the certificate is compared with the fingerprint that the server named before anything is said. A peer that
says or gives nothing for a while is given up; one that a firewall hides costs one short wait, and for a while no
further one. Connections are kept for a while; those that a transfer had besides the first are not.
"""

from __future__ import annotations

import errno
import select
import socket
import ssl
import threading
import time
from typing import Final

from bough.errors import BoughError
from bough.executor.files.transfers.peer_link import CONNECT, IDLE, PeerFailure, PeerUnreached
from bough.executor.files.transfers.peer_streams import PeerStreams
from bough.executor.files.transfers.range_plan import RangePlan
from bough.model.ids import ExecutorId
from bough.transport.dial import tune
from bough.transport.tls import check_pin, client_context
from bough.wire.file_messages import PeerHint
from bough.wire.peer_messages import AskContent

REACH: Final = 1.5  # seconds until a peer that does not answer is given up: a lost first packet comes again after one
_OWN_LACK: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_HIDDEN: Final = 60.0  # seconds in which a peer that did not answer is not tried again
_MOST_HIDDEN: Final = 1000


class PeerReader:
    """Connections to peers, kept for the next reading. Any thread may read."""

    def __init__(self, reader: int) -> None:
        self.reader = reader  # the number of this executor
        self._context = client_context()
        self._idle: dict[tuple[str, int, str], list[tuple[float, ssl.SSLSocket]]] = {}
        self._hidden: dict[tuple[str, int, str], float] = {}  # places that did not answer: until when
        self._lock = threading.Lock()

    def read(self, hint: PeerHint, digest: bytes, plan: RangePlan) -> None:
        """Bring what is left of a content; PeerFailure when the peer does not give it all, which keeps what came.

        What handing it on raises goes through.
        """
        reader = hint.reader or ExecutorId(self.reader)
        streams = PeerStreams(
            plan,
            lambda: self._connect(hint, hides=False),
            lambda span, transfer: AskContent(digest, span.start, len(span), reader, hint.until, hint.ticket, transfer),
            f"{hint.address}:{hint.port}",
        )
        line = self._line(hint)
        streams.read(line)  # which closes one that is no use, when nothing reads from it any more
        if line.fileno() >= 0:
            with self._lock:
                self._close_old()
                self._idle.setdefault(_place(hint), []).append((time.monotonic(), line))

    def _close_old(self) -> None:
        """Close what was kept for too long, also of peers that are not read from any more."""
        oldest = time.monotonic() - IDLE / 2
        for place, kept in list(self._idle.items()):
            while kept and kept[0][0] < oldest:
                kept.pop(0)[1].close()
            if not kept:
                del self._idle[place]

    def _line(self, hint: PeerHint) -> ssl.SSLSocket:
        place = _place(hint)
        with self._lock:
            self._close_old()
            kept = self._idle.get(place, [])
            while kept:
                line = kept.pop()[1]
                if _is_quiet(line):
                    return line
                line.close()
        return self._connect(hint)

    def _connect(self, hint: PeerHint, *, hides: bool = True) -> ssl.SSLSocket:
        """A new connection; `hides`: a peer that does not answer is not tried again for a while."""
        sock: socket.socket | None = None
        try:
            sock = self._reach(hint, hides=hides)
            sock.settimeout(CONNECT)
            tune(sock)
            line = self._context.wrap_socket(sock)
            sock = line
            check_pin(line, hint.fingerprint, f"{hint.address}:{hint.port}")
        except (OSError, ValueError, BoughError) as error:
            if sock is not None:
                sock.close()
            # Others may well reach it; who has shown another certificate was reached, and is somebody else by now. A
            # ValueError: what it says is no address.
            if not isinstance(error, OSError) or error.errno in _OWN_LACK:
                raise PeerFailure(f"{hint.address}:{hint.port} is not asked: {error}") from error
            raise PeerUnreached(f"{hint.address}:{hint.port} cannot be reached: {error}") from error
        return line

    def _reach(self, hint: PeerHint, *, hides: bool) -> socket.socket:
        place = _place(hint)
        with self._lock:
            until = self._hidden.pop(place, 0.0)
            if until > time.monotonic():
                self._hidden[place] = until
                raise TimeoutError("it did not answer a short while ago")
        try:
            return socket.create_connection((hint.address, hint.port), REACH)
        except TimeoutError:
            with self._lock:
                if not hides:
                    raise
                if len(self._hidden) >= _MOST_HIDDEN:
                    self._hidden.clear()
                self._hidden[place] = time.monotonic() + _HIDDEN
            raise


def _is_quiet(line: ssl.SSLSocket) -> bool:
    """Whether a connection that was kept is still one: a peer that was asked nothing says nothing but good-bye."""
    poll = select.poll()
    poll.register(line, select.POLLIN)
    return not poll.poll(0)


def _place(hint: PeerHint) -> tuple[str, int, str]:
    return hint.address, hint.port, hint.fingerprint
