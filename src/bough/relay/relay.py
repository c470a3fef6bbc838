"""The life of a relay: it listens, keeps one connection to its server, and gets it back when it is lost.

Rule: without a server there are no executors here: they are let go, work on, and come back until there is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import time

import msgspec
import uvloop

from bough.errors import BoughError
from bough.relay import place
from bough.relay.guests import Guests
from bough.relay.log import log
from bough.relay.place import RelayNote
from bough.relay.upstream import find_upstream, link
from bough.transport import home
from bough.transport.access import UNIX, Access
from bough.transport.certificates import make_certificate
from bough.transport.line import Line
from bough.transport.tls import server_context

_FIRST_PAUSE, _MOST_PAUSE = 0.2, 5.0  # seconds between tries to reach the server
_HANDSHAKE = 5.0  # seconds that TLS may take
_LOOK = 1.0  # seconds between updates of the note


class Settings(msgspec.Struct, frozen=True):
    """What `bough relay start` asks for."""

    server: str = ""  # as `find_access` takes it
    listen: str = ""  # HOST:PORT or unix:PATH, empty: a Unix socket in its own folder
    site: str = ""


def relay(settings: Settings) -> int:
    """Run a relay until it is told to end; its exit code. BoughError when it cannot begin."""
    lock = place.lock_folder()
    try:
        find_upstream(settings.server)  # first: what cannot be shall leave no trace
        _allow_many_files()
        return uvloop.run(Relay(settings).live())
    finally:
        place.remove_note()
        lock.release()


def _allow_many_files() -> None:
    """One descriptor for each executor."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Relay:
    """One relay process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._guests = Guests()
        self._address = self._fingerprint = ""
        self._note: RelayNote | None = None
        self._was_linked = False
        self._started = time.time()

    async def live(self) -> int:
        """Relay until told to end."""
        loop = asyncio.get_running_loop()
        self._told_to_end = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._told_to_end.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        server = await self._listen(loop)
        work = [loop.create_task(self._keep_linked()), loop.create_task(self._keep_note())]
        ending = loop.create_task(self._told_to_end.wait())
        log(f"relaying {self._address}; executors are started with --server {place.access_path()}")
        try:
            done, _ = await asyncio.wait([ending, *work], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises what cannot be helped
        finally:
            server.close()
            for task in (ending, *work):
                task.cancel()
            await asyncio.gather(ending, *work, return_exceptions=True)
            if self._guests.line is not None:
                self._guests.line.close()
            if self._address.startswith(UNIX):
                with contextlib.suppress(OSError):
                    os.unlink(self._address.removeprefix(UNIX))
        log("ended")
        return 0

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> asyncio.Server:
        listener, self._address = place.bind(self._settings.listen)
        if self._address.startswith(UNIX):
            return await loop.create_unix_server(self._guests.receive, sock=listener)
        cert, key, self._fingerprint = make_certificate(home.relay_dir())
        return await loop.create_server(
            self._guests.receive,
            sock=listener,
            ssl=server_context(cert, key),
            ssl_handshake_timeout=_HANDSHAKE,
            ssl_shutdown_timeout=1.0,
        )

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
                    log(f"{said}; trying again")
            else:
                said, pause = "", 0.0
                self._guests.line = line
                reason = await lost
                self._guests.line = None
                log(f"the server is gone: {reason}; executors are let go until it is back")
            pause = min(_MOST_PAUSE, 1.5 * pause) if pause else _FIRST_PAUSE
            await asyncio.sleep(pause)

    async def _link(self, lost: asyncio.Future[str]) -> Line:
        upstream, credentials = find_upstream(self._settings.server)  # again: a token may have been rotated
        self._publish(credentials)

        def on_lost(reason: str) -> None:
            if not lost.done():
                lost.set_result(reason)

        line = await link(upstream, self._settings.site, on_lost)
        self._was_linked = True
        log(f"linked to the server at {upstream.address}")
        return line

    def _publish(self, credentials: Access) -> None:
        """Write what executors need: our own address and pin, and the token that they prove to the server."""
        access = Access(self._address, self._fingerprint, credentials.role, credentials.token, credentials.proven_to)
        place.publish_access(access)

    async def _keep_note(self) -> None:
        """Say in `relay.json` what is so, whenever it changes."""
        while True:
            line = self._guests.line
            note = RelayNote(
                os.getpid(),
                socket.gethostname(),
                self._address,
                place.access_path(),
                self._settings.server,
                self._started,
                line is not None,
                len(line) if line is not None else 0,
            )
            if note != self._note:
                self._note = note
                try:
                    await asyncio.to_thread(place.write_note, note)
                except BoughError as error:  # a full disk only keeps others from seeing it
                    log(str(error))
            await asyncio.sleep(_LOOK if self._was_linked else 0.05)
