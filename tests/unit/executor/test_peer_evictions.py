"""A peer that has evicted a content says so at once; one that is about to get it lets the reader wait."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bough.executor.files.caches.host_cache import HostCache
from bough.executor.files.transfers import peer_server, peer_streams
from bough.executor.files.transfers.peer_link import PeerFailure
from bough.executor.files.transfers.peer_reader import PeerReader
from bough.executor.files.transfers.peer_server import PeerServer, listen
from bough.executor.files.transfers.range_plan import RangePlan
from bough.movers.local import digest_of
from bough.policies.eviction.eviction_names import load_eviction
from bough.transport.tls import fingerprint_of, new_certificate, server_context
from bough.wire.file_messages import PeerHint
from bough.wire.peer_messages import make_ticket

SECRET = b"s" * 32
SIZE = 6


class Peer:
    """A host with room for one content, and a reader that was sent to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = HostCache(str(folder / "cache"), 10, load_eviction("lru"))
        self.listener, self.reader = listen("127.0.0.1"), PeerReader(2)
        self.port = self.listener.getsockname()[1]
        self.server = PeerServer(self.listener, self.cache)
        self.cache.on_evicted = self.server.evicted
        key, certificate = new_certificate()
        for name, data in (("cert", certificate), ("key", key)):
            (folder / name).write_bytes(data)
        self.fingerprint = fingerprint_of(certificate)
        self.server.serve(server_context(str(folder / "cert"), str(folder / "key")), SECRET, 4)

    def close(self) -> None:
        for lines in self.reader._idle.values():  # a process keeps them until it ends
            for _, line in lines:
                line.close()
        self.listener.shutdown(socket.SHUT_RDWR)  # what accepts there ends
        self.listener.close()

    def adopt(self, name: str) -> bytes:
        path = self.folder / name
        path.write_bytes(name.encode() * SIZE)
        digest = digest_of(str(path))
        assert self.cache.adopt(str(path), digest, SIZE)
        path.unlink()  # a content with a second name is one that a task has
        return digest

    def read(self, digest: bytes) -> bytes:
        end, got = time.time() + 600, bytearray()
        hint = PeerHint(1, "127.0.0.1", self.port, self.fingerprint, end, make_ticket(SECRET, digest, 2, end))
        self.reader.read(hint, digest, RangePlan(0, SIZE, got.extend))
        return bytes(got)


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    monkeypatch.setattr(peer_server, "_EXPECTED", 300.0)  # a peer that waits makes its reader give up, and not hear no
    made = Peer(tmp_path)
    yield made
    made.close()


def test_a_reader_that_comes_after_the_eviction_is_told_at_once(peer: Peer) -> None:
    first = peer.adopt("a")
    assert peer.read(first) == b"a" * SIZE
    peer.adopt("b")
    assert not peer.cache.has(first)
    with pytest.raises(PeerFailure, match="it does not have the content"):
        peer.read(first)


def test_an_evicted_content_that_is_ordered_again_is_waited_for(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_streams, "_BEGINS", 300.0)
    first = peer.adopt("a")
    peer.adopt("b")
    peer.server.ordered(first)
    late = threading.Timer(0.3, peer.adopt, ("a",))
    late.start()
    assert peer.read(first) == b"a" * SIZE
    late.join()


def test_what_is_remembered_of_evictions_is_bounded(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_server, "_EVICTED", 3)
    monkeypatch.setattr(peer_streams, "_BEGINS", 0.5)
    gone = [bytes([number]) * 32 for number in range(5)]
    for digest in gone:
        peer.server.evicted(digest)
    with pytest.raises(PeerFailure, match="does not answer"):
        peer.read(gone[0])
    with pytest.raises(PeerFailure, match="it does not have the content"):
        peer.read(gone[4])


def test_a_content_that_somebody_removed_is_reported_as_gone(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_server, "_EXPECTED", 0.1)
    first, gone = peer.adopt("a"), list[bytes]()
    peer.cache.on_evicted = gone.append
    shutil.rmtree(peer.folder / "cache")
    with pytest.raises(PeerFailure, match="it does not have the content"):
        peer.read(first)
    assert gone == [first]
