"""The transfer process of an executor: brings contents into the host's cache, and serves peers from there.

It is a fork of the executor, started with the first files that travel, with a thread for each transfer; so the
executor's loop never waits for a disk, a digest or a peer. A content is looked for at the peers that were named, at
others if these fail, and at the server; each goes on where the one before it has stopped.

Rules: a content is compared with its digest at its end; if it is something else the peers it came from are told of,
and it is fetched again, from others. The process dies with its executor; what it has half brought is used by the next.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import tempfile
import threading
import time
from typing import Final, NoReturn

from bough.errors import BoughError
from bough.executor.files.host_cache import ArrivingContent, HostCache
from bough.executor.files.peer_link import PeerFailure, PeerReader, PeerServer, listen
from bough.executor.files.transfer_protocol import (
    BringContent,
    CacheEvents,
    CheckCopy,
    ContentBrought,
    FromTransfers,
    KeepOutput,
    Listening,
    MorePeers,
    NeedPeers,
    NeedPiece,
    OriginPiece,
    OutputSeen,
    ServeAs,
    ToTransfers,
    WantedContents,
    to_transfers_frames,
)
from bough.executor.processes import die_with_parent
from bough.movers.local import digest_of
from bough.policies.eviction.eviction_names import load_eviction
from bough.wire.file_messages import PIECE, FailedPeer, MovedContent, PeerHint
from bough.wire.framing import frame

_AT_ONCE: Final = 16  # transfers
_AHEAD: Final = 8  # pieces of the server asked for before the first has come
_ROUNDS: Final = 4  # times that other peers are asked for, before the server is
_CORRUPT: Final = 3  # times that a content is fetched again which is not what it should be
_POLL: Final = 0.02  # seconds between looks at what another executor brings
_REASON: Final = 200  # characters
_CHUNK: Final = 1 << 20


class TransferFailed(Exception):
    """A content cannot be had."""


def be_transfer_process(  # noqa: PLR0917 -- what a fork is told
    sock: socket.socket, parent: int, folder: str, limit: int, policy: str, pins: str, address: str, reader: int
) -> NoReturn:
    """In a fork of the executor: serve until it ends. Never returns. `address`: to listen at; empty: no peers."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a job's end concerns the executor, which ends us
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        die_with_parent(signal.SIGKILL)
        if os.getppid() == parent:
            os.closerange(3, sock.fileno())
            os.closerange(sock.fileno() + 1, 1 << 16)
            cache = HostCache(folder, limit, load_eviction(policy), pins=pins)
            TransferProcess(sock, cache, address, reader).run()
    except BaseException:  # noqa: BLE001 -- nothing may get back into the executor's code
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(70)


class _Transfer:
    """One content on its way, and what is said to the thread that brings it."""

    def __init__(self, order: BringContent) -> None:
        self.order = order
        self.inbox: queue.SimpleQueue[MorePeers | OriginPiece] = queue.SimpleQueue()
        self.failed: dict[int, FailedPeer] = {}
        self.moved: dict[int, tuple[int, float]] = {}  # bytes and seconds, by source
        self.sources: set[int] = set()  # of what is there now

    def came(self, source: int, size: int, seconds: float) -> None:
        """Bytes came from a source."""
        before = self.moved.get(source, (0, 0.0))
        self.moved[source] = (before[0] + size, before[1] + seconds)
        if size:
            self.sources.add(source)


class TransferProcess:
    """See the module."""

    def __init__(self, sock: socket.socket, cache: HostCache, address: str, reader: int) -> None:
        self._sock = sock
        self._cache = cache
        self._send_lock = threading.Lock()
        self._reader = PeerReader(reader)
        self._transfers: dict[int, _Transfer] = {}
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        cache.on_evicted = lambda digest: self._say(CacheEvents(removed=[digest]))
        self._server: PeerServer | None = None
        if address:
            self._listen(address)

    def _listen(self, address: str) -> None:
        try:
            listener = listen(address)
        except OSError:  # it has no such address: others do without
            return
        self._server = PeerServer(listener, self._cache)
        self._say(Listening(address, listener.getsockname()[1]))

    def run(self) -> None:
        """Hear the executor, until it is gone."""
        frames = to_transfers_frames()
        while data := self._sock.recv(_CHUNK):
            for message in frames.feed(data):
                self._hear(message)

    def _hear(self, message: ToTransfers) -> None:
        match message:
            case BringContent():
                transfer = self._transfers[message.number] = _Transfer(message)
                threading.Thread(target=self._bring, args=(transfer,), daemon=True).start()
            case MorePeers() | OriginPiece():
                found = self._transfers.get(message.number)
                if found is not None:
                    found.inbox.put(message)
            case KeepOutput():
                threading.Thread(target=self._keep, args=(message,), daemon=True).start()
            case CheckCopy():
                threading.Thread(target=self._check, args=(message.digest,), daemon=True).start()
            case ServeAs():
                self._serve(message)
            case WantedContents():
                self._cache.wanted.update(message.counts)
                for digest in [digest for digest, count in message.counts if not count]:
                    self._cache.wanted.pop(digest, None)

    def _say(self, message: FromTransfers) -> None:
        with self._send_lock:
            self._sock.sendall(frame(message))

    def _serve(self, order: ServeAs) -> None:
        from bough.transport.tls import server_context

        if self._server is None:
            return
        with tempfile.TemporaryDirectory(dir=self._cache.pins) as folder:  # the library reads files only
            paths = []
            for name, data in (("cert", order.certificate), ("key", order.key)):
                paths.append(os.path.join(folder, name))
                with open(os.open(paths[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(data)
            context = server_context(*paths)
        self._server.serve(context, order.secret, order.readers)

    def _check(self, digest: bytes) -> None:
        with contextlib.suppress(OSError):
            if digest_of(self._cache.path(digest)) != digest:
                self._cache.drop(digest)

    def _keep(self, order: KeepOutput) -> None:
        if self._cache.adopt(order.path, order.digest, order.size):
            self._say(CacheEvents(added=[(order.digest, order.size)]))
        self._say(OutputSeen(order.number))

    # --- bringing, in a thread of its own ----------------------------------------------------------

    def _bring(self, transfer: _Transfer) -> None:
        order, error, of_site = transfer.order, "", False
        try:
            with self._room:
                self._get(transfer)
        except TransferFailed as failure:
            error = str(failure)
        except (OSError, BoughError) as failure:
            error, of_site = getattr(failure, "strerror", "") or str(failure), True
        except Exception as failure:  # noqa: BLE001 -- whatever it is, the task must be told
            error, of_site = f"{type(failure).__name__}: {failure}", True
        self._transfers.pop(order.number, None)
        moved = [
            MovedContent(order.digest, source, size, seconds)  # type: ignore[arg-type]
            for source, (size, seconds) in transfer.moved.items()
            if size
        ]
        self._say(ContentBrought(order.number, error, of_site, moved, list(transfer.failed.values())))

    def _get(self, transfer: _Transfer) -> None:
        order = transfer.order
        while True:
            if self._cache.has(order.digest, order.size):
                return
            arriving = self._cache.receive(order.digest, order.size)
            if arriving is not None:
                break
            time.sleep(_POLL)  # another executor of this host brings it
        if self._cache.has(order.digest, order.size):
            arriving.drop()
            return
        try:
            self._fill(transfer, arriving)
        except TransferFailed:
            arriving.leave()  # it may be there another time
            raise
        except BaseException:
            arriving.drop()
            raise
        if order.size <= self._cache.limit:
            self._say(CacheEvents(added=[(order.digest, order.size)]))

    def _fill(self, transfer: _Transfer, arriving: ArrivingContent) -> None:
        for attempt in range(_CORRUPT + 1):
            if attempt < _CORRUPT:
                self._from_peers(transfer, arriving)
            if arriving.written < arriving.size:
                self._from_server(transfer, arriving)
            if arriving.finish():
                return
            for source in transfer.sources - {0}:
                hint = FailedPeer(source, corrupt=True, reason="it sent something else")  # type: ignore[arg-type]
                transfer.failed[source] = hint
            transfer.sources.clear()
        raise TransferFailed("what arrived is not what was announced")

    def _from_peers(self, transfer: _Transfer, arriving: ArrivingContent) -> None:
        """Take what peers give; if that is not all, no more of them is known."""
        peers = transfer.order.peers
        for _ in range(_ROUNDS):
            for peer in peers:
                if arriving.written >= arriving.size:
                    return
                if peer.executor not in transfer.failed:
                    self._from_peer(transfer, arriving, peer)
            if arriving.written >= arriving.size or not peers:
                return
            self._say(NeedPeers(transfer.order.number, list(transfer.failed.values())))
            peers = self._await_peers(transfer)

    def _from_peer(self, transfer: _Transfer, arriving: ArrivingContent, peer: PeerHint) -> None:
        begun, before = time.monotonic(), arriving.written
        try:
            self._reader.read(peer, arriving.digest, range(arriving.written, arriving.size), arriving.add)
        except PeerFailure as failure:
            transfer.failed[peer.executor] = FailedPeer(peer.executor, reason=str(failure)[:_REASON])
        finally:
            transfer.came(peer.executor, arriving.written - before, time.monotonic() - begun)

    def _await_peers(self, transfer: _Transfer) -> list[PeerHint]:
        while True:
            message = transfer.inbox.get()
            if isinstance(message, MorePeers):
                return message.peers

    def _from_server(self, transfer: _Transfer, arriving: ArrivingContent) -> None:
        begun, before = time.monotonic(), arriving.written
        asked, early = arriving.written, dict[int, bytes]()
        try:
            while arriving.written < arriving.size:
                while asked < min(arriving.size, arriving.written + _AHEAD * PIECE):
                    self._say(NeedPiece(transfer.order.number, asked))
                    asked += PIECE
                message = transfer.inbox.get()
                if not isinstance(message, OriginPiece):
                    continue
                if message.error:
                    raise TransferFailed(message.error)
                early[message.offset] = message.data
                while piece := early.pop(arriving.written, b""):
                    arriving.add(piece)
                if message.offset == arriving.written and not message.data:
                    raise TransferFailed("it became shorter on its way")
        finally:
            transfer.came(0, arriving.written - before, time.monotonic() - begun)
