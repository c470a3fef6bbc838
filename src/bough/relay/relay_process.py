"""The life of a relay: it listens, keeps one connection to its server, and gets it back when it is lost.

Rules: without a server a relay that forwards has no executors: it closes their connections, they work on and try again
until there is one. A relay that shares out work keeps them, and what they report, until its server is back. A relay
that nobody needs any more ends by itself, if it was told after how long: it may run where nobody looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from bough import logs
from bough.errors import BoughError
from bough.relay import relay_home
from bough.relay.forward import ForwardedPeers
from bough.relay.relay_home import RelayNote
from bough.relay.share_work import WorkSharing
from bough.relay.upstream import find_upstream, link
from bough.transport import home
from bough.transport.access import UNIX, Access
from bough.transport.admission import PeerListener
from bough.transport.listener import TlsListener, allow_many_files
from bough.transport.relay_line import RelayLine
from bough.transport.tls import make_certificate, server_context

_FIRST_PAUSE, _MOST_PAUSE = 0.2, 5.0  # seconds between tries to reach the server
_LOOK = 1.0  # seconds between updates of the note
_PROOF = 20.0  # seconds that an executor has to prove itself: thousands may come at once
_FAREWELL = 0.05  # seconds in which the last messages leave
_DESERTED = 60.0  # seconds after which it gives up if no executor looks for its server either: they try every few


class RelaySettings(msgspec.Struct, frozen=True):
    """What `bough relay start` asks for."""

    server: str = ""  # as `find_access` takes it
    listen: str = ""  # HOST:PORT or unix:PATH, empty: a Unix socket in its own folder
    site: str = ""
    dispatch: bool = False  # share out work, in place of forwarding
    reconnect: float = 60.0  # seconds that an executor behind one that shares out work has to reconnect
    give_up: float = 0.0  # seconds without a server after which it ends, 0: never


def relay(settings: RelaySettings) -> int:
    """Run a relay until it is told to end; its exit code. BoughError when it cannot begin."""
    lock = relay_home.lock_folder()
    try:
        find_upstream(settings.server)  # first: what cannot be shall leave no trace
        allow_many_files()
        return _find_runner()(Relay(settings).live())
    finally:
        relay_home.remove_note()
        lock.release()


def _find_runner() -> Callable[[Coroutine[Any, Any, int]], int]:
    """What runs the loop: uvloop, but for a relay at a site, to which nothing that is compiled but msgspec is sent."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


class Relay:
    """One relay process."""

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings
        self._work_sharing: WorkSharing | None = None
        self._address = self._fingerprint = ""
        self._note: RelayNote | None = None
        self._was_linked = False
        self._started = time.time()
        self._also: tuple[str, ...] = ()  # other addresses at which executors reach it

    async def live(self) -> int:
        """Relay until told to end."""
        loop = asyncio.get_running_loop()
        self._told_to_end = asyncio.Event()
        self._hurry = asyncio.Event()  # somebody says that there is a way to the server again
        self._alone_since = loop.time()  # it has no server
        self._guests = ForwardedPeers(logs.reporter("peer-refused", logs.WARNING))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._told_to_end.set)
        loop.add_signal_handler(signal.SIGHUP, self._hurry.set)
        if self._settings.dispatch:
            self._work_sharing = WorkSharing(self._settings.reconnect)
            gc.freeze()  # what was loaded stays; looking through it again and again is what makes many executors slow
            gc.set_threshold(1_000_000, 50, 100)
        door = self._listen()
        work = [loop.create_task(self._keep_linked()), loop.create_task(self._keep_note())]
        if self._settings.give_up:
            work.append(loop.create_task(self._watch_need()))
        ending = loop.create_task(self._told_to_end.wait())
        logs.info(
            "relay-started", f"relaying {self._address}; executors are started with --server {relay_home.access_path()}"
        )
        try:
            done, _ = await asyncio.wait([ending, *work], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises what cannot be helped
        finally:
            await self._take_leave(door)
            for task in (ending, *work):
                task.cancel()
            await asyncio.gather(ending, *work, return_exceptions=True)
            if self._guests.line is not None:
                self._guests.line.close()
            if self._address.startswith(UNIX):
                with contextlib.suppress(OSError):
                    os.unlink(self._address.removeprefix(UNIX))
        logs.info("relay-ended", "ended")
        return 0

    async def _take_leave(self, door: TlsListener) -> None:
        await door.close()
        if self._work_sharing is not None:
            self._work_sharing.close()
            await asyncio.sleep(_FAREWELL)

    def _listen(self) -> TlsListener:
        listener, self._address, self._also = relay_home.bind(self._settings.listen)
        context = None
        if not self._address.startswith(UNIX):
            cert, key, self._fingerprint = make_certificate(home.relay_dir())
            context = server_context(cert, key)
        if self._work_sharing is None:
            self._guests.serve(listener, context)
            return self._guests
        receive, token = self._work_sharing.receive, self._work_sharing.token
        self._listener = PeerListener(
            receive, token, "", proof_within=_PROOF, say=logs.reporter("peer-refused", logs.WARNING)
        )
        self._door = (listener, context)  # it opens when there is a server
        return self._listener

    async def _keep_linked(self) -> None:
        """Connect, wait until that is lost, connect again."""
        pause = 0.0
        said = ""
        while True:
            lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            try:
                line = await self._link(lost)
            except BoughError as error:
                if not (self._was_linked or getattr(error, "transient", False)):
                    raise  # trying again would not help
                if str(error) != said:
                    said = str(error)
                    logs.warning("server-unreachable", f"{said}; it is dialled again")
            else:
                said, pause = "", 0.0
                self._guests.line = line
                reason = await lost
                self._guests.line = None
                self._alone_since = asyncio.get_running_loop().time()
                if self._work_sharing is not None:
                    self._work_sharing.cut_off()
                logs.warning(
                    "server-lost", f"the server disconnected: {reason}; executors {self._what_happens} until it is back"
                )
            pause = min(_MOST_PAUSE, 1.5 * pause) if pause else _FIRST_PAUSE
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._hurry.wait()
                    pause = 0.0
            self._hurry.clear()

    async def _link(self, lost: asyncio.Future[str]) -> RelayLine:
        upstream, credentials = find_upstream(self._settings.server)  # again: a token may have been rotated
        self._publish(credentials)

        def on_lost(reason: str) -> None:
            if not lost.done():
                lost.set_result(reason)

        line = await link(upstream, self._settings.site, on_lost)
        if self._work_sharing is not None:
            self._work_sharing.linked(line, credentials)
            self._listener.fingerprint = credentials.proven_to
            if not self._was_linked:
                self._listener.serve(*self._door)
        self._was_linked = True
        logs.info("server-linked", f"linked to the server at {upstream.address}")
        return line

    @property
    def _what_happens(self) -> str:
        return "work on" if self._settings.dispatch else "are disconnected"

    def _publish(self, credentials: Access) -> None:
        """Write what executors need: our own address and pin, and the token that they prove to the server."""
        access = Access(
            self._address, self._fingerprint, credentials.role, credentials.token, credentials.proven_to, self._also
        )
        relay_home.publish_access(access)

    async def _watch_need(self) -> None:
        """Return when nobody needs it: no server for long, or neither a server nor executors, or its folder is gone."""
        loop, limit = asyncio.get_running_loop(), self._settings.give_up
        while os.path.exists(home.relay_dir()):
            await asyncio.sleep(_LOOK)
            if self._guests.line is not None:
                continue
            now = loop.time()
            sought_at = now if self._connections() else self._guests.sought_at
            reason = why_give_up(now - self._alone_since, now - sought_at, limit)
            if reason:
                logs.warning("relay-gave-up", reason)
                return
        logs.warning("relay-gave-up", f"the folder {home.relay_dir()} was removed")

    def _connections(self) -> int:
        if self._work_sharing is not None:
            return self._work_sharing.executors
        return len(self._guests.line) if self._guests.line is not None else 0

    async def _keep_note(self) -> None:
        """Say in `relay.json` what is so, whenever it changes."""
        while True:
            line = self._guests.line
            note = RelayNote(
                os.getpid(),
                socket.gethostname(),
                self._address,
                relay_home.access_path(),
                self._settings.server,
                self._started,
                line is not None,
                self._connections(),
                self._settings.dispatch,
            )
            if note != self._note:
                self._note = note
                try:
                    await asyncio.to_thread(relay_home.write_note, note)
                except BoughError as error:  # a full disk only keeps others from seeing it
                    logs.warning("note-not-written", str(error))
            await asyncio.sleep(_LOOK if self._was_linked else 0.05)


def why_give_up(alone: float, unsought: float, limit: float) -> str:
    """Why a relay without a server ends; empty: it does not. Seconds that it is alone, and since an executor came."""
    if alone > limit:
        return f"no server for {limit:g} s"
    return f"neither a server nor executors for {_DESERTED:g} s" if min(alone, unsought) > _DESERTED else ""
