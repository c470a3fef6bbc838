"""One peer's stream: bytes in, messages to the listener; messages out, one frame and one write per turn.

Rule: nothing here knows what a message means, or whether the stream is a Unix socket, TCP or TLS.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from typing import Protocol, cast

from bough.errors import ProtocolError
from bough.wire.framing import frame, frame_list, server_frames
from bough.wire.messages import FromClient, Refused
from bough.wire.relaying import RelayHello
from bough.wire.work import FromExecutor

_LATER = 0.2  # seconds that acknowledgements may wait for something to travel with
_STREAM = 0.002  # seconds for which outcomes wait for each other while work goes on and the client only listens
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
        self._is_late = False  # what waits has waited since before the timer was set
        self._has_spoken = True  # the peer has said something since it was told something
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1  # of a Unix socket: written to directly, as long as nothing waits in the transport

    # --- what asyncio calls ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and send what was said before there was one."""
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family == socket.AF_UNIX and transport.get_extra_info("sslcontext") is None:
            self._descriptor = sock.fileno()
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Cut the bytes into messages; a peer that speaks another language is told so and cut off."""
        try:
            messages = self._frames.feed(data)
        except ProtocolError as error:
            self.refuse(str(error), "ProtocolError")
            return
        if messages:
            self._has_spoken = True
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

    def say_later(self, message: object, loop: asyncio.AbstractEventLoop, patience: float = _LATER) -> None:
        """Send a message with the next one that is sent, or in a moment: an acknowledgement that nobody waits for.

        One timer stands while there is something to say now and then; it is not set anew for every message.
        """
        self._later.append(message)
        if self._timer is None:
            self._is_late = True
            self._timer = loop.call_later(patience, self._look_later, loop, patience)

    def stream(self, messages: Sequence[object], loop: asyncio.AbstractEventLoop) -> None:
        """Say something that more of the kind will follow: if the peer only listens, several go together."""
        if self._has_spoken:
            for message in messages:
                self.say(message)
        elif messages:
            self._later += messages[:-1]
            self.say_later(messages[-1], loop, _STREAM)

    def _look_later(self, loop: asyncio.AbstractEventLoop, patience: float) -> None:
        self._timer = None
        if self._later and not self._is_late:  # what the timer was set for has gone; this came after it
            self._is_late = True
            self._timer = loop.call_later(patience, self._look_later, loop, patience)
        else:
            self._send_later()

    def _send_later(self) -> None:
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
        self._has_spoken = False
        if self._later:
            outbox, self._later = [*self._later, *outbox], []
            self._is_late = False
        if transport.is_closing():
            return
        try:
            self._write(transport, frame_list(outbox))
        except ProtocolError:  # too big together; each alone may pass
            for message in outbox:
                try:
                    transport.write(frame(message))
                except ProtocolError as error:
                    self.refuse(str(error), "ProtocolError")
                    return
        if transport.get_write_buffer_size() > _MOST_UNSENT and not self.trusted:
            transport.abort()

    def _write(self, transport: asyncio.Transport, data: bytearray) -> None:
        """Send at once, where that can be done: a transport may wait until the end of the loop's round."""
        sent = 0
        if self._descriptor >= 0 and not transport.get_write_buffer_size():
            try:
                sent = os.write(self._descriptor, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # it is gone, which reading will tell
        if sent < len(data):
            transport.write(data[sent:] if sent else data)

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
