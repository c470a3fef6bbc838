"""The protocol of declared files: what executors and clients say about them, and the answers.

Files come from clients, go to executors that do not see the submitter's directory, and come back from these.
`file_permissions` decides what a peer may have and leave; `stored_files` keeps the bytes. Rule: an output is reported
as kept only when its content is on the disk and, if this machine sees the submitter's directory, all outputs of its
task are in their places.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from bough import logs
from bough.errors import BoughError, StoreFailed, UserError
from bough.model.events.facts import CheckpointKept
from bough.model.events.news import (
    CacheChanged,
    OutputLost,
    OutputsWritten,
    WorkNews,
    WorkSucceeded,
)
from bough.model.events.orders import AnnounceInputs
from bough.model.files import hidden_path, is_remote, is_url, site_file
from bough.model.ids import ExecutorId, RecordId, Seconds, number_of
from bough.model.outcomes import Detail, Output
from bough.model.tasks import Dep, Kind, On
from bough.movers.content_store import IncomingContent
from bough.movers.local import ContentCopy
from bough.movers.peer_directory import SMALL
from bough.server.files.file_permissions import FilePermissions, TaskOnExecutor
from bough.server.files.known_inputs import KnownInputs
from bough.server.files.peer_sources import PeerSources
from bough.server.files.site_files import SiteFiles
from bough.server.files.stored_files import StoredFiles, os_error_text
from bough.server.files.url_contents import Fetcher, SeenContent, UrlContents
from bough.server.peer_connection import PeerConnection
from bough.server.peers import ClientPeer, DeferredRequest, ExecutorPeer, Handler
from bough.server.temporary_files import TemporaryFiles
from bough.server.turns.shell import Shell
from bough.wire import questions
from bough.wire.client_messages import Answer, Refused
from bough.wire.file_messages import (
    DIGEST,
    PIECE,
    STREAMS,
    CacheReport,
    DropContent,
    FileLocated,
    FilePiece,
    FilesKept,
    FindPeers,
    GetPiece,
    HeldOutputs,
    InputsAnnounced,
    MadeFile,
    OfferFiles,
    OfferPeer,
    PeersNamed,
    PutPiece,
    SiteFileSeen,
    UrlState,
    WantFile,
    WriteBack,
    WrittenBack,
)
from bough.wire.questions import Question

_AHEAD = 4  # pieces asked for before the first has come
_PIECE_LIMIT: Seconds = 300.0  # for one piece
_PATIENCE: Seconds = 10.0  # with a host that holds something and is not there
_LOOK_AGAIN: Seconds = 0.2
_ASK_AGAIN: Seconds = 10.0  # after which one that waits for what another fetches asks again: few requests are open
_PULLS = 1 << 40  # requests of the server's own are numbered from here
_MOST_FILES = 10_000  # outputs told in one answer
_MOST_ANNOUNCED = 1000  # inputs of a task that are brought early
_REMEMBERED = 64  # announced tasks of an executor, which keeps no more of them either


class AnnouncedTasks:
    """Tasks that were announced to executors and read something at URLs: the latest of each."""

    def __init__(self) -> None:
        self._tasks: dict[ExecutorId, dict[tuple[RecordId, int], None]] = {}

    def note(self, executor: ExecutorId, record: RecordId, index: int) -> None:
        """A task is announced."""
        mine = self._tasks.setdefault(executor, {})
        mine.pop((record, index), None)
        mine[record, index] = None
        if len(mine) > _REMEMBERED:
            del mine[next(iter(mine))]

    def has(self, executor: ExecutorId, record: RecordId, index: int) -> bool:
        """Whether an executor may ask for what a task reads."""
        return (record, index) in self._tasks.get(executor, ())

    def lost(self, executor: ExecutorId) -> None:
        """An executor disconnected."""
        self._tasks.pop(executor, None)


class InputLost(Exception):
    """An input that another task made is nowhere; it is made again."""


class FileRequests:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._files = StoredFiles(shell)
        self._permissions = FilePermissions(shell)
        self._sources = PeerSources(shell)
        shell.perform[AnnounceInputs] = self.announce
        self._announced = AnnouncedTasks()
        self._urls = UrlContents(self._files, shell.info.folder("files"), self._has_task)
        self.site_files = SiteFiles(shell, self._files, self._urls, shell.info.folder("files"))
        self.inputs = KnownInputs(shell, self._files, self._urls)
        self._pieces: dict[tuple[PeerConnection, int, int], asyncio.Future[FilePiece]] = {}
        self._tasks: dict[PeerConnection, set[asyncio.Task[None]]] = {}
        self._uploads: dict[tuple[PeerConnection, bytes], _Upload] = {}
        self._pulls: dict[bytes, asyncio.Task[None]] = {}  # contents that come from hosts which hold them
        self._last_pull = 0
        self._unreachable: set[bytes] = set()  # contents that no host gave: they count as lost until they come again
        self._makers: dict[bytes, str] = {}  # of contents that hosts hold: which made them
        permissions = self._permissions
        self.temporary = TemporaryFiles(shell, permissions.made, permissions.sees_directory_of, self._drop_content)
        self.handlers: dict[type[Question[Any]], Handler] = {
            questions.Have: self._answered_by(self._have),
            questions.Piece: self._answered_by(self._piece),
            questions.Files: self._answered_by(self._outputs),
        }

    # --- what peers say ----------------------------------------------------------------------------

    def hear(self, executor: ExecutorPeer, message: object) -> bool:
        """Take a message of an executor; whether it was about files."""
        match message:
            case WantFile():
                self._begin(executor.connection, self._locate(executor, message))
            case GetPiece():
                self._begin(executor.connection, self._send_piece(executor, message))
            case OfferFiles():
                self._begin(executor.connection, self._take(executor, message))
            case WriteBack():
                self._begin(executor.connection, self._write_back(executor, message))
            case FindPeers():
                self._begin(executor.connection, self._find_peers(executor, message))
            case OfferPeer() | CacheReport() | SiteFileSeen() | PeersNamed():
                self._hear_of_contents(executor, message)
            case FilePiece():
                waiting = self._pieces.pop((executor.connection, message.request, message.offset), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
            case _:
                return False
        return True

    def _hear_of_contents(
        self, executor: ExecutorPeer, message: OfferPeer | CacheReport | SiteFileSeen | PeersNamed
    ) -> None:
        """An executor says what others can have of it."""
        match message:
            case OfferPeer():
                self._sources.offered(executor, message)
            case CacheReport():
                self._sources.reported(executor, message)
            case SiteFileSeen():
                self.site_files.seen(executor, message)
            case PeersNamed():
                self._sources.named(executor, message)

    def put(self, client: ClientPeer, message: PutPiece) -> None:
        """Take a piece of a file that commands will read."""
        self._begin(client.connection, self._put(client.connection, message))

    def on_lost(self, peer: PeerConnection) -> None:
        """A peer disconnected: what was done for it ends."""
        self.site_files.lost(peer)
        for task in self._tasks.pop(peer, set()):
            task.cancel()
        for place in [place for place in self._pieces if place[0] is peer]:  # others may wait for what comes from it
            waiting = self._pieces.pop(place)
            if not waiting.done():
                waiting.set_exception(StoreFailed("the executor that was sending it has gone"))
        for key in [key for key in self._uploads if key[0] is peer]:
            self._uploads.pop(key).drop()

    def lost(self, executor: ExecutorId) -> None:
        """An executor disconnected, or was silent for too long: nobody is sent to it."""
        self._sources.gone(executor)
        self._urls.lost(executor)
        self._announced.lost(executor)

    def _begin(self, peer: PeerConnection, work: Coroutine[Any, Any, None]) -> None:
        task = self._shell.loop.create_task(self._contained(peer, work))
        mine = self._tasks.setdefault(peer, set())
        mine.add(task)
        task.add_done_callback(mine.discard)

    async def _contained(self, peer: PeerConnection, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 -- it concerns the peer whose files these are and no other
            self._shell.handler_errors.concern(peer, "a message about files", error)

    # --- inputs of executors -----------------------------------------------------------------------

    async def _locate(self, executor: ExecutorPeer, want: WantFile) -> None:
        try:
            task = self._task_of(executor.number, want)
            if site_file(want.path)[0] and not want.record:
                self._permissions.check_url(task, want.path)
                answer = await self._locate_site_file(executor, task, want)
            elif is_url(want.path) and want.url is not None:
                self._permissions.check_url(task, want.path)
                answer = await self._locate_url(executor, task, want, want.url)
            elif want.record:
                raise UserError("of a task that was announced, only what is at URLs can be asked for")
            else:
                answer = await self._locate_file(executor, task, want)
        except InputLost as error:
            answer = FileLocated(want.request, error=f"{want.path}: {error}", lost=True)
        except (BoughError, OSError) as error:
            answer = FileLocated(want.request, error=f"{want.path}: {os_error_text(error)}")
        executor.connection.send(answer)

    def _task_of(self, executor: ExecutorId, want: WantFile) -> TaskOnExecutor:
        """The task for which an executor wants something; UserError when it is not with it, nor was announced to it."""
        if not want.record:
            return self._permissions.task_of(executor, want.span, want.index)
        is_known = self._announced.has(executor, want.record, want.index)
        if not is_known or not self._shell.queries.can_find(want.record):
            raise UserError("the task was not announced to this executor, or is over")
        return self._permissions.task(want.record, want.index)

    async def _locate_file(self, executor: ExecutorPeer, task: TaskOnExecutor, want: WantFile) -> FileLocated:
        files, permissions = self._files, self._permissions
        folder = False
        if permissions.is_value(task, want.path):
            digest, _ = await files.bring_in(want.path)
        elif is_url(want.path):
            permissions.check_url(task, want.path)
            digest = await self._urls.bring_in(want.path)
        else:
            found = permissions.digest_of(task, want.path)
            digest = found if found is not None else await self._bring_in(task, want.path)
            folder = permissions.is_folder(task, want.path)
        size = files.size_now(digest)  # a thread would cost more than looking
        if size < 0:
            size = await self._size_held(task, want.path, digest)
        located = await self._located(executor, task, want, digest, size)
        return replace(located, folder=True) if folder else located

    async def _located(
        self,
        executor: ExecutorPeer,
        task: TaskOnExecutor,
        want: WantFile,
        digest: bytes,
        size: int,
        *,
        is_there: bool = False,
    ) -> FileLocated:
        """The answer for a content that the store or a host has; `is_there`: the executor's host has it."""
        files = self._files
        temporary = not files.has(digest) or files.is_temporary(digest)
        await files.refer(task.run, [digest], temporary=temporary)
        self.inputs.identify(task.run, [(want.path, digest, size)])
        fresh = not self._shell.queries.uses_caches
        peers = [] if fresh or is_there else await self._sources.hints(executor, digest, size)
        wanted = self._shell.queries.waiting_readers(digest)
        return FileLocated(want.request, digest, size, peers=peers, wanted=wanted, fresh=fresh)

    async def _locate_site_file(self, executor: ExecutorPeer, task: TaskOnExecutor, want: WantFile) -> FileLocated:
        """Where a file of another site's storage is to be had, which is read where that site's storage is not."""
        seen = await self.site_files.see(want.path)
        self._permissions.task_of(executor.number, want.span, want.index)  # it may have been cancelled meanwhile
        self._unreachable.discard(seen.digest)
        return replace(await self._located(executor, task, want, seen.digest, seen.size), folder=seen.folder)

    # --- what is at URLs ---------------------------------------------------------------------------

    async def _locate_url(
        self, executor: ExecutorPeer, task: TaskOnExecutor, want: WantFile, seen: UrlState
    ) -> FileLocated:
        """Where what an executor has seen at a URL is to be had: from others, or from there."""
        early = want.early or want.record > 0
        me = Fetcher(executor.number, want.span, want.index, task.record, early)
        if len(seen.digest) == DIGEST:
            await self._note_fetched(me, want.path, seen)
            return await self._located(executor, task, want, seen.digest, seen.size, is_there=True)
        fresh = not self._shell.queries.uses_caches
        if fresh or not seen.mark:
            return FileLocated(want.request, fetch=True, fresh=fresh)
        until = self._shell.loop.time() + _ASK_AGAIN
        while True:
            known = self._urls.content(want.path, seen.mark)
            if known is not None and self._is_to_be_had(executor, *known):
                return await self._located(executor, task, want, *known)
            if self._urls.begin(want.path, seen.mark, me, self._shell.loop.time()):
                return FileLocated(want.request, fetch=True)
            if self._shell.loop.time() > until:
                return FileLocated(want.request, again=True)
            await self._urls.wait(want.path, seen.mark)
            self._task_of(executor.number, want)  # it may have been cancelled meanwhile

    async def _note_fetched(self, fetcher: Fetcher, url: str, seen: UrlState) -> None:
        """An executor has fetched what is at a URL. It has reported the content before."""
        turned = asyncio.Event()
        self._shell.after_turn(turned.set)
        await turned.wait()  # its host is known to hold it now
        self._unreachable.discard(seen.digest)
        self._urls.note(url, SeenContent(seen.mark, seen.digest, seen.size))
        self._urls.end(url, fetcher)

    def _has_task(self, one: Fetcher) -> bool:
        """Whether an executor still has the task for which it fetches something, or may get it."""
        if not one.span:
            return self._announced.has(one.executor, one.record, one.element)
        return self._shell.queries.attempt_of(one.executor, one.span, one.element) is not None

    def _is_to_be_had(self, executor: ExecutorPeer, digest: bytes, size: int) -> bool:
        """Whether an executor can have a content from others than its origin."""
        queries = self._shell.queries
        if self._files.has(digest) or queries.store_has(executor.hello.site, digest):
            return True
        if digest in self._unreachable:
            return False
        for holder in queries.holders_of(digest):
            for number in holder.executors:
                peer = self._shell.peers.executors.get(ExecutorId(number))
                if peer is not None and (not peer.is_relay or (size >= SMALL and self._sources.can_give(peer))):
                    return True  # what is behind a relay only peers give, and only what is not small
        return False

    # --- inputs of tasks that may come -------------------------------------------------------------

    def announce(self, order: AnnounceInputs) -> None:
        """Tell a busy executor what a task that may come next reads."""
        executor = self._shell.peers.executors.get(order.executor)
        if executor is not None and not executor.is_relay:
            self._begin(executor.connection, self._announce(executor, order))

    async def _announce(self, executor: ExecutorPeer, order: AnnounceInputs) -> None:
        queries = self._shell.queries
        if not queries.can_find(order.record):
            return
        contents: list[tuple[bytes, int]] = []
        try:
            task = self._permissions.task(order.record, order.index)
            always = self._permissions.always_sent(task)
            every = queries.file_paths(task.run, order.files[:_MOST_ANNOUNCED])
            paths = [path for path in every if path not in always]
            urls = [path for path in paths if is_remote(path)] if queries.uses_caches else []
            is_function = task.spec.kind is Kind.FUNCTION
            if not executor.shared and (is_function or task.run in executor.directories_sent):
                contents = await self._contents_of(task, [path for path in paths if not is_url(path)])
        except (BoughError, OSError):
            return  # it is said when the task begins
        if urls:
            self._announced.note(executor.number, order.record, order.index)
        if contents or urls:
            run = 0 if is_function else task.run
            executor.connection.send(InputsAnnounced(order.record, order.index, contents, urls, run))

    async def _contents_of(self, task: TaskOnExecutor, paths: Iterable[str]) -> list[tuple[bytes, int]]:
        """What some inputs of a task hold, as far as it is here or at hosts: digests and sizes."""
        contents: list[tuple[bytes, int]] = []
        for path in paths:
            found = self._permissions.digest_of(task, path)
            digest = found if found is not None else await self._bring_in(task, path)
            size = await self._files.size(digest)
            if size >= 0:
                contents.append((digest, size))
                self.inputs.identify(task.run, [(path, digest, size)])
        return contents

    async def _is_in_place(self, run: int, output: Output) -> bool:
        """Whether a kept output could be read from its place, and is here now."""
        if not output.kept or not self._permissions.sees_directory_of(run):
            return False
        with contextlib.suppress(OSError, BoughError):
            return (await self._files.bring_in(output.path))[0] == output.digest
        return False

    async def _size_held(self, task: TaskOnExecutor, path: str, digest: bytes) -> int:
        """The bytes of a content that only hosts have; InputLost when none has it, and it is to be made again."""
        made = self._permissions.made_for(task.record, task.index, path)
        if made is None:
            raise StoreFailed(f"its content {digest.hex()} is not in the store any more")
        if self._shell.queries.holders_of(digest) and digest not in self._unreachable:
            return made.output.size
        if await self._is_in_place(task.run, made.output):
            return self._files.size_now(digest)
        self.temporary.say_lost(made, self._makers.pop(digest, ""))
        raise InputLost("all copies of it are lost; it is made again")

    async def _pull(self, digest: bytes, size: int) -> None:
        """Bring a content here that only hosts have; those that want it at the same time wait for one transfer."""
        under_way = self._pulls.get(digest)
        if under_way is None:
            under_way = self._pulls[digest] = self._shell.loop.create_task(self._pull_from_any(digest, size))
            under_way.add_done_callback(lambda _: self._pulls.pop(digest, None))
        await asyncio.shield(under_way)

    async def _pull_from_any(self, digest: bytes, size: int) -> None:
        patience = self._shell.loop.time() + _PATIENCE
        while holders := self._shell.queries.holders_of(digest):
            numbers = [ExecutorId(number) for holder in holders for number in holder.executors]
            there = [one for number in numbers if (one := self._shell.peers.executors.get(number)) is not None]
            for executor in there:
                if await self._pull_from(executor, digest, size):
                    return
            if len(there) == len(numbers) or self._shell.loop.time() > patience:
                break
            await asyncio.sleep(_LOOK_AGAIN)  # its host may be back in a moment
        if len(self._unreachable) >= _MOST_FILES:
            self._unreachable.clear()
        self._unreachable.add(digest)
        raise StoreFailed(f"no host has the content {digest.hex()} any more")

    async def _pull_from(self, executor: ExecutorPeer, digest: bytes, size: int) -> bool:
        if executor.is_relay:
            return False
        self._last_pull += 1
        try:
            await self._fetch(executor, _PULLS + self._last_pull, MadeFile("", digest, size))
        except (BoughError, OSError) as error:
            logs.warning("content-not-held", f"executor {executor.number} does not give {digest.hex()}: {error}")
            self._shell.news(CacheChanged(executor.number, removed=(digest,)))
            return False
        return True

    async def _find_peers(self, executor: ExecutorPeer, find: FindPeers) -> None:
        """Others for a reader whose sources have failed."""
        peers = await self._sources.hints(executor, find.digest, find.size, find.failed)
        executor.connection.send(FileLocated(find.request, find.digest, find.size, peers=peers))

    async def _bring_in(self, task: TaskOnExecutor, path: str) -> bytes:
        """The content of an input that lies in its place."""
        if self._shell.queries.is_made_again(task.record, task.index):
            made = self._permissions.made_for(task.record, task.index, path)
            if made is None and not os.path.lexists(path):
                raise InputLost("it is lost, and being made again")
        if not self._permissions.sees_directory_of(task.run):
            why = "it was not sent to the server, which does not see the submitter's directory"
            raise UserError(f"{why}; of a folder that a task makes it has the whole: declare the folder")
        try:
            digest, _ = await self._files.bring_in(path)
        except FileNotFoundError:
            made = self._permissions.made_for(task.record, task.index, path)
            if made is None:
                raise
            self.temporary.say_lost(made)
            raise InputLost("it is not there any more; it is made again") from None
        return digest

    async def _send_piece(self, executor: ExecutorPeer, get: GetPiece) -> None:
        try:
            if not self._files.has(get.digest):
                await self._pull(get.digest, self._shell.queries.content_size(get.digest))
            data = await self._files.read(get.digest, get.offset, get.length)
            answer = FilePiece(get.request, get.offset, data)
        except (BoughError, OSError) as error:
            answer = FilePiece(get.request, get.offset, b"", os_error_text(error))
        executor.connection.send(answer)

    # --- outputs of executors ----------------------------------------------------------------------

    async def _take(self, executor: ExecutorPeer, offer: OfferFiles) -> None:
        files, permissions = self._files, self._permissions
        try:
            task = permissions.task_of(executor.number, offer.span, offer.index)
            if [made.path for made in offer.files] == [""] and task.spec.kind is Kind.FUNCTION:
                executor.connection.send(await self._take_result(executor, offer, task))
                return
            if offer.files and all(made.path in STREAMS for made in offer.files):
                executor.connection.send(await self._take_streams(executor, offer, task))
                return
            permissions.check_outputs(task, [made.path for made in offer.files])
            times = [0] * len(offer.files)
            is_temporary = not task.spec.limits.keep and [made.path for made in offer.files] != [task.checkpoint]
            if is_temporary and not offer.must and self._sources.can_hold(executor):
                self._makers.update((made.digest, f"host {executor.hello.host}") for made in offer.files)
                self._unreachable.difference_update(made.digest for made in offer.files)
                self.inputs.identify(task.run, [(made.path, made.digest, made.size) for made in offer.files])
                executor.connection.send(FilesKept(offer.request, times, held=True))
                return
            await files.refer(task.run, [made.digest for made in offer.files], temporary=is_temporary)
            await files.collect(
                [(made.digest, data) for made, data in zip(offer.files, offer.along, strict=False) if data]
            )
            for made in offer.files:
                if not files.has(made.digest):
                    await self._fetch(executor, offer.request, made)
            if not is_temporary and permissions.sees_directory_of(task.run):
                permissions.task_of(executor.number, offer.span, offer.index)  # it may have been cancelled meanwhile
                times = await files.give_out([_copy(task, made) for made in offer.files])
            if task.checkpoint and [made.path for made in offer.files] == [task.checkpoint]:
                self._shell.news(CheckpointKept(task.record, task.index, offer.files[0].digest))
            self.inputs.identify(task.run, [(made.path, made.digest, made.size) for made in offer.files])
            answer = FilesKept(offer.request, times)
        except (BoughError, OSError) as error:
            text = os_error_text(error)
            logs.warning(
                "outputs-not-kept", f"executor {executor.number}: outputs of span {offer.span} are not kept: {text}"
            )
            answer = FilesKept(offer.request, error=text)
        executor.connection.send(answer)

    # --- outputs that are written back after their tasks -------------------------------------------

    def note_held(self, executor: ExecutorPeer, news: Sequence[WorkNews]) -> Sequence[WorkNews]:
        """Tasks succeeded whose outputs an executor holds: readers are sent there. The news as they are to be kept.

        A time of change counts only where this machine will see the file in its place.
        """
        return [self._with_held(executor, one) if type(one) is WorkSucceeded and one.details else one for one in news]

    def _with_held(self, executor: ExecutorPeer, news: WorkSucceeded) -> WorkSucceeded:
        held = [made for detail in news.details for made in detail.outputs if made.later]
        attempt = self._shell.queries.attempt_of(executor.number, news.span, news.start) if held else None
        if attempt is None or not self._shell.queries.may_write_later(attempt.record, news.start, news.stop):
            return news
        run = self._shell.queries.run_of(attempt.record)
        self._makers.update((made.digest, f"host {executor.hello.host}") for made in held)
        self._unreachable.difference_update(made.digest for made in held)
        self.inputs.identify(run, [(made.path, made.digest, made.size) for made in held])
        if self._permissions.sees_directory_of(run):
            return news
        return replace(news, details=tuple([_elsewhere(detail) for detail in news.details]))

    async def _write_back(self, executor: ExecutorPeer, message: WriteBack) -> None:
        """Make outputs safe that were gathered; what cannot be is made again, and not later then."""
        turned = asyncio.Event()
        self._shell.after_turn(turned.set)
        await turned.wait()  # what the executor reported before is known now
        is_awaited = self._shell.queries.is_unsaved_with
        tasks = [one for one in message.tasks if is_awaited(executor.number, one.record, one.index, one.attempt)]
        failed = await self._write(executor, tasks)
        for one, reason in failed:
            logs.warning("outputs-not-kept", f"executor {executor.number}: outputs are not written back: {reason}")
            self._shell.news(OutputLost(one.record, one.index, f"its outputs cannot be written back: {reason}"[:500]))
        bad = {id(one) for one, _ in failed}
        safe = tuple([(one.record, one.index, one.attempt) for one in tasks if id(one) not in bad])
        for one in tasks:
            for made in one.files:
                self._makers.pop(made.digest, None)
        answer = WrittenBack(message.request)
        self._shell.news(OutputsWritten(executor.number, safe), then=lambda: executor.connection.send(answer))

    async def _write(self, executor: ExecutorPeer, tasks: Sequence[HeldOutputs]) -> list[tuple[HeldOutputs, str]]:
        """Write outputs, all at once; those that cannot be written, and why."""
        failed: list[tuple[HeldOutputs, str]] = []
        ready: list[tuple[HeldOutputs, list[tuple[bytes, ContentCopy]]]] = []
        for one in tasks:
            try:
                ready.append((one, await self._prepare(executor, one)))
            except (BoughError, OSError) as error:
                failed.append((one, os_error_text(error)))
        try:
            await self._files.write_together([file for _, files in ready for file in files])
        except (BoughError, OSError):  # it may be one of them only
            for one, files in ready:
                try:
                    await self._files.write_together(files)
                except (BoughError, OSError) as error:
                    failed.append((one, os_error_text(error)))
        return failed

    async def _prepare(self, executor: ExecutorPeer, held: HeldOutputs) -> list[tuple[bytes, ContentCopy]]:
        """What of a task's outputs is to be written to its place in one go; the rest is safe then."""
        files, task = self._files, self._permissions.task(held.record, held.index, held.attempt)
        self._permissions.check_outputs(task, [made.path for made in held.files])
        along = dict(zip((made.digest for made in held.files), held.along, strict=False))
        if not self._permissions.sees_directory_of(task.run):
            await files.refer(task.run, [made.digest for made in held.files])
            await files.collect([(digest, data) for digest, data in along.items() if data])
            for made in held.files:
                await self._hold_here(executor, made)
            return []
        together: list[tuple[bytes, ContentCopy]] = []
        for made in held.files:
            if along.get(made.digest) or not (made.size or made.folder):
                together.append((along.get(made.digest, b""), _copy(task, made)))
            else:
                await files.refer(task.run, [made.digest])
                await self._hold_here(executor, made)
                await files.give_out([_copy(task, made)])
        return together

    async def _hold_here(self, executor: ExecutorPeer, made: MadeFile) -> None:
        """Have a content here that an executor holds."""
        if not self._files.has(made.digest):
            self._last_pull += 1
            await self._fetch(executor, _PULLS + self._last_pull, made)

    def _drop_content(self, output: Output) -> None:
        """A temporary output has had its last reader."""
        if self._shell.queries.is_to_be_read(output.digest):
            return  # another file has the same content
        self._makers.pop(output.digest, None)
        for holder in self._shell.queries.holders_of(output.digest):
            for number in holder.executors:
                executor = self._shell.peers.executors.get(ExecutorId(number))
                if executor is not None:
                    executor.connection.send(DropContent(output.digest))
        self._files.drop_temporary(output.digest)

    async def _take_result(self, executor: ExecutorPeer, offer: OfferFiles, task: TaskOnExecutor) -> FilesKept:
        """A function's result that is too big to come with its report; one whose digest is known is a content."""
        made, files = offer.files[0], self._files
        name = f"{task.record}-{task.attempt}-{offer.span}-{offer.index}.x{executor.number}.pickle"
        path = f"{self._shell.info.folder('results')}/{name}"
        if len(made.digest) != DIGEST:
            await self._fetch(executor, offer.request, made, path)
        else:
            await files.refer(task.run, [made.digest])
            if not files.has(made.digest):
                await self._fetch(executor, offer.request, made)
            await files.give_name(made.digest, path)
        return FilesKept(offer.request, [0], places=[path])

    async def _take_streams(self, executor: ExecutorPeer, offer: OfferFiles, task: TaskOnExecutor) -> FilesKept:
        """What a command wrote to its streams, if that is too long to come with its report: contents like others."""
        files = self._files
        await files.refer(task.run, [made.digest for made in offer.files])
        for made in offer.files:
            if not files.has(made.digest):
                await self._fetch(executor, offer.request, made)
        places = [files.path(made.digest) for made in offer.files]
        return FilesKept(offer.request, [0] * len(places), places=places)

    async def _fetch(self, executor: ExecutorPeer, request: int, made: MadeFile, path: str = "") -> None:
        """Take a content from the executor that has it; `path`: to be kept there and not among the contents."""
        incoming = await self._files.receive(made.digest)
        waiting: dict[int, asyncio.Future[FilePiece]] = {}
        asked = 0
        try:
            while incoming.size < made.size:
                while asked < made.size and len(waiting) < _AHEAD:
                    future: asyncio.Future[FilePiece] = self._shell.loop.create_future()
                    waiting[asked] = self._pieces[executor.connection, request, asked] = future
                    executor.connection.send(GetPiece(request, made.digest, asked, PIECE))
                    asked += PIECE
                async with asyncio.timeout(_PIECE_LIMIT):  # `wait_for` would miss being cancelled as the piece arrives
                    piece = await waiting.pop(incoming.size)
                if piece.error or len(piece.data) != min(PIECE, made.size - incoming.size):
                    raise StoreFailed(piece.error or f"{made.path} became shorter on its way")
                await self._files.in_thread(incoming.write, piece.data)
            await self._files.in_thread(incoming.finish, path)
        except TimeoutError:
            incoming.drop()
            raise StoreFailed(f"the executor did not send {made.path}") from None
        except BaseException:
            incoming.drop()
            raise
        finally:
            for offset in waiting:
                self._pieces.pop((executor.connection, request, offset), None)

    # --- clients -----------------------------------------------------------------------------------

    async def _put(self, connection: PeerConnection, message: PutPiece) -> None:
        key = (connection, message.digest)
        try:
            upload = self._uploads.get(key)
            if upload is None:
                upload = self._uploads[key] = _Upload()
            async with upload.lock:  # pieces are written in the order in which they came
                if upload.incoming is None:
                    upload.incoming = await self._files.receive(message.digest)
                if message.offset != upload.incoming.size or self._uploads.get(key) is not upload:
                    raise StoreFailed("a piece of a file came out of order")
                await self._files.in_thread(upload.incoming.write, message.data)
                if upload.incoming.size >= message.size:
                    del self._uploads[key]
                    await self._files.in_thread(upload.incoming.finish)
        except (BoughError, OSError) as error:
            failed = self._uploads.pop(key, None)
            if failed is not None:
                failed.drop()
            connection.send(Refused(os_error_text(error), message.request, "StoreFailed"))
        else:
            connection.send(Answer(message.request, len(message.data)))

    def _answered_by(self, find: Callable[[Any], Coroutine[Any, Any, object]]) -> Handler:
        """A handler of a question that is answered when the disk has."""

        async def answer(deferred: DeferredRequest[Any]) -> None:
            try:
                deferred.answer(await find(deferred.question))
            except OSError as error:
                deferred.refuse(StoreFailed(os_error_text(error)))
            except Exception as error:  # noqa: BLE001 -- it concerns the client that asked and no other
                deferred.refuse(error)

        return lambda deferred: self._begin(deferred.client.connection, answer(deferred))

    async def _have(self, question: questions.Have) -> list[bytes]:
        """Those of some digests, to which a workflow refers from now on, whose content is here."""
        if not self._shell.queries.has_run(question.run):
            raise UserError(f"there is no workflow with the number {question.run}")
        await self._files.refer(question.run, question.digests)
        return await self._files.those_here(question.digests)

    async def _piece(self, question: questions.Piece) -> bytes:
        """A piece of a content, or of a big result."""
        if question.result:
            return await self._files.read_file(self._permissions.result_path(question.result), question.offset)
        if len(question.digest) != DIGEST:
            raise UserError(f"a piece is named by a digest of {DIGEST} bytes, or by the path of a result")
        return await self._files.read(question.digest, question.offset, PIECE)

    async def _outputs(self, question: questions.Files) -> list[tuple[str, int, bytes, bool, bool]]:
        """Outputs of elements [start, stop) of a record that the server keeps."""
        if not self._shell.queries.can_find(question.record):
            raise UserError(f"there is no task {number_of(question.record)}")
        stop = min(question.stop, question.start + _MOST_FILES)
        while self._shell.queries.is_unsaved(question.record, question.start, stop):
            await asyncio.sleep(_LOOK_AGAIN)  # they are on their way
        found = self._permissions.outputs(Dep(On.ARRAY, question.record), question.start, stop)
        run = self._shell.queries.find_run(question.record) or 0
        for made in found:
            if made.later and not self._files.has(made.digest):
                await self._is_in_place(run, made)
        kept = [made for made in found if made.digest and made.kept]
        return [(made.path, made.size, made.digest, made.folder, made.executable) for made in kept]


class _Upload:
    """A file on its way from a client."""

    def __init__(self) -> None:
        self.incoming: IncomingContent | None = None
        self.lock = asyncio.Lock()

    def drop(self) -> None:
        """Leave nothing."""
        if self.incoming is not None:
            self.incoming.drop()


def _copy(task: TaskOnExecutor, made: MadeFile) -> ContentCopy:
    hidden = hidden_path(made.path, task.record, task.index, task.attempt)
    return ContentCopy(made.digest, made.path, hidden, made.mode, made.folder, made.time)


def _elsewhere(detail: Detail) -> Detail:
    """The same of outputs whose places this machine does not see."""
    return replace(detail, outputs=tuple([replace(one, mtime_ns=0) if one.later else one for one in detail.outputs]))
