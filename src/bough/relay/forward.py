"""A relay that forwards: each peer that connects gets a channel of its own, byte for byte.

Rule: a peer that the server has not let in yet gives way to others when there are too many. An end that cannot send
makes the other one stop reading, so that nothing is kept here beyond a few buffers; when one end is closed the other
one is closed after what was said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from bough.transport.listener import HandshakeProtocol, TlsListener
from bough.transport.relay_line import RelayLine
from bough.wire.client_messages import Refused
from bough.wire.framing import frame

_LET_IN_WITHIN = 10.0  # seconds from the first packet until the server has let it in
_CUT_OFF = Refused("the relay has no connection to its server now", kind="PeerLost")


class TiedEnd(asyncio.Protocol):
    """One of two ends that are tied together: what comes at one leaves at the other."""

    other: TiedEnd

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It can speak now."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        if self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Too much waits to be sent here."""
        self.other.read(on=False)

    def resume_writing(self) -> None:
        """There is room again."""
        self.other.read(on=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other one, too."""
        self.transport = None
        if self.other.transport is not None:
            self.other.transport.close()

    def abort(self) -> None:
        """Hang up at once."""
        if self.transport is not None:
            self.transport.abort()

    def read(self, *, on: bool) -> None:
        """Stop reading, or go on."""
        transport = self.transport
        if transport is None or transport.is_closing() or transport.is_reading() is on:
            return
        if on:
            transport.resume_reading()
        else:
            transport.pause_reading()


class _ServerEnd(TiedEnd):
    """The channel's end. The server speaks first, to every peer; one that it speaks to again was let in."""

    def __init__(self, let_in: Callable[[], None]) -> None:
        super().__init__()
        self._let_in = let_in
        self._heard = 0

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        self._heard += 1
        if self._heard == 2:
            self._let_in()
        super().data_received(data)


class ForwardedPeer(TiedEnd, HandshakeProtocol):
    """The end of an executor, or of another relay: a stranger to us until the server speaks to it again."""

    def __init__(self, guests: ForwardedPeers, peer: str = "") -> None:
        TiedEnd.__init__(self)
        HandshakeProtocol.__init__(self)
        self._guests = guests
        self._peer = peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open its channel, or say why there is none."""
        HandshakeProtocol.connection_made(self, transport)
        TiedEnd.connection_made(self, transport)
        assert self.transport is not None
        line = self._guests.line
        if line is None or self.over.done():
            self._guests.sought_at = asyncio.get_running_loop().time()
            self.other = TiedEnd()
            self.transport.write(bytes(frame(_CUT_OFF)))
            self.transport.close()
            return
        self.other = _ServerEnd(self._let_in)
        self.other.other = self
        peer = transport.get_extra_info("peername")
        line.open(self.other, str(peer[0]) if isinstance(peer, tuple) else "its own host")

    def connection_lost(self, exc: Exception | None) -> None:
        """It left, or is to leave."""
        self._let_in()
        super().connection_lost(exc)

    def give_up(self, reason: str) -> None:
        """Hang up, unless the server has let it in."""
        if not self.over.done():
            self._let_in()
            if self.transport is not None:
                self.transport.abort()
            if reason:
                self._guests.refused(self._peer, reason)

    def _let_in(self) -> None:
        if not self.over.done():
            self.over.set_result(None)


class ForwardedPeers(TlsListener):
    """All of them. `line`: to the server, if there is one now."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(say, proof_within=_LET_IN_WITHIN)
        self.line: RelayLine | None = None
        self.sought_at = 0.0  # when somebody came last while there was none

    def gate(self, peer: str) -> ForwardedPeer:
        """One more."""
        return ForwardedPeer(self, peer)
