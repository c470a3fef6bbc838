"""A connected socket as the session's connection uses it: never blocking, plain or TLS.

Rule: TLS is loaded by those who use it; an embedded session does not.
"""

from __future__ import annotations

import socket


class Line:
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


def line_over(sock: socket.socket) -> Line:
    """The line for a socket."""
    if type(sock) is socket.socket:
        return Line(sock)
    from bough.api.tlsline import TlsLine

    return TlsLine(sock)
