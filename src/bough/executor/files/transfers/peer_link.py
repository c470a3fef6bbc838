"""Contents between executors, by TLS: the side that serves and the side that reads. Both block: they run in threads.

A content that is still coming is served as it comes, so that a file which many want goes along a chain at the speed of
one copy. Rules: the reader compares the certificate with the fingerprint that the server named before it says
anything, and the whole content with its digest at the end. The serving side gives nothing without a ticket, and to a
bounded number at a time. A peer that says or takes nothing for a while is given up; one that a firewall hides costs one
short wait, and for a while no further one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Final

from bough.errors import BoughError, ProtocolError
from bough.executor.files.caches.host_cache import HostCache, part_path
from bough.model.ids import ExecutorId
from bough.transport.dial import tune
from bough.transport.tls import check_pin, client_context
from bough.wire.file_messages import PeerHint
from bough.wire.framing import Frames, frame
from bough.wire.peer_messages import ASK_FRAME, AskContent, ContentComes, is_admitted

REACH: Final = 1.5  # seconds until a peer that does not answer is given up: a lost first packet comes again after one
CONNECT: Final = 3.0  # seconds for TLS to stand, after that
STALL: Final = 20.0  # seconds without a byte
_BEGINS: Final = 10.0  # seconds that a peer may take to begin; it may just be getting the content itself
_EXPECTED: Final = 5.0  # seconds that a content may be awaited that is not there
_HIDDEN: Final = 60.0  # seconds in which a peer that did not answer is not tried again
_MOST_HIDDEN: Final = 1000
_IDLE: Final = 60.0  # seconds that a connection is kept for the next reading
_POLL: Final = 0.005  # seconds between looks at a content that grows
_EVICTED: Final = 4096  # contents that are remembered to have been given up
_CHUNK: Final = 1 << 18
_BACKLOG: Final = 64
_HEAD: Final = 4


class PeerFailure(Exception):
    """A peer did not give what it was asked for."""


class PeerUnreached(PeerFailure):
    """There is no way to a peer."""


def listen(address: str) -> socket.socket:
    """A socket that others connect to, on a free port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind((address, 0))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


# --- reading -------------------------------------------------------------------------------------------


class PeerReader:
    """Connections to peers, kept for the next reading. Any thread may read."""

    def __init__(self, reader: int) -> None:
        self.reader = reader  # the number of this executor
        self._context = client_context()
        self._idle: dict[tuple[str, int, str], list[tuple[float, ssl.SSLSocket]]] = {}
        self._hidden: dict[tuple[str, int, str], float] = {}  # places that did not answer: until when
        self._lock = threading.Lock()

    def read(self, hint: PeerHint, digest: bytes, span: range, take: Callable[[memoryview], None]) -> None:
        """Get the bytes of a content in a span, in order; PeerFailure when the peer does not give them all.

        What `take` raises goes through.
        """
        line = self._line(hint)
        try:
            self._ask(line, hint, digest, span)
            left, buffer = len(span), bytearray(min(_CHUNK, len(span)))
            view = memoryview(buffer)
            while left:
                count = self._receive(line, view[: min(len(buffer), left)])
                left -= count
                take(view[:count])
        except BaseException:
            line.close()
            raise
        with self._lock:
            self._idle.setdefault(_place(hint), []).append((time.monotonic(), line))

    def _line(self, hint: PeerHint) -> ssl.SSLSocket:
        place = _place(hint)
        with self._lock:
            kept = self._idle.get(place, [])
            while kept:
                since, line = kept.pop()
                if time.monotonic() - since < _IDLE / 2:
                    return line
                line.close()
        return self._connect(hint)

    def _connect(self, hint: PeerHint) -> ssl.SSLSocket:
        sock: socket.socket | None = None
        try:
            sock = self._reach(hint)
            sock.settimeout(CONNECT)
            tune(sock)
            line = self._context.wrap_socket(sock)
            sock = line
            check_pin(line, hint.fingerprint, f"{hint.address}:{hint.port}")
        except (OSError, BoughError) as error:
            if sock is not None:
                sock.close()
            raise PeerUnreached(f"{hint.address}:{hint.port} cannot be reached: {error}") from error
        return line

    def _reach(self, hint: PeerHint) -> socket.socket:
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
                if len(self._hidden) >= _MOST_HIDDEN:
                    self._hidden.clear()
                self._hidden[place] = time.monotonic() + _HIDDEN
            raise

    def _ask(self, line: ssl.SSLSocket, hint: PeerHint, digest: bytes, span: range) -> None:
        reader = hint.reader or ExecutorId(self.reader)
        ask = AskContent(digest, span.start, len(span), reader, hint.until, hint.ticket)
        try:
            line.settimeout(_BEGINS)
            line.sendall(frame(ask))
            answer = _read_frame(line, ContentComes)
            line.settimeout(STALL)
        except (OSError, ProtocolError) as error:
            raise PeerFailure(f"{hint.address}:{hint.port} does not answer: {error}") from error
        if not isinstance(answer, ContentComes) or answer.error:
            said = answer.error if isinstance(answer, ContentComes) else "it hung up"
            raise PeerFailure(f"{hint.address}:{hint.port}: {said}")

    def _receive(self, line: ssl.SSLSocket, view: memoryview) -> int:
        """Fill a buffer: what is handed on in small pieces costs more than it is worth to the next in a chain."""
        filled = 0
        try:
            while filled < len(view):
                count = line.recv_into(view[filled:])
                if not count:
                    raise PeerFailure("the peer hung up")
                filled += count
        except OSError as error:
            raise PeerFailure(f"the peer is lost: {error}") from error
        return filled


def _place(hint: PeerHint) -> tuple[str, int, str]:
    return hint.address, hint.port, hint.fingerprint


def _read_frame(line: ssl.SSLSocket, kind: type[object]) -> object | None:
    """One message; None at the end of the stream."""
    head = _exactly(line, _HEAD)
    if not head:
        return None
    size = int.from_bytes(head, "big")
    if size > ASK_FRAME:
        raise ProtocolError(f"a frame of {size} bytes is over the limit of {ASK_FRAME}")
    found = Frames[object](kind).feed(head + _exactly(line, size))
    return found[0] if found else None


def _exactly(line: ssl.SSLSocket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = line.recv(size - len(data))
        if not more:
            return b""
        data += more
    return data


# --- serving -------------------------------------------------------------------------------------------


class PeerServer:
    """Serves the contents of a cache.

    A reader may come before the content it was sent for, and waits for it. It may also come after the content was
    evicted, when the server did not know yet: then it is told so at once, and goes to others.
    """

    def __init__(self, listener: socket.socket, cache: HostCache) -> None:
        self._listener = listener
        self._cache = cache
        self._context: ssl.SSLContext | None = None
        self._secret = b""
        self._streams = self._lines = threading.BoundedSemaphore(1)
        self._evicted: dict[bytes, None] = {}  # and not ordered since; the oldest first
        self._evicted_lock = threading.Lock()

    def evicted(self, digest: bytes) -> None:
        """A content was given up: nobody need wait for it."""
        with self._evicted_lock:
            self._evicted[digest] = None
            if len(self._evicted) > _EVICTED:
                del self._evicted[next(iter(self._evicted))]

    def ordered(self, digest: bytes) -> None:
        """A content will come."""
        with self._evicted_lock:
            self._evicted.pop(digest, None)

    def serve(self, context: ssl.SSLContext, secret: bytes, readers: int) -> None:
        """Be somebody from now on."""
        is_first = self._context is None
        self._secret, self._context = secret, context
        self._streams = threading.BoundedSemaphore(readers)
        self._lines = threading.BoundedSemaphore(4 * readers + _BACKLOG)  # idle ones included
        if is_first:
            threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            if not self._lines.acquire(blocking=False):
                sock.close()
                continue
            threading.Thread(target=self._speak, args=(sock,), daemon=True).start()

    def _speak(self, sock: socket.socket) -> None:
        line: socket.socket = sock
        try:
            sock.settimeout(CONNECT)
            tune(sock)
            assert self._context is not None
            line = secure = self._context.wrap_socket(sock, server_side=True)
            while True:
                secure.settimeout(_IDLE)
                ask = _read_frame(secure, AskContent)
                if not isinstance(ask, AskContent):
                    return
                secure.settimeout(STALL)
                if not self._answer(secure, ask):
                    return
        except (OSError, BoughError):
            return  # the reader knows, and says so to the server
        finally:
            line.close()
            self._lines.release()

    def _answer(self, line: ssl.SSLSocket, ask: AskContent) -> bool:
        """Whether the reader may ask again."""
        if not is_admitted(self._secret, ask, time.time()):
            line.sendall(frame(ContentComes("the ticket is not valid")))
            return False
        if not self._streams.acquire(timeout=_EXPECTED):
            line.sendall(frame(ContentComes("it serves as many as it may")))
            return True
        try:
            number = self._open(ask.digest)
            if number < 0:
                line.sendall(frame(ContentComes("it does not have the content")))
                return True
            try:
                line.sendall(frame(ContentComes()))
                return self._send(line, number, ask)
            finally:
                os.close(number)
        finally:
            self._streams.release()

    def _open(self, digest: bytes) -> int:
        """The content, or as much of it as there is; it may be about to come."""
        until = time.monotonic() + _EXPECTED
        while True:
            if self._cache.has(digest):
                with contextlib.suppress(OSError):
                    number = os.open(self._cache.path(digest), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                    self._cache.used(digest)
                    return number
            for path in (f"{self._cache.pins}/{digest.hex()}", part_path(self._cache.folder, digest)):
                with contextlib.suppress(OSError):
                    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            if digest in self._evicted or time.monotonic() > until:
                return -1
            time.sleep(4 * _POLL)

    def _send(self, line: ssl.SSLSocket, number: int, ask: AskContent) -> bool:
        """Send what is asked for as it is there; False: the content went away, or does not grow."""
        at, end = ask.offset, ask.offset + ask.length
        buffer = bytearray(min(_CHUNK, max(1, ask.length)))
        view, grown = memoryview(buffer), time.monotonic()
        while at < end:
            count = os.preadv(number, [view[: min(len(buffer), end - at)]], at)
            if count:
                line.sendall(view[:count])
                at, grown = at + count, time.monotonic()
                continue
            state = os.fstat(number)
            if not state.st_nlink or state.st_size < at or time.monotonic() - grown > STALL:
                return False
            time.sleep(_POLL)
        return True
