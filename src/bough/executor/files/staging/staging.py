"""Staging: inputs brought to workers whose tasks run in sandboxes; what they make is for `staged_outputs`.

A workflow whose directory is seen here needs none of it. The executor asks the server what content an input has; a
content that the host's cache lacks is brought by the transfer process (`transfer_client`), from peers, the shared
store of the site or the server; one at a URL that nobody has, from there (`url_inputs`).
Files of this site's own storage that another one reads are kept in the cache, too, when the server asks for them.
Inputs of tasks that wait here are brought while others run. What the tasks of this executor need is pinned. Inputs of
tasks that may come are announced by the server: they are brought when no task waits for its own, and are not pinned.
What such a task reads at a URL comes early, too, also where the workflow's directory is seen; when it begins it looks
whether that has changed.

Rules: a request outlives connections: what was not answered is asked again when the server is back. One transfer serves
all that want a content. What came and went is reported to the server when it happens, and all there is when it is back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from typing import Final

from msgspec.structs import replace

from bough.errors import SiteError
from bough.executor.executor_options import ExecutorLifetime
from bough.executor.files.command_files.sandbox import ExecutorFolder
from bough.executor.files.staging.host_contents import HostContents
from bough.executor.files.staging.staged_outputs import StagedOutputs
from bough.executor.files.staging.staging_requests import (
    AnnouncedTask,
    Came,
    Download,
    SiteFileRequest,
    StagingRequest,
    StagingWorker,
)
from bough.executor.files.staging.url_inputs import UrlInputs
from bough.executor.files.transfers.transfer_protocol import (
    BringContent,
    CacheEvents,
    CheckCopy,
    ContentBrought,
    FromTransfers,
    Listening,
    MorePeers,
    NeedPeers,
    NeedPiece,
    OriginPiece,
    OutputSeen,
    ServeAs,
    SharedEvents,
    UrlFetched,
    UrlSeen,
)
from bough.executor.files.transfers.transfer_protocol import ListShared as ListStore
from bough.executor.host.descriptors import Descriptors
from bough.executor.host.disk_space_wait import is_full
from bough.executor.host.small_disks import Shortage, spaces_of
from bough.executor.worker_protocol import InputsStaged, OutputsStored, StageInputs
from bough.model.events.news import WorkFailed, WorkStopped, WorkSucceeded
from bough.model.files import is_remote, is_url, site_file
from bough.model.ids import ExecutorId, RecordId, Seconds, SpanId
from bough.model.sites.resources import show_bytes
from bough.movers.peer_directory import SMALL
from bough.private import remove_tree
from bough.wire.file_messages import (
    PIECE,
    CacheReport,
    CheckContent,
    DropContent,
    FileLocated,
    FilePiece,
    FilesKept,
    FindPeers,
    GetPiece,
    InputsAnnounced,
    ListShared,
    OfferPeer,
    PeerHint,
    PeerIdentity,
    SeeSiteFile,
    SiteFileSeen,
    WantFile,
    WorkDirectory,
    WrittenBack,
)

_REPORTED: Final = 50_000  # contents in one report
_ANNOUNCED: Final = 64  # tasks that may come, whose inputs are brought
_SHARE: Final = 4  # the part of the cache that these may have
_ASKED: Final = 3  # times that the server is asked for a content that could not be had
_SHORT: Final = 30.0  # seconds for which nothing is brought early after the disk was full
_NOTHING: Final = CacheReport()
_AGAIN: Final = 3  # times that a content is brought which was evicted before its reader had it


class Staging:
    """See the module. `folder` is the executor's own, `say` sends to the server if it is there.

    `address`: where others can reach this host; empty: they cannot. `alone`: the server is a session's own, which knows
    no contents and is told of none.
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
        alone: bool = False,
    ) -> None:
        if alone:
            say, address = _say_nothing, ""
        self._alone = alone
        self._folder = folder
        self._say = say
        self._told = told
        self._contents = HostContents(
            folder, descriptors, told, address=address, number=number, hear=self._hear_transfers, say=say
        )
        self.outputs = StagedOutputs(self._contents, say, report, told.gather)
        self._offer: OfferPeer | None = None  # others can reach us there
        self.directories: dict[int, str] = {}  # of workflows, by run: those that are not seen here
        self._wants: dict[int, tuple[StagingRequest, str]] = {}
        self._unsaid: list[int] = []  # of these: asked for once it is known where others can reach us
        self._downloads: dict[int, Download] = {}  # by number
        self._coming: dict[bytes, Download] = {}  # the same, by content
        self._placed: dict[tuple[int, int], StagingRequest] = {}  # of tasks that wait here
        self._announced: dict[tuple[int, int], AnnouncedTask] = {}  # of tasks that may come, by record and index
        self._passing: set[bytes] = set()  # contents that are not kept for other tasks: the policy uses no caches
        self._newest: dict[StagingWorker, StagingRequest] = {}  # what a worker asked for last
        self._dropped: set[bytes] = set()  # contents that go as soon as no task has them
        self._urls = UrlInputs(self._contents, self._ask, self._got_url, self._fail, self._may_come, alone=alone)
        self.url_runs: set[int] = set()  # workflows of which a task here has read something at a URL

    def sandbox_of(self, worker: str) -> str:
        """The folder of one worker's sandboxes."""
        return self._folder.sandboxes_of(worker)

    # --- from workers ------------------------------------------------------------------------------

    def bring_inputs(self, worker: StagingWorker, message: StageInputs, record: int = 0, run: int = 0) -> None:
        """A worker's task needs files; `run`: its workflow."""
        request = self._newest[worker] = StagingRequest(worker, message)
        announced = self._announced.pop((record, message.index), None)
        try:
            if not message.paths:  # it wants the executor's folder to be there, and no more
                self._folder.open()
                self._look(request)
                return
            self._contents.open()
        except (OSError, SiteError) as error:
            self._fail(request, f"the cache cannot be used: {error}", of_site=True, full=is_full(error))
            return
        self._unpin(worker)
        placed = self._placed.pop(request.element, None)
        request.before = [one for one in (announced, placed) if one is not None]
        if placed is not None:
            request.take_counts(placed)
        for path in message.paths:
            if request.has_failed:
                break
            if is_remote(path):
                self.url_runs.add(run)
            self._bring_now(request, path, placed)
        if placed is not None:
            self._drop_request(placed)

    def _bring_now(self, request: StagingRequest, path: str, placed: StagingRequest | None) -> None:
        """A task that begins needs a file, which may have been brought for it while it waited."""
        known = placed.found.get(path) if placed is not None and path not in request.message.fresh else None
        if is_remote(path):
            if known is not None and self._contents.cache is not None:  # until it was looked whether it changed
                self._contents.cache.pin(known[0], request.owner, known[1])
            self._urls.look(request, path)
        elif known is None or placed is None:
            self._ask(request, path)
        else:  # what was brought for it was counted then
            request.folders += [path] if path in placed.folders else []
            if path in placed.files:
                request.uncount(known[1])
            self._want_content(request, path, *known, None)

    def with_bytes(self, worker: StagingWorker, news: WorkStopped) -> WorkStopped | None:
        """What is said of a stopped task, with the bytes that were moved for it; None: there is nothing to say.

        It waits for nothing any more. A content that is on its way for it alone goes on, and counts as a whole.
        """
        detail, request = news.detail, self._newest.get(worker)
        if request is None or request.element != (news.span, news.index) or detail.staged is None:
            return news
        origin = request.from_origin
        for download in self._downloads.values():
            if any(want[0] is request for want in download.waiting):
                download.waiting = [want for want in download.waiting if want[0] is not request]
                origin += 0 if download.waiting else download.size
        self._drop_waits(lambda one: one is request)
        staged = replace(detail.staged, cached=request.cached, from_peers=request.from_peers, from_origin=origin)
        if not (staged.from_peers or staged.from_origin or detail.stdout or detail.stderr):
            return None
        return replace(news, detail=replace(detail, staged=staged))

    def bring_early(self, span: SpanId, index: int, paths: list[str]) -> None:
        """A task waits here: have its inputs brought, and kept until it begins or is not here any more."""
        message = StageInputs(0, span, index, paths)
        request = StagingRequest(None, message)
        if not paths or request.element in self._placed or self._is_short_of_space():
            return
        try:
            self._contents.open()
        except (OSError, SiteError):
            return  # it is said when the task begins
        self._placed[request.element] = request
        for path in paths:
            if is_url(path):
                self._urls.look(request, path)
            else:
                self._ask(request, path)

    def _announce(self, message: InputsAnnounced) -> None:
        """A task may come: have its inputs brought, if they take no more than a part of the cache."""
        if message.run and message.run not in self.directories:  # what is no URL is seen here where it lies
            message = replace(message, contents=[])
        task, known = AnnouncedTask(message), self._announced
        if not task.left or self._is_short_of_space():
            return
        try:
            cache = self._contents.open()
        except (OSError, SiteError):
            return  # it is said when the task begins
        room = cache.limit // _SHARE - task.announced_size
        while known and (len(known) >= _ANNOUNCED or sum(one.announced_size for one in known.values()) > room):
            self._drop_request(known.pop(next(iter(known))))
        if room >= 0:
            known[message.record, message.index] = task
            self._bring_announced()

    def _bring_announced(self) -> None:
        """Begin to bring what was announced, unless a task waits for what it needs itself."""
        if not self._announced or self._is_awaited():
            return
        for task in self._announced.values():
            for path in task.left.copy():
                task.left.discard(path)
                if path not in task.contents:
                    self._urls.look(task, path)
                    continue
                digest, size = task.contents[path]
                if self._contents.cache is None or self._contents.cache.has(digest, size) or digest in self._coming:
                    continue
                self._ask(task, path)

    def _may_come(self, task: AnnouncedTask, size: int) -> bool:
        """Whether a task that was announced may have so many bytes more here."""
        cache = self._contents.cache
        there = sum(one.announced_size for one in self._announced.values())
        if cache is None or there + size > cache.limit // _SHARE:
            return False
        task.announced_size += size
        return True

    def _is_awaited(self) -> bool:
        """Whether a task waits for something on its way."""
        return (
            any(not request.is_early for request, _ in self._wants.values())
            or any(not request.is_early for download in self._downloads.values() for request, _ in download.waiting)
            or self._urls.is_awaited()
        )

    def _say_want(self, number: int, request: StagingRequest, path: str) -> None:
        """Ask the server where something is; before, it is told where we are: others can stand in a chain behind us."""
        if self._contents.transfers is not None and self._contents.transfers.is_beginning:
            self._unsaid.append(number)
            return
        record = RecordId(0)
        if isinstance(request, AnnouncedTask):
            if path in request.contents:
                self._say(FindPeers(number, *request.contents[path]))
                return
            record = request.record
        seen = request.urls.get(path)
        url = seen.state() if seen is not None else None
        message = request.message
        self._say(WantFile(number, message.span, message.index, path, url, request.is_early, record))

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
        self._drop_waits(lambda one: one is request)
        self._unpin(request.owner)

    def _drop_waits(self, is_dropped: Callable[[StagingRequest], bool]) -> None:
        """Some requests wait for nothing any more. What is on its way for them comes all the same."""
        self._wants = {number: want for number, want in self._wants.items() if not is_dropped(want[0])}
        for download in self._downloads.values():
            download.waiting = [want for want in download.waiting if not is_dropped(want[0])]
        self._urls.drop(is_dropped)

    def _unpin(self, owner: object) -> None:
        """What an owner needs no more is not pinned; of that, what is not kept for others goes."""
        if self._contents.cache is not None:
            for digest in self._contents.cache.unpin(owner):
                if digest in self._passing:
                    self._passing.discard(digest)
                    self._contents.cache.forget(digest)

    def _ask(self, request: StagingRequest, path: str) -> None:
        if self._alone and site_file(path)[0]:
            self._fail(request, f"{path} lies at a site, and this session has no server that could bring it from there")
            return
        number = self._contents.new_number()
        self._wants[number] = (request, path)
        self._say_want(number, request, path)

    def forget(self, worker: StagingWorker) -> None:
        """A worker has ended: drop what it waited for, and its sandboxes."""
        self._drop_waits(lambda one: one.worker is worker)
        self.outputs.forget(worker)
        self._newest.pop(worker, None)
        self._unpin(worker)
        if self.directories:
            remove_tree(self.sandbox_of(worker.name))

    def close(self) -> None:
        """The executor ends."""
        self._contents.close()
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
            case CheckContent() | PeerIdentity() | ListShared() | InputsAnnounced() | DropContent():
                self._serve(message)
            case SeeSiteFile():
                self._see_site_file(message)
            case GetPiece():
                self._say(self.outputs.piece(message))
            case WrittenBack():
                self.outputs.written_back(message.request)
            case FilesKept():
                self.outputs.kept(message)

    def _serve(self, message: CheckContent | PeerIdentity | ListShared | InputsAnnounced | DropContent) -> None:
        """The server says something of contents that no task here wants now."""
        if isinstance(message, InputsAnnounced):
            self._announce(message)
            return
        if isinstance(message, ListShared):
            self._be_ready()
        if self._contents.transfers is None:
            return
        if isinstance(message, ListShared):
            self._contents.transfers.say(ListStore())
            return
        if isinstance(message, DropContent):
            self._drop_content(message.digest)
            return
        if isinstance(message, CheckContent):
            self._contents.transfers.say(CheckCopy(message.digest))
        else:
            self._contents.transfers.say(ServeAs(message.certificate, message.key, message.secret, message.readers))

    def _see_site_file(self, message: SeeSiteFile) -> None:
        """Another site reads a file of this one's storage: have it in the cache, from where others take it."""
        number = message.request
        request = SiteFileRequest(
            number, message.name, lambda size: self._say(SiteFileSeen(number, size=max(0, size), comes=True))
        )
        if not site_file(message.name)[0]:
            self._fail(request, f"{message.name} is no file of a site")
            return
        try:
            self._contents.open()
        except (OSError, SiteError) as error:
            self._fail(request, f"the cache cannot be used: {error}")
            return
        if self._contents.transfers is not None:
            self._contents.transfers.start()
        self._urls.look(request, message.name)

    def _be_ready(self) -> None:
        """Files will travel: open the cache, and let others reach it."""
        with contextlib.suppress(OSError, SiteError):  # it is said when a task needs something
            self._contents.open()
            if self._contents.transfers is not None:
                self._contents.transfers.start()

    def _drop_content(self, digest: bytes) -> None:
        """The last reader of a content is done; what a task still has here stays as long."""
        self.outputs.let_go(digest)
        if self._contents.cache is not None:
            self._contents.cache.forget(digest)
            if self._contents.cache.is_pinned(digest):
                self._dropped.add(digest)

    def make_space(self, worker: StagingWorker, element: tuple[int, int], began: Seconds, *, alone: bool) -> Shortage:
        """A worker's task ended because the disk is full: what no running task has may come again.

        That is what this task had, too, and what was brought early. `began`: 0 if it did not. `alone`: nothing else
        runs in this executor now.
        """
        now, cache, request = time.time(), self._contents.cache, self._newest.get(worker)
        if request is None or request.element != element:
            request = None
        ran, began = began > 0, began or (request.begun if request is not None else now - _SHORT)
        alone = alone and not self._folder.has_busy_neighbour()
        if cache is None:
            return Shortage(0, spaces_of([(self._folder.folder, 0)]), began, now, alone=alone, evicted=0, ran=ran)
        self._unpin(worker)
        for early in (*self._placed.values(), *self._announced.values()):
            self._drop_request(early)
        self._placed.clear()
        self._announced.clear()
        own = request.sizes if request is not None else {}
        before = sum(size for digest, size in cache.contents().items() if digest not in own)
        cache.make_space(b"")
        there = cache.contents()
        evicted = before - sum(size for digest, size in there.items() if digest not in own)
        held = sum(size for digest, size in own.items() if digest in there)  # an output of another task, for readers
        disks = spaces_of([(self._folder.folder, 0), (cache.folder, held)])
        size = request.size if request is not None else 0
        return Shortage(size, disks, began, now, alone=alone, evicted=max(0, evicted), ran=ran)

    def _is_short_of_space(self) -> bool:
        """Whether the disk was full a moment ago: what runs needs it more than what may run."""
        return self.was_full_since(time.time() - _SHORT)

    def was_full_since(self, when: float) -> bool:
        """Whether space came free on this host since then where there was none."""
        return self._contents.cache is not None and self._contents.cache.was_full_since(when)

    def rests(self, worker: StagingWorker) -> None:
        """A worker has ended what it had: its inputs are not needed any more."""
        if self._contents.cache is None:
            return
        self._unpin(worker)
        for digest in [digest for digest in self._dropped if not self._contents.cache.is_pinned(digest)]:
            self._dropped.discard(digest)
            self._contents.cache.forget(digest)

    def resume(self) -> None:
        """The server is back: ask again for what did not come.

        What it asked itself it asks again if it still needs that. A server that was begun again counts its questions
        anew, and would take the answer to an old one for that to a new one.
        """
        self._drop_waits(lambda one: isinstance(one, SiteFileRequest))
        for number, (request, path) in self._wants.items():
            self._say_want(number, request, path)
        for download in self._downloads.values():
            if download.find is not None:
                self._say(download.find)
            for offset in sorted(download.pieces):
                self._say(GetPiece(download.number, download.digest, offset, PIECE))
        if self._offer is not None:
            self._say(self._offer)
        self._report_all()
        if self._told.shared_dir:
            self._say(CacheReport(shared=True))
        self.outputs.resume()

    def _report_all(self) -> None:
        """Say all that the cache of this host has."""
        if self._contents.cache is None:
            from bough.executor.files.transfers.transfer_client import cache_options

            contents = cache_options(self._told).contents()
            if not contents:
                return
        else:
            contents = list(self._contents.cache.contents().items())
        for start in range(0, max(1, len(contents)), _REPORTED):
            self._say(CacheReport(added=contents[start : start + _REPORTED], whole=start == 0))

    def _located(self, message: FileLocated) -> None:
        download = self._downloads.get(message.request)
        if download is not None:
            if download.find is not None and self._contents.transfers is not None:
                download.find = None
                self._contents.transfers.say(MorePeers(download.number, message.peers))
            return
        want = self._wants.pop(message.request, None)
        if want is None:
            if message.size >= SMALL and message.digest not in self._coming:  # the server takes us for a reader
                self._say(CacheReport(ended=[message.digest]))
            return
        request, path = want
        if message.error and request.is_early and is_url(path):
            return  # it is looked at again when the task begins, and said then
        if message.error:
            self._fail(request, message.error, lost=path if message.lost else "")
        elif message.again:
            self._ask(request, path)
        elif message.fetch:
            self._urls.fetch(request, path, fresh=message.fresh)
        else:
            self._bring(request, path, message)

    def _bring(self, request: StagingRequest, path: str, message: FileLocated) -> None:
        """Have a content brought from where the server has said that it is."""
        if message.folder:
            request.folders.append(path)
        peers = message.peers
        is_fresh = message.fresh or path in request.message.fresh  # it is sent for each task, whoever has it
        if is_fresh and self._contents.cache is not None:
            self._contents.cache.forget(message.digest)
            peers = []
        if message.fresh:
            self._passing.add(message.digest)
        if self._contents.transfers is not None:
            self._contents.transfers.want(message.digest, message.wanted)
        self._want_content(request, path, message.digest, message.size, peers)

    def _want_content(
        self, request: StagingRequest, path: str, digest: bytes, size: int, peers: list[PeerHint] | None
    ) -> None:
        """Give a task a content; `peers`: as the server named them, None: it was not asked."""
        fresh = path in request.message.fresh
        assert self._contents.cache is not None
        assert self._contents.transfers is not None
        request.note_found(path, digest, size)
        disk = self._contents.cache.disk_size()
        if request.size > disk:  # it need not be tried: whatever goes from there, they do not fit
            inputs, whole = show_bytes(request.size), show_bytes(disk)
            why = f"its inputs have {inputs} or more, and the whole disk of {self._contents.cache.folder} has {whole}"
            self._say(CacheReport(ended=[digest]))  # nobody is to wait for what would come here
            self._fail(request, why, of_site=True)
            return
        self._dropped.discard(digest)
        place = self._hold(request, digest, size)
        if place:
            self._count(request, path, digest, size, Came(origin=size) if path in request.fetched else None)
            request.fetched.discard(path)
            if peers is not None and size >= SMALL:  # nothing is taken from them, or from the server
                self._say(CacheReport(ended=[digest]))
            self._got(request, path, place)
            return
        download = self._coming.get(digest)
        if download is not None:
            download.waiting.append((request, path))
            return
        number = self._contents.new_number()
        download = self._downloads[number] = self._coming[digest] = Download(digest, size, number)
        download.waiting.append((request, path))
        self._contents.transfers.order(BringContent(number, digest, size, peers or [], fresh))

    def _got_url(self, request: StagingRequest, url: str, digest: bytes, size: int) -> None:
        """What is at a URL is in the cache."""
        if isinstance(request, SiteFileRequest):
            self._unpin(request)
            self._say(SiteFileSeen(request.number, digest, size, folder=url in request.folders))
            return
        self._want_content(request, url, digest, size, None)

    def _hold(self, request: StagingRequest, digest: bytes, size: int) -> str:
        """Where a content lies, if it is here; it stays as long as its task needs it, unless that may only come."""
        assert self._contents.cache is not None
        if isinstance(request, AnnouncedTask):
            return self._contents.cache.path(digest) if self._contents.cache.has(digest, size) else ""
        return self._contents.cache.pin(digest, request.owner, size)

    @staticmethod
    def _count(request: StagingRequest, path: str, digest: bytes, size: int, came: Came | None) -> None:
        """A task has a content; `came`: how that was brought for it, None: it was here.

        What comes early and is looked for once more when its task begins counts then, as what it was.
        """
        if isinstance(request, AnnouncedTask) or (request.is_early and is_url(path)):
            if came is not None:
                request.came[digest] = came
            return
        came = came or request.take_came(digest)
        if came is None:
            request.count(cached=size)
        else:
            request.count(peers=came.peers, origin=came.origin, shared=came.shared)

    def _arrived(self, message: FilePiece) -> None:
        download = self._downloads.get(message.request)
        if download is not None and self._contents.transfers is not None:
            download.pieces.discard(message.offset)
            self._contents.transfers.say(OriginPiece(download.number, message.offset, message.data, message.error))

    # --- from the transfer process -----------------------------------------------------------------

    def _hear_transfers(self, messages: list[FromTransfers]) -> None:
        report = CacheReport([], [], [], [], [])
        urls: list[UrlSeen | UrlFetched] = []
        for message in messages:
            match message:
                case NeedPiece() | NeedPeers():
                    self._need(message)
                case ContentBrought():
                    self._brought(message, report)
                case OutputSeen():
                    self.outputs.seen(message)
                case CacheEvents():
                    report.added.extend(message.added)
                    report.removed.extend(message.removed)
                case SharedEvents():
                    self._say(CacheReport(message.added, message.removed, whole=message.whole, shared=True))
                case UrlSeen() | UrlFetched():
                    urls.append(message)
                case Listening():
                    self._listens(message)
        if report != _NOTHING:
            self._say(report)
        self._urls.hear(urls)  # the server sends others here for a content as soon as it knows what is at the URL

    def _listens(self, message: Listening) -> None:
        """Others can reach us there, or cannot: now the server may know what we want."""
        self._offer = OfferPeer(message.address, message.port) if message.port else None
        if self._offer:
            self._say(self._offer)
        unsaid, self._unsaid = self._unsaid, []
        for number in dict.fromkeys(unsaid):
            if number in self._wants:
                self._say_want(number, *self._wants[number])

    def _need(self, message: NeedPiece | NeedPeers) -> None:
        """The server is to be asked for something."""
        download = self._downloads.get(message.number)
        if download is None:
            return
        if isinstance(message, NeedPiece):
            download.pieces.add(message.offset)
            self._say(GetPiece(download.number, download.digest, message.offset, PIECE))
        else:
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
                if request.asked < _ASKED and not message.of_site:  # who had it may have gone: there may be others
                    request.asked += 1
                    self._urls.ask_origin(request, path)
                    self._ask(request, path)
                else:
                    self._fail(request, f"{path}: {message.error}", of_site=message.of_site, full=message.full)
            return
        self._give_out(download, message)

    def _give_out(self, download: Download, message: ContentBrought) -> None:
        """A content is here, for all who wait for it."""
        assert self._contents.cache is not None
        assert self._contents.transfers is not None
        if not download.waiting:  # one that is too big for the cache is nobody's then
            self._contents.cache.pin(download.digest, download)
            self._unpin(download)
        origin = sum(one.size for one in message.moved if not one.source)
        again: list[tuple[StagingRequest, str]] = []
        peers = max(0, download.size - origin - message.shared)  # what was wrong, or removed, may have come twice
        came: Came | None = Came(peers, origin, message.shared)
        for request, path in download.waiting:
            place = self._hold(request, download.digest, download.size)
            if place:
                self._count(request, path, download.digest, download.size, came)
                came = None
                self._got(request, path, place)
            elif not isinstance(request, AnnouncedTask):
                again.append((request, path))
        self._bring_announced()
        if not again:
            return
        if download.tries >= _AGAIN:
            for request, path in again:
                self._fail(request, f"{path}: it is evicted whenever it comes: give the cache more room", of_site=True)
            return
        number = self._contents.new_number()
        download.number, download.tries, download.waiting = number, download.tries + 1, again
        self._downloads[number] = self._coming[download.digest] = download
        self._contents.transfers.order(BringContent(number, download.digest, download.size, []))

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

    def _fail(
        self, request: StagingRequest, error: str, *, of_site: bool = False, lost: str = "", full: bool = False
    ) -> None:
        request.has_failed = True
        self._drop_waits(lambda one: one is request)
        if isinstance(request, AnnouncedTask):
            return
        if isinstance(request, SiteFileRequest):
            self._say(SiteFileSeen(request.number, error=error))
            return
        if request.worker is None:  # it is asked for again when the task begins, and said then
            self._placed.pop(request.element, None)
            self._unpin(request.owner)
            return
        said = InputsStaged(request.message.number, request.message.index, {}, error, of_site, lost=lost, full=full)
        self._tell(request.worker, said)

    def _tell(self, worker: StagingWorker, message: InputsStaged | OutputsStored) -> None:
        worker.send([message])


def _say_nothing(_: object) -> None:
    """In the place of what tells a server that knows no contents."""


def sees(place: WorkDirectory) -> bool:
    """Whether a workflow's directory is seen here: its token file is."""
    if not place.token:
        return not place.directory  # it has none: its commands say themselves where they run
    try:
        with open(f"{place.directory}/.bough/token", encoding="utf-8") as file:
            return file.read(200).strip() == place.token
    except (OSError, UnicodeDecodeError):
        return False
