"""Peers of a site that another site does not reach are not named to it, until one was reached or time has passed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bough.server.files.peer_sources import PeerSources
from bough.wire.file_messages import CacheReport, FailedPeer, MovedContent, OfferPeer

DIGEST, OTHER = b"d" * 32, b"o" * 32
SIZE = 1 << 20
UNREACHED = "it cannot be reached: timed out"


class Sites:
    """Executors 1 and 2 at site a, 3 and 4 at site b, each on a host of its own; 3 and 4 hold a content."""

    def __init__(self) -> None:
        self.now = 0.0
        self.max_transfers: dict[str, int] = {}
        self.said: list[object] = []
        self.peers = {number: self._peer(number) for number in (1, 2, 3, 4)}
        holders = [SimpleNamespace(site="b", host=f"host{number}", executors=(number,)) for number in (3, 4)]
        shell = SimpleNamespace(
            loop=SimpleNamespace(time=lambda: self.now),
            peers=SimpleNamespace(executors=self.peers),
            queries=SimpleNamespace(
                holders_of=lambda _: holders,
                store_has=lambda *_: False,
                max_transfers=lambda site: self.max_transfers.get(site, 0),
            ),
            news=self.said.append,
        )
        self.sources = PeerSources(shell)  # type: ignore[arg-type]
        for number, peer in self.peers.items():
            self.sources.offered(peer, OfferPeer(f"10.0.0.{number}", 7000))

    def _peer(self, number: int) -> SimpleNamespace:
        hello = SimpleNamespace(site="a" if number < 3 else "b", host=f"host{number}")
        connection = SimpleNamespace(send=self.said.append)
        return SimpleNamespace(number=number, hello=hello, connection=connection, is_relay=False)

    def hints(self, reader: int, digest: bytes = DIGEST) -> set[int]:
        found = {hint.executor for hint in self.sources.hints(self.peers[reader], digest, SIZE)}
        self.sources.reported(self.peers[reader], CacheReport(ended=[digest]))
        return found

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
    assert sites.sources.hints(sites.peers[1], DIGEST, SIZE)
    assert not sites.sources.hints(sites.peers[2], OTHER, SIZE)  # which 1 is not getting
    sites.sources.reported(sites.peers[1], CacheReport(ended=[DIGEST]))
    assert sites.sources.hints(sites.peers[2], OTHER, SIZE)
