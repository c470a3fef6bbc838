"""What can happen to a transfer process and its cache: bytes come, and are counted, all the same."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bough.executor.executor_options import ExecutorLifetime
from bough.executor.files.caches import host_cache
from bough.executor.files.caches.host_cache import HostCache, part_path, seal
from bough.executor.files.command_files.sandbox import ExecutorFolder
from bough.executor.files.staging.staging import Staging
from bough.executor.files.transfers import transfer_client, transfer_process
from bough.executor.files.transfers.peer_reader import PeerReader
from bough.executor.files.transfers.range_plan import RangePlan
from bough.executor.files.transfers.transfer_client import CacheOptions, Transfers
from bough.executor.files.transfers.transfer_process import TransferProcess
from bough.executor.files.transfers.transfer_protocol import (
    BringContent,
    ContentBrought,
    FromTransfers,
    KeepOutput,
    Listening,
    NeedPiece,
    OriginPiece,
    OutputSeen,
    ServeAs,
    ToTransfers,
    from_transfers_frames,
)
from bough.executor.host.descriptors import Descriptors
from bough.executor.worker_protocol import InputsStaged, StageInputs, to_worker_frames
from bough.model.ids import ExecutorId, SpanId
from bough.transport.tls import fingerprint_of, new_certificate
from bough.wire.file_messages import PIECE, FileLocated, MovedContent, PeerHint, WantFile
from bough.wire.framing import frame
from bough.wire.peer_messages import make_ticket

DEADLINE = 60.0
SECRET = b"s" * 32
DATA = os.urandom(3 * PIECE)
DIGEST = blake2b(DATA, digest_size=32).digest()
M = TypeVar("M")


class Process:
    """A transfer process, in a thread, and what it says to its executor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "cache"
        self.cache = HostCache(str(self.folder), 1 << 30)
        self._ours, theirs = socket.socketpair()
        self._ours.settimeout(DEADLINE)
        self._frames = from_transfers_frames()
        self._heard: list[FromTransfers] = []
        self._process = TransferProcess(theirs, self.cache, "127.0.0.1", 2)
        self._running = threading.Thread(target=self._run, args=(theirs,))
        self._running.start()

    def _run(self, theirs: socket.socket) -> None:
        with theirs:
            self._process.run()

    def say(self, message: ToTransfers) -> None:
        self._ours.sendall(frame(message))

    def hear(self, *kinds: type[M]) -> M:
        """The next message of some kinds; others before it are passed over."""
        while True:
            while self._heard:
                if isinstance(message := self._heard.pop(0), kinds):
                    return message
            data = self._ours.recv(1 << 20)
            assert data, "it has ended"
            self._heard += self._frames.feed(data)

    def bring_piece(self) -> ContentBrought | None:
        """Answer the next question for a piece; when there are no more, what is said of the content."""
        message = self.hear(NeedPiece, ContentBrought)
        if isinstance(message, ContentBrought):
            return message
        assert isinstance(message, NeedPiece)
        self.say(OriginPiece(1, message.offset, DATA[message.offset : message.offset + PIECE]))
        return None

    def close(self) -> None:
        self._ours.close()
        self._running.join(DEADLINE)
        assert self._process._server is not None
        with self._process._server._listener as listener:
            listener.shutdown(socket.SHUT_RDWR)
        self.cache.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path)
    yield made
    made.close()


def test_who_has_no_folder_to_write_to_serves_others_all_the_same(process: Process, tmp_path: Path) -> None:
    port = process.hear(Listening).port
    shutil.rmtree(process.folder)
    process.folder.touch()  # as a full disk, nothing can be written there
    key, certificate = new_certificate()
    process.say(ServeAs(certificate, key, SECRET, 4))
    process.say(BringContent(1, DIGEST, len(DATA)))  # what was said before has been heard when this is answered
    assert process.hear(ContentBrought).of_site
    process.folder.unlink()
    (tmp_path / "x").write_bytes(DATA)
    assert process.cache.adopt(str(tmp_path / "x"), DIGEST, len(DATA))
    reader, until, got = PeerReader(2), time.time() + 600, bytearray()
    ticket = make_ticket(SECRET, DIGEST, 2, until)
    hint = PeerHint(ExecutorId(3), "127.0.0.1", port, fingerprint_of(certificate), until, ticket)
    reader.read(hint, DIGEST, RangePlan(0, len(DATA), got.extend))
    assert got == DATA
    for _, line in next(iter(reader._idle.values())):
        line.close()


def test_what_is_removed_while_it_comes_is_fetched_again(process: Process) -> None:
    process.say(BringContent(1, DIGEST, len(DATA)))
    process.bring_piece()
    shutil.rmtree(process.folder)
    while (brought := process.bring_piece()) is None:
        pass
    assert not brought.error
    assert not brought.failed
    assert Path(process.cache.path(DIGEST)).read_bytes() == DATA


def test_what_is_removed_whenever_it_comes_fails_in_the_end(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    def remove_and_seal(path: str, digest: bytes) -> None:
        shutil.rmtree(process.folder)
        seal(path, digest)

    monkeypatch.setattr(host_cache, "seal", remove_and_seal)
    process.say(BringContent(1, DIGEST, len(DATA)))
    while (brought := process.bring_piece()) is None:
        pass
    assert brought.of_site


def test_who_brings_the_same_is_waited_for_as_long_as_something_comes(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_process, "_STANDS_STILL", 2.0)
    with open(part_path(str(process.folder), DIGEST), "wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        process.say(BringContent(1, DIGEST, len(DATA)))
        for _ in range(30):
            other.write(b"x")
            other.flush()
            time.sleep(0.1)
        process.say(KeepOutput(2, "/nowhere", b"", 1))
        process.hear(OutputSeen)
        assert not process._heard  # it has asked for nothing
        while (brought := process.bring_piece()) is None:  # its server is away, or it was stopped
            pass
        assert not brought.error
    assert Path(process.cache.path(DIGEST)).read_bytes() == DATA
    assert not [path for path in process.folder.iterdir() if path.name.endswith(f"{os.getpid()}.part")]


def test_one_that_is_killed_while_it_only_serves_is_started_again_and_others_hear_where(tmp_path: Path) -> None:
    descriptors, heard, options = Descriptors(), list[FromTransfers](), CacheOptions(str(tmp_path))
    cache = options.open()
    transfers = Transfers(descriptors, cache, options, address="127.0.0.1", reader=2, hear=heard.extend)

    def await_word() -> Listening:
        until = time.monotonic() + DEADLINE
        while not heard:
            assert time.monotonic() < until
            descriptors.wait(0.1)
        word = heard.pop(0)
        assert isinstance(word, Listening)
        return word

    transfers.start()
    deaths = 0
    while port := await_word().port:
        socket.create_connection(("127.0.0.1", port), DEADLINE).close()
        os.kill(transfers._process.pid, signal.SIGKILL)
        deaths += 1
    assert 1 < deaths < transfer_client._DEATHS  # and it is when there is something to bring
    transfers.order(KeepOutput(1, str(tmp_path / "x"), b"", 1))
    assert await_word().port
    transfers.close()
    descriptors.close()
    cache.close()


class Worker:
    name = "w"

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.send = self.told.extend


@pytest.mark.parametrize("origin", [0, 1, 2, 3])
def test_bytes_that_came_in_vain_count_and_none_is_less_than_none(tmp_path: Path, origin: int) -> None:
    told, said, worker = ExecutorLifetime(cache_dir=str(tmp_path), work=str(tmp_path / "work")), list[Any](), Worker()
    staging = Staging(
        ExecutorFolder(told.work), said.append, lambda _: None, Descriptors(), told=told, number=ExecutorId(1)
    )
    try:
        cache = staging._contents.open()
        staging.bring_inputs(worker, StageInputs(1, SpanId(5), 0, ["/far/x"]))
        [want] = [one for one in said if isinstance(one, WantFile)]
        staging.on_message(FileLocated(want.request, DIGEST, len(DATA)))
        (tmp_path / "x").write_bytes(DATA)
        assert cache.adopt(str(tmp_path / "x"), DIGEST, len(DATA))
        (number,) = staging._downloads
        moved = [MovedContent(DIGEST, ExecutorId(0), origin * len(DATA) // 2, 1.0)]  # what was wrong came twice
        staging._hear_transfers([ContentBrought(number, moved=moved)])
        (answer,) = to_worker_frames().feed(frame(*worker.told))  # else the worker would end
        assert isinstance(answer, InputsStaged)
        assert answer.moved.from_origin == origin * len(DATA) // 2
        assert answer.moved.from_peers == max(0, len(DATA) - answer.moved.from_origin)
    finally:
        staging.close()
