"""Files of one site's own storage that are read at another: an executor of their site looks, and keeps a copy.

That executor puts what is there into the cache of its host, and says which content it is; from then on it travels as
any content does. It is asked for each reader, because the file may be another one by now; what it has in its cache it
does not read again. While a site has no executor the server reads the file itself, by the connection from which it
starts pilots there.

Rules: those that want the same while a look at it is under way share the next one, because what that one sees may have
been written over before they asked. An executor that leaves before it answers costs nothing: another one of its site is
asked. So it is when one does not answer in time, and for a minute others are asked before that one; then the server
reads the file itself, if it can, or readers hear in one line that nobody answers. Without either readers wait for a
while, and then hear why they cannot have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from bough import logs, private
from bough.errors import SiteError
from bough.model.files import site_file
from bough.model.ids import ExecutorId, Seconds
from bough.model.texts.plurals import counted
from bough.server.files.stored_files import StoredFiles, os_error_text
from bough.server.files.url_contents import SeenContent, UrlContents
from bough.server.peer_connection import PeerConnection
from bough.server.peers import ExecutorPeer
from bough.server.turns.shell import Shell
from bough.sites.site_kind import SentFile
from bough.wire.file_messages import DIGEST, SeeSiteFile, SiteFileSeen

_PATIENCE: Seconds = 10.0  # with a site that has no executor, and is not reached
_LOOK_AGAIN: Seconds = 0.2
_SILENT: Seconds = 20.0  # without a word, after which an executor is not waited for: its storage may hang
_SLOWEST = 10e6  # bytes a second at which it must read what is there
_LONGEST: Seconds = 86_400.0  # for which it may read, whatever size it told
_FOLDER: Seconds = 600.0  # for what tells no size
_LONG_SILENT: Seconds = 60.0  # for which others are asked before it
_TRIES = 4  # executors that are waited for in vain for one look, each of them
_EACH = 2  # times at most

ReadStorage = Callable[[str, str, str, str], Awaitable[SentFile]]  # a site's file, to a path here, unless it is known


class _Gone(Exception):
    """The executor that was asked has left."""


class _Silent(Exception):
    """The executor that was asked is there, and does not answer."""


class _Asked:
    """What one executor was asked."""

    def __init__(self, connection: PeerConnection, loop: asyncio.AbstractEventLoop) -> None:
        self.connection = connection
        self.answer: asyncio.Future[SiteFileSeen] = loop.create_future()
        self.until = loop.time() + _SILENT
        self.reads = False  # it has said that something is there


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
        self._asked: dict[int, _Asked] = {}
        self._silent: dict[ExecutorId, Seconds] = {}  # executors that did not answer, and when
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
            raise SiteError(seen.error, transient=seen.comes)
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
        asked: Counter[ExecutorId] = Counter()  # those that did not answer
        while True:
            executor = self._executor_of(site, asked)
            try:
                if executor is not None:
                    return await self._ask(executor, url)
                if self.fetch is not None:
                    return await self._read(self.fetch, url)
            except _Gone:
                continue
            except _Silent:
                assert executor is not None
                asked[executor.number] += 1
                continue
            except (SiteError, OSError) as error:
                if asked or self._shell.loop.time() > until or not getattr(error, "transient", True):
                    why = _describe_silence(site, path, asked) if asked else why
                    return SiteFileSeen(0, error=f"{why}, and the server cannot: {os_error_text(error)}")
            if asked:
                return SiteFileSeen(0, error=_describe_silence(site, path, asked), comes=True)
            if self._shell.loop.time() > until:
                return SiteFileSeen(0, error=f"{why}; start one, or have the task run there")
            await asyncio.sleep(_LOOK_AGAIN)

    # --- by an executor there ----------------------------------------------------------------------

    def _executor_of(self, site: str, asked: Mapping[ExecutorId, int]) -> ExecutorPeer | None:
        """An executor of a site; who is behind a relay that shares out work is not known here.

        `asked`: how often each was asked in vain. It is asked again if no other is left, nor the server can read it.
        """
        now, most = self._shell.loop.time(), _EACH if self.fetch is None else 1
        if sum(asked.values()) >= _TRIES:
            return None
        self._silent = {one: when for one, when in self._silent.items() if now - when < _LONG_SILENT}
        there = (
            one
            for one in self._shell.peers.executors.values()
            if one.hello.site == site and not one.is_relay and asked.get(one.number, 0) < most
        )

        def rank(one: ExecutorPeer) -> tuple[int, bool, bool, int]:
            return asked.get(one.number, 0), one.number in self._silent, bool(one.leaving), one.number

        return min(there, key=rank, default=None)

    async def _ask(self, executor: ExecutorPeer, url: str) -> SiteFileSeen:
        self._last += 1
        number, asked = self._last, _Asked(executor.connection, self._shell.loop)
        self._asked[number] = asked
        try:
            executor.connection.send(SeeSiteFile(number, url))
            while not asked.answer.done():
                left = asked.until - self._shell.loop.time()
                if left <= 0:
                    self._note_silence(executor, url)
                    raise _Silent
                await asyncio.wait([asked.answer], timeout=left)
            seen = asked.answer.result()
        finally:
            del self._asked[number]
        self._silent.pop(executor.number, None)
        if len(seen.digest) == DIGEST:
            turned = asyncio.Event()
            self._shell.after_turn(turned.set)
            await turned.wait()  # its host, which has reported the content before, is known to hold it now
            self._contents.note(url, SeenContent(seen.digest, seen.digest, seen.size))
        elif not seen.error:
            return SiteFileSeen(number, error=f"executor {executor.number} does not say what is at {url}")
        return seen

    def _note_silence(self, executor: ExecutorPeer, url: str) -> None:
        self._silent[executor.number] = self._shell.loop.time()
        who = f"executor {executor.number} on {executor.hello.host}"
        logs.warning("site-file-unanswered", f"{who} does not say what is at {url}: another one is asked")

    def seen(self, executor: ExecutorPeer, message: SiteFileSeen) -> None:
        """An executor has looked; what is there may take it a while to read."""
        asked = self._asked.get(message.request)
        if asked is None or asked.connection is not executor.connection or asked.answer.done():
            return
        if message.comes:
            if asked.reads:
                return  # it said so before: who says it again and again would never be given up
            asked.reads = True
            reading = min(message.size / _SLOWEST, _LONGEST) if message.size else _FOLDER
            asked.until = self._shell.loop.time() + _SILENT + reading
        else:
            asked.answer.set_result(message)

    def lost(self, peer: PeerConnection) -> None:
        """A peer disconnected."""
        for asked in self._asked.values():
            if asked.connection is peer and not asked.answer.done():
                asked.answer.set_exception(_Gone())

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


def _describe_silence(site: str, path: str, asked: Mapping[ExecutorId, int]) -> str:
    """Why something cannot be had: those that could send it are there, and do not answer."""
    which = ", ".join(map(str, sorted(asked)))
    return (
        f"{path} lies at {site}, and {counted(len(asked), 'executor')} there ({which}) did not answer within"
        f" {_SILENT:g} s: its storage may hang, retry the task when it is well again"
    )
