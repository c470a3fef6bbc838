"""Executors that serve contents to others: how each is reached, which readers reach it, and the tickets for it.

A server keeps one of its executors, a relay that shares out work one of those behind it. Without a clock: whoever asks
says the time.

Rules: an executor at a loopback address is named to readers of its own host only; a peer that a host could not reach
is not named to it again for a while. Once that happened twice between two sites, as where a firewall is, no peer of the
one is named to readers of the other.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final, NamedTuple

from bough.model.ids import ExecutorId, Seconds
from bough.movers.spread_plan import MOST_ON_LINK, Candidate, Link
from bough.wire.file_messages import FailedPeer, PeerHint
from bough.wire.peer_messages import make_ticket

VALID: Final[Seconds] = 3600.0  # of a ticket
SMALL: Final = 1 << 16  # bytes: what is smaller comes from the server, in less time than a connection takes
READERS: Final = 8  # that an executor serves at once; the plan sends fewer
SECRET: Final = 32  # bytes
SHUNNED: Final[Seconds] = 300.0  # for which a host is not sent to a peer that it could not reach
_CUT_BY: Final = 2  # failures between different hosts of two sites, and no success, after which the sites are cut off
_MOST_SHUNNED: Final = 10_000
UNREACHED: Final = "cannot be reached"  # as readers say it


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def plain_address(text: str) -> Address:
    """An address that was written somehow; of an IPv4 address written as IPv6 what it means."""
    found = ipaddress.ip_address(text)
    return getattr(found, "ipv4_mapped", None) or found


class Reader(NamedTuple):
    """An executor that reads, or a relay whose executors do."""

    number: ExecutorId
    site: str
    host: str
    is_relay: bool = False  # the host is that of the relay, and not of those who read


class Serving(NamedTuple):
    """An executor that serves."""

    address: str
    port: int
    fingerprint: str
    secret: bytes
    site: str
    host: str
    is_loopback: bool


class PeerDirectory:
    """See the module. `max_transfers` is what was said of a site's links; 0: nothing."""

    def __init__(self, max_transfers: Callable[[str], int] = lambda _: 0) -> None:
        self._max_transfers = max_transfers
        self._serving: dict[ExecutorId, Serving] = {}
        self._shunned: dict[tuple[str, ExecutorId], Seconds] = {}  # by host and source: until when
        # by the sites of reader and source: until when, and which hosts did not reach which executors
        self._cut: dict[tuple[str, str], tuple[Seconds, set[tuple[str, ExecutorId]]]] = {}

    def add(self, number: ExecutorId, serving: Serving) -> None:
        """An executor serves."""
        self._serving[number] = serving

    def remove(self, number: ExecutorId) -> None:
        """It does so no more."""
        self._serving.pop(number, None)

    def serves(self, number: ExecutorId) -> bool:
        """Whether an executor serves others."""
        return number in self._serving

    def address(self, number: ExecutorId) -> Address:
        """Where an executor serves."""
        return plain_address(self._serving[number].address)

    def hint(self, source: ExecutorId, reader: ExecutorId, digest: bytes, until: Seconds) -> PeerHint:
        """How a reader asks a source, which serves, for a content."""
        peer = self._serving[source]
        ticket = make_ticket(peer.secret, digest, reader, until)
        return PeerHint(source, peer.address, peer.port, peer.fingerprint, until, ticket)

    def candidate(
        self, reader: Reader, number: ExecutorId, now: Seconds, *, near_only: bool = False
    ) -> Candidate | None:
        """An executor, if it can serve a reader."""
        peer = self._serving.get(number)
        if peer is None or (peer.is_loopback and (reader.is_relay or peer.host != reader.host)):
            return None
        is_near = peer.site == reader.site
        if near_only and not is_near:
            return None
        until = self._shunned.get((reader.host, number))
        if until is not None:
            if until > now:
                return None
            del self._shunned[reader.host, number]
        if is_near:
            return Candidate(number)
        if self._is_cut(reader.site, peer.site, now):
            return None
        most = min(self._max_transfers(site) or MOST_ON_LINK for site in (reader.site, peer.site))
        return Candidate(number, Link(peer.site, reader.site), most)

    def _is_cut(self, reader: str, source: str, now: Seconds) -> bool:
        """Whether hosts of one site do not reach those of another, as far as that was tried of late."""
        if not self._cut or (reader, source) not in self._cut:
            return False
        until, failed = self._cut[reader, source]
        if until <= now:
            del self._cut[reader, source]
            return False
        return len(failed) >= _CUT_BY

    def note_failure(self, reader: Reader, failed: FailedPeer, site: str, now: Seconds) -> None:
        """A reader did not get something of a source at a site."""
        if UNREACHED not in failed.reason:
            return
        if len(self._shunned) >= _MOST_SHUNNED:
            self._shunned.clear()
            self._cut.clear()
        until = now + SHUNNED
        self._shunned[reader.host, failed.executor] = until
        _, others = self._cut.get((reader.site, site), (until, set()))
        self._cut[reader.site, site] = until, {*others, (reader.host, failed.executor)}

    def note_success(self, reader: str, source: str) -> None:
        """Something came from one site to another."""
        if self._cut:
            self._cut.pop((reader, source), None)
