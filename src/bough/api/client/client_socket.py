"""A socket that never blocks, plain or TLS.

A connected socket as the session's connection uses it: never blocking, plain or TLS.

Rule: TLS is loaded by those who use it; an embedded session does not.

A TLS socket as the session's connection uses it.

Rule: a TLS object is used by one thread at a time, so every call on it is under one lock; a write that TLS did not
take is tried again with the same bytes in front, as OpenSSL demands.
"""

from __future__ import annotations

import socket
import ssl
import threading


class ClientSocket:
    """A plain socket: a Unix socket, or one end of a pair."""

    is_greedy = False  # after something was received there may be more that no poll tells of

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._sock.fileno()

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Send what the socket takes now; returns how much that was."""
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0

    def receive(self, buffer: bytearray) -> int:
        """Receive into a buffer; returns how much, 0 at the end and -1 when there is nothing now."""
        try:
            return self._sock.recv_into(buffer)
        except BlockingIOError:
            return -1

    def close(self) -> None:
        """Let go."""
        self._sock.close()


def line_over(sock: socket.socket) -> ClientSocket:
    """The line for a socket."""
    if type(sock) is socket.socket:
        return ClientSocket(sock)

    return TlsClientSocket(sock)


_PIECE = 1 << 16  # bytes given to TLS at a time: what has to be said again after "not now" is no more than that


class TlsClientSocket(ClientSocket):
    """A TLS socket."""

    is_greedy = True

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._using = threading.Lock()

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Send what the socket takes now; returns how much that was."""
        view, sent = memoryview(data), 0
        with self._using:
            while sent < len(view):
                try:
                    sent += self._sock.send(view[sent : sent + _PIECE])
                except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    break
        return sent

    def receive(self, buffer: bytearray) -> int:
        """Receive into a buffer; returns how much, 0 at the end and -1 when there is nothing now."""
        with self._using:
            try:
                return self._sock.recv_into(buffer)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return -1
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0

    def close(self) -> None:
        """Let go."""
        with self._using:
            super().close()
