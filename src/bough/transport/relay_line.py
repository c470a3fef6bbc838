"""One connection between a relay and its server, on which each channel is a transport of its own.

What stands on a channel is an ordinary asyncio protocol and cannot tell it from a socket; a relay behind a relay is a
line on a channel of a line. Rule: all that is written within one round of the loop leaves in one write.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any, cast

from bough.errors import ProtocolError
from bough.transport.own_addresses import LOOPBACK, reached_by_ssh
from bough.wire.executor_messages import Heartbeat
from bough.wire.framing import Frames, frame_list
from bough.wire.relay_channels import (
    BATCH,
    LINE_FRAME,
    ChannelClosed,
    ChannelCredit,
    ChannelData,
    ChannelOpened,
    Channels,
)

_HIGH, _LOW = 1 << 18, 1 << 16  # bytes that wait on a channel when its writer is told to pause, and to go on
_MOST_UNSAID = 1 << 16  # messages that wait for an end that does not read
LOST = "the connection was lost"  # it is not known why
_ON_CHANNEL = (ChannelOpened, ChannelData, ChannelCredit, ChannelClosed)


class Channel(asyncio.Transport):
    """One peer's stream."""

    def __init__(self, line: RelayLine, number: int, peer: str) -> None:
        super().__init__({"peername": (peer, 0)})
        self.number = number
        self._line = line
        self._protocol: asyncio.Protocol | None = None
        self._closing = self._paused = self._full = self._over = False
        self._held: list[bytes] = []  # what arrived while reading was paused

    def begin(self, protocol: asyncio.Protocol) -> None:
        """Let a protocol stand on it."""
        self._protocol = protocol
        protocol.connection_made(self)

    # --- what protocols call -----------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send it with all that is sent in this round."""
        if self._closing:
            return
        if self._line.write(self.number, data) > _HIGH and not self._full:
            self._full = True
            self._line.full.add(self)
            if self._protocol is not None:
                self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        """Bytes that wait here."""
        return self._line.channels.waiting(self.number)

    def is_closing(self) -> bool:
        """Whether nothing can be said any more."""
        return self._closing

    def close(self) -> None:
        """End it behind what was written."""
        if not self._closing:
            self._line.close_channel(self.number)
            self._end()

    def abort(self) -> None:
        """End it at once, whatever waits."""
        self._line.abort_channel(self.number)
        self._end()

    def pause_reading(self) -> None:
        """Keep what arrives; the other end may send no more than it was granted."""
        self._paused = True

    def resume_reading(self) -> None:
        """Pass on what was kept, in the next round, and what comes."""
        self._paused = False
        if self._held:
            asyncio.get_running_loop().call_soon(self._pass_on_held)

    def is_reading(self) -> bool:
        """Whether what arrives is passed on."""
        return not self._paused and not self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another protocol stand on it."""
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Which stands on it."""
        assert self._protocol is not None
        return self._protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """They are the same for every channel."""

    # --- what the line calls -----------------------------------------------------------------------

    def arrived(self, data: bytes) -> None:
        """Bytes came."""
        if self._paused or self._held:
            self._held.append(data)
        elif not self._closing:
            self._pass_on(data)

    def went(self) -> None:
        """Something was sent: the writer may go on when little waits."""
        if self._full and self.get_write_buffer_size() <= _LOW:
            self._full = False
            self._line.full.discard(self)
            if self._protocol is not None and not self._closing:
                self._protocol.resume_writing()

    def ended(self) -> None:
        """The other end has closed it, or the line was lost; what was kept is passed on first."""
        self._paused = False
        self._pass_on_held()
        self._end()

    def _pass_on_held(self) -> None:
        while self._held and not self._paused and not self._closing:
            self._pass_on(self._held.pop(0))

    def _pass_on(self, data: bytes) -> None:
        assert self._protocol is not None
        self._protocol.data_received(data)
        self._line.used(self.number, len(data))

    def _end(self) -> None:
        self._closing = True
        self._held.clear()
        self._line.forget(self.number)
        if not self._over:
            self._over = True
            asyncio.get_running_loop().call_soon(self._say_lost)

    def _say_lost(self) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(None)


class RelayLine(asyncio.Protocol):
    """See the module. `union`: what this end hears; `opens`: this is the relay's end, which alone opens channels.

    `on_opened` is told of channels that the other end opened, `on_message` of messages that are about no channel,
    `on_lost`, once, why the line was lost.
    """

    def __init__(
        self,
        union: object,
        *,
        opens: bool,
        on_opened: Callable[[Channel, str], None] = lambda _channel, _peer: None,
        on_message: Callable[[object], None] = lambda _message: None,
        on_lost: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self.channels = Channels(opens=opens)
        self._frames: Frames[object] = Frames(union, LINE_FRAME)
        self._open: dict[int, Channel] = {}
        self.full: set[Channel] = set()  # channels whose writers were told to pause
        self._on_opened = on_opened
        self._on_message = on_message
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._why = LOST
        self._scheduled = self._paused = False
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._said_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    # --- what asyncio calls ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what was said before."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=BATCH, low=BATCH // 4)
        self._schedule()

    def data_received(self, data: bytes) -> None:
        """Give every message to whom it concerns; the other end is cut off when it makes no sense."""
        self._heard_at = self._loop.time()
        try:
            for message in self._frames.feed(data):
                if isinstance(message, _ON_CHANNEL):
                    self._hear(message)
                elif type(message) is not Heartbeat:
                    self._on_message(message)
            if self._paused and self.channels.unsaid > _MOST_UNSAID:
                raise ProtocolError("it says much and does not read what it is told")
            self._schedule()  # something may have been granted
        except ProtocolError as error:
            self.abort(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        """All channels end."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        for channel in list(self._open.values()):
            channel.ended()
        self._on_lost(self._why)

    @property
    def own_address(self) -> str:
        """Where this host is on the way to the other end, by a forwarded socket where SSH came; empty: unknown."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is None:
            return ""
        if sock.family != socket.AF_UNIX:
            return str(sock.getsockname()[0])
        return reached_by_ssh() if "SSH_CONNECTION" in os.environ else LOOPBACK

    def pause_writing(self) -> None:
        """The other end does not read as fast as this one speaks."""
        self._paused = True

    def resume_writing(self) -> None:
        """It does again."""
        self._paused = False
        self._schedule()

    # --- what its owner calls ----------------------------------------------------------------------

    def __len__(self) -> int:
        """How many channels are open."""
        return len(self._open)

    @property
    def is_open(self) -> bool:
        """Whether something said now can still arrive."""
        return self._transport is not None and not self._transport.is_closing()

    def say(self, *messages: object) -> None:
        """Send messages that are about no channel, in one frame."""
        for message in messages:
            self.channels.say(message)
        self._schedule()

    def open(self, protocol: asyncio.Protocol, peer: str) -> Channel:
        """Open a channel on which a protocol stands."""
        number = self.channels.open(peer)
        channel = self._open[number] = Channel(self, number, peer)
        channel.begin(protocol)
        self._schedule()
        return channel

    def watch(self, heartbeat: float) -> None:
        """From now on say that we live when there is nothing else to say, and give the line up after long silence."""
        now, pause = self._loop.time(), heartbeat / 4
        if now - self._heard_at > heartbeat + pause:
            self.abort(f"nothing was heard for {heartbeat + pause:g} s")
            return
        if now - self._said_at >= 0.9 * pause:
            self.say(Heartbeat())
        self._timer = self._loop.call_later(pause, self.watch, heartbeat)

    def close(self) -> None:
        """Hang up once what was said is sent."""
        self._pump()
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Hang up at once."""
        self._why = reason
        if self._transport is not None:
            self._transport.abort()

    # --- what channels call ------------------------------------------------------------------------

    def write(self, number: int, data: bytes | bytearray | memoryview) -> int:
        """Send bytes of a channel; how many wait now."""
        self._schedule()
        return self.channels.write(number, data)

    def used(self, number: int, count: int) -> None:
        """Bytes that arrived were passed on."""
        self.channels.used(number, count)
        self._schedule()

    def close_channel(self, number: int) -> None:
        """End a channel behind what was written."""
        self.channels.close(number)
        self._schedule()

    def abort_channel(self, number: int) -> None:
        """End a channel now."""
        self.channels.abort(number)
        self._schedule()

    def forget(self, number: int) -> None:
        """A channel has ended at this side."""
        channel = self._open.pop(number, None)
        if channel is not None:
            self.full.discard(channel)

    # --- inside ------------------------------------------------------------------------------------

    def _hear(self, message: ChannelOpened | ChannelData | ChannelCredit | ChannelClosed) -> None:
        event = self.channels.hear(message)
        if event is None:
            return
        if type(event) is ChannelOpened:
            channel = self._open[event.channel] = Channel(self, event.channel, event.peer)
            self._on_opened(channel, event.peer)
            return
        known = self._open.get(event.channel)
        if known is None:
            return
        if type(event) is ChannelData:
            known.arrived(event.data)
        else:
            known.ended()

    def _schedule(self) -> None:
        if not self._scheduled and not self._paused and self._transport is not None:
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        transport = self._transport
        while transport is not None and not self._paused and not transport.is_closing():
            batch = self.channels.take()
            if not batch:
                break
            self._said_at = self._loop.time()
            transport.write(frame_list(batch))
        for channel in list(self.full):
            channel.went()
