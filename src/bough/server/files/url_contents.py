"""What is at URLs, fetched by the server for executors that cannot.

Rule: a URL that tells the same of itself as before is not fetched again, not even by the next server of the store, and
those who want one that is on its way wait for it. The server's own environment has the credentials. It fetches from
other machines only: what lies on its own disk is not reached by a URL. Threads of its own do it, so that a slow server
elsewhere holds up nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from bough.errors import UserError
from bough.model.files import check_url, site_file
from bough.movers.remote_files import fetch, look
from bough.server.files.stored_files import StoredFiles
from bough.stores.kept_digests import KeptDigests

_AT_ONCE = 8  # fetches
_HERE = frozenset({"file", "local", "memory", "dir", "reference"})  # protocols that read this machine
T = TypeVar("T")


class UrlContents:
    """See the module. `folder` is one of the store's, in which files come."""

    def __init__(self, files: StoredFiles, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._seen = KeptDigests(f"{folder}/seen-urls")
        self._locks: dict[str, asyncio.Lock] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="urls")

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def bring_in(self, url: str) -> bytes:
        """The digest of what is at a URL, once it is here; SiteError when it cannot be had."""
        if site_file(url)[0] or check_url(url).partition("://")[0].lower() in _HERE:
            raise UserError("a server fetches from other machines only; the executor must be able to read it")
        lock = self._locks.setdefault(url, asyncio.Lock())
        try:
            async with lock:
                found = await self._in_thread(look, url)
                known = self._seen.get(url)
                if known is not None and found.mark and known[0] == tuple(found) and self._files.has(known[1]):
                    return known[1]
                digest = await self._fetch(url)
                if found.mark:
                    self._seen.note(url, tuple(found), digest)
                return digest
        finally:
            if not lock.locked():
                self._locks.pop(url, None)

    async def _fetch(self, url: str) -> bytes:
        path = f"{self._folder}/.part-url-{os.getpid()}-{os.urandom(8).hex()}"
        try:
            await self._in_thread(fetch, url, path)
            digest, _ = await self._files.bring_in_new(path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
        return digest
