"""What sites have in common whose pilots are started from one host, reached by SSH or this very machine.

The connection, the look around, the archive of `bootstrap`, the way back to the server. Rules: the access file arrives
by stdin and has mode 0600; the host needs Python 3.11 or newer and nothing else; what is there is looked at again after
every connect. A kind that builds on it adds its steps, and how pilots are started, looked at and ended.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Final

import msgspec

from bough.model.sites.resources import show_bytes
from bough.model.sites.site_specs import PilotId, SiteSpec
from bough.sites.head.bootstrap import OWN, Archive, make_archive, only_commands, read_platform
from bough.sites.head.errands import PATIENCE, Connection, LocalConnection
from bough.sites.head.head_relay import GIVE_UP
from bough.sites.head.ssh_connection import SshConnection
from bough.sites.own_kinds import check_space, pilot_words, run_step
from bough.sites.site_kind import Checked, SentFile, Surroundings
from bough.transport.access import NO_CERTIFICATE, UNIX, Access

_SKEW: Final = 30.0  # seconds that clocks may differ: access and timestamps do not need more
_LOAD: Final = 600.0  # seconds for the archive to arrive


class HeadSite:
    """See the module."""

    steps: tuple[str, ...] = ("reach", "python", "space", "clock", "bootstrap", "tunnel")
    give_up = GIVE_UP  # seconds that an executor waits for a server

    def __init__(self, name: str, spec: SiteSpec, around: Surroundings) -> None:
        self._name = name
        self._spec = spec
        self._around = around
        self._connection = self._connect()
        self._platform = OWN  # of the Python there, as far as is known
        self._archive: Archive | None = None
        self._there: dict[str, Any] = {}  # what the last look has found
        self._is_ready = False  # the archive is there, and the way back
        self._opening = asyncio.Lock()

    def _connect(self) -> Connection:
        if not self._spec.ssh:
            return LocalConnection(self._spec.python)
        control = os.path.join(self._around.folder, self._around.key[:12])
        login = f"bough site login {self._name}"
        return SshConnection(self._spec.ssh, self._spec.python, control, self._around.on_lost, login)

    # --- tests -------------------------------------------------------------------------------------

    async def check(self, step: str) -> Checked:
        """Look at one thing; what went wrong is the line."""
        return await run_step(self, step)

    async def _check_reach(self) -> Checked:
        await self._reach()
        if not self._spec.ssh:
            return Checked(True, "pilots are started from this machine")
        return Checked(True, f"ssh {self._spec.ssh} connects, and its host key is known")

    async def _check_python(self) -> Checked:
        found = await self._look()
        what = f"{self._connection.python} is Python {found['python']}, {found['cores']} cores"
        return Checked(True, what + only_commands(found["python"]))

    async def _check_space(self) -> Checked:
        return check_space(self._spec, await self._look())

    async def _check_clock(self) -> Checked:
        before = time.time()
        found = await self._look()
        after = time.time()
        skew = max(before - found["time"], found["time"] - after, 0.0)
        if skew > _SKEW:
            return Checked(False, f"its clock differs by {skew:.0f} s from the one here: have both set by NTP")
        return Checked(True, f"its clock differs by {skew:.1f} s")

    async def _check_bootstrap(self) -> Checked:
        sent = await self._install()
        there = f"{show_bytes(sent)} were sent" if sent else "it is there already"
        return Checked(True, f"Bough runs from its own folder there: {there}")

    async def _check_tunnel(self) -> Checked:
        await self.open()
        return Checked(True, f"executors there reach this server through {self._way()}")

    # --- the connection ----------------------------------------------------------------------------

    def login_words(self) -> list[str]:
        """The command by which a user logs in from a terminal; none: that is not needed."""
        return self._connection.login_words()

    async def open(self) -> None:
        """Be connected, with the archive and the way back in place."""
        async with self._opening:
            await self._reach()
            if not self._is_ready:
                await self._look()
                await self._install()
                await self._make_way()
                self._is_ready = True

    async def fetch(self, path: str, target: str, known: str) -> SentFile:
        """Bring a file of the site's storage here."""
        await self._reach()
        return await self._connection.fetch({"what": "send", "key": "", "path": path, "known": known}, target)

    async def _reach(self) -> None:
        """Be connected; what a connection before this one had made ready is not so any more."""
        if await self._connection.open():
            self._is_ready = False

    async def _look(self) -> dict[str, Any]:
        await self._reach()
        loop = asyncio.get_running_loop()
        for _ in range(2):  # the first time it may turn out that the Python there is another one than ours
            platform, self._platform = self._platform, OWN  # if this one cannot be made, it is asked for again
            self._archive = await loop.run_in_executor(None, make_archive, self._around.cache, platform)
            self._there = await self._errand(
                "look", digest=self._archive.digest, shared_dir=self._spec.shared_dir, tag=OWN.tag
            )
            self._platform = read_platform(self._there)
            if self._platform == platform:
                break
        return self._there

    async def _install(self) -> int:
        """Send the archive if it is not there; how many bytes were sent."""
        found = await self._look()
        if found["installed"] or self._archive is None:
            return 0
        await self._errand("install", self._archive.data, _LOAD, digest=self._archive.digest)
        return len(self._archive.data)

    async def _make_way(self) -> None:
        """Put the access file there by which executors reach the server; the one place that says how they do."""
        access = Access(f"{UNIX}{self._way()}", NO_CERTIFICATE, "execute", self._around.token)
        await self._errand("prepare", msgspec.json.encode(access))
        await self._connection.forward(self._there["socket"], self._around.socket)

    def _way(self) -> str:
        return self._connection.way(self._there["socket"], self._around.socket)

    async def _errand(
        self, what: str, load: bytes = b"", patience: float = PATIENCE, **fields: object
    ) -> dict[str, Any]:
        return await self._connection.errand({"what": what, "key": self._around.key, **fields}, load, patience)

    def _executor(self, pilot: PilotId) -> dict[str, Any]:
        """What the other side has to know to start the executor of a pilot."""
        assert self._archive is not None
        spec = self._spec
        idle = 0.0 if spec.min_pilots else spec.idle  # where some are kept the server lets go of the others
        words = pilot_words(self._name, spec, self._around, pilot, idle=idle, give_up=self.give_up)
        if spec.cores_per_pilot:
            words += ["--cores", f"{spec.cores_per_pilot:g}"]
        if spec.executors_per_host > 1:
            words += ["--executors", str(spec.executors_per_host)]
        if spec.container_command:
            words += ["--container-command", spec.container_command]
        common = {"setup": spec.setup, "digest": self._archive.digest, "shared_dir": spec.shared_dir}
        return {"pilot": pilot, "words": words, **common}

    async def forget(self) -> None:
        """Remove the access file and what else is there of this site."""
        await self._reach()
        await self._errand("forget")
        await self._connection.log_out()
        self._is_ready = False

    async def close(self) -> None:
        """Hang up."""
        await self._connection.close()
        self._is_ready = False
