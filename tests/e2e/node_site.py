"""A kind of site for tests: pilots are executors on a compute node behind the head node that SSH reaches.

As the kind `ssh`, with the words of `setup` in front of the executor, which lead it to the compute node, and the
access file of the head node's relay.
"""

from __future__ import annotations

from typing import Any

from bough.model.sites.site_specs import SiteSpec
from bough.sites.head.head_relay import HeadRelay
from bough.sites.site_kind import Surroundings
from bough.sites.ssh_site import SshSite


class NodeSite(SshSite):
    """See the module."""

    def __init__(self, name: str, spec: SiteSpec, around: Surroundings) -> None:
        super().__init__(name, spec, around)
        self.relay = HeadRelay(name, spec.relay_address, self._errand, self._digest)
        self.access = ""

    def _digest(self) -> str:
        assert self._archive is not None
        return self._archive.digest

    async def _make_way(self) -> None:
        await super()._make_way()
        self.access = await self.relay.ensure()

    async def _errand(self, what: str, load: bytes = b"", patience: float = 30.0, **fields: object) -> dict[str, Any]:
        if what == "start":
            fields["access"] = self.access
        found = await super()._errand(what, load, patience, **fields)
        await self.relay.mend(found)
        return found
