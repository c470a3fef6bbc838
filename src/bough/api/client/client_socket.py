"""A socket that never blocks, plain or TLS, as a session's connection uses it.

What the socket does not take is kept in `unsent` until it can be written. A TLS object is used by one thread at a
time, so every call on it is under one lock; what TLS did not take is tried again with the same bytes in front, as
OpenSSL demands.

Rules: nothing here waits. The caller guards writing with a lock of its own. `ssl` is loaded only for a TLS socket.
"""

from __future__ import annotations

import socket
import threading

_PIECE = 1 << 16  # bytes given to TLS at a time: after "not now" no more than that is given again
_AT_ONCE = 1 << 20  # bytes of `unsent` that are tried at a time


class ClientSocket:
    """A plain socket: a Unix socket, or one end of a pair."""

    is_greedy = False  # True: after something was received there may be more that no poll tells of

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self.fileno = sock.fileno
        self.unsent = bytearray()  # what the socket did not take

    def write(self, data: bytes | bytearray) -> bool:
        """Send what the socket takes now and keep the rest in `unsent`; whether there is a new rest."""
        if self.unsent:
            self.unsent += data
            return False
        sent = self._send(data)
        if sent < len(data):
            self.unsent += memoryview(data)[sent:]
            return True
        return False

    def write_unsent(self) -> None:
        """Send more of what the socket did not take."""
        if self.unsent:
            sent = self._send(memoryview(self.unsent)[:_AT_ONCE])
            del self.unsent[:sent]

    def receive(self, buffer: bytearray) -> int:
        """Receive into a buffer; returns how much, 0 at the end and -1 when there is nothing now."""
        try:
            return self._sock.recv_into(buffer)
        except BlockingIOError:
            return -1

    def close(self) -> None:
        """Close the socket; what is unsent is lost."""
        self.unsent = bytearray()  # not cleared: a traceback may still hold a view of the old one
        self._sock.close()

    def _send(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0


class TlsClientSocket(ClientSocket):
    """A TLS socket."""

    is_greedy = True

    def __init__(self, sock: socket.socket) -> None:
        import ssl  # an embedded session must not load it

        super().__init__(sock)
        self._not_now = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
        self._at_end = (ssl.SSLZeroReturnError, ssl.SSLEOFError)
        self._using = threading.Lock()

    def receive(self, buffer: bytearray) -> int:
        """Receive into a buffer; returns how much, 0 at the end and -1 when there is nothing now."""
        with self._using:
            try:
                return self._sock.recv_into(buffer)
            except self._not_now:
                return -1
            except self._at_end:
                return 0

    def close(self) -> None:
        """Close the socket; what is unsent is lost."""
        with self._using:
            super().close()

    def _send(self, data: bytes | bytearray | memoryview) -> int:
        view, sent = memoryview(data), 0
        with self._using:
            while sent < len(view):
                try:
                    sent += self._sock.send(view[sent : sent + _PIECE])
                except self._not_now:
                    break
        return sent


def client_socket(sock: socket.socket) -> ClientSocket:
    """A connected socket as a `ClientSocket`."""
    return ClientSocket(sock) if type(sock) is socket.socket else TlsClientSocket(sock)
