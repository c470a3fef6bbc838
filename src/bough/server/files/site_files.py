"""Files of one site's own storage that are read at another: an executor of their site looks, and keeps a copy.

That executor puts what is there into the cache of its host, and says which content it is; from then on it travels as
any content does. It is asked for each reader, because the file may be another one by now; what it has in its cache it
does not read again. Rules: those that want the same at the same time wait for one answer. An executor that leaves
before it answers costs nothing: another one of its site is asked. Without one readers wait for a while, and then hear
why they cannot have it.
"""

from __future__ import annotations

import asyncio

from bough.errors import SiteError
from bough.model.files import site_file
from bough.model.ids import Seconds
from bough.server.peer_connection import PeerConnection
from bough.server.peers import ExecutorPeer
from bough.server.turns.shell import Shell
from bough.wire.file_messages import DIGEST, SeeSiteFile, SiteFileSeen

_PATIENCE: Seconds = 10.0  # with a site that has no executor
_LOOK_AGAIN: Seconds = 0.2


class _Gone(Exception):
    """The executor that was asked has left."""


class SiteFiles:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._last = 0  # number of a request
        self._asked: dict[int, tuple[PeerConnection, asyncio.Future[SiteFileSeen]]] = {}
        self._under_way: dict[str, asyncio.Task[SiteFileSeen]] = {}

    async def see(self, url: str) -> SiteFileSeen:
        """The content that is at such a name now, which a host of its site has then; SiteError when there is none."""
        under_way = self._under_way.get(url)
        if under_way is None:
            under_way = self._under_way[url] = self._shell.loop.create_task(self._see(url))
            under_way.add_done_callback(lambda _: self._under_way.pop(url, None))
        seen = await asyncio.shield(under_way)
        if seen.error:
            raise SiteError(seen.error)
        return seen

    async def _see(self, url: str) -> SiteFileSeen:
        site, path = site_file(url)
        until = self._shell.loop.time() + _PATIENCE
        while True:
            executor = self._executor_of(site)
            if executor is not None:
                try:
                    return await self._ask(executor, url)
                except _Gone:
                    continue
            if self._shell.loop.time() > until:
                why = f"no executor of {site} is here that could send it; start one, or have the task run there"
                return SiteFileSeen(0, error=f"{path} lies at {site}: {why}")
            await asyncio.sleep(_LOOK_AGAIN)

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
