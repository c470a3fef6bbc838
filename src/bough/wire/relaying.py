"""The messages between a relay and its server: many connections, its *channels*, carried over one.

    relay   (proof and) RelayHello          server  Linked, or Refused
    relay   Opened for every peer it lets in, then Carried both ways, Shut by whoever ends it

What a channel carries is the stream of a peer, its handshake with the server included; to the relay it is bytes. Rule:
on one channel nobody sends more than the other end has granted, so that one peer that does not read holds up no other.
"""

from __future__ import annotations

import msgspec

from bough.model.bounds import Count, Duration, Name, Pid, Text, Whole
from bough.wire.messages import Challenge, Refused
from bough.wire.work import Alive

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


class Linked(msgspec.Struct, frozen=True, array_like=True, tag="lnk"):
    """The answer to a relay's hello. `heartbeat`: silence that makes either side believe that the other is gone."""

    version: Count
    heartbeat: Duration


class Opened(msgspec.Struct, frozen=True, array_like=True, tag="opn"):
    """A peer came to the relay, from the address `peer`; numbers grow and are never used again."""

    channel: Count
    peer: Name = ""


class Carried(msgspec.Struct, frozen=True, array_like=True, tag="car"):
    """Bytes of a channel's stream."""

    channel: Count
    data: bytes


class Granted(msgspec.Struct, frozen=True, array_like=True, tag="grt"):
    """So many more bytes may be sent on a channel."""

    channel: Count
    count: Whole


class Shut(msgspec.Struct, frozen=True, array_like=True, tag="shut"):
    """A channel has ended; what was still under way to who says this is dropped."""

    channel: Count
    reason: Text = ""


OnChannel = Opened | Carried | Granted | Shut
FromRelay = Opened | Carried | Granted | Shut | Alive
ToRelay = Challenge | Linked | Refused | Carried | Granted | Shut | Alive
