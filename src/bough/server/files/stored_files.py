"""The files that a service keeps, for its event loop: a content store, used in threads, and which runs refer to it.

Work on the disk is done in threads, a piece at a time, and is begun again as long as the disk is full. Contents that
only removed workflows refer to are deleted, a few at a time. A file in its place is read once: which content it had is
kept with the contents, and a server that is started again identifies the inputs of a submission as the one before did.
Rule: a reference is on the disk before a peer is told that the content is there; what a full disk refuses is waited for
and fails no task; a file that may have been written as it was looked at is read again when a task wants it, and is
taken to be as it was for placement alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from bough import logs
from bough.errors import UserError
from bough.folder_state import folder_state
from bough.model.events.facts import Fact, RunRemoved
from bough.model.files import is_settled
from bough.model.ids import Seconds
from bough.movers.content_store import ContentStore, IncomingContent
from bough.movers.local import ContentCopy, bring_in, bring_in_folder, give_out, write_together
from bough.server.turns.shell import Shell
from bough.stores.folder.contents import Contents, FileReferences
from bough.stores.folder.kept_digests import KeptDigests, Stamp
from bough.stores.store_errors import FULL
from bough.wire.file_messages import PIECE

_SWEEP: Seconds = 30.0  # between looks for removed workflows
_PAUSE: Seconds = 0.05  # between deletions of their contents
_FOLDER = -1  # in the place of the inode, in what a folder looked like
_UNSETTLED = "new"  # at the end of the stamp of what may have been written as it was looked at
_BIG = 16 << 20  # bytes: a new file of so many is read a moment later, so that it need not be read again
_MOMENT: Seconds = 0.06
_TRY_AGAIN: Seconds = 0.5  # between tries to write to a full disk
_SAY_AGAIN: Seconds = 60.0  # between two lines in the log about it

T = TypeVar("T")


class StoredFiles:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        contents = Contents(shell.info.folder("files"))
        contents.sweep()
        self._store: ContentStore = contents
        self.path = contents.path  # where a content lies, or would
        self._references = FileReferences(contents)
        self._shell = shell
        self._loop = shell.loop
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="files")
        self._said_full = -_SAY_AGAIN  # when it was last said that the disk is full
        self._seen = KeptDigests(f"{contents.folder}/seen")  # files in their places, by path
        self._bringing: dict[tuple[str, Stamp], asyncio.Task[tuple[bytes, int]]] = {}
        self._collected: list[tuple[bytes, bytes]] = []  # small contents that are to be written together
        self._collecting: asyncio.Task[None] | None = None  # the last job that writes some
        self._temporary: set[bytes] = set()  # contents that are here until their last reader is done
        self._removed: set[int] = set()  # runs that were removed, and whose contents were not
        shell.on_facts.append(self._hear_removals)
        shell.background.when_folded(self._find_removed)
        shell.store.keep_contents(contents.folder)
        self._sweep()

    # --- contents ----------------------------------------------------------------------------------

    def has(self, digest: bytes) -> bool:
        """Whether a content is here."""
        return self._store.has(digest)

    async def those_here(self, digests: Sequence[bytes]) -> list[bytes]:
        """Those of some contents that are here."""
        return await self.in_thread(lambda: [one for one in digests if self._store.has(one)])

    async def size(self, digest: bytes) -> int:
        """The bytes of a content; -1 when it is not here."""
        return await self.in_thread(self._store.size, digest)

    def size_now(self, digest: bytes) -> int:
        """The same, at once: the store is on a disk of this host, as it is for `has`."""
        return self._store.size(digest)

    async def read(self, digest: bytes, offset: int, length: int) -> bytes:
        """A piece of a content."""
        return await self.in_thread(self._store.read, digest, offset, length)

    async def read_file(self, path: str, offset: int) -> bytes:
        """A piece of a file that is no content."""
        return await self.in_thread(_read_piece, path, offset)

    async def collect(self, contents: Sequence[tuple[bytes, bytes]]) -> None:
        """Store small contents, by digest; all that came while others were written are written in one go."""
        fresh = [one for one in contents if not self._store.has(one[0])]
        if not fresh:
            return
        self._collected += fresh
        if self._collecting is None or self._collecting.done():
            self._collecting = self._loop.create_task(self._write_collected(None))
        elif len(self._collected) == len(fresh):  # the first to wait for the job that is under way
            self._collecting = self._loop.create_task(self._write_collected(self._collecting))
        await asyncio.shield(self._collecting)

    async def _write_collected(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        together, self._collected = self._collected, []
        await self.in_thread(self._store.put_many, together)

    async def receive(self, digest: bytes) -> IncomingContent:
        """Begin to write a content; its methods are to be called by `in_thread`."""
        return await self.in_thread(self._store.receive, digest)

    async def bring_in(self, path: str) -> tuple[bytes, int]:
        """Copy a file that lies in its place, as it is now; its digest and size."""
        looked, state = time.time_ns(), await self.in_thread(os.stat, path)
        if stat.S_ISDIR(state.st_mode):
            return await self._bring_in_folder(path)
        if not stat.S_ISREG(state.st_mode):
            raise UserError("it is neither a file nor a folder and cannot be brought")
        if state.st_size >= _BIG and not is_settled(state.st_mtime_ns, looked):
            await asyncio.sleep(_MOMENT)
            looked, state = time.time_ns(), await self.in_thread(os.stat, path)
        stamp = _stamp(state)
        known = self._seen.get(path)
        if known is not None and known[0] == stamp and self._store.has(known[1]):
            return known[1], state.st_size
        under_way = self._bringing.get((path, stamp))
        if under_way is None:  # many that want the same file at once cause one reading of it
            under_way = self._bringing[path, stamp] = self._loop.create_task(self._bring_in(path, stamp, looked))
            under_way.add_done_callback(lambda _: self._bringing.pop((path, stamp), None))
        return await asyncio.shield(under_way)

    def content_seen(self, path: str) -> tuple[bytes, int] | None:
        """The digest and size of a file that was brought in before and looks as it did; None: that is not known.

        A folder is taken to be as it was: to look at all its files takes long, and this is only advice for placement.
        """
        known = self._seen.get(path)
        if known is None:
            return None
        if known[0][2] == _FOLDER:
            size = self.size_now(known[1])
            return (known[1], size) if size >= 0 else None
        try:
            state = os.stat(path)
        except (OSError, ValueError):
            return None
        return (known[1], state.st_size) if known[0][:3] == _stamp(state) else None

    async def _bring_in(self, path: str, stamp: tuple[int, int, int], looked: int) -> tuple[bytes, int]:
        digest, size = await self.in_thread(bring_in, self._store, path)
        self._note_seen(path, stamp, looked, digest)
        return digest, size

    def _note_seen(self, path: str, stamp: tuple[int, int, int], looked: int, digest: bytes) -> None:
        self._seen.note(path, stamp if is_settled(stamp[1], looked) else (*stamp, _UNSETTLED), digest)

    async def give_name(self, digest: bytes, path: str) -> None:
        """Let a content be found at a path, too; nobody changes it there."""
        self._seen.note(path, await self.in_thread(_name_content, self.path(digest), path), digest)

    async def bring_in_new(self, path: str) -> tuple[bytes, int]:
        """Copy a file that was not here before; its digest and size."""
        return await self.in_thread(bring_in, self._store, path)

    async def _bring_in_folder(self, path: str) -> tuple[bytes, int]:
        """The archive of a folder; one that looks as it did is not packed again."""
        looked, state = time.time_ns(), await self.in_thread(folder_state, path)
        stamp = (state.size, state.mtime_ns, _FOLDER)
        known = self._seen.get(path)
        if known is not None and known[0] == stamp and self._store.has(known[1]):
            return known[1], await self.size(known[1])
        digest, size = await self.in_thread(bring_in_folder, self._store, path)
        self._note_seen(path, stamp, looked, digest)
        return digest, size

    async def give_out(self, copies: Sequence[ContentCopy]) -> list[int]:
        """Copy contents to their places; their times of change."""
        return await self.in_thread(give_out, self._store, copies)

    async def write_together(self, files: Sequence[tuple[bytes, ContentCopy]]) -> None:
        """Write files to their places in one go; they are on the disk then."""
        await self.in_thread(write_together, files)

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Work on the disk, which is begun again as long as the disk is full."""
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
            logs.error("disk-full", f"files wait for space, tried every {_TRY_AGAIN:g} s: {os_error_text(error)}")
        await asyncio.sleep(_TRY_AGAIN)

    # --- references --------------------------------------------------------------------------------

    async def refer(self, run: int, digests: Sequence[bytes], *, temporary: bool = False) -> None:
        """A workflow refers to contents from now on; `temporary`: until they are dropped, if nothing else does."""
        if temporary:
            self._temporary.update(digest for digest in digests if not self._references.is_referred(digest))
        else:
            self._temporary.difference_update(digests)
        noted = False
        while not noted:
            try:
                self._references.add(run, digests)
                noted = True
            except OSError as error:
                await self._wait_for_space(error)

    def is_temporary(self, digest: bytes) -> bool:
        """Whether a content is here only until it is dropped."""
        return digest in self._temporary

    def drop_temporary(self, digest: bytes) -> None:
        """Delete a content that nobody reads any more, if it is here for that alone."""
        if digest in self._temporary:
            self._temporary.discard(digest)
            self._threads.submit(_unlink, self.path(digest))

    def _hear_removals(self, facts: Sequence[Fact]) -> None:
        if RunRemoved in map(type, facts):
            gone = {fact.run for fact in facts if type(fact) is RunRemoved}
            self._removed |= gone & self._references.runs.keys()

    def _find_removed(self) -> None:
        """What an earlier server removed and did not come to delete; workflows that are retired are not removed."""
        self._removed.update(run for run in self._references.runs if not self._shell.store.has_run(run))

    def _sweep(self) -> None:
        """Delete, a few at a time, contents that only removed workflows needed."""
        more = self._references.sweep(self._removed)
        self._removed &= self._references.runs.keys()
        self._loop.call_later(_PAUSE if more else _SWEEP, self._sweep)


def os_error_text(error: BaseException) -> str:
    """An error as users read it: without its number, with the file's name."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _name_content(content: str, path: str) -> tuple[int, int, int]:
    """Link a content to a path, or copy it; what the file there is."""
    hidden = f"{path}.{os.urandom(4).hex()}.part"
    try:
        try:
            os.link(content, hidden)
        except OSError as error:
            if error.errno in FULL:
                raise
            shutil.copyfile(content, hidden)  # a file system without links
        os.replace(hidden, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(hidden)
    return _stamp(os.stat(path))


def _stamp(state: os.stat_result) -> tuple[int, int, int]:
    """What is another one when a file changes."""
    return state.st_size, state.st_mtime_ns, state.st_ino


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _read_piece(path: str, offset: int) -> bytes:
    with open(path, "rb") as file:
        return os.pread(file.fileno(), PIECE, offset)
