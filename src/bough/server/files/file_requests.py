"""Declared files on their way: from clients, to executors that do not see the submitter's directory, and back.

Work on the disk is done in threads, a piece at a time. Rule: an output is reported to be kept only when its content
is on the disk and, if this machine sees the submitter's directory, all outputs of its task are in their places.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from bough.errors import BoughError, StoreFailed, UserError
from bough.model.events.facts import Fact, RunRemoved
from bough.model.files import hidden_path
from bough.model.ids import Seconds
from bough.model.tasks import Dep, Kind, On
from bough.server.files.file_permissions import FilePermissions, TaskOnExecutor, sees_directory
from bough.server.peer_connection import PeerConnection
from bough.server.peers import ClientPeer, DeferredRequest, ExecutorPeer, Handler
from bough.server.server_log import log
from bough.server.turns.shell import Shell
from bough.stores.contents import Contents, FileReferences, Incoming, Wanted
from bough.stores.store_errors import FULL
from bough.wire import questions
from bough.wire.client_messages import Answer, Refused
from bough.wire.file_messages import (
    DIGEST,
    PIECE,
    FileLocated,
    FilePiece,
    FilesKept,
    GetPiece,
    MadeFile,
    OfferFiles,
    PutPiece,
    WantFile,
)
from bough.wire.questions import Question

_AHEAD = 4  # pieces asked for before the first has come
_PATIENCE: Seconds = 300.0  # for one piece
_SWEEP: Seconds = 30.0  # between looks for removed workflows
_PAUSE: Seconds = 0.05  # between deletions of their contents
_SEEN = 10_000  # files in their places whose content is remembered
_MOST_FILES = 10_000  # outputs told in one answer
_TRY_AGAIN: Seconds = 0.5  # between tries to write to a full disk
_SAY_AGAIN: Seconds = 60.0  # between two words about it

T = TypeVar("T")


class FileRequests:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._loop = shell.loop
        self.contents = Contents(shell.info.folder("files"))
        self.contents.sweep()
        self._references = FileReferences(self.contents)
        self._declared = FilePermissions(shell)
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="files")
        self._pieces: dict[tuple[PeerConnection, int, int], asyncio.Future[FilePiece]] = {}
        self._tasks: dict[PeerConnection, set[asyncio.Task[None]]] = {}
        self._incoming: dict[tuple[PeerConnection, bytes], _Upload] = {}
        self._said_full = -_SAY_AGAIN  # when it was last said that the disk is full
        self._seen: dict[str, tuple[tuple[int, int, int], bytes]] = {}  # path -> what it was, and its content
        self.handlers: dict[type[Question[Any]], Handler] = {
            questions.Have: self._answered_by(self._have),
            questions.Piece: self._answered_by(self._piece),
            questions.Files: self._answered_by(self._files),
        }
        self._removed: set[int] = set()  # runs that are gone, and whose contents are not
        shell.on_facts.append(self._hear_removals)
        shell.upkeep.when_folded(self._find_removed)
        shell.store.keep_contents(self.contents.folder)
        self._sweep()

    def _hear_removals(self, facts: Sequence[Fact]) -> None:
        if RunRemoved in map(type, facts):
            gone = {fact.run for fact in facts if type(fact) is RunRemoved}
            self._removed |= gone & self._references.runs.keys()

    def _find_removed(self) -> None:
        """What an earlier server removed and did not come to delete; workflows that are retired are not removed."""
        self._removed.update(run for run in self._references.runs if not self._shell.store.has_run(run))

    def _sweep(self) -> None:
        """Delete, a little at a time, what only removed workflows needed."""
        more = self._references.sweep(self._removed)
        self._removed &= self._references.runs.keys()
        self._loop.call_later(_PAUSE if more else _SWEEP, self._sweep)

    # --- what executors say ------------------------------------------------------------------------

    def hear(self, executor: ExecutorPeer, message: object) -> bool:
        """Whether it was about files."""
        match message:
            case WantFile():
                self._begin(executor.connection, self._locate(executor, message))
            case GetPiece():
                self._begin(executor.connection, self._send_piece(executor, message))
            case OfferFiles():
                self._begin(executor.connection, self._take(executor, message))
            case FilePiece():
                waiting = self._pieces.pop((executor.connection, message.request, message.offset), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
            case _:
                return False
        return True

    def lost(self, peer: PeerConnection) -> None:
        """Somebody is gone, and with him what he was doing."""
        for task in self._tasks.pop(peer, set()):
            task.cancel()
        for key in [key for key in self._incoming if key[0] is peer]:
            self._incoming.pop(key).drop()

    def _begin(self, peer: PeerConnection, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(self._contained(peer, work))
        mine = self._tasks.setdefault(peer, set())
        mine.add(task)
        task.add_done_callback(mine.discard)

    async def _contained(self, peer: PeerConnection, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 -- it concerns whose files these are and nobody else
            self._shell.faults.concern(peer, "a message about files", error)

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Work on the disk, which is begun anew as long as that is full: a full store fails nobody."""
        while True:
            try:
                return await self._loop.run_in_executor(self._threads, work, *arguments)
            except OSError as error:
                await self._wait_for_space(error)

    async def _wait_for_space(self, error: OSError) -> None:
        """Say that the disk is full, and wait before the next try; any other error is raised."""
        if error.errno not in FULL:
            raise error
        now = self._loop.time()
        if now - self._said_full > _SAY_AGAIN:
            self._said_full = now
            log(f"files wait for space, tried every {_TRY_AGAIN:g} s: {_text(error)}")
        await asyncio.sleep(_TRY_AGAIN)

    async def _refer(self, run: int, digests: list[bytes]) -> None:
        """A workflow refers to contents from now on."""
        noted = False
        while not noted:
            try:
                self._references.add(run, digests)
                noted = True
            except OSError as error:
                await self._wait_for_space(error)

    # --- inputs ------------------------------------------------------------------------------------

    async def _locate(self, executor: ExecutorPeer, want: WantFile) -> None:
        try:
            aim = self._declared.aim(executor.number, want.span, want.index)
            if self._declared.is_value(aim, want.path):
                digest, size = await self._take_in(want.path)
            else:
                found = self._declared.digest_of(aim, want.path)
                digest, size = await self._bring_in(aim, want.path) if found is None else found
            await self._refer(aim.run, [digest])
            size = await self._in_thread(self.contents.size, digest)
            if size < 0:
                raise StoreFailed(f"its content {digest.hex()} is not in the store any more")
            answer = FileLocated(want.request, digest, size)
        except (BoughError, OSError) as error:
            answer = FileLocated(want.request, error=f"{want.path}: {_text(error)}")
        executor.connection.send(answer)

    async def _bring_in(self, aim: TaskOnExecutor, path: str) -> tuple[bytes, int]:
        """The content of a file that lies in its place, as it is now."""
        if not self._sees(aim.run):
            raise UserError("it was not sent to the server, which does not see the submitter's directory")
        return await self._take_in(path)

    async def _take_in(self, path: str) -> tuple[bytes, int]:
        state = await self._in_thread(os.stat, path)
        if not os.path.isfile(path):
            raise UserError("it is a folder, which cannot be brought; make it an archive with tar, and declare that")
        stamp = (state.st_size, state.st_mtime_ns, state.st_ino)
        known = self._seen.get(path)
        if known is not None and known[0] == stamp and self.contents.has(known[1]):
            return known[1], state.st_size
        digest, size = await self._in_thread(self.contents.take_in, path)
        if len(self._seen) >= _SEEN:
            self._seen.clear()
        self._seen[path] = (stamp, digest)
        return digest, size

    async def _send_piece(self, executor: ExecutorPeer, get: GetPiece) -> None:
        try:
            data = await self._in_thread(self.contents.read, get.digest, get.offset, get.length)
            answer = FilePiece(get.request, get.offset, data)
        except (BoughError, OSError) as error:
            answer = FilePiece(get.request, get.offset, b"", _text(error))
        executor.connection.send(answer)

    def _sees(self, run: int) -> bool:
        """Whether this machine sees the directory of a workflow."""
        workflow = self._shell.queries.workflow(run)
        return workflow is not None and sees_directory(workflow.directory, workflow.token)

    # --- outputs -----------------------------------------------------------------------------------

    async def _take(self, executor: ExecutorPeer, offer: OfferFiles) -> None:
        try:
            aim = self._declared.aim(executor.number, offer.span, offer.index)
            if [made.path for made in offer.files] == [""] and aim.spec.kind is Kind.FUNCTION:
                executor.connection.send(await self._take_result(executor, offer, aim))
                return
            self._declared.check_outputs(aim, [made.path for made in offer.files])
            await self._refer(aim.run, [made.digest for made in offer.files])
            for made in offer.files:
                if not self.contents.has(made.digest):
                    await self._fetch(executor, offer.request, made)
            times = [0] * len(offer.files)
            if self._sees(aim.run):
                self._declared.aim(executor.number, offer.span, offer.index)  # it may have been cancelled meanwhile
                times = await self._in_thread(self.contents.give_out, [_wanted(aim, made) for made in offer.files])
            answer = FilesKept(offer.request, times)
        except (BoughError, OSError) as error:
            log(f"executor {executor.number}: outputs of span {offer.span} are not kept: {_text(error)}")
            answer = FilesKept(offer.request, error=_text(error))
        executor.connection.send(answer)

    async def _take_result(self, executor: ExecutorPeer, offer: OfferFiles, aim: TaskOnExecutor) -> FilesKept:
        """A function's result that is too big to come with its report."""
        folder = self._shell.info.folder("results")
        name = f"{aim.record}-{aim.attempt}-{offer.span}-{offer.index}.x{executor.number}.pickle"
        await self._fetch(executor, offer.request, offer.files[0], f"{folder}/{name}")
        return FilesKept(offer.request, [0], places=[f"{folder}/{name}"])

    async def _fetch(self, executor: ExecutorPeer, request: int, made: MadeFile, path: str = "") -> None:
        """Take a content from the executor that has it; `path`: to be kept there and not among the contents."""
        incoming = await self._in_thread(self.contents.receive, made.digest)
        waiting: dict[int, asyncio.Future[FilePiece]] = {}
        asked = 0
        try:
            while incoming.size < made.size:
                while asked < made.size and len(waiting) < _AHEAD:
                    future: asyncio.Future[FilePiece] = self._loop.create_future()
                    waiting[asked] = self._pieces[executor.connection, request, asked] = future
                    executor.connection.send(GetPiece(request, made.digest, asked, PIECE))
                    asked += PIECE
                async with asyncio.timeout(_PATIENCE):  # `wait_for` would miss being cancelled as the piece arrives
                    piece = await waiting.pop(incoming.size)
                if piece.error or len(piece.data) != min(PIECE, made.size - incoming.size):
                    raise StoreFailed(piece.error or f"{made.path} became shorter on its way")
                await self._in_thread(incoming.write, piece.data)
            await self._in_thread(incoming.finish, path)
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

    def put(self, client: ClientPeer, message: PutPiece) -> None:
        """A piece of a file that commands will read."""
        self._begin(client.connection, self._put(client.connection, message))

    async def _put(self, connection: PeerConnection, message: PutPiece) -> None:
        key = (connection, message.digest)
        try:
            upload = self._incoming.get(key)
            if upload is None:
                upload = self._incoming[key] = _Upload()
            async with upload.lock:  # pieces are written in the order in which they came
                if upload.incoming is None:
                    upload.incoming = await self._in_thread(self.contents.receive, message.digest)
                if message.offset != upload.incoming.size or self._incoming.get(key) is not upload:
                    raise StoreFailed("a piece of a file came out of order")
                await self._in_thread(upload.incoming.write, message.data)
                if upload.incoming.size >= message.size:
                    del self._incoming[key]
                    await self._in_thread(upload.incoming.finish)
        except (BoughError, OSError) as error:
            failed = self._incoming.pop(key, None)
            if failed is not None:
                failed.drop()
            connection.send(Refused(_text(error), message.request, "StoreFailed"))
        else:
            connection.send(Answer(message.request, len(message.data)))

    def _answered_by(self, find: Callable[[Any], Coroutine[Any, Any, object]]) -> Handler:
        """A handler of a question that is answered when the disk has."""

        async def answer(errand: DeferredRequest[Any]) -> None:
            try:
                errand.answer(await find(errand.question))
            except OSError as error:
                errand.refuse(StoreFailed(_text(error)))
            except Exception as error:  # noqa: BLE001 -- it concerns who asked and nobody else
                errand.refuse(error)

        return lambda errand: self._begin(errand.client.connection, answer(errand))

    async def _have(self, question: questions.Have) -> list[bytes]:
        """Those of some digests, to which a workflow refers from now on, whose content is here."""
        if not self._shell.queries.has_run(question.run):
            raise UserError(f"there is no workflow with the number {question.run}")
        await self._refer(question.run, question.digests)
        return await self._in_thread(lambda: [one for one in question.digests if self.contents.has(one)])

    async def _piece(self, question: questions.Piece) -> bytes:
        """A piece of a content, or of a big result."""
        if question.result:
            folder = self._shell.info.folder("results")
            return await self._in_thread(_read_below, folder, question.result, question.offset)
        if len(question.digest) != DIGEST:
            raise UserError(f"a piece is named by a digest of {DIGEST} bytes, or by the path of a result")
        return await self._in_thread(self.contents.read, question.digest, question.offset, PIECE)

    async def _files(self, question: questions.Files) -> list[tuple[str, int, bytes]]:
        """Outputs of elements [start, stop) of a record that the server keeps, as (path, size, digest)."""
        if not self._shell.queries.can_find(question.record):
            raise UserError(f"there is no task {question.record}")
        stop = min(question.stop, question.start + _MOST_FILES)
        found = self._declared.outputs(Dep(On.ARRAY, question.record), question.start, stop)
        return [(made.path, made.size, made.digest) for made in found if made.digest]


class _Upload:
    """A file on its way from a client."""

    def __init__(self) -> None:
        self.incoming: Incoming | None = None
        self.lock = asyncio.Lock()

    def drop(self) -> None:
        """Leave nothing."""
        if self.incoming is not None:
            self.incoming.drop()


def _read_below(folder: str, path: str, offset: int) -> bytes:
    real = os.path.realpath(path)
    if not real.startswith(os.path.realpath(folder) + os.sep):
        raise UserError(f"{path} is not the result of a task")
    with open(real, "rb") as file:
        return os.pread(file.fileno(), PIECE, offset)


def _wanted(aim: TaskOnExecutor, made: MadeFile) -> Wanted:
    hidden = hidden_path(made.path, aim.record, aim.index, aim.attempt)
    return Wanted(made.digest, made.path, hidden, made.mode)


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
