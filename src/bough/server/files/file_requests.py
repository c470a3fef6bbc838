"""The protocol of declared files: what executors and clients say about them, and the answers.

Files come from clients, go to executors that do not see the submitter's directory, and come back from these.
`file_permissions` decides what a peer may have and leave; `stored_files` keeps the bytes. Rule: an output is reported
as kept only when its content is on the disk and, if this machine sees the submitter's directory, all outputs of its
task are in their places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from bough import logs
from bough.errors import BoughError, StoreFailed, UserError
from bough.model.events.facts import CheckpointKept, Fact, Submitted
from bough.model.events.news import MOST_CONTENTS, FilesIdentified, IdentifiedFile, NamedContent
from bough.model.files import hidden_path, is_url
from bough.model.ids import FileId, RecordId, Seconds, number_of
from bough.model.tasks import Dep, Item, Kind, On
from bough.movers.content_store import IncomingContent
from bough.movers.local import ContentCopy
from bough.server.files.file_permissions import FilePermissions, TaskOnExecutor, declared_inputs, sent_inputs
from bough.server.files.peer_sources import PeerSources
from bough.server.files.stored_files import StoredFiles, os_error_text
from bough.server.files.url_contents import UrlContents
from bough.server.peer_connection import PeerConnection
from bough.server.peers import ClientPeer, DeferredRequest, ExecutorPeer, Handler
from bough.server.turns.shell import Shell
from bough.wire import questions
from bough.wire.client_messages import Answer, Refused
from bough.wire.file_messages import (
    DIGEST,
    PIECE,
    STREAMS,
    CacheReport,
    FileLocated,
    FilePiece,
    FilesKept,
    FindPeers,
    GetPiece,
    MadeFile,
    OfferFiles,
    OfferPeer,
    PutPiece,
    WantFile,
)
from bough.wire.questions import Question

_AHEAD = 4  # pieces asked for before the first has come
_MOST_EARLY = 1000  # inputs that are looked up while a submission is taken
_PIECE_LIMIT: Seconds = 300.0  # for one piece
_MOST_FILES = 10_000  # outputs told in one answer


class FileRequests:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._files = StoredFiles(shell)
        self._permissions = FilePermissions(shell)
        self._sources = PeerSources(shell)
        shell.on_facts.append(self._hear_submissions)
        self._urls = UrlContents(self._files, shell.info.folder("files"))
        self._pieces: dict[tuple[PeerConnection, int, int], asyncio.Future[FilePiece]] = {}
        self._tasks: dict[PeerConnection, set[asyncio.Task[None]]] = {}
        self._uploads: dict[tuple[PeerConnection, bytes], _Upload] = {}
        self._identifying: set[asyncio.Task[None]] = set()
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
            case FindPeers():
                self._find_peers(executor, message)
            case OfferPeer():
                self._sources.offered(executor, message)
            case CacheReport():
                self._sources.reported(executor, message)
            case FilePiece():
                waiting = self._pieces.pop((executor.connection, message.request, message.offset), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
            case _:
                return False
        return True

    def put(self, client: ClientPeer, message: PutPiece) -> None:
        """Take a piece of a file that commands will read."""
        self._begin(client.connection, self._put(client.connection, message))

    def on_lost(self, peer: PeerConnection) -> None:
        """A peer disconnected: what was done for it ends."""
        executor = self._shell.peers.by_connection.get(peer)
        if executor is not None:
            self._sources.gone(executor.number)
        for task in self._tasks.pop(peer, set()):
            task.cancel()
        for key in [key for key in self._uploads if key[0] is peer]:
            self._uploads.pop(key).drop()

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
        files, permissions = self._files, self._permissions
        try:
            task = permissions.task_of(executor.number, want.span, want.index)
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
            await files.refer(task.run, [digest])
            size = await files.size(digest)
            if size < 0:
                raise StoreFailed(f"its content {digest.hex()} is not in the store any more")
            self._identify(task.run, [(want.path, digest, size)])
            peers = self._sources.hints(executor, digest, size)
            wanted = self._shell.queries.waiting_readers(digest)
            answer = FileLocated(want.request, digest, size, peers=peers, wanted=wanted, folder=folder)
        except (BoughError, OSError) as error:
            answer = FileLocated(want.request, error=f"{want.path}: {os_error_text(error)}")
        executor.connection.send(answer)

    def _find_peers(self, executor: ExecutorPeer, find: FindPeers) -> None:
        """Others for a reader whose sources have failed."""
        peers = self._sources.hints(executor, find.digest, find.size, find.failed)
        executor.connection.send(FileLocated(find.request, find.digest, find.size, peers=peers))

    def known_contents(self, items: Sequence[Item]) -> tuple[NamedContent, ...]:
        """What some of the inputs of new tasks are known to hold, so that these are placed where that is already."""
        found: dict[str, NamedContent] = {}
        for item in items:
            if len(found) >= _MOST_EARLY:
                break
            for path in declared_inputs(item):
                seen = self._files.content_seen(path)
                if seen is not None:
                    found[path] = NamedContent(path, *seen)
        return tuple(found.values())[:MOST_CONTENTS]

    def _hear_submissions(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if type(fact) is Submitted and fact.files:
                task = self._shell.loop.create_task(self._identify_submitted(fact.items))
                self._identifying.add(task)
                task.add_done_callback(self._identifying.discard)

    async def _identify_submitted(self, items: Sequence[Item]) -> None:
        """A client has sent files before it submitted what reads them: their contents are known."""
        queries = self._shell.queries
        for record, contents in (await self._files.in_thread(self._contents_sent, items)).items():
            if queries.can_find(record):
                self._identify(queries.run_of(record), contents)
        if self._shell.dirty:
            self._shell.flush()

    def _contents_sent(self, items: Sequence[Item]) -> dict[RecordId, list[tuple[str, bytes, int]]]:
        """What the tasks among some items read, as their client has sent it: path, digest and size. In a thread."""
        found: dict[RecordId, list[tuple[str, bytes, int]]] = {}
        sizes: dict[bytes, int] = {}
        for item in items:
            for path, digest in sent_inputs(item).items():
                if digest not in sizes:
                    sizes[digest] = self._files.size_now(digest)
                if sizes[digest] >= 0:
                    found.setdefault(item.id, []).append((path, digest, sizes[digest]))  # type: ignore[arg-type]
        return found

    def _identify(self, run: int, contents: Iterable[tuple[str, bytes, int]]) -> None:
        """What files of a workflow hold became known: by path, digest and size."""
        queries = self._shell.queries
        found = []
        for path, digest, size in contents:
            file = queries.file_number(run, path)
            if file and len(digest) == DIGEST and queries.file_content(run, file) != (digest, size):
                found.append(IdentifiedFile(FileId(file), digest, size))
        for start in range(0, len(found), MOST_CONTENTS):
            self._shell.news(FilesIdentified(run, tuple(found[start : start + MOST_CONTENTS])))

    async def _bring_in(self, task: TaskOnExecutor, path: str) -> bytes:
        """The content of an input that lies in its place."""
        if not self._permissions.sees_directory_of(task.run):
            raise UserError("it was not sent to the server, which does not see the submitter's directory")
        digest, _ = await self._files.bring_in(path)
        return digest

    async def _send_piece(self, executor: ExecutorPeer, get: GetPiece) -> None:
        try:
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
            await files.refer(task.run, [made.digest for made in offer.files])
            for made in offer.files:
                if not files.has(made.digest):
                    await self._fetch(executor, offer.request, made)
            times = [0] * len(offer.files)
            if permissions.sees_directory_of(task.run):
                permissions.task_of(executor.number, offer.span, offer.index)  # it may have been cancelled meanwhile
                times = await files.give_out([_copy(task, made) for made in offer.files])
            if task.checkpoint and [made.path for made in offer.files] == [task.checkpoint]:
                self._shell.news(CheckpointKept(task.record, task.index, offer.files[0].digest))
            self._identify(task.run, [(made.path, made.digest, made.size) for made in offer.files])
            answer = FilesKept(offer.request, times)
        except (BoughError, OSError) as error:
            text = os_error_text(error)
            logs.warning(
                "outputs-not-kept", f"executor {executor.number}: outputs of span {offer.span} are not kept: {text}"
            )
            answer = FilesKept(offer.request, error=text)
        executor.connection.send(answer)

    async def _take_result(self, executor: ExecutorPeer, offer: OfferFiles, task: TaskOnExecutor) -> FilesKept:
        """A function's result that is too big to come with its report."""
        folder = self._shell.info.folder("results")
        name = f"{task.record}-{task.attempt}-{offer.span}-{offer.index}.x{executor.number}.pickle"
        await self._fetch(executor, offer.request, offer.files[0], f"{folder}/{name}")
        return FilesKept(offer.request, [0], places=[f"{folder}/{name}"])

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

    async def _outputs(self, question: questions.Files) -> list[tuple[str, int, bytes, bool]]:
        """Outputs of elements [start, stop) of a record that the server keeps, as (path, size, digest, is a folder)."""
        if not self._shell.queries.can_find(question.record):
            raise UserError(f"there is no task {number_of(question.record)}")
        stop = min(question.stop, question.start + _MOST_FILES)
        found = self._permissions.outputs(Dep(On.ARRAY, question.record), question.start, stop)
        return [(made.path, made.size, made.digest, made.folder) for made in found if made.digest]


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
    return ContentCopy(made.digest, made.path, hidden, made.mode, made.folder)
