"""What reading from other executors (`peer_reader`) and serving them (`peer_server`) have in common.

Rule: a frame of either side is short, whatever its head says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from bough.errors import ProtocolError
from bough.wire.framing import Frames
from bough.wire.peer_messages import ASK_FRAME

CONNECT: Final = 3.0  # seconds for TLS to stand
STALL: Final = 20.0  # seconds without a byte
IDLE: Final = 60.0  # seconds that a connection is kept for the next reading
_HEAD: Final = 4
T = TypeVar("T")


class PeerFailure(Exception):
    """A peer did not give what it was asked for."""


class PeerUnreached(PeerFailure):
    """There is no way to a peer."""


def read_frame(fill: Callable[[memoryview], None], kind: type[T]) -> T:
    """One message; `fill` receives as many bytes as a buffer has. ProtocolError if it is none, or too long."""
    head = bytearray(_HEAD)
    fill(memoryview(head))
    size = int.from_bytes(head, "big")
    if size > ASK_FRAME:
        raise ProtocolError(f"a frame of {size} bytes is over the limit of {ASK_FRAME}")
    body = bytearray(size)
    fill(memoryview(body))
    found = Frames[T](kind).feed(bytes(head + body))
    if not found:
        raise ProtocolError("an empty frame")
    return found[0]
