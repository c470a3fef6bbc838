"""The relay that Bough runs on a site's head node, for executors on compute nodes that reach nothing but that.

It is `bough relay start` from the program folder of the bootstrap, which forwards: the server sees every executor with
its pilot, and if the relay dies no work is lost. It finds the server by the socket there that the site's connection
forwards, and listens by TLS where the definition says. Rules: it is started once, and found by its host and process;
its certificate is made here and travels by stdin, so that bare Python does there; the access file for compute nodes
lies in the site's folder, which they share, and its token opens that site's socket only. It outlives the connection,
and ends with the site, soon after the last pilot, or by itself when there has been no server for as long as executors
wait for one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from bough.errors import SiteError
from bough.transport.tls import new_certificate

GIVE_UP: Final = 7200.0  # seconds without a server: a laptop sleeps for an hour
_EVERYWHERE: Final = "0.0.0.0"
_CANNOT: Final = "cannot listen"  # as a relay says it
_STARTING: Final = 45.0  # seconds for it to begin


class Errand(Protocol):
    """Has something done at the site, see `far_side`."""

    async def __call__(self, what: str, load: bytes = b"", patience: float = 30.0, **fields: object) -> dict[str, Any]:
        """The answer; SiteError when it could not be done."""


class HeadRelay:
    """See the module. `address`: where it listens, HOST or HOST:PORT; empty: at all addresses, any port.

    `digest` says which program of the bootstrap is there now.
    """

    def __init__(
        self, site: str, address: str, errand: Errand, digest: Callable[[], str], give_up: float = GIVE_UP
    ) -> None:
        self._errand = errand
        self._digest = digest
        self._words = ["--listen", listen_address(address), "--site", site, "--give-up", f"{give_up:g}"]
        self._lock = asyncio.Lock()
        self._rests = False  # it was ended because there was no pilot
        self.access = ""  # the path there of the access file for compute nodes, once it runs
        self.address = ""  # where it listens
        self.is_linked = False  # it had found the server when it was looked at last

    async def ensure(self) -> str:
        """Have it run; the path there of the access file for compute nodes.

        The program and the way to the server must be there. To be called whenever that was opened anew: it may have
        ended meanwhile, and a name that leads to several hosts may have led to another one.
        """
        async with self._lock:
            await self._run()
        return self.access

    async def _run(self) -> None:
        key, certificate = new_certificate()
        load = json.dumps({"certificate": certificate.decode(), "key": key.decode()}).encode()
        try:
            found = await self._errand("relay", load, _STARTING, digest=self._digest(), words=self._words)
        except SiteError as error:
            if _CANNOT not in str(error):
                raise
            raise SiteError(f"{error}; name another of its addresses with --relay-address") from error
        self.access, self.address = str(found["access"]), str(found["address"])
        self.is_linked, self._rests = bool(found["linked"]), False

    async def rest(self) -> None:
        """There is no pilot: end it, unless an executor is behind it all the same."""
        async with self._lock:
            self._rests = True  # also if that is cut off: nobody knows then
            await self._errand("rest_relay")

    async def wake(self) -> None:
        """There is a pilot: have it run again if it rests."""
        async with self._lock:
            if self._rests:
                await self._run()

    async def mend(self, answer: Mapping[str, Any]) -> None:
        """Start it again if it has died: who asks there for the statuses of pilots is told that, too."""
        if answer.get("relay") == "dead":
            await self.ensure()

    async def end(self) -> None:
        """End it; nothing if there is none."""
        async with self._lock:
            await self._errand("end_relay")


def listen_address(address: str) -> str:
    """Where a relay is told to listen: HOST:PORT, port 0 for any."""
    if not address:
        return f"{_EVERYWHERE}:0"
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        return f"{address}:0"
    return f"{host}:{port}"
