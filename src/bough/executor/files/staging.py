"""Staging: inputs brought to workers whose tasks run in sandboxes, outputs stored at the server, contents cached here.

A workflow whose directory is seen here needs none of it. Contents that were brought are kept for the next tasks as
long as there is space: what a running task needs is pinned, of the rest the least recently used goes first.

Rules: a request outlives connections: what was not answered is asked again when the server is back. A content is
compared with its digest when it comes, no other user can reach it, and one that a task has changed since (it may have
a link to it) is not used again.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

from msgspec.structs import replace

from bough import private
from bough.executor.disk_space_wait import is_full
from bough.executor.files.sandbox import ExecutorFolder
from bough.executor.worker_protocol import InputsStaged, OutputsStored, StageInputs, StoreOutputs, ToWorker
from bough.model.events.news import WorkFailed, WorkSucceeded
from bough.model.ids import SpanId
from bough.model.outcomes import Cause, Failure, ResultFile
from bough.private import remove_tree
from bough.wire.file_messages import (
    DIGEST,
    PIECE,
    FileLocated,
    FilePiece,
    FilesKept,
    GetPiece,
    MadeFile,
    OfferFiles,
    WantFile,
    WorkDirectory,
)

LIMIT = 10 << 30  # bytes kept
_AHEAD = 4  # pieces asked for before the first has come
_MODE = 0o555  # read-only, and executable: a program may be among them


class FileCache:
    """A folder of contents, by digest."""

    def __init__(self, folder: str, limit: int = LIMIT) -> None:
        self._folder = folder
        self._limit = limit
        self._sizes: OrderedDict[bytes, int] = OrderedDict()  # the least recently used first
        self._stamps: dict[bytes, tuple[int, int, int]] = {}  # what they looked like when they were compared
        self._total = 0
        self._pins: dict[object, set[bytes]] = {}
        private.make_folder(folder)

    def path(self, digest: bytes) -> str:
        """Where a content lies."""
        return f"{self._folder}/{digest.hex()}"

    def has(self, digest: bytes) -> bool:
        """Whether it is here, as it came; it counts as used."""
        if digest not in self._sizes:
            return False
        if _stamp(self.path(digest)) != self._stamps[digest]:
            self._drop(digest)
            return False
        self._sizes.move_to_end(digest)
        return True

    def pin(self, digest: bytes, owner: object) -> None:
        """Keep a content until its owner unpins it."""
        self._pins.setdefault(owner, set()).add(digest)

    def unpin(self, owner: object) -> None:
        """An owner needs none of its contents any more."""
        self._pins.pop(owner, None)

    def forget(self, digest: bytes) -> None:
        """Drop a content that nobody has pinned."""
        if digest in self._sizes and not any(digest in pins for pins in self._pins.values()):
            self._drop(digest)

    def receive(self, digest: bytes, size: int) -> Arriving:
        """Begin to write one."""
        return Arriving(self, digest, size)

    def added(self, digest: bytes, size: int) -> None:
        """A content is complete."""
        if digest not in self._sizes:
            self._total += size
        self._sizes[digest] = size
        self._stamps[digest] = _stamp(self.path(digest))
        self._make_room(digest)

    def _make_room(self, newest: bytes) -> None:
        if self._total > self._limit:
            self._shrink(newest, self._limit)

    def make_space(self, newest: bytes) -> None:
        """The disk is full: drop all that is not pinned."""
        self._shrink(newest, 0)

    def _shrink(self, newest: bytes, limit: int) -> None:
        pinned = set().union(*self._pins.values(), {newest})
        for digest in [digest for digest in self._sizes if digest not in pinned]:
            if self._total <= limit:
                return
            self._drop(digest)

    def _drop(self, digest: bytes) -> None:
        self._total -= self._sizes.pop(digest)
        del self._stamps[digest]
        with contextlib.suppress(OSError):
            os.unlink(self.path(digest))


def _stamp(path: str) -> tuple[int, int, int]:
    """What changes when a content does: its file, its size, the time it was written."""
    try:
        state = os.lstat(path)
    except OSError:
        return 0, 0, 0
    return state.st_ino, state.st_size, state.st_mtime_ns


class Arriving:
    """A content that comes in pieces, in any order."""

    def __init__(self, cache: FileCache, digest: bytes, size: int) -> None:
        self._cache = cache
        self.digest = digest
        self.size = size
        self.written = 0
        self._early: dict[int, bytes] = {}
        self._sum = blake2b(digest_size=DIGEST)
        self._hidden = f"{cache.path(digest)}.{os.getpid()}.part"
        self._number = private.opener(self._hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def add(self, offset: int, data: bytes) -> None:
        """A piece; OSError when it cannot be written."""
        if offset >= self.written:
            self._early[offset] = data
        while self.written in self._early:
            piece = self._early.pop(self.written)
            if not piece:
                break
            self._write(piece)
            self._sum.update(piece)
            self.written += len(piece)

    def _write(self, piece: bytes) -> None:
        made_space, view = False, memoryview(piece)
        while view:
            try:
                view = view[os.write(self._number, view) :]
            except OSError as error:
                if made_space or not is_full(error):
                    raise
                made_space = True
                self._cache.make_space(self.digest)

    def finish(self) -> None:
        """All has come: OSError when it is not what it was to be."""
        if self._sum.digest() != self.digest:
            raise OSError(0, "what arrived is not what was announced")
        os.fchmod(self._number, _MODE)
        os.close(self._number)
        self._number = -1
        os.replace(self._hidden, self._cache.path(self.digest))
        self._cache.added(self.digest, self.size)

    def forget_early(self) -> None:
        """What came before its turn will be sent again."""
        self._early.clear()

    def drop(self) -> None:
        """Leave nothing."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1
        with contextlib.suppress(OSError):
            os.unlink(self._hidden)


class StagingWorker(Protocol):
    """A worker, as far as staging knows it."""

    name: str

    def send(self, messages: list[ToWorker]) -> None:
        """Send messages to it."""


class StagingRequest:
    """What one worker waits for."""

    def __init__(self, worker: StagingWorker, message: StageInputs) -> None:
        self.worker = worker
        self.message = message
        self.left = set(message.paths)
        self.files: dict[str, str] = {}
        self.folders: list[str] = []  # paths whose content is an archive


class _Download:
    """A content on its way."""

    def __init__(self, request: int, arriving: Arriving) -> None:
        self.request = request
        self.arriving = arriving
        self.asked = 0
        self.waiting: list[tuple[StagingRequest, str]] = []


class Staging:
    """See the module. `folder` is the executor's own, `say` sends to the server if it is there."""

    def __init__(
        self,
        folder: ExecutorFolder,
        say: Callable[[object], None],
        report: Callable[[WorkSucceeded | WorkFailed], None],
    ) -> None:
        self._report = report
        self._folder = folder
        self._say = say
        self._cache: FileCache | None = None
        self.directories: dict[int, str] = {}  # of workflows, by run: those that are not seen here
        self._last = 0
        self._wants: dict[int, tuple[StagingRequest, str]] = {}
        self._downloads: dict[int, _Download] = {}
        self._offers: dict[int, tuple[StagingWorker, StoreOutputs]] = {}
        self._results: dict[int, tuple[WorkSucceeded, ResultFile]] = {}

    def sandbox_of(self, worker: str) -> str:
        """The folder of one worker's sandboxes."""
        return f"{self._folder.folder}/sandboxes/{worker}"

    # --- from workers ------------------------------------------------------------------------------

    def bring_inputs(self, worker: StagingWorker, message: StageInputs) -> None:
        """A worker's task needs files."""
        if self._cache is None:
            self._folder.open()
            self._cache = FileCache(f"{self._folder.folder}/files")
        self._cache.unpin(worker)
        request = StagingRequest(worker, message)
        for path in message.paths:
            self._last += 1
            self._wants[self._last] = (request, path)
            self._say(WantFile(self._last, message.span, message.index, path))
        self._look(request)

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
        if self._cache is not None:
            self._cache.unpin(worker)
        if self.directories:
            remove_tree(self.sandbox_of(worker.name))

    def close(self) -> None:
        """The executor ends."""
        for download in self._downloads.values():
            download.arriving.drop()
        self._folder.close()

    # --- from the server ---------------------------------------------------------------------------

    def on_message(self, message: object) -> None:
        """The server said something about files."""
        match message:
            case WorkDirectory():
                if message.run not in self.directories and not sees(message):
                    self._folder.open()
                    self.directories[message.run] = message.directory
            case FileLocated():
                self._located(message)
            case FilePiece():
                self._arrived(message)
            case GetPiece():
                self._say(self._piece(message))
            case FilesKept() if message.request in self._results:
                self._result_kept(message)
            case FilesKept():
                offer = self._offers.pop(message.request, None)
                if offer is not None:
                    worker, made = offer
                    self._tell(
                        worker, OutputsStored(made.number, made.index, message.times, message.error, message.places)
                    )

    def resume(self) -> None:
        """The server is back: ask again for what did not come."""
        for number, (request, path) in self._wants.items():
            self._say(WantFile(number, request.message.span, request.message.index, path))
        for download in self._downloads.values():
            download.arriving.forget_early()
            download.asked = download.arriving.written
            self._ask_on(download)
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

    def _located(self, message: FileLocated) -> None:
        want = self._wants.pop(message.request, None)
        if want is None or self._cache is None:
            return
        request, path = want
        if message.error:
            self._fail(request, message.error)
            return
        if path in request.message.fresh:
            self._cache.forget(message.digest)
        if message.folder:
            request.folders.append(path)
        self._cache.pin(message.digest, request.worker)
        if self._cache.has(message.digest):
            self._got(request, path, message.digest)
            return
        download = next((one for one in self._downloads.values() if one.arriving.digest == message.digest), None)
        if download is None:
            try:
                arriving = self._cache.receive(message.digest, message.size)
            except OSError as error:
                self._fail(request, f"{path}: {error.strerror}", of_site=True)
                return
            self._last += 1
            download = self._downloads[self._last] = _Download(self._last, arriving)
        download.waiting.append((request, path))
        self._go_on(download)

    def _arrived(self, message: FilePiece) -> None:
        download = self._downloads.get(message.request)
        if download is None:
            return
        if message.error:
            self._abandon(download, message.error)
            return
        try:
            download.arriving.add(message.offset, message.data)
        except OSError as error:
            self._abandon(download, error.strerror or str(error), of_site=True)
            return
        self._go_on(download)

    def _go_on(self, download: _Download) -> None:
        arriving = download.arriving
        if arriving.written < arriving.size:
            self._ask_on(download)
            return
        try:
            arriving.finish()
        except OSError as error:
            self._abandon(download, error.strerror or str(error), of_site=True)
            return
        del self._downloads[download.request]
        for request, path in download.waiting:
            self._got(request, path, arriving.digest)

    def _ask_on(self, download: _Download) -> None:
        arriving = download.arriving
        while download.asked < min(arriving.size, arriving.written + _AHEAD * PIECE):
            self._say(GetPiece(download.request, arriving.digest, download.asked, PIECE))
            download.asked += PIECE

    def _abandon(self, download: _Download, error: str, *, of_site: bool = False) -> None:
        download.arriving.drop()
        del self._downloads[download.request]
        for request, path in download.waiting:
            self._fail(request, f"{path}: {error}", of_site=of_site)

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

    def _got(self, request: StagingRequest, path: str, digest: bytes) -> None:
        assert self._cache is not None
        request.files[path] = self._cache.path(digest)
        request.left.discard(path)
        self._look(request)

    def _look(self, request: StagingRequest) -> None:
        if not request.left:
            number, index = request.message.number, request.message.index
            self._tell(request.worker, InputsStaged(number, index, request.files, folders=request.folders))

    def _fail(self, request: StagingRequest, error: str, *, of_site: bool = False) -> None:
        self._wants = {number: want for number, want in self._wants.items() if want[0] is not request}
        for download in self._downloads.values():
            download.waiting = [want for want in download.waiting if want[0] is not request]
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
