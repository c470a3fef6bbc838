"""What is at URLs, fetched by the server for executors that cannot.

Rule: a URL that tells the same of itself as before is not fetched again, and those who want one that is on its way wait
for it. The server's own environment has the credentials.
"""

from __future__ import annotations

import asyncio
import contextlib
import os

from bough.movers.remote_files import RemoteFile, fetch, look
from bough.server.files.stored_files import StoredFiles

_SEEN = 10_000


class UrlContents:
    """See the module. `folder` is one of the store's, in which files come."""

    def __init__(self, files: StoredFiles, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._seen: dict[str, tuple[RemoteFile, bytes]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def bring_in(self, url: str) -> bytes:
        """The digest of what is at a URL, once it is here; SiteError when it cannot be had."""
        lock = self._locks.setdefault(url, asyncio.Lock())
        try:
            async with lock:
                found = await self._files.in_thread(look, url)
                known = self._seen.get(url)
                if known is not None and found.mark and known[0] == found and self._files.has(known[1]):
                    return known[1]
                digest = await self._fetch(url)
                if len(self._seen) >= _SEEN:
                    self._seen.clear()
                self._seen[url] = (found, digest)
                return digest
        finally:
            if not lock.locked():
                self._locks.pop(url, None)

    async def _fetch(self, url: str) -> bytes:
        path = f"{self._folder}/.part-url-{os.getpid()}-{os.urandom(8).hex()}"
        try:
            await self._files.in_thread(fetch, url, path)
            digest, _ = await self._files.bring_in_new(path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
        return digest
