"""One peer's stream: bytes in, messages to the listener; messages out, one frame and one write per turn.

Rule: nothing here knows what a message means, or whether the stream is a Unix socket, TCP or TLS; only which ones are
answered, so that a peer with many requests open, or one that does not read the answers, is not read from meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Protocol, cast

from bough.errors import ProtocolError
from bough.model.events.news import PagesAdded
from bough.server.peer_quotas import FREE, OWNER, Quotas, Share
from bough.wire.client_messages import (
    Accepted,
    Amend,
    Answer,
    Ask,
    DoAction,
    FromClient,
    ManageService,
    Refused,
    Submit,
)
from bough.wire.executor_messages import FromExecutor
from bough.wire.file_messages import FileLocated, FilePiece, FindPeers, GetPiece, PutPiece, WantFile
from bough.wire.framing import frame, frame_list, server_frames
from bough.wire.relay_channels import RelayHello

Message = FromClient | FromExecutor | RelayHello

_LATER = 0.2  # seconds that acknowledgements may wait for something to travel with
_STREAM = 0.002  # seconds for which outcomes wait for each other while work continues and the client only listens
_SUBMITTED = frozenset({Submit, PagesAdded})  # answered together by `Accepted`, or singly by `Refused`
_FROM_CLIENT = frozenset({Ask, DoAction, Amend, ManageService, PutPiece, *_SUBMITTED})
_ANSWERED = _FROM_CLIENT | {WantFile, GetPiece, FindPeers}
_NONE: frozenset[type] = frozenset()
_ANSWERS = frozenset({Answer, FileLocated, FilePiece})


class Listener(Protocol):
    """What is told of what arrives."""

    def on_messages(self, connection: PeerConnection, messages: list[Message]) -> None:
        """Messages arrived, in order."""

    def on_lost(self, connection: PeerConnection) -> None:
        """The connection was lost; called once."""


class PeerConnection(asyncio.Protocol):
    """See the module. `trusted`: it came by an inherited descriptor, so it may own the session, and has no quota."""

    def __init__(
        self, listener: Listener, dirty: list[PeerConnection], *, trusted: bool = False, quotas: Quotas | None = None
    ) -> None:
        self.trusted = trusted
        self.role = OWNER  # what it may do: all, by a Unix socket; else that of the token it has proven to know
        self.site = ""  # by the door of which it came; empty: by one that is for all
        self._listener = listener
        self._dirty = dirty  # connections with something to send; the shell flushes them after a turn
        self._quotas = None if trusted else quotas or Quotas()
        self._share: Share | None = None  # what it has of the quota of its role, while it is connected
        self._frames = server_frames()
        self._holds = False  # bytes of an incomplete frame are counted
        self._queue: deque[Message] = deque()  # what waits until others are answered
        self._asked = 0  # requests that are not answered
        self._submitted: deque[int] = deque()  # submissions that are not, by their numbers
        self._stops: set[str] = set()  # why it is not read from
        self._is_full = self._is_deaf = False  # the peer does not read as fast as it is told; it was refused
        self._outbox: list[object] = []
        self._later: list[object] = []  # what can wait for company
        self._timer: asyncio.TimerHandle | None = None
        self._is_late = False  # what waits has waited since before the timer was set
        self._has_spoken = True  # the peer has said something since it was told something
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1  # of a Unix socket: written to directly, as long as nothing waits in the transport
        self._biggest = 0  # bytes of the biggest frame that was sent

    # --- what asyncio calls ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and send what was said before there was one."""
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family == socket.AF_UNIX and transport.get_extra_info("sslcontext") is None:
            self._descriptor = sock.fileno()
        if self._quotas is not None:
            self._join(self._transport, self._quotas.of(self.role))
        self.flush()

    def _join(self, transport: asyncio.Transport, share: Share) -> None:
        self._share, quota = share, share.quota
        self._frames.limit = quota.frame
        transport.set_write_buffer_limits(high=quota.unread)
        share.connections += 1
        if share.connections > quota.connections:
            self.refuse(f"{quota.connections} connections of the role {self.role} are open already", "SiteError")

    def data_received(self, data: bytes) -> None:
        """Cut the bytes into messages; a peer that speaks another language is told so and cut off."""
        if self._is_deaf:
            return
        try:
            messages = self._frames.feed(data)
        except ProtocolError as error:
            self.refuse(str(error), "ProtocolError")
            return
        if messages:
            self._has_spoken = True
            self._take(messages)
        kept = self._frames.kept
        if kept > FREE or self._holds:
            self._holds = kept > FREE
            if self._share is not None:
                self._share.holds(self, kept if self._holds else 0)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the listener."""
        self._transport = None
        self._leave()
        self._listener.on_lost(self)

    def _leave(self) -> None:
        self._queue.clear()
        if self._share is not None:
            self._share.gone(self)
            self._share = None

    def pause_writing(self) -> None:
        """The peer does not read as fast as it is told."""
        self._is_full = True

    def resume_writing(self) -> None:
        """It does again."""
        self._is_full = False
        if self._queue:
            self._go_on()

    # --- requests ----------------------------------------------------------------------------------

    def _take(self, messages: list[Message]) -> None:
        """Pass messages on, unless too many requests are open: then they wait, and so does what is not read yet."""
        if self._share is None:
            self._listener.on_messages(self, messages)
            return
        quota = self._share.quota
        room = 0 if self._is_full else min(quota.at_once, quota.requests - self._unanswered)
        if not self._queue and sum([type(message) in _ANSWERED for message in messages]) <= room:
            self._pass_on(messages)
            return
        self._queue += messages
        if len(self._queue) > quota.queue:
            self.refuse(f"{len(self._queue)} messages came at once, the limit is {quota.queue}", "ProtocolError")
        else:
            self._go_on()

    @property
    def _unanswered(self) -> int:
        return self._asked + len(self._submitted)

    def _go_on(self) -> None:
        """Pass on what waits, as far as possible."""
        queue = self._queue
        while queue and self._share is not None and not self._is_deaf:
            room = min(self._share.quota.at_once, self._share.quota.requests - self._unanswered)
            waits = _ANSWERED if room <= 0 else _FROM_CLIENT if self._is_full else _NONE
            some: list[Message] = []
            while queue and (kind := type(queue[0])) not in waits:
                some.append(queue.popleft())
                if kind in _ANSWERED:
                    room -= 1
                    if not room:
                        waits = _ANSWERED
            if not some:
                self.stop_reading("requests", on=True)
                return
            self._pass_on(some)
        if self._is_deaf:
            queue.clear()
        self.stop_reading("requests", on=False)

    def _pass_on(self, messages: list[Message]) -> None:
        for message in messages:
            kind = type(message)
            if kind in _ANSWERED:
                if kind not in _SUBMITTED:
                    self._asked += 1
                elif message.request:  # type: ignore[union-attr]
                    self._submitted.append(message.request)  # type: ignore[union-attr]
        self._listener.on_messages(self, messages)

    def _answered(self, messages: Sequence[object]) -> None:
        """Something is sent: requests may be answered by it."""
        before = self._unanswered
        submitted = self._submitted
        for message in messages:
            kind = type(message)
            if kind in _ANSWERS:
                self._asked -= 1
            elif kind is Accepted:
                while submitted and submitted[0] <= message.request:  # type: ignore[attr-defined]
                    submitted.popleft()
            elif kind is Refused and message.request:  # type: ignore[attr-defined]
                if message.request in submitted:  # type: ignore[attr-defined]
                    submitted.remove(message.request)  # type: ignore[attr-defined]
                else:
                    self._asked -= 1
        self._asked = max(self._asked, 0)
        if "requests" in self._stops and self._unanswered < before:
            asyncio.get_running_loop().call_soon(self._go_on)

    # --- what the shell calls ----------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether something said now can still arrive."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_stopped(self) -> bool:
        """Whether what the peer says is not read now."""
        return bool(self._stops)

    @property
    def unsent(self) -> int:
        """Bytes that the peer has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def say(self, message: object) -> None:
        """Send a message with the next flush."""
        if not self._outbox:
            self._dirty.append(self)
        self._outbox.append(message)

    def say_later(self, message: object, loop: asyncio.AbstractEventLoop, wait: float = _LATER) -> None:
        """Send a message with the next one that is sent, or in a moment: an acknowledgement that no peer waits for.

        One timer stands while there is something to say now and then; it is not set anew for every message.
        """
        self._later.append(message)
        if self._timer is None:
            self._is_late = True
            self._timer = loop.call_later(wait, self._look_later, loop, wait)

    def stream(self, messages: Sequence[object], loop: asyncio.AbstractEventLoop) -> None:
        """Say something that more of the kind will follow: if the peer only listens, several go together."""
        if self._has_spoken:
            for message in messages:
                self.say(message)
        elif messages:
            self._later += messages[:-1]
            self.say_later(messages[-1], loop, _STREAM)

    def _look_later(self, loop: asyncio.AbstractEventLoop, wait: float) -> None:
        self._timer = None
        if self._later and not self._is_late:  # what the timer was set for has gone; this came after it
            self._is_late = True
            self._timer = loop.call_later(wait, self._look_later, loop, wait)
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
        if self._asked or self._submitted:
            self._answered(outbox)
        if transport.is_closing():
            return
        if self._share is not None and transport.get_write_buffer_size() > self._share.quota.unsent + self._biggest:
            transport.abort()  # it does not read
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

    def _write(self, transport: asyncio.Transport, data: bytearray) -> None:
        """Send at once, where that can be done: a transport may wait until the end of the loop's round."""
        sent, self._biggest = 0, max(self._biggest, len(data))
        if self._descriptor >= 0 and not transport.get_write_buffer_size():
            try:
                sent = os.write(self._descriptor, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # it disconnected, which reading will tell
        if sent < len(data):
            transport.write(data[sent:] if sent else data)

    def refuse(self, message: str, kind: str) -> None:
        """Say why, and close the connection."""
        self._is_deaf = True
        self.say(Refused(message, kind=kind))
        self.flush()
        self.close()

    def close(self) -> None:
        """Close the connection once everything said has been sent."""
        self._send_later()
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def release(self) -> asyncio.Transport | None:
        """Give the stream away; nothing more is read or written here."""
        transport, self._transport = self._transport, None
        self._leave()
        return transport

    def pause(self, *, on: bool) -> None:
        """Stop reading for a while, or continue."""
        self.stop_reading("pause", on=on)

    def stop_reading(self, why: str, *, on: bool) -> None:
        """Stop reading for a reason, or continue if there is no other one."""
        if on:
            self._stops.add(why)
        else:
            self._stops.discard(why)
        transport = self._transport
        if transport is None or transport.is_closing() or transport.is_reading() is not bool(self._stops):
            return
        if self._stops:
            transport.pause_reading()
        else:
            transport.resume_reading()
