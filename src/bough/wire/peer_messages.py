"""What executors say to each other: one asks for bytes of a content, with a ticket, and gets them.

    reader  a frame with `AskContent`
    server  a frame with `ContentComes`; then, if it has no error, as many bytes as were asked for, and nothing around

A connection may carry one such exchange after the other; the next may be asked for before the one before is over. A
reader may have several connections: those that say the same `transfer` count as one reader, and the answer says how
many of them it may have. A ticket is a MAC that the server makes with a secret that
only it and the executor that is asked know: over the content, the reader and the end of validity. It proves that the
server has sent the reader. Sans-I/O and without a clock. Rule: nothing of a content is said to one without a ticket.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Annotated

import msgspec
from msgspec import Meta

from bough.model.bounds import Count, Word
from bough.model.ids import ExecutorId, Seconds
from bough.wire.file_messages import DIGEST, Ticket

ASK_FRAME = 1 << 12  # bytes of a frame of either side
MOST_STREAMS = 8  # connections over which one content comes from one peer
_SKEW = 600.0  # seconds by which clocks may differ


class AskContent(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """Send bytes of a content: `length` from `offset` on."""

    digest: bytes
    offset: Count
    length: Count
    reader: ExecutorId
    until: Seconds
    ticket: Ticket
    transfer: Count = 0  # streams of one transfer say the same number; 0: it has this one alone


class ContentComes(msgspec.Struct, frozen=True, array_like=True, tag="comes"):
    """The bytes follow; `error`: they do not."""

    error: Word = ""  # the reader tells it to the server
    streams: Annotated[int, Meta(ge=0, le=64)] = 0  # that one transfer may have; 0: it knows nothing of them


def make_ticket(secret: bytes, digest: bytes, reader: int, until: float) -> bytes:
    """What proves that a reader may have a content until a time."""
    text = b"bough ticket" + struct.pack(">32sQd", digest, reader, until)
    return hmac.new(secret, text, hashlib.sha256).digest()


def is_admitted(secret: bytes, ask: AskContent, now: float) -> bool:
    """Whether a ticket holds; it takes the same time whatever is wrong with it."""
    if len(ask.digest) != DIGEST or not ask.until + _SKEW >= now:
        return False
    return hmac.compare_digest(ask.ticket, make_ticket(secret, ask.digest, ask.reader, ask.until))
