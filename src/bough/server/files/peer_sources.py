"""Executors that serve contents to others: who they are, where each reader is sent, and what caches report.

An executor that others can reach gets a certificate and a secret; a reader gets its address, the fingerprint of the
certificate and a ticket made with that secret. `spread_plan` decides who reads from whom. What caches gain and lose,
and how fast bytes travel, goes to the core's index of data, from which holders are known.

Rules: an executor at a loopback address is named to readers of its own host only; a peer that a host could not reach
is not named to it again for a while. A copy that was found wrong is checked by its holder, who drops it if it is.
"""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from bough import logs
from bough.model.events.news import BytesMoved, CacheChanged, HeldContent
from bough.model.ids import ExecutorId, Seconds
from bough.server.files.spread_plan import Candidate, SpreadPlan
from bough.server.peers import ExecutorPeer
from bough.server.turns.shell import Shell
from bough.wire.file_messages import (
    DIGEST,
    CacheReport,
    CheckContent,
    FailedPeer,
    OfferPeer,
    PeerHint,
    PeerIdentity,
)
from bough.wire.peer_messages import make_ticket

_VALID: Final[Seconds] = 3600.0  # of a ticket
_SMALL: Final = 1 << 16  # bytes: what is smaller comes from the server, in less time than a connection takes
_SHUNNED: Final[Seconds] = 300.0  # for which a host is not sent to a peer that it could not reach
_MOST_SHUNNED: Final = 10_000
_READERS: Final = 8  # that an executor serves at once; the plan sends fewer
_SECRET: Final = 32
_ORIGIN: Final = "origin"


class _Serving(NamedTuple):
    """An executor that serves."""

    address: str
    port: int
    fingerprint: str
    secret: bytes
    site: str
    host: str
    is_loopback: bool


class PeerSources:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._serving: dict[ExecutorId, _Serving] = {}
        self._plan = SpreadPlan()
        self._shunned: dict[tuple[str, ExecutorId], Seconds] = {}  # by host and source: until when

    # --- who serves --------------------------------------------------------------------------------

    def offered(self, executor: ExecutorPeer, offer: OfferPeer) -> None:
        """An executor can be reached: make it somebody."""
        from bough.transport.tls import fingerprint_of, new_certificate

        try:
            address = ipaddress.ip_address(offer.address)
            key, certificate = new_certificate()
        except (ValueError, ImportError) as error:
            logs.warning("peer-not-offered", f"executor {executor.number} serves no others: {error}")
            return
        secret = os.urandom(_SECRET)
        hello = executor.hello
        self._serving[executor.number] = _Serving(
            offer.address, offer.port, fingerprint_of(certificate), secret, hello.site, hello.host, address.is_loopback
        )
        executor.connection.send(PeerIdentity(certificate, key, secret, _READERS))

    def gone(self, executor: ExecutorId) -> None:
        """An executor disconnected."""
        self._serving.pop(executor, None)
        self._plan.gone(executor)

    # --- who reads from whom -----------------------------------------------------------------------

    def hints(
        self, executor: ExecutorPeer, digest: bytes, size: int, failed: Collection[FailedPeer] = ()
    ) -> list[PeerHint]:
        """The peers that a reader is sent to, the best first; none: the server."""
        if size < _SMALL or len(digest) != DIGEST or executor.hello.members > 1:
            return []
        for one in failed:
            self._note_failure(executor, digest, one)
        excluded = {one.executor for one in failed}
        found = self._plan.choose(
            digest,
            executor.number,
            self._holders(executor, digest),
            lambda other: self._candidate(executor, ExecutorId(other)),
            excluded,
        )
        until = time.time() + _VALID
        return [self._hint(ExecutorId(number), executor.number, digest, until) for number in found]

    def _hint(self, source: ExecutorId, reader: ExecutorId, digest: bytes, until: Seconds) -> PeerHint:
        peer = self._serving[source]
        ticket = make_ticket(peer.secret, digest, reader, until)
        return PeerHint(source, peer.address, peer.port, peer.fingerprint, until, ticket)

    def _holders(self, reader: ExecutorPeer, digest: bytes) -> Iterator[Candidate]:
        """Executors of the hosts that hold a content; those on the reader's host share its cache, which has it not."""
        for holder in self._shell.queries.holders_of(digest):
            if (holder.site, holder.host) != (reader.hello.site, reader.hello.host):
                for number in holder.executors:
                    found = self._candidate(reader, ExecutorId(number))
                    if found is not None:
                        yield found
                        break

    def _candidate(self, reader: ExecutorPeer, number: ExecutorId) -> Candidate | None:
        """An executor, if it can serve a reader."""
        peer, hello = self._serving.get(number), reader.hello
        if peer is None or (peer.is_loopback and peer.host != hello.host):
            return None
        until = self._shunned.get((hello.host, number))
        if until is not None:
            if until > self._shell.loop.time():
                return None
            del self._shunned[hello.host, number]
        return Candidate(number, peer.site == hello.site)

    # --- what caches report ------------------------------------------------------------------------

    def reported(self, executor: ExecutorPeer, report: CacheReport) -> None:
        """What an executor says of its host's cache."""
        for digest, failed in report.failed:
            self._note_failure(executor, digest, failed)
        for digest in report.ended:
            self._plan.ended(digest, executor.number)
        news = self._shell.news
        if report.added or report.removed or report.whole:
            added = tuple(HeldContent(digest, size) for digest, size in report.added if len(digest) == DIGEST)
            removed = tuple(digest for digest in report.removed if len(digest) == DIGEST)
            news(CacheChanged(executor.number, added, removed, report.whole))
        for moved in report.moved:
            peer = self._shell.peers.executors.get(moved.source)
            source = peer.hello.host if peer is not None else _ORIGIN if not moved.source else ""
            if source:
                news(BytesMoved(executor.number, source, moved.size, moved.seconds))

    def _note_failure(self, reader: ExecutorPeer, digest: bytes, failed: FailedPeer) -> None:
        source = self._shell.peers.executors.get(failed.executor)
        if failed.corrupt:
            logs.warning(
                "copy-corrupt",
                f"executor {failed.executor} sent executor {reader.number} something else than content {digest.hex()}",
            )
            if source is not None:
                source.connection.send(CheckContent(digest))
        elif source is not None and "cannot be reached" in failed.reason:
            if len(self._shunned) >= _MOST_SHUNNED:
                self._shunned.clear()
            self._shunned[reader.hello.host, failed.executor] = self._shell.loop.time() + _SHUNNED
