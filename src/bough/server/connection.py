"""One peer's stream: bytes in, messages to the listener; messages out, one frame and one write per turn.

Rule: nothing here knows what a message means, or whether the stream is a Unix socket, TCP or TLS.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from bough.errors import ProtocolError
from bough.wire.framing import frame, frame_list, server_frames
from bough.wire.messages import FromClient, Refused
from bough.wire.relaying import RelayHello
from bough.wire.work import FromExecutor

_LATER = 0.2  # seconds that acknowledgements may wait for something to travel with
_MOST_UNSENT = 1 << 28  # bytes a peer may leave unread before it is cut off


class Listener(Protocol):
    """Who is told what arrives."""

    def heard(self, connection: Connection, messages: list[FromClient | FromExecutor | RelayHello]) -> None:
        """Messages arrived, in order."""

    def lost(self, connection: Connection) -> None:
        """The connection is gone; called once."""


class Connection(asyncio.Protocol):
    """See the module. `trusted`: it came by an inherited descriptor, so it may own the session."""

    def __init__(self, listener: Listener, dirty: list[Connection], *, trusted: bool = False) -> None:
        self.trusted = trusted
        self.role = "owner"  # what it may do: all, by a Unix socket; else that of the token it has proven to know
        self._listener = listener
        self._dirty = dirty  # connections with something to send; the shell flushes them after a turn
        self._frames = server_frames()
        self._outbox: list[object] = []
        self._later: list[object] = []  # what can wait for company
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    # --- what asyncio calls ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and send what was said before there was one."""
        self._transport = cast("asyncio.Transport", transport)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Cut the bytes into messages; a peer that speaks another language is told so and cut off."""
        try:
            messages = self._frames.feed(data)
        except ProtocolError as error:
            self.refuse(str(error), "ProtocolError")
            return
        if messages:
            self._listener.heard(self, messages)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the listener."""
        self._transport = None
        self._listener.lost(self)

    # --- what the shell calls ----------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether something said now can still arrive."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def unsent(self) -> int:
        """Bytes that the peer has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def say(self, message: object) -> None:
        """Send a message with the next flush."""
        if not self._outbox:
            self._dirty.append(self)
        self._outbox.append(message)

    def say_later(self, message: object, loop: asyncio.AbstractEventLoop) -> None:
        """Send a message with the next one that is sent, or in a moment: an acknowledgement that nobody waits for."""
        self._later.append(message)
        if self._timer is None:
            self._timer = loop.call_later(_LATER, self._send_later)

    def _send_later(self) -> None:
        self._timer = None
        if self._later and not self._outbox:
            self._outbox, self._later = self._later, []
            self.flush()

    def send(self, message: object) -> None:
        """Send a message now, outside of a turn."""
        self.say(message)
        self.flush()

    def flush(self) -> None:
        """Send all that was said as one frame."""
        outbox, transport = self._outbox, self._transport
        if not outbox or transport is None:
            return
        self._outbox = []
        if self._later:
            outbox, self._later = [*self._later, *outbox], []
        if transport.is_closing():
            return
        try:
            transport.write(frame_list(outbox))
        except ProtocolError:  # too big together; each alone may pass
            for message in outbox:
                try:
                    transport.write(frame(message))
                except ProtocolError as error:
                    self.refuse(str(error), "ProtocolError")
                    return
        if transport.get_write_buffer_size() > _MOST_UNSENT and not self.trusted:
            transport.abort()

    def refuse(self, message: str, kind: str) -> None:
        """Say why, and hang up."""
        self.say(Refused(message, kind=kind))
        self.flush()
        self.close()

    def close(self) -> None:
        """Hang up once everything said has been sent."""
        self._send_later()
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Hang up at once."""
        if self._transport is not None:
            self._transport.abort()

    def release(self) -> asyncio.Transport | None:
        """Give the stream to somebody else; nothing more is heard or said here."""
        transport, self._transport = self._transport, None
        return transport

    def pause(self, *, on: bool) -> None:
        """Stop reading for a while, or go on."""
        if self._transport is None or self._transport.is_closing():
            return
        if on and self._transport.is_reading():
            self._transport.pause_reading()
        elif not on and not self._transport.is_reading():
            self._transport.resume_reading()
