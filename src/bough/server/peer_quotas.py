"""What the connections of each role may cost a server: how many there are, and bytes and questions they may have open.

Rule: a peer of one role takes nothing from peers of another. A quota is generous to honest peers: they are slowed down
when they reach it and lose nothing; only a peer that does not read what it is told is cut off.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from bough.wire.client_messages import MAX_FRAME
from bough.wire.handshake import ROLE_FRAME

OWNER = "owner"  # a peer of the Unix socket, which may do everything
FREE = 1 << 16  # bytes of an incomplete frame that are not counted
_PATIENCE = 10.0  # seconds in which a frame that keeps others waiting must grow by `_GROWTH` bytes, or become complete
_GROWTH = 1 << 20


class Reading(Protocol):
    """What a share asks of a connection."""

    def stop_reading(self, why: str, *, on: bool) -> None:
        """Stop reading for a reason, or continue if there is no other one."""

    def abort(self) -> None:
        """Close the connection at once."""


class Quota(msgspec.Struct, frozen=True):
    """Of one role."""

    frame: int  # bytes of one frame
    connections: int
    requests: int  # of one connection that are not answered yet; what comes behind them is not read meanwhile
    at_once: int  # of them that are answered together, before it is seen whether the peer reads the answers
    queue: int  # messages that may come together
    unread: int  # bytes that a client has not read yet when its next request waits
    unsent: int  # bytes that a peer may leave unread before it is cut off
    held: int  # bytes of incomplete frames, of all connections together


QUOTAS = {
    OWNER: Quota(MAX_FRAME, 1 << 20, 4096, 64, MAX_FRAME, 64 << 20, 256 << 20, 2 * MAX_FRAME),
    "submit": Quota(ROLE_FRAME["submit"], 4096, 1024, 64, MAX_FRAME, 64 << 20, 256 << 20, 512 << 20),
    "execute": Quota(ROLE_FRAME["execute"], 1 << 16, 4096, 4096, MAX_FRAME, 64 << 20, 256 << 20, 256 << 20),
    "read": Quota(ROLE_FRAME["read"], 256, 16, 1, 1000, 1 << 20, 32 << 20, 32 << 20),
}


class Share:
    """What the connections of one role have of its quota together.

    Incomplete frames of all of them are bounded. When they are too much, those that grow stop being read, but for one:
    it becomes complete, and is the first to give something back.
    """

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self.connections = 0
        self._held: dict[Reading, int] = {}
        self._sum = 0
        self._first: Reading | None = None  # the peer that is read on when there is too much
        self._stopped: dict[Reading, None] = {}

    def holds(self, connection: Reading, size: int) -> None:
        """A connection keeps so much of an incomplete frame now; 0: nothing more."""
        before = self._held.pop(connection, 0)
        self._sum += size - before
        if size:
            self._held[connection] = size
            if self._sum > self.quota.held and self._stop(connection):
                return
        if (connection is self._first and not size) or self._sum <= self.quota.held:
            self._first = None
        if self._stopped:
            self._go_on()

    def _stop(self, connection: Reading) -> bool:
        if self._first is None:
            self._first = connection
        if connection is self._first:
            return False
        is_alone = not self._stopped
        self._stopped[connection] = None
        connection.stop_reading("bytes", on=True)
        if is_alone:
            self._watch(self._first, 0)
        return True

    def _watch(self, first: Reading, before: int) -> None:
        """See that the peer that others wait for is read."""
        if first is not self._first or not self._stopped:
            return
        size = self._held.get(first, 0)
        if before and size < before + _GROWTH:
            first.abort()
        else:
            asyncio.get_running_loop().call_later(_PATIENCE, self._watch, first, size)

    def _go_on(self) -> None:
        """Read from those that were stopped: from all if there is room, else from one."""
        if self._sum <= self.quota.held:
            stopped, self._stopped = self._stopped, {}
        elif self._first is None:
            self._first = min(self._stopped, key=lambda connection: self._held.get(connection, 0))  # mostly soon done
            del self._stopped[self._first]
            stopped = {self._first: None}
            self._watch(self._first, 0)
        else:
            return
        for connection in stopped:
            connection.stop_reading("bytes", on=False)

    def gone(self, connection: Reading) -> None:
        """A connection is no more."""
        self.connections -= 1
        self._stopped.pop(connection, None)
        if connection in self._held or connection is self._first:
            self.holds(connection, 0)


class Quotas:
    """The shares of all roles."""

    def __init__(self, quotas: dict[str, Quota] = QUOTAS) -> None:
        self._shares = {role: Share(quota) for role, quota in quotas.items()}

    def of(self, role: str) -> Share:
        """The share that a connection belongs to."""
        return self._shares[role]
