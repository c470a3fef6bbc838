"""The executor's connection to its server: a Unix socket, read and written without blocking.

Rule: sending never fails; a connection that is gone is noticed by reading.
"""

from __future__ import annotations

import socket
import sys

from bough.errors import PeerLost, ProtocolError, UserError
from bough.wire.framing import to_executor_frames
from bough.wire.messages import ToExecutor

_CHUNK = 1 << 18


def connect(address: str) -> Connection:
    """Connect to an address such as "unix:/path/of/socket"."""
    scheme, _, path = address.partition(":")
    if scheme != "unix" or not path:
        raise UserError(f"the server address {address!r} is not of the form unix:PATH")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(path)
    except OSError as error:
        sock.close()
        raise PeerLost(f"the server at {path} cannot be reached: {error.strerror}", transient=True) from error
    sock.setblocking(False)
    return Connection(sock)


class Connection:
    """Frames in and out."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = to_executor_frames()
        self._out = bytearray()
        self._in = memoryview(bytearray(_CHUNK))  # kept: a new one for every read costs more than the read
        self.lost = False
        self.writing = False  # waiting to be writable

    def fileno(self) -> int:
        """For epoll."""
        return self._sock.fileno()

    def send(self, data: bytes | bytearray) -> None:
        """Send a frame, now or when there is room."""
        self._out += data
        self.write()

    def write(self) -> None:
        """Send what the socket takes."""
        while self._out:
            try:
                sent = self._sock.send(self._out)
            except BlockingIOError:
                return
            except OSError:
                self._out.clear()
                return
            del self._out[:sent]

    @property
    def pending(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._out)

    def read(self) -> list[ToExecutor]:
        """What the server has said; sets `lost` at the end of the stream."""
        try:
            count = self._sock.recv_into(self._in)
        except BlockingIOError:
            return []
        except OSError:
            count = 0
        if not count:
            self.lost = True
            return []
        try:
            return self._frames.feed(self._in[:count])
        except ProtocolError as error:  # no server of ours: what runs is ended and kept as if it were gone
            sys.stderr.write(f"bough executor: {error}\n")
            self.lost = True
            return []

    def close(self) -> None:
        """Hang up."""
        self._sock.close()
