"""Members of a relay that are sent to each other: who is named, and what the server hears."""

from __future__ import annotations

import ipaddress
from types import SimpleNamespace
from typing import Any

import pytest

from bough.model.ids import ExecutorId
from bough.movers.peer_directory import SMALL
from bough.relay.member_doors import Way
from bough.relay.member_sources import MemberSources
from bough.wire.file_messages import (
    CacheReport,
    CheckContent,
    DropContent,
    FailedPeer,
    FileLocated,
    FindPeers,
    ListShared,
    MovedContent,
    NamePeers,
    OfferPeer,
    PeerHint,
    PeerIdentity,
)
from bough.wire.peer_messages import AskContent, is_admitted

X = b"x" * 32
SIZE = SMALL * 3
RELAY = 7
OUTSIDE = PeerHint(ExecutorId(90), "10.0.0.90", 1, "f", 0.0, b"t" * 32)


class Doors:
    """Doors of a relay, which are none; who reads at another host finds them all the same."""

    def shut(self, number: ExecutorId) -> None:
        """They are none."""

    def serve(self, host: str) -> bool:
        return host != "nowhere"

    def way_to(self, number: ExecutorId, address: str, port: int) -> Way:
        return Way("10.0.1.1", 5000 + number)


class Site:
    """A relay with members on hosts of their own, which serve each other."""

    def __init__(self, count: int = 3) -> None:
        self.said: list[Any] = []
        self.now = 0.0
        members: dict[int, Any] = {}
        self.server: Any = SimpleNamespace(
            number=RELAY,
            kind=SimpleNamespace(site="s"),
            say=self.said.append,
            distributor=SimpleNamespace(members=members),
        )
        self.peers: dict[ExecutorId, Any] = {}
        self.doors = Doors()
        self.sources = MemberSources(self.peers, lambda: [self.server], self.doors, lambda: self.now)  # type: ignore[arg-type]
        for number in range(101, 101 + count):
            self.peers[ExecutorId(number)] = peer = self.member(number)
            members[number] = peer
            self.sources.joined(peer)
            self.sources.offered(peer, OfferPeer(f"10.0.0.{number}", 4000))

    def member(self, number: int) -> Any:
        sent: list[Any] = []
        return SimpleNamespace(
            member=SimpleNamespace(number=ExecutorId(number)),
            hello=SimpleNamespace(site="s", host=f"host-{number}"),
            relay_executor=self.server,
            sees_store=False,
            sent=sent,
            connection=SimpleNamespace(
                send=sent.extend, is_local=False, address=ipaddress.ip_address(f"10.0.0.{number}")
            ),
        )

    def peer(self, number: int) -> Any:
        return self.peers[ExecutorId(number)]

    def wants(self, number: int, *outside: PeerHint, size: int = SIZE) -> list[int]:
        answer = self.sources.located(self.peer(number), FileLocated(1, X, size, peers=list(outside)))
        return [int(one.executor) for one in answer.peers]

    def reports(self, number: int, **fields: Any) -> None:
        self.sources.reported(self.peer(number), CacheReport(**fields))

    def has(self, number: int) -> None:
        self.reports(number, added=[(X, SIZE)], ended=[X])


@pytest.fixture
def site() -> Site:
    return Site()


def test_one_member_gets_a_file_from_outside_and_the_others_stand_in_a_chain_behind_it(site: Site) -> None:
    assert site.wants(101) == []
    assert site.wants(102) == [101]
    assert site.wants(103) == [102]


def test_who_holds_a_file_is_named_with_a_ticket_that_it_admits(site: Site) -> None:
    site.has(101)
    (hint,) = site.sources.located(site.peer(102), FileLocated(1, X, SIZE)).peers
    (identity,) = site.peer(101).sent
    assert isinstance(identity, PeerIdentity)
    assert (hint.address, hint.port, hint.reader) == ("10.0.0.101", 4000, 0)
    ask = AskContent(X, 0, SIZE, ExecutorId(102), hint.until, hint.ticket)
    assert is_admitted(identity.secret, ask, hint.until)
    other = AskContent(X, 0, SIZE, ExecutorId(103), hint.until, hint.ticket)
    assert not is_admitted(identity.secret, other, hint.until)


def test_peers_outside_come_after_members_and_their_tickets_are_the_relays(site: Site) -> None:
    site.has(101)
    answer = site.sources.located(site.peer(102), FileLocated(1, X, SIZE, peers=[OUTSIDE]))
    assert [one.executor for one in answer.peers] == [101, 90]
    assert answer.peers[1].reader == RELAY
    assert CacheReport(ended=[X]) in site.said  # the server need not count it as a reader


def test_a_second_task_that_wants_what_is_on_its_way_changes_no_plan(site: Site) -> None:
    site.has(101)
    assert site.wants(102) == [101]
    assert site.wants(102) == [101]
    assert site.wants(103)[0] == 102
    assert site.wants(103)[0] == 102
    site.sources.missing(site.peer(102))
    assert site.wants(103)[0] == 101  # its source is gone


@pytest.mark.parametrize(
    "answer",
    [
        FileLocated(1, X, SIZE, fresh=True),
        FileLocated(1, error="it is nowhere"),
        FileLocated(1, X, SMALL - 1),
        FileLocated(1, b"", SIZE),
        FileLocated(1, X, SIZE, fetch=True),
        FileLocated(1, X, SIZE, again=True),
    ],
)
def test_answers_to_which_nothing_is_added(site: Site, answer: FileLocated) -> None:
    site.has(101)
    assert site.sources.located(site.peer(102), answer) == answer


def test_members_of_a_readers_own_host_share_its_cache_and_are_not_named(site: Site) -> None:
    site.peers[ExecutorId(104)] = peer = site.member(104)
    peer.hello.host = "host-101"
    site.sources.joined(peer)
    site.has(101)
    assert site.wants(104) == []


def test_a_member_that_fails_is_left_out_and_the_server_is_asked_last(site: Site) -> None:
    site.has(101)
    site.has(102)
    assert site.wants(103) == [101, 102]
    gone = FailedPeer(ExecutorId(101), reason="the peer hung up")
    found = site.sources.find(site.peer(103), FindPeers(5, X, SIZE, [gone]))
    assert isinstance(found, FileLocated)
    assert [one.executor for one in found.peers] == [102]
    both = [gone, FailedPeer(ExecutorId(102)), FailedPeer(ExecutorId(90))]
    up = site.sources.find(site.peer(103), FindPeers(5, X, SIZE, both))
    assert up == FindPeers(5, X, SIZE, [FailedPeer(ExecutorId(90))])
    answer = site.sources.located(site.peer(103), FileLocated(5, X, SIZE, peers=[OUTSIDE]))
    assert [one.executor for one in answer.peers] == [90]  # and not the members that have just failed


def test_a_member_that_a_host_cannot_reach_is_not_named_there_for_a_while(site: Site) -> None:
    site.has(101)
    site.reports(102, failed=[(X, FailedPeer(ExecutorId(101), reason="10.0.0.101:4000 cannot be reached: no route"))])
    assert site.wants(102) == []
    site.reports(102, ended=[X])
    site.now = 1000.0
    assert site.wants(102) == [101]


def test_a_wrong_copy_is_checked_by_the_member_that_has_it(site: Site) -> None:
    site.has(101)
    site.reports(102, failed=[(X, FailedPeer(ExecutorId(101), corrupt=True))])
    assert site.peer(101).sent[-1] == CheckContent(X)


def test_a_member_that_is_missing_is_named_again_when_it_is_back_and_forgotten_when_it_is_lost(site: Site) -> None:
    site.has(101)
    site.sources.missing(site.peer(101))
    assert site.wants(102) == []
    site.reports(102, ended=[X])
    site.sources.offered(site.peer(101), OfferPeer("10.0.0.101", 4001))
    assert site.wants(102) == [101]
    site.said.clear()
    lost = site.peers.pop(ExecutorId(101))
    site.sources.lost(lost)
    assert site.said == [CacheReport(removed=[X])]
    site.reports(102, ended=[X])
    assert site.wants(102) == []


def test_the_server_hears_of_contents_once_and_of_members_nothing(site: Site) -> None:
    site.wants(101)
    site.reports(101, added=[(X, SIZE)], ended=[X], moved=[MovedContent(X, ExecutorId(0), SIZE, 1.0)])
    assert site.said == [
        CacheReport(added=[(X, SIZE)]),
        CacheReport(moved=[MovedContent(X, ExecutorId(0), SIZE, 1.0)], ended=[X]),
    ]
    site.said.clear()
    site.wants(102)
    failed = (X, FailedPeer(ExecutorId(103), reason="it hung up"))
    site.reports(
        102, added=[(X, SIZE)], ended=[X], moved=[MovedContent(X, ExecutorId(101), SIZE, 1.0)], failed=[failed]
    )
    assert site.said == []
    site.reports(101, removed=[X])
    assert site.said == []
    site.reports(102, removed=[X])
    assert site.said == [CacheReport(removed=[X])]


def test_a_server_that_is_back_is_told_all_there_is(site: Site) -> None:
    site.sources.tell_all(site.server)
    assert site.said == []  # no files have travelled: nothing is said
    site.has(101)
    site.reports(102, shared=True)
    site.said.clear()
    site.sources.tell_all(site.server)
    assert site.said == [CacheReport(added=[(X, SIZE)], whole=True), CacheReport(shared=True)]
    site.sources.lost(site.peers.pop(ExecutorId(101)))
    site.said.clear()
    site.sources.tell_all(site.server)
    assert site.said[0] == CacheReport(whole=True)


def test_what_the_server_says_of_contents_goes_to_those_who_have_them(site: Site) -> None:
    site.has(101)
    site.sources.pass_down(site.server, DropContent(X))
    assert site.peer(101).sent[-1] == DropContent(X)
    assert DropContent(X) not in site.peer(102).sent
    site.sources.pass_down(site.server, ListShared())  # nobody sees a store
    site.reports(103, shared=True)
    site.sources.pass_down(site.server, ListShared())
    assert [ListShared() in site.peer(number).sent for number in (101, 102, 103)] == [False, False, True]


def named(site: Site, failed: tuple[int, ...] = (), *, direct: bool = True, host: str = "far") -> list[PeerHint]:
    """Whom a reader outside, number 33 of the server, is told to ask."""
    wanted = NamePeers(1, X, ExecutorId(33), "other", host, [ExecutorId(one) for one in failed], direct)
    return site.sources.name(site.server, wanted).peers


def test_who_is_outside_is_told_of_members_and_of_a_door_with_tickets_that_they_admit(site: Site) -> None:
    site.has(101)
    direct, by_door = named(site)
    assert (direct.executor, direct.address, direct.port) == (101, "10.0.0.101", 4000)
    assert (by_door.executor, by_door.address, by_door.port) == (RELAY, "10.0.1.1", 5101)
    assert direct.fingerprint == by_door.fingerprint
    (identity,) = site.peer(101).sent
    for hint in (direct, by_door):
        assert is_admitted(identity.secret, AskContent(X, 0, SIZE, ExecutorId(33), hint.until, hint.ticket), hint.until)


def test_who_does_not_reach_members_is_told_of_the_door_only_and_who_does_not_reach_that_of_members(site: Site) -> None:
    site.has(101)
    assert [one.executor for one in named(site, direct=False)] == [RELAY]
    assert [one.executor for one in named(site, (RELAY,))] == [101]
    assert [one.executor for one in named(site, host="nowhere")] == [101]
    assert named(site, (101,)) == []


def test_readers_outside_are_spread_over_the_members_that_have_it(site: Site) -> None:
    for number in (101, 102, 103):
        site.has(number)
    site.peers[ExecutorId(104)] = site.member(104)
    assert site.wants(104)[0] == 101  # who serves a member is asked last
    assert [one.executor for one in named(site)] == [102, 103, 101, RELAY]
    site.sources.missing(site.peer(102))
    assert [one.executor for one in named(site)] == [103, 101, RELAY]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "169.254.169.254", "fe80::1", "10.0.0.9"],
)
def test_a_door_leads_only_to_where_its_member_has_come_from(site: Site, address: str) -> None:
    site.has(101)
    site.sources.offered(site.peer(101), OfferPeer(address, 22))
    assert named(site, direct=False) == []
    site.has(102)
    (by_door,) = named(site, direct=False)
    assert by_door.port == 5102


def test_a_door_leads_to_loopback_for_who_comes_from_there(site: Site) -> None:
    site.has(101)
    site.sources.offered(site.peer(101), OfferPeer("127.0.0.1", 4000))
    site.peer(101).connection.is_local = True
    assert [one.port for one in named(site, direct=False)] == [5101]
    site.sources.offered(site.peer(101), OfferPeer("10.0.0.9", 22))
    assert named(site, direct=False) == []


def test_an_address_may_be_written_as_it_is_seen_on_either_kind_of_socket(site: Site) -> None:
    site.has(101)
    site.sources.offered(site.peer(101), OfferPeer("::ffff:10.0.0.101", 4000))
    assert [one.port for one in named(site, direct=False)] == [5101]
