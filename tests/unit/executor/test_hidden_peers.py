"""A peer that a firewall hides is waited for once, and a transfer tells the server of it before it tries another."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from bough.executor.files.caches.host_cache import HostCache
from bough.executor.files.transfers import peer_reader
from bough.executor.files.transfers.peer_link import PeerFailure, PeerUnreached
from bough.executor.files.transfers.peer_reader import PeerReader
from bough.executor.files.transfers.range_plan import RangePlan
from bough.executor.files.transfers.transfer_process import TransferProcess
from bough.executor.files.transfers.transfer_protocol import (
    BringContent,
    ContentBrought,
    FromTransfers,
    MorePeers,
    NeedPeers,
    NeedPiece,
    OriginPiece,
    from_transfers_frames,
)
from bough.model.ids import ExecutorId
from bough.movers.local import digest_of
from bough.policies.eviction.eviction_names import load_eviction
from bough.wire.file_messages import PeerHint

DIGEST, DATA = b"d" * 32, b"content"


def hint(number: int, port: int = 4000) -> PeerHint:
    return PeerHint(ExecutorId(number), "192.0.2.1", port, "print", 1e12, b"t" * 32)


class Network:
    """Where nobody answers; it counts who was tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tried: list[int] = []
        monkeypatch.setattr(peer_reader.socket, "create_connection", self._try)

    def _try(self, place: tuple[str, int], timeout: float) -> socket.socket:
        assert timeout <= 1.5
        self.tried.append(place[1])
        raise TimeoutError("timed out")


def test_who_does_not_answer_is_not_tried_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    network, reader = Network(monkeypatch), PeerReader(2)
    for _ in range(3):
        with pytest.raises(PeerUnreached, match="cannot be reached"):  # by which the server knows it
            reader.read(hint(1), DIGEST, RangePlan(0, 6, lambda _: None))
    assert network.tried == [4000]
    now = peer_reader.time.monotonic()
    monkeypatch.setattr(peer_reader.time, "monotonic", lambda: now + 61.0)
    with pytest.raises(PeerUnreached):
        reader.read(hint(1), DIGEST, RangePlan(0, 6, lambda _: None))
    assert network.tried == [4000, 4000]


@pytest.mark.parametrize("address", ["fe80::1%" + "a" * 70, "fe80::1%lo%lo", "::%"])
def test_an_address_that_cannot_be_one_is_a_failure_of_its_peer_and_of_no_task(address: str) -> None:
    with pytest.raises(PeerFailure):
        PeerReader(2).read(replace(hint(1), address=address), DIGEST, RangePlan(0, 6, lambda _: None))


def test_the_server_hears_of_a_hidden_peer_before_another_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(monkeypatch)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(30)
        frames, cache = from_transfers_frames(), HostCache(str(tmp_path / "cache"), 100, load_eviction("lru"))
        process = TransferProcess(theirs, cache, "", 2)
        (tmp_path / "x").write_bytes(DATA)
        digest = digest_of(str(tmp_path / "x"))
        process._hear(BringContent(7, digest, len(DATA), [hint(1, 4001), hint(3, 4003)]))
        said: list[FromTransfers] = []
        while not any(isinstance(one, ContentBrought) for one in said):
            for message in frames.feed(ours.recv(1 << 16)):
                said.append(message)
                if isinstance(message, NeedPeers):
                    assert [one.executor for one in message.failed] == [1]
                    assert network.tried == [4001]
                    process._hear(MorePeers(7, []))  # none that this host would reach
                elif isinstance(message, NeedPiece):
                    process._hear(OriginPiece(7, 0, DATA))
        assert network.tried == [4001]
        assert cache.has(digest, len(DATA))
        cache.close()
