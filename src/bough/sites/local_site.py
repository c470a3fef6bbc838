"""The machine on which the server runs, as a site: a pilot is an executor here.

Pilots are started, found and ended by the same errands as on a host that SSH reaches, without the way there. Rules: the
executor runs from what is installed here; its access file has mode 0600, and opens the socket of this site only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

import bough
from bough.errors import SiteError, UserError
from bough.model.resources import OWN_PYTHON, show_bytes
from bough.model.site_specs import PLENTY, RESOURCE, PilotId, SiteSpec
from bough.sites import far_side
from bough.sites.site_kind import Checked, PilotStatus, Surroundings
from bough.transport.access import NO_CERTIFICATE, UNIX, Access

_ROOM: Final = 10_000_000  # bytes that must be free
_GIVE_UP: Final = 600.0  # seconds that an executor waits for a server


class LocalSite:
    """See `site_kind`."""

    steps = ("python", "space")

    def __init__(self, name: str, spec: SiteSpec, around: Surroundings) -> None:
        if spec.ssh or spec.python or spec.batch != "none":
            raise UserError(f"site {name} is this machine: it has no ssh, python and batch of its own")
        self._name = name
        self._spec = spec
        self._around = around
        self._is_ready = False  # the access file is there

    async def check(self, step: str) -> Checked:
        """Look at one thing; what went wrong is the line."""
        if step == "python":
            return Checked(True, f"executors run under {sys.executable}, Python {OWN_PYTHON}")
        place = self._spec.shared_dir or far_side.root()
        try:
            await self.open()
            free = shutil.disk_usage(place).free
        except (OSError, SiteError) as error:
            return Checked(False, f"{place} cannot be used: {error}")
        if free < _ROOM:
            return Checked(False, f"{place} has {show_bytes(free)} free, {show_bytes(_ROOM)} are needed: free some")
        return Checked(True, f"{place} has {show_bytes(free)} free")

    async def open(self) -> None:
        """Have the access file in its place."""
        if not self._is_ready:
            access = Access(f"{UNIX}{self._around.socket}", NO_CERTIFICATE, "execute", self._around.token)
            await self._do("prepare", msgspec.json.encode(access))
            self._is_ready = True

    async def _do(self, what: str, load: bytes = b"", **fields: object) -> dict[str, Any]:
        """One errand, in a thread: some wait for processes to end."""
        request = {"what": what, "key": self._around.key, "digest": "", **fields}
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(None, far_side.serve, request, load)
        if "ok" not in answer:
            raise SiteError(f"site {self._name}: {answer['trouble']}")
        found: dict[str, Any] = answer["ok"]
        return found

    async def submit(self, pilot: PilotId) -> str:
        """Start an executor."""
        await self.open()
        spec = self._spec
        words = ["--site", self._name, "--pilot", str(pilot), "--idle-timeout", f"{spec.idle:g}"]
        words += ["--give-up", f"{_GIVE_UP:g}", "--resource", f"{RESOURCE}{self._name}={PLENTY}"]
        if spec.cores_per_pilot:
            words += ["--cores", f"{spec.cores_per_pilot:g}"]
        if spec.container_command:
            words += ["--container-command", spec.container_command]
        if spec.shared_dir:
            words += ["--work", os.path.join(spec.shared_dir, f"bough-{self._around.key[:12]}", str(pilot))]
        programs = os.path.dirname(os.path.dirname(os.path.abspath(bough.__file__)))
        found = await self._do(
            "start", pilot=pilot, words=words, setup=spec.setup, programs=programs, shared_dir=spec.shared_dir
        )
        return str(found["handle"])

    async def statuses(self, pilots: Mapping[PilotId, str]) -> Mapping[PilotId, PilotStatus]:
        """Look for all of them."""
        found = (await self._do("statuses", pilots=list(pilots)))["pilots"]
        for pilot, handle in pilots.items():
            if handle.isdecimal() and not found[str(pilot)]["alive"]:
                with contextlib.suppress(OSError):  # most are children of another server, or of nobody
                    os.waitpid(int(handle), os.WNOHANG)
        return {pilot: PilotStatus(found[str(pilot)]["alive"], found[str(pilot)]["reason"]) for pilot in pilots}

    async def cancel(self, pilots: Mapping[PilotId, str]) -> None:
        """End them, and wait for that."""
        await self._do("cancel", pilots=list(pilots))

    async def forget(self) -> None:
        """Remove the access file and what else is there of this site."""
        await self._do("forget")
        self._is_ready = False

    async def close(self) -> None:
        """There is no connection."""
