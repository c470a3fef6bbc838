"""Staging: inputs brought to workers whose tasks run in sandboxes, outputs stored at the server and cached here.

A workflow whose directory is seen here needs none of it. The executor asks the server what content an input has; a
content that the host's cache lacks is brought by the transfer process (`transfer_client`), from peers or the server.
Inputs of tasks that wait here are brought while others run. What the tasks of this executor need is pinned.

Rules: a request outlives connections: what was not answered is asked again when the server is back. One transfer serves
all that want a content. What came and went is reported to the server when it happens, and all there is when it is back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from bough.errors import SiteError
from bough.executor.descriptors import Descriptors
from bough.executor.executor_options import ExecutorLifetime
from bough.executor.files.sandbox import ExecutorFolder
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
)
from bough.executor.worker_protocol import InputsStaged, OutputsStored, StageInputs, StoreOutputs, ToWorker
from bough.model.events.news import WorkFailed, WorkSucceeded
from bough.model.ids import ExecutorId, SpanId
from bough.model.outcomes import Cause, Failure, ResultFile
from bough.private import remove_tree
from bough.wire.file_messages import (
    DIGEST,
    PIECE,
    STREAMS,
    CacheReport,
    CheckContent,
    FileLocated,
    FilePiece,
    FilesKept,
    FindPeers,
    GetPiece,
    MadeFile,
    OfferFiles,
    OfferPeer,
    PeerHint,
    PeerIdentity,
    WantFile,
    WorkDirectory,
)

if TYPE_CHECKING:  # loaded when files travel: most executors bring none
    from bough.executor.files.host_cache import HostCache
    from bough.executor.files.transfer_client import Transfers

_REPORTED: Final = 50_000  # contents in one report
_AGAIN: Final = 3  # times that a content is brought which was evicted before its reader had it


class StagingWorker(Protocol):
    """A worker, as far as staging knows it."""

    name: str

    def send(self, messages: list[ToWorker]) -> None:
        """Send messages to it."""


class StagingRequest:
    """What one worker, or a task that waits for one (`worker` is None), wants to be there."""

    def __init__(self, worker: StagingWorker | None, message: StageInputs) -> None:
        self.worker = worker
        self.message = message
        self.left = set(message.paths)
        self.files: dict[str, str] = {}
        self.found: dict[str, tuple[bytes, int]] = {}  # contents and their sizes, by path
        self.folders: list[str] = []  # paths whose content is an archive
        self.cached = self.from_peers = self.from_origin = 0  # bytes

    @property
    def element(self) -> tuple[int, int]:
        """Whose inputs they are: span and index."""
        return self.message.span, self.message.index

    @property
    def moved(self) -> tuple[int, int, int]:
        """Bytes that were in the host's cache, came from peers, and from the server."""
        return self.cached, self.from_peers, self.from_origin

    @property
    def owner(self) -> object:
        """For whom contents are pinned."""
        return self.worker if self.worker is not None else self.element


class _Download:
    """A content on its way."""

    def __init__(self, digest: bytes, size: int, number: int) -> None:
        self.digest = digest
        self.size = size
        self.number = number  # of what the transfer process was asked for
        self.waiting: list[tuple[StagingRequest, str]] = []
        self.pieces: set[int] = set()  # offsets that the server was asked for
        self.find: FindPeers | None = None  # the server was asked for peers
        self.tries = 1


class Staging:
    """See the module. `folder` is the executor's own, `say` sends to the server if it is there.

    `address`: where others can reach this host; empty: they cannot.
    """

    def __init__(
        self,
        folder: ExecutorFolder,
        say: Callable[[object], None],
        report: Callable[[WorkSucceeded | WorkFailed], None],
        descriptors: Descriptors,
        *,
        told: ExecutorLifetime,
        address: str = "",
        number: ExecutorId,
    ) -> None:
        self._report = report
        self._folder = folder
        self._say = say
        self._descriptors = descriptors
        self._told = told
        self._address = address
        self._number = number
        self._cache: HostCache | None = None
        self._transfers: Transfers | None = None
        self._offer: OfferPeer | None = None  # others can reach us there
        self.directories: dict[int, str] = {}  # of workflows, by run: those that are not seen here
        self._last = 0
        self._wants: dict[int, tuple[StagingRequest, str]] = {}
        self._downloads: dict[int, _Download] = {}  # by number
        self._coming: dict[bytes, _Download] = {}  # the same, by content
        self._placed: dict[tuple[int, int], StagingRequest] = {}  # of tasks that wait here
        self._offers: dict[int, tuple[StagingWorker, StoreOutputs]] = {}
        self._keeping: dict[int, tuple[StagingWorker, OutputsStored, set[int]]] = {}  # outputs that are being cached
        self._results: dict[int, tuple[WorkSucceeded, ResultFile]] = {}

    def sandbox_of(self, worker: str) -> str:
        """The folder of one worker's sandboxes."""
        return f"{self._folder.folder}/sandboxes/{worker}"

    # --- from workers ------------------------------------------------------------------------------

    def bring_inputs(self, worker: StagingWorker, message: StageInputs) -> None:
        """A worker's task needs files."""
        request = StagingRequest(worker, message)
        try:
            if not message.paths:  # it wants the executor's folder to be there, and no more
                self._folder.open()
                self._look(request)
                return
            cache = self._open()
        except (OSError, SiteError) as error:
            self._fail(request, f"the cache cannot be used: {error}", of_site=True)
            return
        cache.unpin(worker)
        placed = self._placed.pop(request.element, None)
        known = {path: found for path, found in placed.found.items() if path not in message.fresh} if placed else {}
        if placed is not None:
            request.cached, request.from_peers, request.from_origin = placed.moved
        for path in message.paths:
            if path in known:  # what was brought for it was counted then
                request.folders += [path] if placed is not None and path in placed.folders else []
                request.cached -= known[path][1] if placed is not None and path in placed.files else 0
                self._want_content(request, path, *known[path], [])
            else:
                self._ask(request, path)
        if placed is not None:
            self._drop_request(placed)

    def bring_early(self, span: SpanId, index: int, paths: list[str]) -> None:
        """A task waits here: have its inputs brought, and kept until it begins or is not here any more."""
        message = StageInputs(0, span, index, paths)
        request = StagingRequest(None, message)
        if not paths or request.element in self._placed:
            return
        try:
            self._open()
        except (OSError, SiteError):
            return  # it is said when the task begins
        self._placed[request.element] = request
        for path in paths:
            self._ask(request, path)

    @property
    def early(self) -> int:
        """How many waiting tasks have inputs that are brought, or were."""
        return len(self._placed)

    def keep_early(self, spans: Collection[int]) -> None:
        """Of the tasks that wait here only those of these spans are left."""
        for element in [element for element in self._placed if element[0] not in spans]:
            self._drop_request(self._placed.pop(element))

    def _drop_request(self, request: StagingRequest) -> None:
        """A waiting task needs nothing any more."""
        self._wants = {number: want for number, want in self._wants.items() if want[0] is not request}
        for download in self._downloads.values():
            download.waiting = [want for want in download.waiting if want[0] is not request]
        if self._cache is not None:
            self._cache.unpin(request.owner)

    def _ask(self, request: StagingRequest, path: str) -> None:
        self._last += 1
        self._wants[self._last] = (request, path)
        self._say(WantFile(self._last, request.message.span, request.message.index, path))

    def _open(self) -> HostCache:
        """The host's cache, and what brings contents into it."""
        if self._cache is None:
            from bough.executor.files.transfer_client import Transfers, cache_options

            self._folder.open()
            options = cache_options(self._told)
            self._cache = cache = options.open()
            self._transfers = Transfers(
                self._descriptors,
                cache,
                options,
                address=self._address,
                reader=self._number,
                hear=self._hear_transfers,
            )
            cache.on_evicted = lambda digest: self._say(CacheReport(removed=[digest]))
        return self._cache

    def store_outputs(self, worker: StagingWorker, message: StoreOutputs) -> None:
        """A worker's task has made files."""
        self._last += 1
        self._offers[self._last] = (worker, message)
        self._say_offer(self._last, message)

    def _say_offer(self, request: int, message: StoreOutputs) -> None:
        self._say(OfferFiles(request, message.span, message.index, message.files))

    def keep_result(self, news: WorkSucceeded, result: ResultFile) -> None:
        """A result is too big to be sent with its report, which waits until the server has it."""
        self._last += 1
        self._results[self._last] = (news, result)
        self._say_result(self._last)

    def _say_result(self, request: int) -> None:
        news, result = self._results[request]
        self._say(OfferFiles(request, news.span, news.start, [MadeFile("", b"", result.size)]))

    def spans(self) -> list[SpanId]:
        """Those whose results are on their way."""
        return [news.span for news, _ in self._results.values()]

    def forget(self, worker: StagingWorker) -> None:
        """A worker has ended: drop what it waited for, and its sandboxes."""
        self._wants = {number: want for number, want in self._wants.items() if want[0].worker is not worker}
        self._offers = {number: offer for number, offer in self._offers.items() if offer[0] is not worker}
        for download in self._downloads.values():
            download.waiting = [want for want in download.waiting if want[0].worker is not worker]
        self._keeping = {number: kept for number, kept in self._keeping.items() if kept[0] is not worker}
        if self._cache is not None:
            self._cache.unpin(worker)
        if self.directories:
            remove_tree(self.sandbox_of(worker.name))

    def close(self) -> None:
        """The executor ends."""
        if self._transfers is not None:
            self._transfers.close()
        if self._cache is not None:
            self._cache.close()
        self._folder.close()

    # --- from the server ---------------------------------------------------------------------------

    def on_message(self, message: object) -> None:
        """The server said something about files."""
        match message:
            case WorkDirectory():
                if message.run not in self.directories and not sees(message):
                    self._folder.open()
                    self.directories[message.run] = message.directory
                    self._be_ready()
            case FileLocated():
                self._located(message)
            case FilePiece():
                self._arrived(message)
            case CheckContent() | PeerIdentity():
                self._serve(message)
            case GetPiece():
                self._say(self._piece(message))
            case FilesKept() if message.request in self._results:
                self._result_kept(message)
            case FilesKept():
                offer = self._offers.pop(message.request, None)
                if offer is not None:
                    self._stored(*offer, message)

    def _serve(self, message: CheckContent | PeerIdentity) -> None:
        """The server says something of what others take from here."""
        if self._transfers is None:
            return
        if isinstance(message, CheckContent):
            self._transfers.say(CheckCopy(message.digest))
        else:
            self._transfers.say(ServeAs(message.certificate, message.key, message.secret, message.readers))

    def _be_ready(self) -> None:
        """Files will travel: open the cache, and let others reach it."""
        with contextlib.suppress(OSError, SiteError):  # it is said when a task needs something
            self._open()
            if self._transfers is not None:
                self._transfers.start()

    def _stored(self, worker: StagingWorker, made: StoreOutputs, kept: FilesKept) -> None:
        """The server has outputs: they stay in the cache, too, before their task may remove them."""
        answer = OutputsStored(made.number, made.index, kept.times, kept.error, kept.places)
        numbers: set[int] = set()
        if not kept.error and self._transfers is not None:
            for one, path in zip(made.files, made.locals, strict=True):
                if len(one.digest) != DIGEST or one.path in STREAMS:
                    continue
                self._last += 1
                numbers.add(self._last)
                self._keeping[self._last] = (worker, answer, numbers)
                self._transfers.order(KeepOutput(self._last, path, one.digest, one.size))
        if not numbers:
            self._tell(worker, answer)

    def resume(self) -> None:
        """The server is back: ask again for what did not come."""
        for number, (request, path) in self._wants.items():
            self._say(WantFile(number, request.message.span, request.message.index, path))
        for download in self._downloads.values():
            if download.find is not None:
                self._say(download.find)
            for offset in sorted(download.pieces):
                self._say(GetPiece(download.number, download.digest, offset, PIECE))
        if self._offer is not None:
            self._say(self._offer)
        self._report_all()
        for number, (_, message) in self._offers.items():
            self._say_offer(number, message)
        for number in self._results:
            self._say_result(number)

    def _result_kept(self, message: FilesKept) -> None:
        news, result = self._results.pop(message.request)
        with contextlib.suppress(OSError):
            os.unlink(result.path)
        if message.error or not message.places:
            text = f"the result of {result.size} bytes cannot be kept: {message.error}"
            detail = news.details[0] if news.details else None
            self._report(WorkFailed(news.span, news.start, Failure(Cause.EXCEPTION, text, site=True), detail))
        else:
            self._report(replace(news, results=ResultFile(message.places[0], result.size)))

    def _report_all(self) -> None:
        """Say all that the cache of this host has."""
        if self._cache is None:
            from bough.executor.files.transfer_client import cache_options

            contents = cache_options(self._told).contents()
            if not contents:
                return
        else:
            contents = list(self._cache.contents().items())
        for start in range(0, max(1, len(contents)), _REPORTED):
            self._say(CacheReport(added=contents[start : start + _REPORTED], whole=start == 0))

    def _located(self, message: FileLocated) -> None:
        download = self._downloads.get(message.request)
        if download is not None:
            if download.find is not None and self._transfers is not None:
                download.find = None
                self._transfers.say(MorePeers(download.number, message.peers))
            return
        want = self._wants.pop(message.request, None)
        if want is None:
            return
        request, path = want
        if message.error:
            self._fail(request, message.error)
            return
        if message.folder:
            request.folders.append(path)
        peers = message.peers
        if path in request.message.fresh and self._cache is not None:  # it is sent for each task, whoever has it
            self._cache.forget(message.digest)
            peers = []
        if self._transfers is not None:
            self._transfers.want(message.digest, message.wanted)
        self._want_content(request, path, message.digest, message.size, peers)

    def _want_content(
        self, request: StagingRequest, path: str, digest: bytes, size: int, peers: list[PeerHint]
    ) -> None:
        assert self._cache is not None
        assert self._transfers is not None
        request.found[path] = (digest, size)
        place = self._cache.pin(digest, request.owner, size)
        if place:
            request.cached += size
            self._got(request, path, place)
            return
        download = self._coming.get(digest)
        if download is not None:
            download.waiting.append((request, path))
            return
        self._last += 1
        download = self._downloads[self._last] = self._coming[digest] = _Download(digest, size, self._last)
        download.waiting.append((request, path))
        self._transfers.order(BringContent(self._last, digest, size, peers))

    def _arrived(self, message: FilePiece) -> None:
        download = self._downloads.get(message.request)
        if download is not None and self._transfers is not None:
            download.pieces.discard(message.offset)
            self._transfers.say(OriginPiece(download.number, message.offset, message.data, message.error))

    # --- from the transfer process -----------------------------------------------------------------

    def _hear_transfers(self, messages: list[FromTransfers]) -> None:
        report = CacheReport([], [], [], [], [])
        for message in messages:
            match message:
                case NeedPiece():
                    self._need_piece(message)
                case NeedPeers():
                    self._need_peers(message)
                case ContentBrought():
                    self._brought(message, report)
                case OutputSeen():
                    self._output_seen(message)
                case CacheEvents():
                    report.added.extend(message.added)
                    report.removed.extend(message.removed)
                case Listening():
                    self._offer = OfferPeer(message.address, message.port)
                    self._say(self._offer)
        if any((report.added, report.removed, report.moved, report.failed, report.ended)):
            self._say(report)

    def _need_piece(self, message: NeedPiece) -> None:
        download = self._downloads.get(message.number)
        if download is not None:
            download.pieces.add(message.offset)
            self._say(GetPiece(download.number, download.digest, message.offset, PIECE))

    def _need_peers(self, message: NeedPeers) -> None:
        download = self._downloads.get(message.number)
        if download is not None:
            download.find = FindPeers(download.number, download.digest, download.size, message.failed)
            self._say(download.find)

    def _brought(self, message: ContentBrought, report: CacheReport) -> None:
        download = self._downloads.pop(message.number, None)
        if download is None:
            return
        digest = download.digest
        report.moved.extend(message.moved)
        report.failed.extend((digest, failed) for failed in message.failed)
        report.ended.append(digest)
        del self._coming[digest]
        if message.error:
            for request, path in download.waiting:
                self._fail(request, f"{path}: {message.error}", of_site=message.of_site)
            return
        self._give_out(download, message)

    def _give_out(self, download: _Download, message: ContentBrought) -> None:
        """A content is here, for all who wait for it."""
        assert self._cache is not None
        assert self._transfers is not None
        if not download.waiting:  # one that is too big for the cache is nobody's then
            self._cache.pin(download.digest, download)
            self._cache.unpin(download)
        origin = sum(one.size for one in message.moved if not one.source)
        again: list[tuple[StagingRequest, str]] = []
        is_first = True
        for request, path in download.waiting:
            place = self._cache.pin(download.digest, request.owner, download.size)
            if not place:
                again.append((request, path))
                continue
            if is_first:
                is_first = False
                request.from_origin += origin
                request.from_peers += download.size - origin
            else:
                request.cached += download.size
            self._got(request, path, place)
        if not again:
            return
        if download.tries >= _AGAIN:
            for request, path in again:
                self._fail(request, f"{path}: it is evicted whenever it comes: give the cache more room", of_site=True)
            return
        self._last += 1
        download.number, download.tries, download.waiting = self._last, download.tries + 1, again
        self._downloads[self._last] = self._coming[download.digest] = download
        self._transfers.order(BringContent(self._last, download.digest, download.size, []))

    def _output_seen(self, message: OutputSeen) -> None:
        kept = self._keeping.pop(message.number, None)
        if kept is not None:
            worker, answer, numbers = kept
            numbers.discard(message.number)
            if not numbers:
                self._tell(worker, answer)

    def _piece(self, get: GetPiece) -> FilePiece:
        """A piece of an output that was offered."""
        offer = self._offers.get(get.request)
        local = offer[1].local(get.digest) if offer is not None else ""
        if get.request in self._results:
            local = self._results[get.request][1].path
        if not local:
            return FilePiece(get.request, get.offset, b"", "it is not offered any more")
        try:
            descriptor = os.open(local, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return FilePiece(get.request, get.offset, os.pread(descriptor, min(get.length, PIECE), get.offset))
            finally:
                os.close(descriptor)
        except OSError as error:
            return FilePiece(get.request, get.offset, b"", f"an output cannot be read: {error.strerror}")

    # --- to workers --------------------------------------------------------------------------------

    def _got(self, request: StagingRequest, path: str, place: str) -> None:
        request.files[path] = place
        request.left.discard(path)
        self._look(request)

    def _look(self, request: StagingRequest) -> None:
        if not request.left and request.worker is not None:
            message = request.message
            place = (message.number, message.index)
            answer = InputsStaged(*place, request.files, folders=request.folders, moved=request.moved)
            self._tell(request.worker, answer)

    def _fail(self, request: StagingRequest, error: str, *, of_site: bool = False) -> None:
        self._wants = {number: want for number, want in self._wants.items() if want[0] is not request}
        for download in self._downloads.values():
            download.waiting = [want for want in download.waiting if want[0] is not request]
        if request.worker is None:  # it is asked for again when the task begins, and said then
            self._placed.pop(request.element, None)
            if self._cache is not None:
                self._cache.unpin(request.owner)
            return
        said = InputsStaged(request.message.number, request.message.index, {}, error, of_site)
        self._tell(request.worker, said)

    def _tell(self, worker: StagingWorker, message: InputsStaged | OutputsStored) -> None:
        worker.send([message])


def sees(place: WorkDirectory) -> bool:
    """Whether a workflow's directory is seen here: its token file is."""
    if not place.token:
        return not place.directory  # it has none: its commands say themselves where they run
    try:
        with open(f"{place.directory}/.bough/token", encoding="utf-8") as file:
            return file.read(200).strip() == place.token
    except (OSError, UnicodeDecodeError):
        return False
