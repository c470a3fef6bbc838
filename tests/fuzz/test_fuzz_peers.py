"""Executors that read from and serve others that say anything: nothing is written beyond the content, nothing dies."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
from hashlib import blake2b
from pathlib import Path

import pytest

from bough.executor.files.caches.host_cache import HostCache
from bough.executor.files.transfers import peer_server, peer_streams
from bough.executor.files.transfers.peer_link import PeerFailure, PeerUnreached
from bough.executor.files.transfers.peer_server import PeerServer, listen
from bough.executor.files.transfers.peer_streams import PeerStreams
from bough.executor.files.transfers.range_plan import RangePlan
from bough.model.ids import ExecutorId
from bough.wire.framing import frame
from bough.wire.peer_messages import AskContent, ContentComes, make_ticket
from tests.fuzz.fuzz_wire import mutate
from tests.fuzz.messages import valid

SECRET = b"s" * 32


def read(line: socket.socket, plan: RangePlan) -> None:
    """Read from what is taken to be a peer."""

    def connect() -> socket.socket:
        raise PeerUnreached("it takes no more")

    def ask(span: range, transfer: int) -> AskContent:
        return AskContent(b"d" * 32, span.start, len(span), ExecutorId(2), 1e9, b"t" * 32, transfer)

    PeerStreams(plan, connect, ask, "peer").read(line)  # type: ignore[arg-type]


@pytest.mark.parametrize("far", [0.0, 1e9])
def test_whatever_a_peer_sends_nothing_is_written_beyond_the_content(
    far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_streams, "FAR", far)
    monkeypatch.setattr(peer_streams, "BIG", 0)
    dice = random.Random(20261118)
    pool = [bytes(frame(valid(kind, dice))) for kind in (AskContent, ContentComes) for _ in range(30)]
    good, ends = frame(ContentComes(streams=dice.choice((0, 1, 8, 64)))), set()
    for _ in range(400):
        size, got = dice.choice((1, 100, 5000, 1 << 18)), bytearray()
        parts = [dice.choice((good, good, mutate(dice.choice(pool), dice.choice(pool), dice))) for _ in range(3)]
        said = b"".join(part + dice.randbytes(dice.choice((0, size, size // 2, 2 * size))) for part in parts)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.settimeout(30)

            def speak(theirs: socket.socket = theirs, said: bytes = said) -> None:
                with contextlib.suppress(OSError):
                    theirs.sendall(said)
                    theirs.shutdown(socket.SHUT_WR)

            speaking = threading.Thread(target=speak)
            speaking.start()
            plan = RangePlan(0, size, got.extend)
            try:
                read(ours, plan)
                ends.add("complete")
                assert plan.complete == size
            except PeerFailure:
                ends.add("failed")
            assert len(got) == plan.complete <= size
            assert plan.came <= size
            ours.close()
            speaking.join()
    assert ends == {"complete", "failed"}


def test_whatever_range_a_reader_with_a_ticket_asks_for_it_gets_bytes_of_the_content_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_server, "_EXPECTED", 0.0)
    data = os.urandom(5000)
    digest = blake2b(data, digest_size=32).digest()
    cache, listener = HostCache(str(tmp_path / "cache"), 1 << 20), listen("127.0.0.1")
    arriving = cache.receive(digest, len(data))
    assert arriving is not None
    arriving.add(data)
    assert arriving.finish()
    server, dice = PeerServer(listener, cache), random.Random(20261118)
    server._secret, server._places = SECRET, peer_server.ReaderPlaces(8)
    ticket = make_ticket(SECRET, digest, 2, 1e12)
    edges = (0, 1, 4999, 5000, 5001, 1 << 31, 1 << 32, (1 << 62) - 1, 1 << 62)
    for _ in range(500):
        offset, length = dice.choice(edges), dice.choice(edges)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(30)
            ask = AskContent(digest, offset, length, ExecutorId(2), 1e12, ticket, dice.choice((0, 1, 1 << 62)))
            server._answer(theirs, ask)  # type: ignore[arg-type]
            theirs.close()
            said = b"".join(iter(lambda: ours.recv(1 << 16), b""))  # noqa: B023
        begins = bytes(frame(ContentComes(streams=peer_server.MOST_STREAMS)))
        assert said == begins + data[offset : offset + length]
    assert not any(server._places._streams.values())
    listener.close()
    cache.close()
