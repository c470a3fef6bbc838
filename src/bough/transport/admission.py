"""The listener of a server, or of a relay that shares out work: it sends a challenge and checks the proof.

Rule: an unproven peer costs one socket, at most one small frame and a few seconds; it is refused with one line in the
log, and no other peer notices. A peer that knows the token of a role gets in, from any address.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Protocol, cast

from bough.errors import BoughError, ProtocolError
from bough.transport.access import AT
from bough.transport.listener import MOST, HandshakeProtocol, TlsListener
from bough.wire.client_messages import VERSION, Challenge, Refused
from bough.wire.framing import frame
from bough.wire.handshake import NONCE, ROLES, check, split_first

_WRONG = "the token was refused: it may have been rotated, get a new access file with bough server access"
_LEFT = "it closed the connection before its proof"


class Peer(Protocol):
    """What a peer talks to once it is let in: an asyncio protocol that has a role."""

    role: str

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is let in."""

    def data_received(self, data: bytes) -> None:
        """It spoke."""


class SiteDoors(Protocol):
    """Executors of one site each, who know its token."""

    def token_of(self, site: str) -> bytes | None:
        """The token of a site; None: there is no such site."""

    def make_peer_of(self, site: str) -> Peer:
        """What an executor of that site talks to."""


class PeerListener(TlsListener):
    """Lets in a peer that proves to know the token of a role.

    `make_connection` makes what a peer talks to from then on; its `role` is set before it hears anything.
    `token_of` gives the token of a role, asked at every handshake, so that tokens may be rotated.
    """

    def __init__(
        self,
        make_connection: Callable[[], Peer],
        token_of: Callable[[str], bytes],
        fingerprint: str,
        *,
        proof_within: float = 5.0,
        most: int = MOST,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(say, proof_within=proof_within, most=most)
        self.make_connection = make_connection
        self.token_of = token_of
        self.sites: SiteDoors | None = None  # those that may come here, too
        self.fingerprint = fingerprint

    def gate(self, peer: str) -> ProofGate:
        """It asks for a proof."""
        return ProofGate(self, peer)


class ProofGate(HandshakeProtocol):
    """What a peer talks to until it has proven itself."""

    def __init__(self, listener: PeerListener, peer: str) -> None:
        super().__init__()
        self._listener = listener
        self._peer = peer
        self._nonce = secrets.token_bytes(NONCE)
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._is_refused = False  # that was said, and its end is waited for

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a proof."""
        super().connection_made(transport)
        self._transport = cast("asyncio.Transport", transport)
        if self.over.done():  # it was given up meanwhile
            self._transport.abort()
            return
        self._transport.write(bytes(frame(Challenge(VERSION, self._nonce))))

    def data_received(self, data: bytes) -> None:
        """Wait for one small frame; look at it; let the peer in or not."""
        if self._is_refused or self.over.done():
            return
        self._buffer += data
        try:
            first = split_first(self._buffer)
            if first is None:
                return
            proof, rest = first
            token = self._token(proof.role)
            if token is None:
                self._refuse("no such role", _WRONG)
            elif not check(proof, token, self._nonce, self._listener.fingerprint):
                self._refuse(f"its proof for the role {proof.role} does not hold", _WRONG)
            else:
                self._let_in(proof.role, rest)
        except ProtocolError as error:
            self._refuse(str(error), str(error), "ProtocolError")
        except BoughError as error:  # our own token cannot be used: the line in the log says what to do
            self._refuse(str(error), "the server cannot check tokens now, its log says why", "SiteError")

    def _token(self, role: str) -> bytes | None:
        """The token of a role, or of the executors of a site; None: there is no such role."""
        if role in ROLES:
            return self._listener.token_of(role)
        name, _, site = role.partition(AT)
        sites = self._listener.sites
        return sites.token_of(site) if sites is not None and name == "execute" else None

    def eof_received(self) -> bool:
        """The peer says no more, so it will not prove anything."""
        if not self._is_refused:
            self.give_up(_LEFT)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer left."""
        self._transport = None
        self.give_up(_LEFT)

    def give_up(self, reason: str) -> None:
        """Hang up, unless it was let in; without a reason nothing is said of it."""
        if self.over.done():
            return
        self.over.set_result(None)
        self._buffer = bytearray()  # a traceback may hold on to the old one
        if self._transport is not None:
            self._transport.abort()
        if reason and not self._is_refused:
            self._listener.refused(self._peer, reason)

    def _let_in(self, role: str, rest: bytes) -> None:
        transport, self._transport = self._transport, None
        assert transport is not None
        self._buffer = bytearray()  # a traceback may hold on to the old one
        self.over.set_result(None)
        role, _, site = role.partition(AT)
        sites = self._listener.sites
        connection = sites.make_peer_of(site) if sites is not None and site else self._listener.make_connection()
        connection.role = role
        transport.set_protocol(cast("asyncio.Protocol", connection))
        connection.connection_made(transport)
        if rest:
            connection.data_received(rest)

    def _refuse(self, reason: str, answer: str, kind: str = "UserError") -> None:
        """Say why, as far as the peer may know, and close; it counts as unproven until the connection is closed."""
        self._is_refused = True
        self._buffer = bytearray()  # a traceback may hold on to the old one
        self._listener.refused(self._peer, reason)
        assert self._transport is not None
        self._transport.write(bytes(frame(Refused(answer, kind=kind))))
        self._transport.close()
