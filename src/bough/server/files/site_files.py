"""Files of one site's own storage that are read at another: an executor of their site looks, and keeps a copy.

That executor puts what is there into the cache of its host, and says which content it is; from then on it travels as
any content does. It is asked for each reader, because the file may be another one by now; what it has in its cache it
does not read again. While a site has no executor the server reads the file itself, by the connection from which it
starts pilots there.

Rules: those that want the same while a look at it is under way share the next one, because what that one sees may have
been written over before they asked. An executor that leaves before it answers costs nothing: another one of its site is
asked. Without either readers wait for a while, and then hear why they cannot have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable

from bough import private
from bough.errors import SiteError
from bough.model.files import site_file
from bough.model.ids import Seconds
from bough.server.files.stored_files import StoredFiles, os_error_text
from bough.server.files.url_contents import SeenContent, UrlContents
from bough.server.peer_connection import PeerConnection
from bough.server.peers import ExecutorPeer
from bough.server.turns.shell import Shell
from bough.sites.site_kind import SentFile
from bough.wire.file_messages import DIGEST, SeeSiteFile, SiteFileSeen

_PATIENCE: Seconds = 10.0  # with a site that has no executor, and is not reached
_LOOK_AGAIN: Seconds = 0.2

ReadStorage = Callable[[str, str, str, str], Awaitable[SentFile]]  # a site's file, to a path here, unless it is known


class _Gone(Exception):
    """The executor that was asked has left."""


class _Look:
    """One look at a name, for all that want it before it begins."""

    def __init__(self, before: _Look | None) -> None:
        self.before = before  # it begins when that has ended
        self.has_begun = False
        self.task: asyncio.Task[SiteFileSeen] | None = None


class SiteFiles:
    """See the module. `fetch` reads the storage of a site; it is there when the server has connections to sites."""

    def __init__(self, shell: Shell, files: StoredFiles, urls: UrlContents, folder: str) -> None:
        self._shell = shell
        self._files = files
        self._contents = urls  # which content a name stood for, by its mark
        self._folder = folder
        self.fetch: ReadStorage | None = None
        self._last = 0  # number of a request
        self._asked: dict[int, tuple[PeerConnection, asyncio.Future[SiteFileSeen]]] = {}
        self._looks: dict[str, _Look] = {}  # the latest at each name

    async def see(self, url: str) -> SiteFileSeen:
        """The content that is at such a name now, which a host of its site or the server has then; else SiteError."""
        look = self._looks.get(url)
        if look is None or look.has_begun:
            look = self._looks[url] = _Look(look)
            look.task = self._shell.loop.create_task(self._look(url, look))
        assert look.task is not None
        seen = await asyncio.shield(look.task)
        if seen.error:
            raise SiteError(seen.error)
        return seen

    async def _look(self, url: str, look: _Look) -> SiteFileSeen:
        if look.before is not None and look.before.task is not None:
            await asyncio.wait([look.before.task])
        look.has_begun, look.before = True, None
        try:
            return await self._see(url)
        finally:
            if self._looks.get(url) is look:
                del self._looks[url]

    async def _see(self, url: str) -> SiteFileSeen:
        site, path = site_file(url)
        why = f"{path} lies at {site}: no executor of {site} is here that could send it"
        until = self._shell.loop.time() + _PATIENCE
        while True:
            executor = self._executor_of(site)
            try:
                if executor is not None:
                    return await self._ask(executor, url)
                if self.fetch is not None:
                    return await self._read(self.fetch, url)
            except _Gone:
                continue
            except (SiteError, OSError) as error:
                if self._shell.loop.time() > until or not getattr(error, "transient", True):
                    return SiteFileSeen(0, error=f"{why}, and the server cannot: {os_error_text(error)}")
            if self._shell.loop.time() > until:
                return SiteFileSeen(0, error=f"{why}; start one, or have the task run there")
            await asyncio.sleep(_LOOK_AGAIN)

    # --- by an executor there ----------------------------------------------------------------------

    def _executor_of(self, site: str) -> ExecutorPeer | None:
        """An executor of a site; who is behind a relay that shares out work is not known here."""
        there = (one for one in self._shell.peers.executors.values() if one.hello.site == site and not one.is_relay)
        return min(there, key=lambda one: (one.leaving, one.number), default=None)

    async def _ask(self, executor: ExecutorPeer, url: str) -> SiteFileSeen:
        self._last += 1
        number, answer = self._last, self._shell.loop.create_future()
        self._asked[number] = (executor.connection, answer)
        try:
            executor.connection.send(SeeSiteFile(number, url))
            seen: SiteFileSeen = await answer
        finally:
            del self._asked[number]
        if len(seen.digest) == DIGEST:
            turned = asyncio.Event()
            self._shell.after_turn(turned.set)
            await turned.wait()  # its host, which has reported the content before, is known to hold it now
            self._contents.note(url, SeenContent(seen.digest, seen.digest, seen.size))
        elif not seen.error:
            return SiteFileSeen(number, error=f"executor {executor.number} does not say what is at {url}")
        return seen

    def seen(self, executor: ExecutorPeer, message: SiteFileSeen) -> None:
        """An executor has looked."""
        connection, answer = self._asked.get(message.request, (None, None))
        if answer is not None and connection is executor.connection and not answer.done():
            answer.set_result(message)

    def lost(self, peer: PeerConnection) -> None:
        """A peer disconnected."""
        for connection, answer in self._asked.values():
            if connection is peer and not answer.done():
                answer.set_exception(_Gone())

    # --- by the server -----------------------------------------------------------------------------

    async def _read(self, fetch: ReadStorage, url: str) -> SiteFileSeen:
        site, path = site_file(url)
        known = self._contents.last_seen(url)
        if known is not None and not self._files.has(known.digest):
            known = None
        target = f"{self._folder}/.part-site-{os.getpid()}-{os.urandom(8).hex()}"
        private.make_folder(self._folder)
        try:
            sent = await fetch(site, path, target, known.mark.decode("utf-8", "replace") if known is not None else "")
            if not sent.came and known is not None:
                return SiteFileSeen(0, known.digest, known.size)
            digest, size = await self._files.bring_in_new(target)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(target)
        self._contents.note(url, SeenContent(sent.mark.encode(), digest, size))
        return SiteFileSeen(0, digest, size)
