"""Members of a relay that serve contents to each other: who reads from whom, and what the server hears of it.

The server does not know the executors behind a relay that shares out work. So the relay does for them what the server
does for its own: it gives each a certificate and a secret, keeps who holds what (`member_contents`), and sends a reader
to another member by the same plan (`spread_plan`) and with the same tickets. The server says what content an input has,
and which peers outside have it; these come after the members. For policies that look at data, all that the members of
a site hold counts as held by the relay. When somebody outside wants some of it the server asks the relay whom to send
him to: he asks members himself where he reaches them, else by a door of the relay's host (`member_doors`).

Rules: the server is told once of what several members hold. Of members it hears nothing by their numbers. What a
member says concerns its own host: a door leads only to the address from which the member itself has come here. Else
whoever may run tasks could open to the world what else this host reaches.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from bough import logs
from bough.model.ids import ExecutorId, Seconds
from bough.movers.peer_directory import READERS, SECRET, SMALL, VALID, PeerDirectory, Reader, Serving
from bough.movers.spread_plan import ORIGIN, Candidate, SpreadPlan
from bough.relay.member_connections import MemberPeer
from bough.relay.member_contents import Host, MemberContents, SiteChange
from bough.relay.member_doors import MemberDoors
from bough.relay.relay_executor import RelayExecutor
from bough.transport.tls import fingerprint_of, new_certificate
from bough.wire.file_messages import (
    DIGEST,
    MOST_PEERS,
    CacheReport,
    CheckContent,
    DropContent,
    FailedPeer,
    FileLocated,
    FindPeers,
    ListShared,
    NamePeers,
    OfferPeer,
    PeerHint,
    PeerIdentity,
    PeersNamed,
)

_REPORTED: Final = 50_000  # contents in one report
_NAMED: Final = 3  # members that one reader outside is told of
_LOOKED_AT: Final = 64  # holders of a content


class MemberSources:
    """See the module. `peers` are all that are known, by number; `relay_executors` gives what the server sees."""

    def __init__(
        self,
        peers: Mapping[ExecutorId, MemberPeer],
        relay_executors: Callable[[], Iterable[RelayExecutor]],
        doors: MemberDoors,
        clock: Callable[[], Seconds] | None = None,
    ) -> None:
        self._peers = peers
        self._relay_executors = relay_executors
        self._doors = doors
        self._named: dict[ExecutorId, int] = {}  # members to which readers outside were sent: when, by a count
        self._namings = 0
        self._clock = clock or asyncio.get_running_loop().time
        self._directory = PeerDirectory()
        self._plan = SpreadPlan()
        self._contents = MemberContents()
        self._told: set[str] = set()  # sites of which the server was told something

    # --- members -----------------------------------------------------------------------------------

    def joined(self, peer: MemberPeer) -> None:
        """An executor is let in, or is back."""
        self._contents.join(peer.member.number, Host(peer.hello.site, peer.hello.host))

    def offered(self, peer: MemberPeer, offer: OfferPeer) -> None:
        """A member can be reached by others: make it somebody."""
        try:
            address = ipaddress.ip_address(offer.address)
            key, certificate = new_certificate()
        except (ValueError, ImportError) as error:
            logs.warning("peer-not-offered", f"executor {peer.member.number} serves no others: {error}")
            return
        secret, hello = os.urandom(SECRET), peer.hello
        serving = Serving(
            offer.address, offer.port, fingerprint_of(certificate), secret, hello.site, hello.host, address.is_loopback
        )
        self._directory.add(peer.member.number, serving)
        _send(peer, PeerIdentity(certificate, key, secret, READERS))

    def missing(self, peer: MemberPeer) -> None:
        """A member is disconnected: it reads nothing that we know of, and nobody is sent to it until it is back."""
        number = peer.member.number
        self._directory.remove(number)
        self._plan.gone(number)
        self._doors.shut(number)
        self._named.pop(number, None)

    def lost(self, peer: MemberPeer) -> None:
        """A member is lost for good."""
        self.missing(peer)
        self._tell(peer.hello.site, self._contents.leave(peer.member.number))

    # --- who reads from whom -----------------------------------------------------------------------

    def located(self, peer: MemberPeer, answer: FileLocated) -> FileLocated:
        """What a member is told of where a file is: the server's answer, with the members that have it put first."""
        relay_executor, number = peer.relay_executor, peer.member.number
        if answer.error or answer.fresh or answer.fetch or answer.again or relay_executor is None:
            return answer
        outside = [replace(one, reader=relay_executor.number) for one in answer.peers]
        source = self._plan.source_of(answer.digest, number)
        if source == ORIGIN:  # it has asked before: it gets it from there, or all members have failed
            inside = []
        elif source is None or self._directory.candidate(_reader(peer), ExecutorId(source), self._clock()) is None:
            inside = self._choose(peer, answer.digest, answer.size, ())
        else:  # it has asked before, for another task
            inside = self._hints(peer, answer.digest, [source])
        if inside and outside:  # nothing is taken from these for now
            relay_executor.say(CacheReport(ended=[answer.digest]))
        return replace(answer, peers=[*inside, *outside][:MOST_PEERS])

    def find(self, peer: MemberPeer, find: FindPeers) -> FileLocated | FindPeers:
        """The sources of a reader have failed: other members, or, if there are none, what the server is to be asked."""
        self._note_failures(peer, ((find.digest, one) for one in find.failed))
        peers = self._choose(peer, find.digest, find.size, {one.executor for one in find.failed})
        if peers:
            return FileLocated(find.request, find.digest, find.size, peers=peers)
        return replace(find, failed=[one for one in find.failed if one.executor not in self._peers])

    def name(self, relay_executor: RelayExecutor, wanted: NamePeers) -> PeersNamed:
        """Which members a reader outside shall ask: itself if it may reach them, and by a door of this host."""
        digest, found = wanted.digest, self._holders_for(relay_executor, wanted)
        reader, until, now = Reader(wanted.reader, wanted.site, wanted.host), time.time() + VALID, self._clock()
        peers: list[PeerHint] = []
        if wanted.direct:
            reached = [one for one in found if self._directory.candidate(reader, one, now) is not None]
            peers = [self._directory.hint(one, wanted.reader, digest, until) for one in reached[:_NAMED]]
        behind = next(filter(self._may_have_door, found), None)
        if behind is not None and relay_executor.number not in wanted.failed and self._doors.serve(wanted.host):
            hint = self._directory.hint(behind, wanted.reader, digest, until)
            way = self._doors.way_to(behind, hint.address, hint.port)
            if way is not None:
                peers.append(replace(hint, executor=relay_executor.number, address=way.address, port=way.port))
        for one in found[:_NAMED] if peers else ():
            self._namings += 1
            self._named[one] = self._namings
        return PeersNamed(wanted.request, peers)

    def _holders_for(self, relay_executor: RelayExecutor, wanted: NamePeers) -> list[ExecutorId]:
        """Members that hold a content, those first that serve least, then those to whom nobody was sent for longest."""
        failed, found = set(wanted.failed), list[ExecutorId]()
        for host, members in self._contents.holders(wanted.digest):
            if host.site == relay_executor.kind.site:
                found += [one for one in members if one not in failed and self._directory.serves(one)][:1]
            if len(found) >= _LOOKED_AT:
                break
        return sorted(found, key=lambda one: (self._plan.load(one), self._named.get(one, 0)))

    def _may_have_door(self, number: ExecutorId) -> bool:
        """Whether a member serves where it has come from; one of this host may do so at loopback."""
        address, connection = self._directory.address(number), self._peers[number].connection
        if connection is None:
            return False
        return address.is_loopback if connection.is_local else address == connection.address

    def _choose(self, peer: MemberPeer, digest: bytes, size: int, excluded: Iterable[ExecutorId]) -> list[PeerHint]:
        if size < SMALL or len(digest) != DIGEST:
            return []
        reader, now = _reader(peer), self._clock()
        found = self._plan.choose(
            digest,
            reader.number,
            self._holders(reader, digest, now),
            lambda other: self._directory.candidate(reader, ExecutorId(other), now),
            set(excluded),
        )
        return self._hints(peer, digest, found)

    def _hints(self, peer: MemberPeer, digest: bytes, sources: Iterable[int]) -> list[PeerHint]:
        until = time.time() + VALID
        return [self._directory.hint(ExecutorId(one), peer.member.number, digest, until) for one in sources]

    def _holders(self, reader: Reader, digest: bytes, now: Seconds) -> Iterator[Candidate]:
        """Members of the hosts that hold a content; those on the reader's host share its cache, which has it not."""
        for host, members in self._contents.holders(digest):
            if host != (reader.site, reader.host):
                found = (self._directory.candidate(reader, number, now) for number in members)
                candidate = next((one for one in found if one is not None), None)
                if candidate is not None:
                    yield candidate

    def _note_failures(self, peer: MemberPeer, failed: Iterable[tuple[bytes, FailedPeer]]) -> None:
        for digest, one in failed:
            source = self._peers.get(one.executor)
            if source is None:
                continue
            if one.corrupt:
                logs.warning(
                    "copy-corrupt",
                    f"executor {one.executor} sent executor {peer.member.number} something else than content"
                    f" {digest.hex()}",
                )
                _send(source, CheckContent(digest))
            else:
                self._directory.note_failure(_reader(peer), one, source.hello.site, self._clock())

    # --- what caches report, and what the server says of it ----------------------------------------

    def reported(self, peer: MemberPeer, report: CacheReport) -> None:
        """What a member says of its host's cache; the server hears of it what concerns the relay as a whole."""
        relay_executor, number = peer.relay_executor, peer.member.number
        if report.shared:
            peer.sees_store = True
            if relay_executor is not None:
                relay_executor.say(report)
            return
        self._note_failures(peer, report.failed)
        from_outside = []
        for digest in report.ended:
            if self._plan.source_of(digest, number) == ORIGIN:
                from_outside.append(digest)
            self._plan.ended(digest, number)
        for digest, _ in report.added:
            self._plan.ended(digest, number)
        change = self._contents.change(number, report.added, report.removed, whole=report.whole)
        self._tell(peer.hello.site, change)
        moved = [one for one in report.moved if one.source not in self._peers]
        failed = [one for one in report.failed if one[1].executor not in self._peers]
        if relay_executor is not None and (moved or failed or from_outside):
            relay_executor.say(CacheReport(moved=moved, failed=failed, ended=from_outside))

    def _tell(self, site: str, change: SiteChange) -> None:
        if not change.added and not change.removed:
            return
        self._told.add(site)
        for relay_executor in self._relay_executors():
            if relay_executor.kind.site == site:
                relay_executor.say(CacheReport(change.added, change.removed[:_REPORTED]))
                for start in range(_REPORTED, len(change.removed), _REPORTED):
                    relay_executor.say(CacheReport(removed=change.removed[start : start + _REPORTED]))

    def tell_all(self, relay_executor: RelayExecutor) -> None:
        """The server hears a relay executor again: say all that its site has behind the relay."""
        site = relay_executor.kind.site
        if site in self._told:
            held = self._contents.of_site(site)
            for start in range(0, max(1, len(held)), _REPORTED):
                relay_executor.say(CacheReport(held[start : start + _REPORTED], whole=start == 0))
        if self._one_that_sees_store(relay_executor) is not None:
            relay_executor.say(CacheReport(shared=True))

    def pass_down(self, relay_executor: RelayExecutor, message: CheckContent | DropContent | ListShared) -> None:
        """The server says something of contents: it is for the members that have them."""
        if isinstance(message, ListShared):
            member = self._one_that_sees_store(relay_executor)
            if member is not None:
                _send(member, message)
            return
        for host, members in list(self._contents.holders(message.digest)):
            for number in list(members) if host.site == relay_executor.kind.site else ():
                _send(self._peers[number], message)

    def _one_that_sees_store(self, relay_executor: RelayExecutor) -> MemberPeer | None:
        """A member that sees the shared store of its site."""
        for number in relay_executor.distributor.members:
            peer = self._peers.get(number)
            if peer is not None and peer.sees_store and peer.connection is not None:
                return peer
        return None


def _reader(peer: MemberPeer) -> Reader:
    return Reader(peer.member.number, peer.hello.site, peer.hello.host)


def _send(peer: MemberPeer, message: object) -> None:
    if peer.connection is not None:
        peer.connection.send([message])
