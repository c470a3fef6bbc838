"""A content over several connections at once: what breaks, stands still or is refused costs time and no bytes."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

import pytest
from msgspec.structs import replace

from bough.executor.files.caches.host_cache import HostCache
from bough.executor.files.transfers import peer_reader, peer_server, peer_streams, transfer_process
from bough.executor.files.transfers.peer_link import PeerFailure, PeerUnreached
from bough.executor.files.transfers.peer_reader import PeerReader
from bough.executor.files.transfers.peer_server import PeerServer, ReaderPlaces, listen
from bough.executor.files.transfers.peer_streams import PeerStreams
from bough.executor.files.transfers.range_plan import RangePlan
from bough.model.ids import ExecutorId
from bough.movers.peer_directory import UNREACHED
from bough.transport.tls import fingerprint_of, new_certificate, server_context
from bough.wire.file_messages import FailedPeer, FindPeers, PeerHint
from bough.wire.framing import frame, server_frames
from bough.wire.peer_messages import _SKEW, MOST_STREAMS, AskContent, ContentComes, make_ticket

SECRET, SIZE = b"s" * 32, 9 << 20
DATA = os.urandom(SIZE)
DIGEST = blake2b(DATA, digest_size=32).digest()
DEADLINE = 60.0


class Line:
    """What stands between a reader and a peer: it counts connections, and may cut or hold them."""

    def __init__(self, port: int) -> None:
        self.port_behind = port
        self.listener = listen("127.0.0.1")
        self.port = self.listener.getsockname()[1]
        self.passed: list[int] = []  # bytes from the peer, by connection
        self.ends: list[tuple[socket.socket, socket.socket]] = []
        self.meets: Callable[[int], None] = lambda _: None  # before bytes of a connection are passed on
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.port_behind))
                except OSError:  # the peer behind it is gone
                    near.close()
                    raise
                number = len(self.passed)
                self.passed.append(0)
                self.ends.append((near, far))
                threading.Thread(target=self._pass, args=(near, far, -1), daemon=True).start()
                threading.Thread(target=self._pass, args=(far, near, number), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                if number >= 0:
                    self.meets(number)
                    self.passed[number] += len(data)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self, number: int) -> None:
        """End a connection, as a router that forgets it and says so."""
        for end in self.ends[number]:
            with contextlib.suppress(OSError):  # the one that passes bytes on ends the other one, too
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a test may have ended it
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for pair in self.ends:
            for end in pair:
                end.close()


class Host:
    """A host that serves one content."""

    def __init__(self, folder: Path, name: str, readers: int = 4) -> None:
        own = folder / name
        own.mkdir()
        self.cache = HostCache(str(own / "cache"), 1 << 30)
        self.listener = listen("127.0.0.1")
        self.server = PeerServer(self.listener, self.cache)
        key, certificate = new_certificate()
        for file, data in (("cert", certificate), ("key", key)):
            (own / file).write_bytes(data)
        self.fingerprint = fingerprint_of(certificate)
        self.papers = str(own / "cert"), str(own / "key")
        self.server.serve(server_context(*self.papers), SECRET, readers)
        self.line = Line(self.listener.getsockname()[1])

    def fill(self, data: bytes = DATA) -> None:
        arriving = self.cache.receive(DIGEST, len(data))
        assert arriving is not None
        arriving.add(data)
        assert arriving.finish()

    def hint(self, number: int = 1, seconds: float = 600) -> PeerHint:
        end = time.time() + seconds
        ticket = make_ticket(SECRET, DIGEST, 2, end)
        return PeerHint(ExecutorId(number), "127.0.0.1", self.line.port, self.fingerprint, end, ticket)

    def close(self) -> None:
        self.line.close()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cache.close()


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Host]]:
    monkeypatch.setattr(peer_streams, "FAR", 0.0)
    made: list[Host] = []

    def make(name: str, readers: int = 4) -> Host:
        made.append(Host(tmp_path, name, readers))
        return made[-1]

    yield make
    for host in made:
        host.close()


@pytest.fixture
def reader() -> Iterator[PeerReader]:
    made = PeerReader(2)
    yield made
    for lines in made._idle.values():
        for _, line in lines:
            line.close()


def slowly(line: Line, bytes_each: int, then: Callable[[int], None] = lambda _: None) -> None:
    """Let no connection pass more than so many bytes before there are four."""
    until = time.monotonic() + DEADLINE

    def meets(number: int) -> None:
        while line.passed[number] >= bytes_each and len(line.passed) < peer_streams.STREAMS:
            assert time.monotonic() < until
            time.sleep(0.01)
        then(number)

    line.meets = meets


def test_a_content_comes_over_several_connections_and_in_order(hosts: Callable[..., Host], reader: PeerReader) -> None:
    host, got = hosts("far", readers=1), bytearray()  # the streams count as one reader
    host.fill()
    slowly(host.line, 1 << 18)
    plan = RangePlan(0, SIZE, got.extend)
    reader.read(host.hint(), DIGEST, plan)
    assert bytes(got) == DATA
    assert plan.came == SIZE
    assert len(host.line.passed) >= peer_streams.STREAMS
    assert sum(1 for lines in reader._idle.values() for _ in lines) == 1  # one is kept for the next content


def test_a_near_peer_and_a_small_content_are_asked_once_over_one(
    hosts: Callable[..., Host], reader: PeerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, got = hosts("near"), bytearray()
    host.fill()
    reader.read(host.hint(), DIGEST, RangePlan(SIZE - (1 << 20), SIZE, got.extend))
    monkeypatch.setattr(peer_streams, "FAR", 1e9)
    got.clear()
    reader.read(host.hint(), DIGEST, RangePlan(0, SIZE, got.extend))
    assert bytes(got) == DATA
    assert len(host.line.passed) == 1


def test_a_peer_that_knows_nothing_of_streams_gives_all_over_one(
    hosts: Callable[..., Host], reader: PeerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_server, "ContentComes", lambda error="", streams=0: ContentComes(error))
    host, got = hosts("old", readers=1), bytearray()
    host.fill()
    reader.read(host.hint(), DIGEST, RangePlan(0, SIZE, got.extend))
    assert bytes(got) == DATA
    assert len(host.line.passed) == 1


@pytest.mark.parametrize("number", [0, 2])
def test_a_stream_that_is_cut_gives_its_range_to_the_others(
    hosts: Callable[..., Host], reader: PeerReader, number: int
) -> None:
    host, got = hosts("cut"), bytearray()
    host.fill()
    cut = threading.Event()

    def meets(which: int) -> None:
        if which == number and host.line.passed[number] > 1 << 17 and not cut.is_set():
            cut.set()
            host.line.cut(number)

    slowly(host.line, 1 << 18, meets)
    reader.read(host.hint(), DIGEST, RangePlan(0, SIZE, got.extend))
    assert cut.is_set()
    assert bytes(got) == DATA
    got.clear()
    reader.read(host.hint(), DIGEST, RangePlan(0, SIZE, got.extend))  # none that is broken is used again
    assert bytes(got) == DATA


def test_a_stream_that_stands_still_is_given_up_while_others_go_on(
    hosts: Callable[..., Host], reader: PeerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_streams, "_STANDS_STILL", 0.5)
    host, got = hosts("still"), bytearray()
    host.fill()
    over = threading.Event()

    def meets(which: int) -> None:
        if which == 1 and host.line.passed[1] > 1 << 16:
            over.wait(DEADLINE)
        else:
            time.sleep(0.005)  # so that the others have something to do while it stands still

    slowly(host.line, 1 << 18, meets)
    reader.read(host.hint(), DIGEST, RangePlan(0, SIZE, got.extend))
    over.set()
    assert bytes(got) == DATA


def test_what_a_peer_gave_before_it_died_is_kept_and_another_gives_the_rest(
    hosts: Callable[..., Host], reader: PeerReader
) -> None:
    first, second, got = hosts("first"), hosts("second"), bytearray()
    for host in (first, second):
        host.fill()

    def dies(_: int) -> None:
        if sum(first.line.passed) > SIZE // 2:
            first.line.listener.close()
            for number in range(len(first.line.ends)):
                with contextlib.suppress(OSError):
                    first.line.cut(number)

    slowly(first.line, 1 << 18, dies)
    plan = RangePlan(0, SIZE, got.extend)
    with pytest.raises(PeerFailure) as failed:
        reader.read(first.hint(), DIGEST, plan)
    assert not isinstance(failed.value, PeerUnreached)  # there is a way to it
    kept = plan.came
    assert SIZE // 8 < kept < SIZE
    reader.read(second.hint(3), DIGEST, plan)
    assert bytes(got) == DATA
    assert plan.came == SIZE
    assert sum(second.line.passed) < SIZE - kept + (1 << 20)


def test_streams_beyond_what_the_peer_takes_are_done_without(
    hosts: Callable[..., Host], reader: PeerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_server, "_EXPECTED", 0.1)
    host, got = hosts("busy"), bytearray()
    host.fill()
    host.server._lines = threading.BoundedSemaphore(2)
    slowly(host.line, 1 << 18)
    reader.read(host.hint(), DIGEST, RangePlan(0, SIZE, got.extend))
    assert bytes(got) == DATA


def test_a_content_that_is_still_coming_is_passed_on_as_it_comes(
    hosts: Callable[..., Host], reader: PeerReader
) -> None:
    host, got = hosts("coming"), bytearray()
    arriving = host.cache.receive(DIGEST, SIZE)
    assert arriving is not None
    arriving.add(DATA[: 3 << 20])
    passed_on = threading.Event()

    def hand_on(data: bytes | memoryview) -> None:
        got.extend(data)
        if len(got) >= 2 << 20:
            passed_on.set()

    reading = threading.Thread(target=reader.read, args=(host.hint(), DIGEST, RangePlan(0, SIZE, hand_on)), daemon=True)
    reading.start()
    assert passed_on.wait(DEADLINE)  # before the source has more
    arriving.add(DATA[3 << 20 :])
    assert arriving.finish()
    reading.join(DEADLINE)
    assert bytes(got) == DATA


def test_a_range_that_has_not_come_yet_is_waited_for_and_one_that_was_cut_off_is_not(
    hosts: Callable[..., Host], reader: PeerReader
) -> None:
    host, got = hosts("behind"), bytearray()
    arriving = host.cache.receive(DIGEST, SIZE)
    assert arriving is not None
    plan = RangePlan(0, SIZE, got.extend)
    failed: list[PeerFailure] = []

    def read_on() -> None:
        try:
            reader.read(host.hint(), DIGEST, plan)
        except PeerFailure as failure:
            failed.append(failure)

    reading = threading.Thread(target=read_on)
    reading.start()
    streams = host.server._places._streams
    for number in range(1, 8):  # slower than the streams ask for it
        arriving.add(DATA[(number - 1) << 16 : number << 16])
        time.sleep(0.05)
    await_that(lambda: sum(streams.values()) >= peer_streams.STREAMS)
    arriving.restart()
    await_that(lambda: not any(streams.values()))
    reading.join(DEADLINE)
    assert failed
    arriving.add(DATA)
    assert arriving.finish()
    reader.read(host.hint(), DIGEST, plan)
    assert bytes(got) == DATA


def test_streams_that_wait_for_a_slow_source_are_kept_and_all_that_it_has_comes(
    hosts: Callable[..., Host], reader: PeerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_streams, "_STANDS_STILL", 0.3)
    host, got = hosts("slow"), bytearray()
    arriving = host.cache.receive(DIGEST, SIZE)
    assert arriving is not None
    plan = RangePlan(0, SIZE, got.extend)
    reading = threading.Thread(target=reader.read, args=(host.hint(), DIGEST, plan), daemon=True)
    reading.start()
    for _ in range(20):  # the streams wait for what lies some seconds ahead
        arriving.add(DATA[arriving.written :][: 1 << 16])
        time.sleep(0.1)
    await_that(lambda: plan.complete == arriving.written or not reading.is_alive())
    assert reading.is_alive()
    assert sum(host.server._places._streams.values()) >= peer_streams.STREAMS
    arriving.add(DATA[arriving.written :])
    assert arriving.finish()
    reading.join(DEADLINE)
    assert bytes(got) == DATA


def test_who_hangs_up_while_he_waits_for_what_comes_keeps_no_place(
    hosts: Callable[..., Host], reader: PeerReader
) -> None:
    host = hosts("waits", readers=1)
    arriving = host.cache.receive(DIGEST, SIZE)
    assert arriving is not None
    arriving.add(DATA[:1000])
    line = reader._connect(host.hint())
    hint = host.hint()
    line.sendall(frame(AskContent(DIGEST, SIZE // 2, 1000, ExecutorId(2), hint.until, hint.ticket)))
    await_that(lambda: bool(host.server._places._streams))
    line.close()
    await_that(lambda: not host.server._places._streams)
    arriving.drop()


def test_a_disk_that_takes_nothing_more_ends_all_streams(hosts: Callable[..., Host], reader: PeerReader) -> None:
    host, got = hosts("full"), bytearray()
    host.fill()

    def hand_on(data: bytes | memoryview) -> None:
        got.extend(data)
        if len(got) > 1 << 20:
            raise OSError(errno.ENOSPC, "no space")

    with pytest.raises(OSError, match="no space"):
        reader.read(host.hint(), DIGEST, RangePlan(0, SIZE, hand_on))
    until = time.monotonic() + DEADLINE
    while any(host.server._places._streams.values()):
        assert time.monotonic() < until, "a stream goes on"
        time.sleep(0.05)


def test_what_is_read_in_ranges_when_the_ticket_ends_comes_to_its_end(
    hosts: Callable[..., Host], reader: PeerReader
) -> None:
    host, got = hosts("slow"), bytearray()
    host.fill()
    hint, waited = host.hint(seconds=1.0 - _SKEW), threading.Event()

    def meets(_: int) -> None:
        if sum(host.line.passed) > SIZE // 2 and not waited.is_set():
            time.sleep(max(0.0, hint.until + _SKEW + 0.1 - time.time()))
            waited.set()

    host.line.meets = meets
    reader.read(hint, DIGEST, RangePlan(0, SIZE, got.extend))
    assert waited.is_set()
    assert bytes(got) == DATA
    with pytest.raises(PeerFailure, match="ticket"):  # it is no use for another reading
        read(reader, host, hint)


def test_what_is_read_in_ranges_counts_as_read_once(hosts: Callable[..., Host], reader: PeerReader) -> None:
    host = hosts("counted")
    host.fill()
    slowly(host.line, 1 << 18)
    reader.read(host.hint(), DIGEST, RangePlan(0, SIZE, lambda _: None))
    host.cache.contents()
    assert 1 <= host.cache._ledger.entries[DIGEST].uses <= peer_streams.STREAMS  # they may begin at once


def test_a_host_that_takes_no_more_threads_reads_over_one_connection(
    hosts: Callable[..., Host], reader: PeerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, start = hosts("crowded"), threading.Thread.start
    host.fill()

    for most in (0, 1):

        def begin(thread: threading.Thread, most: int = most) -> None:
            if "PeerStreams" in repr(thread._target) and thread._args[0] >= most:  # type: ignore[attr-defined]
                raise RuntimeError("can't start new thread")
            start(thread)

        got = bytearray()
        monkeypatch.setattr(threading.Thread, "start", begin)
        reader.read(host.hint(), DIGEST, RangePlan(0, SIZE, got.extend))
        assert bytes(got) == DATA


def test_a_connection_is_closed_by_the_thread_that_reads_from_it(
    hosts: Callable[..., Host], reader: PeerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, lines, goes_on = hosts("held"), [], threading.Event()
    host.fill()
    connect = reader._connect

    def connect_once(hint: PeerHint, *, hides: bool = True) -> object:
        if not hides:
            raise MemoryError("for another stream")
        lines.append(connect(hint))
        return lines[0]

    def meets(_: int) -> None:
        if host.line.passed[0] > 1 << 16:
            goes_on.wait(DEADLINE)

    monkeypatch.setattr(reader, "_connect", connect_once)
    host.line.meets = meets
    with pytest.raises(MemoryError):
        reader.read(host.hint(), DIGEST, RangePlan(0, SIZE, lambda _: None))
    assert lines[0].fileno() >= 0  # else its number may be another file's, from which that thread reads
    goes_on.set()
    await_that(lambda: lines[0].fileno() < 0)


def await_that(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_connections_to_peers_that_are_not_read_from_any_more_are_closed(
    hosts: Callable[..., Host], reader: PeerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = hosts("one"), hosts("other")
    for host in (one, other):
        host.fill()
    read(reader, one)
    ((_, line),) = next(iter(reader._idle.values()))
    monkeypatch.setattr(peer_reader, "IDLE", 0.0)
    read(reader, other)
    assert line.fileno() < 0
    assert [place[1] for place in reader._idle] == [other.line.port]


def read(reader: PeerReader, host: Host, hint: PeerHint | None = None) -> None:
    """The last bytes of what a host has, over one connection."""
    reader.read(hint or host.hint(), DIGEST, RangePlan(SIZE - 1000, SIZE, lambda _: None))


def test_a_kept_connection_that_the_peer_has_ended_is_not_used(hosts: Callable[..., Host], reader: PeerReader) -> None:
    host = hosts("ends")
    host.fill()
    read(reader, host)
    ((_, line),) = next(iter(reader._idle.values()))
    host.line.cut(0)
    until = time.monotonic() + DEADLINE
    while peer_reader._is_quiet(line):
        assert time.monotonic() < until
        time.sleep(0.01)
    read(reader, host)
    assert len(host.line.passed) == 2


def test_connections_that_say_nothing_give_way_to_new_ones(hosts: Callable[..., Host]) -> None:
    host = hosts("popular")
    host.fill()
    host.server._lines = threading.BoundedSemaphore(2)
    readers = [PeerReader(2) for _ in range(4)]
    for reader in (*readers, readers[0]):
        read(reader, host)
    assert len(host.line.passed) == 5  # that of the first one had to give way
    for reader in readers:
        for _, line in next(iter(reader._idle.values())):
            line.close()


def test_who_could_not_take_a_connection_takes_the_next(
    hosts: Callable[..., Host], reader: PeerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_server, "_GIVES_WAY", 0.0)
    host = hosts("short")
    host.fill()
    failures = iter([errno.EMFILE, errno.ENETDOWN])

    class Short:
        def accept(self) -> tuple[socket.socket, object]:
            for number in failures:
                raise OSError(number, os.strerror(number))
            return host.listener.accept()

    server = PeerServer(Short(), host.cache)  # type: ignore[arg-type]
    host.listener, first = listen("127.0.0.1"), host.listener
    host.line.port_behind = host.listener.getsockname()[1]
    server.serve(server_context(*host.papers), SECRET, 4)
    read(reader, host)
    first.shutdown(socket.SHUT_RDWR)
    first.close()


def test_what_the_reader_lacks_itself_is_not_said_of_the_peer(
    hosts: Callable[..., Host], reader: PeerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lack(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    host = hosts("fine")
    monkeypatch.setattr(socket, "create_connection", lack)
    with pytest.raises(PeerFailure, match="Too many open files") as failed:
        read(reader, host)
    assert not isinstance(failed.value, PeerUnreached)
    assert UNREACHED not in str(failed.value)


def test_who_becomes_somebody_else_counts_its_connections_right(hosts: Callable[..., Host], reader: PeerReader) -> None:
    host = hosts("twice")
    host.fill()
    read(reader, host)
    before = host.server._lines
    host.server.serve(server_context(*host.papers), SECRET, 4)
    host.line.cut(0)
    until = time.monotonic() + DEADLINE
    while before._value < before._initial_value:  # type: ignore[attr-defined]
        assert time.monotonic() < until, "the connection counts for ever"
        time.sleep(0.01)


def test_a_transfer_goes_on_when_its_source_has_become_somebody_else(
    hosts: Callable[..., Host], reader: PeerReader
) -> None:
    host, got = hosts("renamed"), bytearray()
    host.fill()
    renamed = threading.Event()

    def meets(_: int) -> None:
        if sum(host.line.passed) > SIZE // 2 and not renamed.is_set():
            renamed.set()
            key, certificate = new_certificate()
            for path, data in zip(host.papers, (certificate, key), strict=True):
                Path(path).write_bytes(data)
            host.server.serve(server_context(*host.papers), b"t" * 32, 4)

    slowly(host.line, 1 << 18, meets)
    hint = host.hint()
    reader.read(hint, DIGEST, RangePlan(0, SIZE, got.extend))
    assert renamed.is_set()
    assert bytes(got) == DATA
    with pytest.raises(PeerFailure) as failed:  # a new one has to show a new ticket, to who the peer is now
        reader.read(replace(hint, ticket=b"x" * 32), DIGEST, RangePlan(0, SIZE, got.extend))
    assert UNREACHED not in str(failed.value)
    for lines in reader._idle.values():
        for _, line in lines:
            line.close()
    reader._idle.clear()
    with pytest.raises(PeerFailure) as failed:
        reader.read(hint, DIGEST, RangePlan(0, SIZE, got.extend))
    assert not isinstance(failed.value, PeerUnreached)
    assert UNREACHED not in str(failed.value)  # there is a way to it: neither it nor its site is to be left out


def test_a_peer_that_gives_next_to_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_streams, "STALL", 0.3)
    ours, theirs = socket.socketpair()
    over = threading.Event()

    def drip() -> None:
        theirs.sendall(frame(ContentComes()))
        with contextlib.suppress(OSError):
            while not over.wait(0.05):
                theirs.sendall(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    plan = RangePlan(0, 1000, lambda _: None)
    streams = PeerStreams(plan, lambda: ours, lambda *_: ContentComes(), "peer")  # type: ignore[arg-type, return-value]
    with pytest.raises(PeerFailure, match="next to nothing"):
        streams.read(ours)  # type: ignore[arg-type]
    over.set()
    dripping.join()
    theirs.close()


@pytest.mark.parametrize("error", ["no\0", "\0", "n" * 1000])
def test_whatever_a_peer_gives_as_its_reason_can_be_told_to_the_server(error: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(frame(ContentComes(error)))
        streams = PeerStreams(RangePlan(0, 1000, print), lambda: ours, lambda *_: ContentComes(), "peer")  # type: ignore[arg-type, return-value]
        with pytest.raises(PeerFailure) as failed:
            streams.read(ours)  # type: ignore[arg-type]
    reason = str(failed.value)[: transfer_process._REASON]
    find = FindPeers(1, DIGEST, SIZE, [FailedPeer(ExecutorId(1), reason=reason)])
    assert server_frames().feed(frame(find)) == [find]  # else the reader would be cut off, and would say it again


def test_the_streams_of_a_transfer_count_as_one_reader_and_are_bounded() -> None:
    places = ReaderPlaces(2)
    assert all(places.take("a", 0.0) for _ in range(MOST_STREAMS))
    assert not places.take("a", 0.0)
    assert places.take("b", 0.0)
    assert not places.take("c", 0.0)
    places.leave("b", keep=False)
    assert places.take("c", 0.0)


def test_a_transfer_keeps_its_place_between_two_ranges_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_server, "_BETWEEN", 0.2)
    places = ReaderPlaces(1)
    assert places.take("a", 0.0)
    places.leave("a", keep=True)
    assert not places.take("b", 0.0)
    assert places.take("a", 0.0)
    places.leave("a", keep=True)
    assert places.take("b", DEADLINE)
    assert not places.take("a", 0.0)
