"""The transfer process of an executor: brings contents into the host's cache, and serves peers from there.

It is a helper process of the executor, started with the first files that travel, with a thread for each transfer that
is under way; so the executor's loop never waits for a disk, a digest or a peer. A content is looked for at the peers
that were named, at others if these fail, in the site's shared store, and at the server; each goes on where the one
before it has stopped. What came from elsewhere is put into the shared store, after the task has it. What is at a URL
has no digest before it was read: it is fetched beside the contents (`url_fetching`), and kept under the digest that it
turns out to have.

Rules: a content is compared with its digest at its end; if it is something else the peers it came from are told of,
and it is fetched again, from others. Another executor of this host that brings the same is waited for as long as
something comes. The process dies with its executor; what it has half brought is used by the next.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
from functools import partial
from typing import Final

from bough.errors import BoughError
from bough.executor.files.caches.host_cache import ArrivingContent, HostCache
from bough.executor.files.caches.shared_store import Claim, SharedStore
from bough.executor.files.transfers.kept_threads import KeptThreads
from bough.executor.files.transfers.peer_link import PeerFailure, PeerUnreached
from bough.executor.files.transfers.peer_reader import PeerReader
from bough.executor.files.transfers.peer_server import PeerServer, listen
from bough.executor.files.transfers.range_plan import RangePlan
from bough.executor.files.transfers.transfer_protocol import (
    BringContent,
    CacheEvents,
    CheckCopy,
    ContentBrought,
    FetchUrl,
    FromTransfers,
    KeepOutput,
    Listening,
    ListShared,
    LookUrl,
    MorePeers,
    NeedPeers,
    NeedPiece,
    OriginPiece,
    OutputSeen,
    ServeAs,
    SharedEvents,
    ToTransfers,
    UrlFetched,
    WantedContents,
    to_transfers_frames,
)
from bough.executor.files.transfers.url_fetching import UrlFetching
from bough.executor.host.disk_space_wait import is_full
from bough.movers.local import digest_of
from bough.wire.file_messages import PIECE, FailedPeer, MovedContent, PeerHint
from bough.wire.framing import frame

_AT_ONCE: Final = 16  # transfers
_KEPT_AT_ONCE: Final = 8  # outputs that are read for their digest, and taken into the cache
_AHEAD: Final = 8  # pieces of the server asked for before the first has come
_ROUNDS: Final = 4  # times that other peers are asked for, before the server is
_CORRUPT: Final = 3  # times that a content is fetched again which is not what it should be
_REMOVED: Final = 3  # times that one is fetched again which somebody has removed while it came
_POLL: Final = 0.02  # seconds between looks at what another executor brings
_STANDS_STILL: Final = 30.0  # seconds without a byte, after which that is not waited for: its server may be gone
_REASON: Final = 200  # characters
_CHUNK: Final = 1 << 20
_LISTED: Final = 50_000  # contents of the shared store in one message


class TransferFailed(Exception):
    """A content cannot be had."""


class _Transfer:
    """One content on its way, and what is said to the thread that brings it."""

    def __init__(self, order: BringContent) -> None:
        self.order = order
        self.inbox: queue.SimpleQueue[MorePeers | OriginPiece] = queue.SimpleQueue()
        self.failed: dict[int, FailedPeer] = {}
        self.moved: dict[int, tuple[int, float]] = {}  # bytes and seconds, by source
        self.sources: set[int] = set()  # of what is there now
        self.shared = 0  # bytes that came from the site's shared store
        self.claim: Claim | None = None  # others of the site wait for what comes

    def came(self, source: int, size: int, seconds: float) -> None:
        """Bytes came from a source."""
        before = self.moved.get(source, (0, 0.0))
        self.moved[source] = (before[0] + size, before[1] + seconds)
        if size:
            self.sources.add(source)


class TransferProcess:
    """See the module."""

    def __init__(
        self, sock: socket.socket, cache: HostCache, address: str, reader: int, shared: SharedStore | None = None
    ) -> None:
        self._sock = sock
        self._cache = cache
        self._shared = shared
        self._send_lock = threading.Lock()
        self._reader = PeerReader(reader)
        self._transfers: dict[int, _Transfer] = {}
        self._bringing = KeptThreads(_AT_ONCE, "transfers")
        self._keeping = KeptThreads(_KEPT_AT_ONCE, "outputs")
        self._listing = KeptThreads(1, "store")  # the site's storage may hang
        self._server: PeerServer | None = None
        self._urls = UrlFetching(cache)
        cache.on_evicted = self._evicted
        if address:
            self._listen(address)

    def _listen(self, address: str) -> None:
        try:
            listener = listen(address)
        except OSError:  # it has no such address: others do without
            self._say(Listening())
            return
        self._server = PeerServer(listener, self._cache)
        self._say(Listening(address, listener.getsockname()[1]))

    def _evicted(self, digest: bytes) -> None:
        if self._server is not None:
            self._server.evicted(digest)
        self._say(CacheEvents(removed=[digest]))

    def run(self) -> None:
        """Hear the executor, until it is gone."""
        frames = to_transfers_frames()
        while data := self._sock.recv(_CHUNK):
            for message in frames.feed(data):
                self._hear(message)

    def _hear(self, message: ToTransfers) -> None:
        match message:
            case BringContent():
                self._begin(message)
            case MorePeers() | OriginPiece():
                found = self._transfers.get(message.number)
                if found is not None:
                    found.inbox.put(message)
            case KeepOutput():
                self._keeping.do(partial(self._keep, message))
            case LookUrl():
                self._urls.look(message, self._say)
            case FetchUrl():
                self._urls.fetch(message, self._keep_fetched)
            case WantedContents():
                self._cache.wanted.update(message.counts)
                for digest in [digest for digest, count in message.counts if not count]:
                    self._cache.wanted.pop(digest, None)
            case CheckCopy() | ServeAs() | ListShared():
                self._attend(message)

    def _attend(self, message: CheckCopy | ServeAs | ListShared) -> None:
        """Something about others that read what is here."""
        match message:
            case CheckCopy():
                self._keeping.do(partial(self._check, message.digest))
            case ServeAs():
                self._serve(message)
            case ListShared():
                self._listing.do(self._list_shared)

    def _begin(self, order: BringContent) -> None:
        if self._server is not None:
            self._server.ordered(order.digest)
        transfer = self._transfers[order.number] = _Transfer(order)
        self._bringing.do(partial(self._bring, transfer))

    def _say(self, message: FromTransfers) -> None:
        with self._send_lock:
            self._sock.sendall(frame(message))

    def _serve(self, order: ServeAs) -> None:
        from bough.transport.tls import server_context

        if self._server is None:
            return
        number = os.memfd_create("identity")  # the library reads files only; on the disk there may be no room
        try:
            with open(number, "wb", closefd=False) as file:
                file.write(order.key + order.certificate)
            path = f"/proc/self/fd/{number}"
            context = server_context(path, path)
        finally:
            os.close(number)
        self._server.serve(context, order.secret, order.readers)

    def _check(self, digest: bytes) -> None:
        with contextlib.suppress(OSError):
            if digest_of(self._cache.path(digest)) != digest:
                self._cache.drop(digest)

    def _keep(self, order: KeepOutput) -> None:
        digest = order.digest
        if not digest:
            with contextlib.suppress(OSError):
                digest = digest_of(order.path)
        if digest and self._cache.adopt(order.path, digest, order.size):
            self._say(CacheEvents(added=[(digest, order.size)]))
        self._say(OutputSeen(order.number, digest))

    def _keep_fetched(self, came: UrlFetched, *, is_new: bool) -> None:
        """What was at a URL is here, under its digest: for the task, and then for the site."""
        if is_new and came.size <= self._cache.limit:
            self._say(CacheEvents(added=[(came.digest, came.size)]))
        self._say(came)
        if is_new:
            transfer = _Transfer(BringContent(came.number, came.digest, came.size))
            try:
                self._publish(transfer)
            finally:
                if transfer.claim is not None:
                    transfer.claim.release()

    # --- bringing, in a thread of its own ----------------------------------------------------------

    def _bring(self, transfer: _Transfer) -> None:
        order, error, of_site, full = transfer.order, "", False, False
        try:
            self._get(transfer)
        except TransferFailed as failure:
            error = str(failure)
        except (OSError, BoughError) as failure:
            error, of_site = getattr(failure, "strerror", "") or str(failure), True
            full = is_full(failure)
        except Exception as failure:  # noqa: BLE001 -- whatever it is, the task must be told
            error, of_site = f"{type(failure).__name__}: {failure}", True
        self._transfers.pop(order.number, None)
        moved = [
            MovedContent(order.digest, source, size, seconds)  # type: ignore[arg-type]
            for source, (size, seconds) in transfer.moved.items()
            if size
        ]
        self._say(
            ContentBrought(order.number, error, of_site, moved, list(transfer.failed.values()), transfer.shared, full)
        )
        try:
            if moved and not error:
                self._publish(transfer)
        finally:
            if transfer.claim is not None:
                transfer.claim.release()

    def _get(self, transfer: _Transfer) -> None:
        """Have a content in the cache; what somebody removes while it comes is fetched again."""
        order = transfer.order
        for attempt in range(_REMOVED + 1):
            arriving = self._receive(order)
            if arriving is None:
                return
            try:
                self._fill(transfer, arriving)
            except TransferFailed:
                arriving.leave()  # it may be there another time
                raise
            except FileNotFoundError:
                arriving.leave()  # what has its name now is another's
                if attempt == _REMOVED:
                    raise
            except BaseException:
                arriving.drop()
                raise
            else:
                break
        if order.size <= self._cache.limit:
            self._say(CacheEvents(added=[(order.digest, order.size)]))

    def _receive(self, order: BringContent) -> ArrivingContent | None:
        """Begin to write a content; None: it is there."""
        there, since = -1, 0.0
        while not self._cache.has(order.digest, order.size):
            arriving = self._cache.receive(order.digest, order.size)
            if arriving is None:  # another executor of this host brings it
                before, there = there, self._cache.size_of_part(order.digest)
                if there != before:
                    since = time.monotonic()
                elif time.monotonic() - since > _STANDS_STILL:
                    return self._cache.receive_aside(order.digest, order.size)
                time.sleep(_POLL)
            elif self._cache.has(order.digest, order.size):
                arriving.drop()
            else:
                return arriving
        return None

    def _fill(self, transfer: _Transfer, arriving: ArrivingContent) -> None:
        for attempt in range(_CORRUPT + 1):
            plan = RangePlan(arriving.written, arriving.size, arriving.add)
            if attempt < _CORRUPT:
                self._from_peers(transfer, plan)
            if not plan.is_complete and self._is_shared(transfer.order):
                self._from_site(transfer, plan)
            if not plan.is_complete:
                self._from_server(transfer, plan)
            if arriving.finish():
                return
            if transfer.shared and self._shared is not None:
                self._shared.drop(arriving.digest)
                self._say(SharedEvents(removed=[arriving.digest]))
                transfer.shared = 0
            for source in transfer.sources - {0}:
                hint = FailedPeer(source, corrupt=True, reason="it sent something else")  # type: ignore[arg-type]
                transfer.failed[source] = hint
            transfer.sources.clear()
        raise TransferFailed("what arrived is not what was announced")

    def _from_peers(self, transfer: _Transfer, plan: RangePlan) -> None:
        """Take what peers give; if that is not all, no more of them is known."""
        peers = transfer.order.peers
        for _ in range(_ROUNDS):
            for peer in peers:
                if plan.is_complete:
                    return
                if peer.executor not in transfer.failed and not self._from_peer(transfer, plan, peer):
                    break  # the server hears of it before another one is tried, which may be behind the same firewall
            if plan.is_complete or not peers:
                return
            self._say(NeedPeers(transfer.order.number, list(transfer.failed.values())))
            peers = self._await_peers(transfer)

    def _from_peer(self, transfer: _Transfer, plan: RangePlan, peer: PeerHint) -> bool:
        """Take what a peer gives; whether it could be reached."""
        begun, before = time.monotonic(), plan.came
        try:
            self._reader.read(peer, transfer.order.digest, plan)
        except PeerFailure as failure:
            transfer.failed[peer.executor] = FailedPeer(peer.executor, reason=str(failure)[:_REASON])
            return not isinstance(failure, PeerUnreached)
        finally:
            transfer.came(peer.executor, plan.came - before, time.monotonic() - begun)
        return True

    def _await_peers(self, transfer: _Transfer) -> list[PeerHint]:
        while True:
            message = transfer.inbox.get()
            if isinstance(message, MorePeers):
                return message.peers

    # --- the site's shared store -------------------------------------------------------------------

    def _is_shared(self, order: BringContent) -> bool:
        """Whether a content belongs into the shared store."""
        return self._shared is not None and not order.fresh and self._shared.keeps(order.size)

    def _from_site(self, transfer: _Transfer, plan: RangePlan) -> None:
        """Take a content from the shared store; if it is not there and nobody else brings it, it is ours to bring."""
        store, digest = self._shared, transfer.order.digest
        assert store is not None
        while True:
            self._from_store(store, transfer, plan)
            if plan.is_complete or transfer.claim is not None:
                return
            transfer.claim = store.claim(digest)
            if transfer.claim is None:
                store.wait(digest)

    @staticmethod
    def _from_store(store: SharedStore, transfer: _Transfer, plan: RangePlan) -> None:
        number = store.open(transfer.order.digest, transfer.order.size)
        if number < 0:
            return
        try:
            while span := plan.take(_CHUNK):
                data = b""
                with contextlib.suppress(OSError):  # another host may have given it up
                    data = os.pread(number, len(span), span.start)
                plan.give_back(span[len(data) :])
                if not data:
                    return
                plan.put(span.start, data)
                transfer.shared += len(data)
        finally:
            os.close(number)

    def _publish(self, transfer: _Transfer) -> None:
        """What came from elsewhere is for the whole site; one host of those that have it at once puts it there."""
        order, store = transfer.order, self._shared
        if store is None or not self._is_shared(order) or store.has(order.digest):
            return
        transfer.claim = transfer.claim or store.claim(order.digest)
        if transfer.claim is None:
            return
        for path in (self._cache.path(order.digest), f"{self._cache.pins}/{order.digest.hex()}"):
            gone = store.publish(path, order.digest, order.size)
            if gone is not None:
                self._say(SharedEvents([(order.digest, order.size)], gone))
                return

    def _list_shared(self) -> None:
        if self._shared is None:
            return
        found = list(self._shared.contents().items())
        for start in range(0, max(1, len(found)), _LISTED):
            self._say(SharedEvents(found[start : start + _LISTED], whole=start == 0))

    def _from_server(self, transfer: _Transfer, plan: RangePlan) -> None:
        begun, before = time.monotonic(), plan.came
        asked: dict[int, range] = {}
        try:
            while not plan.is_complete:
                while len(asked) < _AHEAD and (span := plan.take(PIECE)):
                    asked[span.start] = span
                    self._say(NeedPiece(transfer.order.number, span.start))
                message = transfer.inbox.get()
                if transfer.claim is not None:
                    transfer.claim.touch()
                if not isinstance(message, OriginPiece):
                    continue
                if message.error:
                    raise TransferFailed(message.error)
                wanted = asked.pop(message.offset, range(0))
                if len(message.data) < len(wanted):
                    raise TransferFailed("it became shorter on its way")
                if wanted:
                    plan.put(wanted.start, message.data[: len(wanted)])
        finally:
            transfer.came(0, plan.came - before, time.monotonic() - begun)
