"""The executor's connection to its server, read and written without blocking: a Unix socket, or TLS.

Rule: sending never fails; a connection that was lost is noticed by reading.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from bough import logs
from bough.errors import BoughError, PeerLost, ProtocolError, UserError
from bough.model.sites.site_specs import BY_SSH
from bough.wire.executor_messages import ToExecutor
from bough.wire.framing import frame, to_executor_frames

if TYPE_CHECKING:
    import ssl

    from bough.transport.access import Access
    from bough.transport.dial import Dialled, Dialling

_CHUNK = 1 << 18
_TIMEOUT = 10.0  # seconds for a connection to stand


def connect(address: str | Access, timeout: float = _TIMEOUT, *, wait: bool = True) -> ServerConnection:
    """Connect to unix:PATH, HOST:PORT, or what an access file or an `Access` says.

    A name is looked up at every call, so that a token or an address that has changed is found. Without `wait` a
    connection by TLS is opened while it is read and written: nothing blocks, and if it fails it is `lost`.
    """
    if isinstance(address, str) and address.startswith("unix:"):  # the embedded session's: nothing more is imported
        return ServerConnection(_connect_unix(address.removeprefix("unix:")))
    from bough.transport.access import find_access

    access = find_access(address, "execute") if isinstance(address, str) else address
    if not access.is_proven:
        return ServerConnection(_connect_unix(access.path))
    if wait:
        from bough.transport.dial import dial

        dialled = dial(access, timeout)
        connection = SecureConnection(dialled.sock)
        connection.greeting = [connection.opened(dialled)]
        return connection
    from bough.transport.dial import Dialling, places, try_next_place

    place = places(access)[0]
    try_next_place(access)  # comes last the next time
    return SecureConnection(Dialling(access, place))


def _connect_unix(path: str) -> socket.socket:
    if not path:
        raise UserError("the server address 'unix:' names no socket: use unix:PATH")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(path)
    except OSError as error:
        sock.close()
        raise PeerLost(f"the server at {path} cannot be reached: {error.strerror}", transient=True) from error
    sock.setblocking(False)
    return sock


class ServerConnection:
    """Frames in and out."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = to_executor_frames()
        self._out = bytearray()
        self._in = memoryview(bytearray(_CHUNK))  # kept: a new one for every read costs more than the read
        self.greeting: list[object] = []  # goes before the hello, in the same frame
        self.lost = False
        self.why = ""  # it is lost, if that was said
        self.writing = False  # waiting to be writable

    def fileno(self) -> int:
        """For epoll."""
        return self._sock.fileno()

    def own_address(self, told: str = "") -> str:
        """Where other executors reach this host: `told`, or its address on the way to the server.

        A Unix socket is taken to be the server's own, on this host: then that is loopback. With `told` as BY_SSH it is
        one that SSH forwards: then it is where SSH reached this host.
        """
        if told not in {"", BY_SSH}:
            return told
        if self._sock.family != socket.AF_UNIX:
            return str(self._sock.getsockname()[0])
        from bough.transport.own_addresses import LOOPBACK, reached_by_ssh

        return reached_by_ssh() if told else LOOPBACK

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
        return self._understand(self._in[:count])

    def _understand(self, data: bytes | memoryview) -> list[ToExecutor]:
        try:
            return self._frames.feed(data)
        except ProtocolError as error:  # no server of ours: as if it had disconnected
            self.why = f"what the server says cannot be understood: {error}"
            logs.error("message-unreadable", f"{self.why}")
            self.lost = True
            return []

    def close(self) -> None:
        """Close it."""
        self._sock.close()


class SecureConnection(ServerConnection):
    """The same where a proof is asked for: by TLS, which keeps bytes of its own that epoll does not see.

    Or on a relay's Unix socket, as if that were TLS that keeps none.
    """

    _secure: ssl.SSLSocket

    def __init__(self, line: socket.socket | Dialling) -> None:
        super().__init__(line)  # type: ignore[arg-type]  # an opening is watched and closed in the same way
        import ssl

        self._opening = None if isinstance(line, socket.socket) else line  # until it is open
        self._later = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)
        self._kept: Callable[[], int] = lambda: 0  # bytes that TLS keeps
        self._owes = False  # TLS itself has something to write before it can read on
        self._early: list[ToExecutor] = []

    def opened(self, dialled: Dialled) -> object:
        """The connection stands; the proof, which is to be said first."""
        self._sock = self._secure = dialled.sock  # type: ignore[assignment]  # a relay's Unix socket does as well
        self._kept = getattr(dialled.sock, "pending", self._kept)
        self._sock.setblocking(False)
        self._early = self._understand(dialled.leftover) if dialled.leftover else []
        return dialled.proof

    def write(self) -> None:
        """Send what the socket takes, in slices: TLS wants the same bytes again when it was interrupted.

        What is waiting only grows at its end, so the next slice starts with the same bytes and is no shorter.
        """
        if self._opening is not None and not self._open(self._opening):
            return
        self._owes = False
        while self._out:
            try:
                with memoryview(self._out) as view, view[:_CHUNK] as part:
                    sent = self._secure.send(part)
            except self._later:
                return
            except OSError:
                self._out.clear()
                return
            del self._out[:sent]

    @property
    def pending(self) -> bool:
        """Whether it must be told when the socket can be written."""
        return bool(self._out) or self._owes if self._opening is None else self._opening.wants_write

    def read(self) -> list[ToExecutor]:
        """What the server has said, all that TLS has deciphered so far; sets `lost` at the end of the stream."""
        if self._opening is not None:  # `write` goes on with that, and is always called first
            return []
        size, end = 0, False
        while size < _CHUNK:
            try:
                count = self._secure.recv_into(self._in[size:])
            except self._later as error:
                self._owes = type(error) is self._later[1]
                break
            except OSError:
                count = 0
            if not count:
                end = True
                break
            size += count
        messages, self._early = self._early, []
        if size:
            messages += self._understand(self._in[:size])
        if size == _CHUNK and (rest := self._kept()):  # the buffer was full: epoll would not tell of the rest
            messages += self._understand(self._secure.recv(rest))
        self.lost = self.lost or end
        return messages

    def _open(self, opening: Dialling) -> bool:
        if self.lost:
            return False
        try:
            dialled = opening.step()
        except BoughError as error:
            if not isinstance(error, PeerLost):  # that the server is not there is said elsewhere
                logs.error("connect-failed", f"{error}")
            self.lost = True
            return False
        if dialled is None:
            return False
        self._out[:0] = frame(self.opened(dialled))
        self._opening = None
        return True
