"""Peers of a site that another site does not reach are not named to it, until one was reached or time has passed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from bough.model.events.news import BytesMoved, CacheChanged, HeldContent
from bough.model.ids import ExecutorId
from bough.server.files import relay_sources
from bough.server.files.peer_sources import PeerSources
from bough.wire.file_messages import (
    CacheReport,
    CheckContent,
    FailedPeer,
    MovedContent,
    NamePeers,
    OfferPeer,
    PeerHint,
    PeersNamed,
)

DIGEST, OTHER = b"d" * 32, b"o" * 32
SIZE = 1 << 20
UNREACHED = "it cannot be reached: timed out"


class Sites:
    """Executors 1 and 2 at site a, 3 and 4 at site b, each on a host of its own; 3 and 4 hold a content."""

    def __init__(self) -> None:
        self.now = 0.0
        self.max_transfers: dict[str, int] = {}
        self.said: list[object] = []
        self.later: list[Callable[[], None]] = []  # what is to be done after the turn
        self.peers = {number: self._peer(number) for number in (1, 2, 3, 4)}
        self.holders = [SimpleNamespace(site="b", host=f"host{number}", executors=(number,)) for number in (3, 4)]
        shell = SimpleNamespace(
            loop=SimpleNamespace(
                time=lambda: self.now, create_future=lambda: asyncio.get_running_loop().create_future()
            ),
            peers=SimpleNamespace(executors=self.peers),
            queries=SimpleNamespace(
                holders_of=lambda _: self.holders,
                store_has=lambda *_: False,
                max_transfers=lambda site: self.max_transfers.get(site, 0),
            ),
            news=self.said.append,
            after_turn=self.later.append,
        )
        self.sources = PeerSources(shell)  # type: ignore[arg-type]
        for number, peer in self.peers.items():
            self.sources.offered(peer, OfferPeer(f"10.0.0.{number}", 7000))

    def _peer(self, number: int) -> SimpleNamespace:
        hello = SimpleNamespace(site="a" if number < 3 else "b", host=f"host{number}")
        connection = SimpleNamespace(send=self.said.append)
        return SimpleNamespace(number=number, hello=hello, connection=connection, is_relay=False, ready=True)

    def hints(self, reader: int, digest: bytes = DIGEST) -> set[int]:
        found = {hint.executor for hint in self.ask(reader, digest)}
        self.sources.reported(self.peers[reader], CacheReport(ended=[digest]))
        return found

    def ask(self, reader: int, digest: bytes = DIGEST, failed: tuple[FailedPeer, ...] = ()) -> list[PeerHint]:
        return asyncio.run(self.sources.hints(self.peers[reader], digest, SIZE, failed))

    def failed(self, reader: int, source: int) -> None:
        report = CacheReport(failed=[(DIGEST, FailedPeer(source, reason=UNREACHED))])
        self.sources.reported(self.peers[reader], report)


@pytest.fixture
def sites() -> Sites:
    return Sites()


def test_one_failure_concerns_that_host_and_that_peer_only(sites: Sites) -> None:
    sites.failed(1, 3)
    assert sites.hints(1) == {4}
    assert sites.hints(2) == {3, 4}


def test_after_two_failures_no_peer_of_the_other_site_is_named_to_anybody(sites: Sites) -> None:
    sites.failed(1, 3)
    sites.failed(1, 4)
    assert sites.hints(2) == set()
    sites.now = 301.0
    assert sites.hints(2) == {3, 4}


def test_the_same_failure_twice_does_not_cut_off_a_site(sites: Sites) -> None:
    sites.failed(1, 3)
    sites.failed(1, 3)
    assert sites.hints(2) == {3, 4}


def test_a_transfer_shows_that_the_sites_reach_each_other(sites: Sites) -> None:
    sites.failed(1, 3)
    sites.sources.reported(sites.peers[2], CacheReport(moved=[MovedContent(OTHER, 4, SIZE, 1.0)]))  # type: ignore[arg-type]
    sites.failed(1, 4)
    assert sites.hints(2) == {3, 4}


def test_peers_of_the_own_site_are_named_all_the_same(sites: Sites) -> None:
    sites.failed(4, 1)
    sites.failed(4, 2)
    assert sites.hints(4) == {3}


def test_a_site_says_how_many_contents_come_from_it_at_a_time(sites: Sites) -> None:
    sites.max_transfers["b"] = 1
    assert sites.ask(1, DIGEST)
    assert not sites.ask(2, OTHER)  # which 1 is not getting
    sites.sources.reported(sites.peers[1], CacheReport(ended=[DIGEST]))
    assert sites.ask(2, OTHER)


class Relay:
    """A relay at site b in the place of executors 3 and 4; what it was asked. It names members 901 and 902."""

    def __init__(self, sites: Sites) -> None:
        self.asked: list[NamePeers] = []
        self.checked: list[bytes] = []
        self.answers = True
        self.names: tuple[int, ...] = ()  # in the place of these
        self.address = "10.0.9.1"
        self.sites = sites
        del sites.peers[4]
        self.peer = sites.peers[3]
        self.peer.is_relay = True
        self.peer.connection.send = self.hear
        sites.holders[:] = [SimpleNamespace(site="b", host="host3", executors=(3,))]
        sites.sources.gone(3)  # type: ignore[arg-type] -- as an executor
        sites.sources.gone(4)  # type: ignore[arg-type]
        sites.sources.reported(self.peer, CacheReport(added=[(DIGEST, SIZE)]))

    def hear(self, message: NamePeers | CheckContent) -> None:
        if isinstance(message, CheckContent):
            self.checked.append(message.digest)
            return
        self.asked.append(message)
        if self.answers:
            named = [901, 902] if message.direct else []
            numbers = self.names or (*named, 3)
            hints = [PeerHint(one, self.address, 1, "f", 9e9, b"t" * 32) for one in numbers]  # type: ignore[arg-type]
            self.sites.sources.named(self.peer, PeersNamed(message.request, hints))
            self.sites.sources.named(self.sites.peers[2], PeersNamed(message.request))  # it is not for him to say


def test_a_relay_names_who_of_those_behind_it_is_asked(sites: Sites) -> None:
    relay = Relay(sites)
    assert [hint.executor for hint in sites.ask(1)] == [901, 902, 3]
    (asked,) = relay.asked
    assert (asked.digest, asked.reader, asked.site, asked.host, asked.direct) == (DIGEST, 1, "a", "host1", True)


def test_who_leaves_while_a_relay_is_asked_is_not_named(sites: Sites) -> None:
    relay = Relay(sites)
    sites.peers[4] = sites._peer(4)
    sites.sources.offered(sites.peers[4], OfferPeer("10.0.0.4", 7000))  # type: ignore[arg-type]
    sites.holders.append(SimpleNamespace(site="b", host="host4", executors=(4,)))

    def hear(message: NamePeers | CheckContent) -> None:
        sites.sources.gone(ExecutorId(4))
        relay.hear(message)

    relay.peer.connection.send = hear
    assert [hint.executor for hint in sites.ask(1)] == [901, 902, 3]
    assert len(relay.asked) == 1


def test_where_members_are_not_reached_readers_of_that_site_are_sent_to_doors_for_a_while(sites: Sites) -> None:
    relay = Relay(sites)
    sites.ask(1)
    unreached = FailedPeer(901, reason=UNREACHED)  # type: ignore[arg-type]
    assert [hint.executor for hint in sites.ask(1, failed=(unreached,))] == [3]
    assert sites.hints(2) - {1} == {3}  # and 1, who is getting it
    assert relay.asked[1].failed == []  # it may be reached by a door
    gone = FailedPeer(902, reason="it does not have the content")  # type: ignore[arg-type]
    sites.ask(1, failed=(unreached, gone))
    assert relay.asked[-1].failed == [902]
    sites.now = 301.0
    assert {901, 902, 3} <= sites.hints(2)


def test_a_relay_whose_door_failed_or_that_says_nothing_is_no_source(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = Relay(sites)
    assert sites.ask(1, failed=(FailedPeer(3, reason=UNREACHED),)) == []  # type: ignore[arg-type]
    assert not relay.asked
    sites.sources.reported(sites.peers[1], CacheReport(ended=[DIGEST]))
    monkeypatch.setattr(relay_sources, "_ANSWER", 0.01)
    relay.answers = False
    assert sites.ask(2) == []
    assert len(relay.asked) == 1


def test_who_does_not_answer_holds_up_one_reader_and_not_all_that_come(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_sources, "_ANSWER", 0.01)
    relay = Relay(sites)
    for late in (False, True):
        relay.answers = False
        assert sites.hints(1) == sites.hints(2) == set()
        assert len(relay.asked) == 1
        relay.answers = True
        if late:  # it speaks again
            sites.sources.named(relay.peer, PeersNamed(relay.asked[0].request))
        else:
            sites.now += 61.0
        assert sites.hints(1) == {901, 902, 3}
        relay.asked.clear()


def test_what_members_gave_and_what_was_wrong_with_it_is_the_relays(sites: Sites) -> None:
    relay = Relay(sites)
    sites.ask(1)
    report = CacheReport(
        moved=[MovedContent(DIGEST, 901, SIZE, 1.0)],  # type: ignore[arg-type]
        failed=[(DIGEST, FailedPeer(902, corrupt=True, reason="it sent something else"))],  # type: ignore[arg-type]
    )
    sites.sources.reported(sites.peers[1], report)
    assert BytesMoved(ExecutorId(1), "host3", SIZE, 1.0) in sites.said
    assert relay.checked == [DIGEST]


def test_no_relay_says_anything_of_the_server_or_of_executors_that_are_elsewhere(sites: Sites) -> None:
    relay = Relay(sites)
    relay.names = (0, 2, 4)  # the server, one that is here, and one that comes later
    assert [hint.executor for hint in sites.ask(1)] == [3, 3, 4]
    sites.peers[4] = sites._peer(4)
    sites.said.clear()
    report = CacheReport(
        moved=[MovedContent(DIGEST, 0, SIZE, 1.0), MovedContent(OTHER, 4, SIZE, 1.0)],  # type: ignore[arg-type]
        failed=[(DIGEST, FailedPeer(4, corrupt=True, reason="it sent something else"))],  # type: ignore[arg-type]
    )
    sites.sources.reported(sites.peers[1], report)
    assert BytesMoved(ExecutorId(1), "origin", SIZE, 1.0) in sites.said
    assert BytesMoved(ExecutorId(1), "host4", SIZE, 1.0) in sites.said
    assert CheckContent(DIGEST) in sites.said
    assert relay.checked == []


@pytest.mark.parametrize("address", ["", "localhost", "a" * 70, "10.0.0", "10.0.0.1:22"])
def test_what_a_relay_names_that_is_no_address_is_not_told_to_readers(sites: Sites, address: str) -> None:
    relay = Relay(sites)
    relay.address = address
    assert sites.ask(1) == []


def test_what_one_holds_that_has_just_come_is_known_once_it_has_joined(sites: Sites) -> None:
    sites.said.clear()
    sites.peers[1].ready = False  # what it says beside its cache is compared after this turn, and then it joins
    sites.later.append(lambda: sites.said.append("it joined"))
    for number in (1, 2):
        sites.sources.reported(sites.peers[number], CacheReport([(DIGEST, SIZE)], whole=True))
    sites.sources.reported(SimpleNamespace(**vars(sites.peers[1])), CacheReport([(OTHER, SIZE)]))  # it came anew since
    for each in sites.later:
        each()
    held = (HeldContent(DIGEST, SIZE),)
    assert sites.said == [CacheChanged(2, held, (), True), "it joined", CacheChanged(1, held, (), True)]
