"""Executors that serve contents to others: who they are, where each reader is sent, and what caches report.

An executor that others can reach gets a certificate and a secret; a reader gets its address, the fingerprint of the
certificate and a ticket made with that secret. `spread_plan` decides who reads from whom. What caches gain and lose,
and how fast bytes travel, goes to the core's index of data, from which holders are known.

Rules: what the shared store of a site has is not taken from other sites. A copy that was found wrong is checked by its
holder, who drops it if it is. The executors behind a relay that shares out work are not known here: when the relay is a
source, it says which of them the reader shall ask (`relay/member_sources`).
"""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from bough import logs
from bough.model.events.news import BytesMoved, CacheChanged, HeldContent
from bough.model.ids import ExecutorId
from bough.movers.peer_directory import (
    READERS,
    SECRET,
    SMALL,
    UNREACHED,
    VALID,
    PeerDirectory,
    Reader,
    Serving,
)
from bough.movers.spread_plan import Candidate, SpreadPlan
from bough.server.files.relay_sources import RelaySources
from bough.server.peers import ExecutorPeer
from bough.server.turns.shell import Shell
from bough.wire.file_messages import (
    DIGEST,
    MOST_PEERS,
    CacheReport,
    CheckContent,
    FailedPeer,
    ListShared,
    OfferPeer,
    PeerHint,
    PeerIdentity,
    PeersNamed,
)

_ORIGIN: Final = "origin"


class PeerSources:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._directory = PeerDirectory(shell.queries.max_transfers)
        self._plan = SpreadPlan()
        self._relays = RelaySources(shell)

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
        secret = os.urandom(SECRET)
        hello = executor.hello
        serving = Serving(
            offer.address, offer.port, fingerprint_of(certificate), secret, hello.site, hello.host, address.is_loopback
        )
        self._directory.add(executor.number, serving)
        executor.connection.send(PeerIdentity(certificate, key, secret, READERS))

    def gone(self, executor: ExecutorId) -> None:
        """An executor disconnected."""
        self._relays.gone(executor)
        self._directory.remove(executor)
        self._plan.gone(executor)

    def can_give(self, executor: ExecutorPeer) -> bool:
        """Whether others can have from an executor, or from those behind it, what is said to be there."""
        return not executor.is_relay or self._relays.has(executor.number)

    def can_hold(self, executor: ExecutorPeer) -> bool:
        """Whether others can have what an executor's host holds: from itself, or through the server."""
        return not executor.is_relay

    # --- who reads from whom -----------------------------------------------------------------------

    async def hints(
        self, executor: ExecutorPeer, digest: bytes, size: int, failed: Collection[FailedPeer] = ()
    ) -> list[PeerHint]:
        """The peers that a reader is sent to, the best first; none: the server."""
        if size < SMALL or len(digest) != DIGEST:
            return []
        for one in failed:
            self._note_failure(executor, digest, one)
        excluded, until = {one.executor for one in failed}, time.time() + VALID
        while True:
            found = self._choose(_reader(executor), digest, excluded)
            hints: list[PeerHint] = []
            for number in map(ExecutorId, found):
                named: list[PeerHint] = []
                if self._relays.has(number):
                    named = await self._relays.ask(number, _reader(executor), digest, failed)
                elif self._directory.serves(number):  # it may have left while a relay was asked
                    named = [self._directory.hint(number, executor.number, digest, until)]
                hints += named
                if not named:
                    excluded.add(number)
            if executor.number not in self._shell.peers.executors:
                return []  # it has left meanwhile, and reads nothing
            if not found or found[0] not in excluded:
                return hints[:MOST_PEERS]

    def _choose(self, reader: Reader, digest: bytes, excluded: Collection[ExecutorId]) -> Sequence[int]:
        now = self._shell.loop.time()
        near_only = self._shell.queries.store_has(reader.site, digest)
        return self._plan.choose(
            digest,
            reader.number,
            (one for one in self._holders(reader, digest) if one.link is None or not near_only),
            lambda other: self._directory.candidate(reader, ExecutorId(other), now, near_only=near_only),
            excluded,
        )

    def named(self, executor: ExecutorPeer, message: PeersNamed) -> None:
        """A relay says which of those behind it a reader shall ask."""
        self._relays.named(executor.number, message)

    def _holders(self, reader: Reader, digest: bytes) -> Iterator[Candidate]:
        """Executors of the hosts that hold a content; those on the reader's host share its cache, which has it not."""
        now = self._shell.loop.time()
        for holder in self._shell.queries.holders_of(digest):
            is_own = not reader.is_relay and (holder.site, holder.host) == (reader.site, reader.host)
            for number in holder.executors:
                if not is_own or self._relays.has(ExecutorId(number)):
                    found = self._directory.candidate(reader, ExecutorId(number), now)
                    if found is not None:
                        yield found
                        break

    # --- what caches report ------------------------------------------------------------------------

    def reported(self, executor: ExecutorPeer, report: CacheReport) -> None:
        """What an executor says of its host's cache; of one that has just come after it has joined, a turn later."""
        if executor.ready:
            self._note(executor, report)
        else:
            self._shell.after_turn(lambda: self._note(executor, report))

    def _note(self, executor: ExecutorPeer, report: CacheReport) -> None:
        if self._shell.peers.executors.get(executor.number) is not executor:
            return  # it has disconnected
        for digest, failed in report.failed:
            self._note_failure(executor, digest, failed)
        for digest in report.ended:
            self._plan.ended(digest, executor.number)
        news = self._shell.news
        if report.shared and not report.whole and not self._shell.queries.knows_store(executor.hello.site):
            executor.connection.send(ListShared())
        if report.added or report.removed or report.whole or report.shared:
            added = tuple(HeldContent(digest, size) for digest, size in report.added if len(digest) == DIGEST)
            removed = tuple(digest for digest in report.removed if len(digest) == DIGEST)
            news(CacheChanged(executor.number, added, removed, report.whole, report.shared))
        if executor.is_relay and report.added and not self._relays.has(executor.number):
            self._relays.add(executor.number)
            site, host = executor.hello.site, executor.hello.host
            self._directory.add(executor.number, Serving("", 0, "", b"", site, host, is_loopback=False))
        for moved in report.moved:
            peer = self._shell.peers.executors.get(self._relays.relay_of(moved.source))
            source = peer.hello.host if peer is not None else _ORIGIN if not moved.source else ""
            if peer is not None:
                self._directory.note_success(executor.hello.site, peer.hello.site)
            if source:
                news(BytesMoved(executor.number, source, moved.size, moved.seconds))

    def _note_failure(self, reader: ExecutorPeer, digest: bytes, failed: FailedPeer) -> None:
        source = self._shell.peers.executors.get(self._relays.relay_of(failed.executor))
        if failed.corrupt:
            logs.warning(
                "copy-corrupt",
                f"executor {failed.executor} sent executor {reader.number} something else than content {digest.hex()}",
            )
            if source is not None:
                source.connection.send(CheckContent(digest))
        elif source is not None and source.number != failed.executor:
            if UNREACHED in failed.reason:
                self._relays.note_unreached(reader.hello.site, source.hello.site)
        elif source is not None:
            self._directory.note_failure(_reader(reader), failed, source.hello.site, self._shell.loop.time())


def _reader(executor: ExecutorPeer) -> Reader:
    hello = executor.hello
    return Reader(executor.number, hello.site, hello.host, executor.is_relay)
