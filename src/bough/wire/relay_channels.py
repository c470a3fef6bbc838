"""Relay and server: their messages, and many streams, its *channels*, carried over one with credit.

    relay   (proof and) RelayHello                       server  RelayWelcome, or Refused
    relay   ChannelOpened for every peer it lets in, then ChannelData both ways, ChannelClosed by the end that ends it

What a channel carries is the stream of a peer, its handshake with the server included; to the relay it is bytes.
`Channels` says what is to be sent next, and whether what arrives is in order. It does no I/O: each channel has a
queue and a credit, and a batch takes a chunk of every channel that has both, in turn.

Rule: on one channel no end sends more than the other end has granted. So a channel that floods, or whose other end
does not read, costs the others nothing but its share of a batch.
"""

from __future__ import annotations

from collections import deque

import msgspec

from bough.errors import ProtocolError
from bough.model.bounds import Count, Duration, Name, Pid, Text, Whole
from bough.wire.client_messages import Challenge, Refused
from bough.wire.executor_messages import Heartbeat

CHUNK = 1 << 18  # bytes of one channel in one message
BATCH = 1 << 20  # bytes of all channels in one frame
WINDOW = 1 << 21  # bytes that may be under way on a channel before the other end has taken them
LINE_FRAME = 1 << 23  # no frame of either end is bigger: a batch, and what is said besides


class RelayHello(msgspec.Struct, frozen=True, array_like=True, tag="rh"):
    """The first message of a relay."""

    version: Count
    host: Name
    pid: Pid
    site: Name = ""


class RelayWelcome(msgspec.Struct, frozen=True, array_like=True, tag="lnk"):
    """The answer to a relay's hello. `heartbeat`: seconds of silence after which either side gives the other up."""

    version: Count
    heartbeat: Duration


class ChannelOpened(msgspec.Struct, frozen=True, array_like=True, tag="opn"):
    """A peer came to the relay, from the address `peer`; numbers grow and are never used again."""

    channel: Count
    peer: Name = ""


class ChannelData(msgspec.Struct, frozen=True, array_like=True, tag="car"):
    """Bytes of a channel's stream."""

    channel: Count
    data: bytes


class ChannelCredit(msgspec.Struct, frozen=True, array_like=True, tag="grt"):
    """So many more bytes may be sent on a channel."""

    channel: Count
    count: Whole


class ChannelClosed(msgspec.Struct, frozen=True, array_like=True, tag="shut"):
    """A channel has ended; what was still under way to the end that says this is dropped."""

    channel: Count
    reason: Text = ""


OnChannel = ChannelOpened | ChannelData | ChannelCredit | ChannelClosed
FromRelay = ChannelOpened | ChannelData | ChannelCredit | ChannelClosed | Heartbeat
ToRelay = Challenge | RelayWelcome | Refused | ChannelData | ChannelCredit | ChannelClosed | Heartbeat


class _Stream:
    """One channel."""

    __slots__ = ("allowed", "credit", "ending", "is_ready", "queue", "taken")

    def __init__(self) -> None:
        self.queue = bytearray()
        self.credit = WINDOW  # bytes that we may still send
        self.allowed = WINDOW  # bytes that the other end may still send
        self.taken = 0  # bytes that were used here and are not granted again yet
        self.ending: str | None = None  # why it ends once the queue is empty
        self.is_ready = False  # it stands in line for the next batch


class Channels:
    """See the module. `opens`: this end is the relay's, which alone opens channels."""

    def __init__(self, *, opens: bool) -> None:
        self._opens = opens
        self._streams: dict[int, _Stream] = {}
        self._last = 0  # the newest channel there was
        self._urgent: list[object] = []  # goes before all data
        self._line: deque[int] = deque()  # channels with something that may be sent

    def __len__(self) -> int:
        """How many channels there are."""
        return len(self._streams)

    @property
    def unsaid(self) -> int:
        """Messages that wait to be sent, besides data."""
        return len(self._urgent)

    # --- what is to be sent ------------------------------------------------------------------------

    def say(self, message: object) -> None:
        """Send a message that is about no channel."""
        self._urgent.append(message)

    def open(self, peer: str = "") -> int:
        """Open a channel; its number."""
        self._last += 1
        self._streams[self._last] = _Stream()
        self._urgent.append(ChannelOpened(self._last, peer))
        return self._last

    def write(self, number: int, data: bytes | bytearray | memoryview) -> int:
        """Send bytes; how many wait now. On a channel that has ended nothing happens."""
        stream = self._streams.get(number)
        if stream is None or stream.ending is not None:
            return 0
        stream.queue += data
        self._enqueue(number, stream)
        return len(stream.queue)

    def waiting(self, number: int) -> int:
        """Bytes of a channel that are not sent yet."""
        stream = self._streams.get(number)
        return len(stream.queue) if stream is not None else 0

    def close(self, number: int, reason: str = "") -> None:
        """End a channel behind all that was written to it."""
        stream = self._streams.get(number)
        if stream is not None and stream.ending is None:
            stream.ending = reason
            self._enqueue(number, stream)

    def abort(self, number: int, reason: str = "") -> None:
        """End a channel now, and send nothing more of it."""
        if self._streams.pop(number, None) is not None:
            self._urgent.append(ChannelClosed(number, reason))

    def used(self, number: int, count: int) -> None:
        """Bytes that arrived were passed on: as many may be sent again."""
        stream = self._streams.get(number)
        if stream is None:
            return
        stream.taken += count
        if stream.taken >= WINDOW // 2:
            self._urgent.append(ChannelCredit(number, stream.taken))
            stream.allowed += stream.taken
            stream.taken = 0

    def take(self) -> list[object]:
        """What goes into the next frame; empty when nothing may be sent."""
        batch, self._urgent = self._urgent, []
        room = BATCH
        for _ in range(len(self._line)):
            if room <= 0:
                break
            number = self._line.popleft()
            stream = self._streams.get(number)
            if stream is None:
                continue
            stream.is_ready = False
            size = min(len(stream.queue), stream.credit, CHUNK, room)
            if size:
                batch.append(ChannelData(number, bytes(stream.queue[:size])))
                del stream.queue[:size]
                stream.credit -= size
                room -= size
            if stream.ending is not None and not stream.queue:
                batch.append(ChannelClosed(number, stream.ending))
                del self._streams[number]
            else:
                self._enqueue(number, stream)
        return batch

    def _enqueue(self, number: int, stream: _Stream) -> None:
        may = (stream.credit > 0) if stream.queue else (stream.ending is not None)
        if may and not stream.is_ready:
            stream.is_ready = True
            self._line.append(number)

    # --- what arrives ------------------------------------------------------------------------------

    def hear(self, message: OnChannel) -> ChannelOpened | ChannelData | ChannelClosed | None:
        """Check a message; it comes back if there is something to do for a channel that is here.

        What is about a channel that has ended here was under way when it did, and is dropped.
        """
        number = message.channel
        if type(message) is ChannelOpened:
            if self._opens or number <= self._last:
                raise ProtocolError(f"the channel {number} cannot be opened")
            self._last = number
            self._streams[number] = _Stream()
            return message
        stream = self._streams.get(number)
        if stream is None:
            if number > self._last:
                raise ProtocolError(f"there was no channel {number}")
            return None
        if type(message) is ChannelData:
            return self._arrived(message, stream)
        if type(message) is ChannelCredit:
            stream.credit += message.count
            if not 0 < stream.credit <= WINDOW or message.count < 0:
                raise ProtocolError(f"{message.count} bytes cannot be granted on the channel {number}")
            self._enqueue(number, stream)
            return None
        assert type(message) is ChannelClosed
        del self._streams[number]
        return message

    def _arrived(self, message: ChannelData, stream: _Stream) -> ChannelData | None:
        size = len(message.data)
        if size > min(stream.allowed, CHUNK):
            raise ProtocolError(f"{size} bytes came on the channel {message.channel}, more than were granted")
        stream.allowed -= size
        return message if stream.ending is None else None
