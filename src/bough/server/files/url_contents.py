"""What is at URLs: which content it was when it had a mark, who fetches it, and fetches for executors that cannot.

An executor that can reads the mark of a URL and asks (`WantFile.url`). The first that asks for one whose content nobody
has fetches it, and says what it is; the others wait for it, and take it from its host. For an executor that lacks
fsspec the server fetches.

Rules: a URL that tells the same of itself as before is not fetched again, not even for the next server of the store;
one without a mark is. What an executor says counts only for a URL that a task with it declares, or one that was
announced to it. Who fetches is known by its task: when that is not with the executor any more, the next one fetches. A
task that runs waits a moment and no longer for what another executor brings early, before its task begins. The server
fetches from other machines only: what lies on its own disk is not reached by a URL. Its own environment has the
credentials, and threads of its own do it, so that a slow server elsewhere holds up nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any, NamedTuple, TypeVar

from bough import private
from bough.errors import UserError
from bough.model.files import check_url, site_file
from bough.model.ids import ExecutorId, RecordId, Seconds, SpanId
from bough.movers.remote_files import fetch, is_local, look
from bough.server.files.stored_files import StoredFiles
from bough.stores.folder.kept_digests import KeptDigests

_AT_ONCE = 8  # fetches of the server
_MOST_FETCHES = 10_000  # of executors that are remembered
_LONGEST = 10 << 30  # bytes of a file that does not say how many it has
_LOOK: Seconds = 1.0  # between looks whether somebody still fetches what others wait for
PATIENCE: Seconds = 10.0  # of a task that runs with what is brought early elsewhere
T = TypeVar("T")


class SeenContent(NamedTuple):
    """What a URL held when it had this mark."""

    mark: bytes
    digest: bytes
    size: int


class Fetcher(NamedTuple):
    """The task for which an executor fetches; `span` 0: it was announced, and is not there."""

    executor: ExecutorId
    span: SpanId
    element: int
    record: RecordId
    early: bool = False  # the task does not run yet

    def is_for(self, other: Fetcher) -> bool:
        """Whether another one fetches for the same task, maybe before that was placed, or ran."""
        return (self.executor, self.record, self.element) == (other.executor, other.record, other.element)


class _UrlFetch:
    """Something that an executor fetches."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.fetcher = fetcher
        self.over = asyncio.Event()
        self.awaited = inf  # since when a task that runs waits for it

    def may_be_left_to(self, other: Fetcher, now: Seconds) -> bool:
        """Whether somebody else who wants it waits for this one."""
        if self.fetcher.is_for(other):
            return False
        if not self.fetcher.early or other.early:
            return True
        self.awaited = min(self.awaited, now)
        return now < self.awaited + PATIENCE


class UrlContents:
    """See the module. `folder` is one of the store's, in which files come.

    `has_task`: whether an executor still has the task for which it fetches.
    """

    def __init__(self, files: StoredFiles, folder: str, has_task: Callable[[Fetcher], bool]) -> None:
        self._files = files
        self._folder = folder
        self._has_task = has_task
        self._seen = KeptDigests(f"{folder}/seen-urls")  # by URL: mark and size, and what it was
        self._fetches: dict[tuple[str, bytes], _UrlFetch] = {}  # by URL and mark
        self._locks: dict[str, asyncio.Lock] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="urls")

    # --- what executors fetch ----------------------------------------------------------------------

    def content(self, url: str, mark: bytes) -> tuple[bytes, int] | None:
        """The digest and the size of what has this mark; None: that is not known."""
        found = self.last_seen(url)
        return found[1:] if found is not None and mark and found.mark == mark else None

    def last_content(self, url: str) -> tuple[bytes, int] | None:
        """The same of what was there last: it may have changed, so this is only advice."""
        found = self.last_seen(url)
        return found[1:] if found is not None else None

    def last_seen(self, url: str) -> SeenContent | None:
        """The same, with its mark."""
        with contextlib.suppress(ValueError):  # a line that somebody has changed
            match self._seen.get(url):
                case ((str(mark), int(size)), digest):
                    return SeenContent(bytes.fromhex(mark), digest, size)
        return None

    def note(self, url: str, seen: SeenContent) -> None:
        """Something at a URL has become known; one without a mark is not known the next time."""
        if seen.mark:
            self._seen.note(url, (seen.mark.hex(), seen.size), seen.digest)

    def begin(self, url: str, mark: bytes, fetcher: Fetcher, now: Seconds) -> bool:
        """Whether one that asks is to fetch it: nobody else does."""
        under_way = self._fetches.get((url, mark))
        if under_way is not None and self._has_task(under_way.fetcher) and under_way.may_be_left_to(fetcher, now):
            return False
        if under_way is not None:
            under_way.over.set()
        if len(self._fetches) >= _MOST_FETCHES:  # most have failed, and nobody has asked again
            self._end(lambda _, one: not self._has_task(one))
        self._fetches[url, mark] = _UrlFetch(fetcher)
        return True

    def end(self, url: str, fetcher: Fetcher) -> None:
        """Somebody has fetched what is at a URL."""
        self._end(lambda of, one: of == url and one.is_for(fetcher))

    def lost(self, executor: ExecutorId) -> None:
        """An executor disconnected: what it was fetching may take long to come."""
        self._end(lambda _, one: one.executor == executor)

    def _end(self, is_over: Callable[[str, Fetcher], bool]) -> None:
        for key in [key for key, one in self._fetches.items() if is_over(key[0], one.fetcher)]:
            self._fetches.pop(key).over.set()

    async def wait(self, url: str, mark: bytes) -> None:
        """Until nobody fetches something any more, or it is time to look whether somebody does."""
        under_way = self._fetches.get((url, mark))
        if under_way is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await under_way.over.wait()

    # --- what the server fetches -------------------------------------------------------------------

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def bring_in(self, url: str) -> bytes:
        """The digest of what is at a URL, once it is here; SiteError when it cannot be had."""
        if site_file(url)[0] or is_local(check_url(url)):
            raise UserError("a server fetches from other machines only; the executor must be able to read it")
        lock = self._locks.setdefault(url, asyncio.Lock())
        try:
            async with lock:
                found = await self._in_thread(look, url)
                known = self.content(url, found.identity(url)) if found.mark else None
                if known is not None and self._files.has(known[0]):
                    return known[0]
                return await self._fetch(url)
        finally:
            if not lock.locked():
                self._locks.pop(url, None)

    async def _fetch(self, url: str) -> bytes:
        path = f"{self._folder}/.part-url-{os.getpid()}-{os.urandom(8).hex()}"
        private.make_folder(self._folder)
        try:
            found = await self._in_thread(fetch, url, path, _LONGEST)
            digest, size = await self._files.bring_in_new(path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self.note(url, SeenContent(found.identity(url) if found.mark else b"", digest, size))
        return digest
