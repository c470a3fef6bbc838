"""A connection of an emulated executor: a socket and what waits for it, with everything else shared by all of them.

Rule: an idle connection keeps no buffer. Sending never fails; a connection that was lost is noticed by reading.
"""

from __future__ import annotations

import os
import socket
import ssl

from bough.errors import PeerLost, ProtocolError
from bough.transport.access import Access
from bough.transport.dial import Dialling, places, try_next_place, unreachable
from bough.wire.client_messages import MAX_FRAME
from bough.wire.executor_messages import ToExecutor
from bough.wire.framing import frame, to_executor_frames

_CHUNK = 1 << 18
_HEAD = 4
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class EmulatedConnection:
    """One connection, from the first try to its end. Raises what `Dialling` raises."""

    __slots__ = ("_is_secure", "_opening", "_out", "_rest", "_sock", "lost", "wants_write")

    def __init__(self, access: Access, hello: bytearray) -> None:
        self._out: bytearray | None = hello  # what waits to be sent; its own
        self._rest: bytearray | None = None  # a frame that is not complete
        self._opening: Dialling | None = None
        self._sock: socket.socket | None = None
        self._is_secure = self.lost = False
        self.wants_write = True
        if access.is_proven:
            place = places(access)[0]
            try:
                self._opening = Dialling(access, place)
            except PeerLost:
                try_next_place(access)
                raise
        else:
            self._sock = _connect_unix(access.path)
            self.write()

    def fileno(self) -> int:
        """For epoll; the same all the time."""
        line = self._opening or self._sock
        assert line is not None
        return line.fileno()

    def send(self, data: bytes | bytearray) -> None:
        """Send a frame, now or when there is room; it is left as it is."""
        if self._out is not None:
            self._out += data
            return
        sent = self._try_to_send(data)
        if sent < len(data):
            self._out = bytearray(memoryview(data)[sent:])
            self.wants_write = True

    def write(self) -> None:
        """Open it if it is not open yet, send what the socket takes; errors of opening are raised."""
        if self._opening is not None and not self._open(self._opening):
            return
        out = self._out
        if out is not None:
            del out[: self._try_to_send(out)]
            self._out = out or None
        self.wants_write = bool(out)

    def _try_to_send(self, data: bytes | bytearray) -> int:
        """How much of it was taken; all of it, if the connection was lost."""
        assert self._sock is not None
        sent = 0
        try:
            if len(data) <= _CHUNK:
                return self._sock.send(data)
            with memoryview(data) as view:  # in slices: TLS wants the same bytes again when it was interrupted
                while sent < len(data):
                    with view[sent : sent + _CHUNK] as part:
                        sent += self._sock.send(part)
        except _LATER:
            return sent
        except OSError:
            return len(data)
        return sent

    def read(self, reader: EmulatedReader) -> list[ToExecutor]:
        """What was said; sets `lost` at the end of the stream."""
        sock = self._sock
        if sock is None:  # `write` goes on with opening it, and is always called first
            return []
        messages: list[ToExecutor] = []
        while True:
            try:
                count = sock.recv_into(reader.buffer)
            except _LATER as error:
                self.wants_write = self.wants_write or isinstance(error, ssl.SSLWantWriteError)
                break
            except OSError:
                count = 0
            if not count:
                self.lost = True
                break
            messages += self._cut(reader, reader.buffer[:count])
            if count < _CHUNK and not self._is_secure:  # TLS gives a record at a time
                break
        return messages

    def close(self) -> None:
        """Close it."""
        if self._opening is not None:
            self._opening.close()
        if self._sock is not None:
            self._sock.close()

    def _open(self, opening: Dialling) -> bool:
        dialled = opening.step()
        if dialled is None:
            self.wants_write = opening.wants_write
            return False
        self._sock = dialled.sock
        self._sock.setblocking(False)
        self._is_secure = isinstance(dialled.sock, ssl.SSLSocket)
        self._opening = None
        self._rest = bytearray(dialled.leftover) if dialled.leftover else None
        self._out = frame(dialled.proof) + (self._out or b"")
        return True

    def _cut(self, reader: EmulatedReader, data: memoryview) -> list[ToExecutor]:
        rest = self._rest
        if rest is not None:
            rest += data
        with memoryview(rest if rest is not None else data) as view:
            end, size = 0, len(view)
            while size - end >= _HEAD:
                length = int.from_bytes(view[end : end + _HEAD], "big")
                if length > MAX_FRAME:
                    raise ProtocolError(f"a frame of {length} bytes is over the limit of {MAX_FRAME}")
                if size - end - _HEAD < length:
                    break
                end += _HEAD + length
            messages = reader.feed(view[:end]) if end else []
            if rest is None and end < size:
                self._rest = bytearray(view[end:])
        if rest is not None:
            del rest[:end]
            self._rest = rest or None
        return messages


class EmulatedReader:
    """What all connections read with."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(_CHUNK))
        self.feed = to_executor_frames().feed  # whole frames only, so that nothing stays in it


def _connect_unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    found = sock.connect_ex(path)
    if found:
        sock.close()
        raise unreachable(path, OSError(found, os.strerror(found)))
    return sock
