"""Sites without a batch system: a pilot is an executor on the host itself, which SSH reaches, or this machine.

The way back is a Unix socket there that our own connection forwards to the server, so that a server behind NAT is
reached. Rules: a pilot that was started before is found by its number, see `far_side`. Executors on a host that SSH
reaches serve others at the address at which it does, and listen at no other; those on this machine serve it alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bough.errors import UserError
from bough.model.sites.site_specs import BY_SSH, PilotId, SiteSpec
from bough.sites.head.head_site import HeadSite
from bough.sites.site_kind import PilotStatus, Surroundings

_ENDING: Final = 30.0  # seconds for pilots to be ended


class DirectSite(HeadSite):
    """A site whose pilots are executors on the host from which they are started."""

    async def submit(self, pilot: PilotId) -> str:
        """Start an executor on the host."""
        await self.open()
        found = await self._errand("start", **self._executor(pilot))
        return str(found["handle"])

    async def statuses(self, pilots: Mapping[PilotId, str]) -> Mapping[PilotId, PilotStatus]:
        """Ask for all of them at once."""
        await self.open()
        found = (await self._errand("statuses", pilots=list(pilots)))["pilots"]
        return {pilot: PilotStatus(found[str(pilot)]["alive"], found[str(pilot)]["reason"]) for pilot in pilots}

    async def cancel(self, pilots: Mapping[PilotId, str]) -> None:
        """End them, and wait for that."""
        await self.open()
        await self._errand("cancel", b"", _ENDING, pilots=list(pilots))


class SshSite(DirectSite):
    """See `site_kind`."""

    def __init__(self, name: str, spec: SiteSpec, around: Surroundings) -> None:
        if not spec.ssh:
            raise UserError(f"site {name} has no address: say --ssh user@host")
        if spec.batch != "none":
            raise UserError(f"site {name} has the batch system {spec.batch}: its kind is batch, not ssh")
        super().__init__(name, spec, around)

    def _executor(self, pilot: PilotId) -> dict[str, Any]:
        """The way to the server is a Unix socket, by which nobody sees the host's address."""
        found = super()._executor(pilot)
        if self._spec.peers:
            found["words"] += ["--peer-address", BY_SSH]
        return found
