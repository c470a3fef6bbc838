"""Serving the contents of a cache to other executors, by TLS. It blocks: each connection has a thread.

A content that is still coming is served as it comes, so that a file which many want goes along a chain at the speed of
one copy. Rules: nothing is given without a ticket, and to a bounded number of readers at a time; the streams of one
transfer count as one reader, its ranges as one reading, and it may go on when its ticket ends, or when the executor has
become somebody else because the server was away. A reader that takes nothing for a while is given up. Of the
connections over which nothing is served, the one that was silent for longest gives way to a new one when there are too
many.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import stat
import threading
import time
from typing import Final

from bough.errors import BoughError
from bough.executor.files.caches.host_cache import HostCache, part_path
from bough.executor.files.transfers.peer_link import CONNECT, IDLE, STALL, read_frame
from bough.transport.dial import tune
from bough.wire.framing import frame
from bough.wire.peer_messages import MOST_STREAMS, AskContent, ContentComes, is_admitted

_EXPECTED: Final = 5.0  # seconds that a content may be awaited that is not there
_POLL: Final = 0.005  # seconds between looks at a content that grows
_TRANSFERS: Final = 1000  # that are known to be under way
_EVICTED: Final = 4096  # contents that are remembered to have been given up
_CHUNK: Final = 1 << 18
_BACKLOG: Final = 64
_CLOSED: Final = frozenset({errno.EBADF, errno.EINVAL})
_LEFT: Final = getattr(select, "POLLRDHUP", 0)  # of Linux; that a connection broke is said in any case
_GIVES_WAY: Final = 1.0  # seconds for which a new connection waits for another one to end
_BETWEEN: Final = 1.0  # seconds for which a transfer keeps its place between two ranges


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


class ReaderPlaces:
    """Who is served: a bounded number of readers, each with a bounded number of streams."""

    def __init__(self, readers: int) -> None:
        self._readers = readers
        self._streams: dict[object, int] = {}  # of each reader; 0: between two of its ranges
        self._since: dict[object, float] = {}  # of those that are between two
        self._changed = threading.Condition()

    def take(self, reader: object, seconds: float) -> bool:
        """One more stream for a reader; False: there was no room in that time."""
        until = time.monotonic() + seconds
        with self._changed:
            while not self._has_room(reader):
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, _BETWEEN))
            self._streams[reader] = self._streams.get(reader, 0) + 1
            self._since.pop(reader, None)
        return True

    def _has_room(self, reader: object) -> bool:
        if reader in self._streams:
            return self._streams[reader] < MOST_STREAMS
        now = time.monotonic()
        for other in [other for other, since in self._since.items() if now - since > _BETWEEN]:
            del self._since[other], self._streams[other]
        return len(self._streams) < self._readers

    def leave(self, reader: object, *, keep: bool) -> None:
        """A stream less; `keep`: the reader's place is kept a moment for its next range."""
        with self._changed:
            self._streams[reader] -= 1
            if not self._streams[reader]:
                if keep:
                    self._since[reader] = time.monotonic()
                else:
                    del self._streams[reader]
            self._changed.notify_all()


class ServedTransfers:
    """Those of which a range was asked for of late. Any thread may use it."""

    def __init__(self) -> None:
        self._asked: dict[object, float] = {}  # when last, the longest ago first
        self._lock = threading.Lock()

    def has(self, transfer: object) -> bool:
        """Whether it is one."""
        with self._lock:
            return time.monotonic() - self._asked.get(transfer, -IDLE) < IDLE

    def asks(self, transfer: object) -> None:
        """One more range of it, or the first."""
        with self._lock:
            self._asked.pop(transfer, None)
            if len(self._asked) >= _TRANSFERS:
                del self._asked[next(iter(self._asked))]
            self._asked[transfer] = time.monotonic()


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
        self._places = ReaderPlaces(1)
        self._transfers = ServedTransfers()
        self._lines = threading.BoundedSemaphore(1)
        self._silent: dict[ssl.SSLSocket, None] = {}  # connections that wait to be asked, the longest first
        self._silent_lock = threading.Lock()
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
        self._places = ReaderPlaces(readers)
        self._lines = threading.BoundedSemaphore(MOST_STREAMS * readers + _BACKLOG)  # idle ones included
        if is_first:
            threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if error.errno in _CLOSED:
                    return
                time.sleep(_GIVES_WAY)  # no descriptor is left, or a network went: others may come later
                continue
            lines = self._lines  # it has others when it has become somebody else
            if not lines.acquire(blocking=False) and not (self._hang_up() and lines.acquire(timeout=_GIVES_WAY)):
                sock.close()
                continue
            try:
                threading.Thread(target=self._speak, args=(sock, lines), daemon=True).start()
            except RuntimeError:  # the host takes no more threads now
                sock.close()
                lines.release()

    def _hang_up(self) -> bool:
        """End a connection over which nothing is served; whether there was one."""
        with self._silent_lock:
            line = next(iter(self._silent), None)
            if line is None:
                return False
            del self._silent[line]
            with contextlib.suppress(OSError):  # its thread closes it
                socket.socket.shutdown(line, socket.SHUT_RDWR)
        return True

    def _hear(self, line: ssl.SSLSocket) -> AskContent:
        """What a reader asks for next; until then its connection may be ended for another one."""
        line.settimeout(IDLE)
        with self._silent_lock:
            self._silent[line] = None
        try:
            return read_frame(lambda part: _fill(line, part), AskContent)
        finally:
            with self._silent_lock:
                self._silent.pop(line, None)

    def _speak(self, sock: socket.socket, lines: threading.BoundedSemaphore) -> None:
        line: socket.socket = sock
        try:
            sock.settimeout(CONNECT)
            tune(sock)
            assert self._context is not None
            line = secure = self._context.wrap_socket(sock, server_side=True)
            while True:
                ask = self._hear(secure)
                secure.settimeout(STALL)
                if not self._answer(secure, ask):
                    return
        except (OSError, BoughError):
            return  # the reader knows, and says so to the server
        finally:
            line.close()
            lines.release()

    def _answer(self, line: ssl.SSLSocket, ask: AskContent) -> bool:
        """Whether the reader may ask again."""
        places, place = self._places, (ask.reader, ask.digest, ask.transfer or object())
        transfer = (*place, ask.ticket)  # which was valid when it began
        goes_on = self._transfers.has(transfer)
        if not goes_on and not is_admitted(self._secret, ask, time.time()):
            line.sendall(frame(ContentComes("the ticket is not valid")))
            return False
        if ask.transfer:
            self._transfers.asks(transfer)
        if not places.take(place, _EXPECTED):
            line.sendall(frame(ContentComes("it serves as many as it may")))
            return True
        try:
            number = self._open(ask.digest, uses=0 if goes_on else 1)
            if number < 0:
                line.sendall(frame(ContentComes("it does not have the content")))
                return True
            try:
                line.sendall(frame(ContentComes(streams=MOST_STREAMS)))
                return self._send(line, number, ask)
            finally:
                os.close(number)
        finally:
            places.leave(place, keep=bool(ask.transfer))

    def _open(self, digest: bytes, *, uses: int) -> int:
        """The content, or as much of it as there is; it may be about to come."""
        until = time.monotonic() + _EXPECTED
        while True:
            if self._cache.has(digest):
                with contextlib.suppress(OSError):
                    number = os.open(self._cache.path(digest), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                    self._cache.used(digest, uses)
                    return number
            for path in (f"{self._cache.pins}/{digest.hex()}", part_path(self._cache.folder, digest)):
                with contextlib.suppress(OSError):
                    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            if digest in self._evicted:
                return -1
            if time.monotonic() > until:
                self._cache.drop(digest)  # somebody has removed it, and others shall not be sent here for it
                return -1
            time.sleep(4 * _POLL)

    def _send(self, line: ssl.SSLSocket, number: int, ask: AskContent) -> bool:
        """Send what is asked for as it is there; False: the content went away, or does not grow.

        One that is still coming may not have come as far as where the range begins.
        """
        at, end, there = ask.offset, ask.offset + ask.length, 0
        buffer = bytearray(min(_CHUNK, max(1, ask.length)))
        view, grown = memoryview(buffer), time.monotonic()
        while at < end:
            count = os.preadv(number, [view[: min(len(buffer), end - at)]], at)
            if count:
                line.sendall(view[:count])
                at, grown = at + count, time.monotonic()
                there = at
                continue
            state = os.fstat(number)
            is_whole = not state.st_mode & stat.S_IWUSR  # it grows no more
            if not state.st_nlink or state.st_size < there or (is_whole and state.st_size <= at):
                return False
            if state.st_size > there:
                there, grown = state.st_size, time.monotonic()
            elif time.monotonic() - grown > STALL:
                return False
            if _has_left(line):  # it has it from elsewhere, and others may have its place
                return False
            time.sleep(_POLL)
        return True


def _has_left(line: socket.socket) -> bool:
    """Whether a reader has hung up."""
    poll = select.poll()
    poll.register(line, _LEFT)
    return bool(poll.poll(0))


def _fill(line: ssl.SSLSocket, part: memoryview) -> None:
    """Receive so many bytes."""
    filled = 0
    while filled < len(part):
        count = line.recv_into(part[filled:])
        if not count:
            raise ConnectionError("the reader hung up")
        filled += count
