"""The links of a platform, and which of them bytes cross from one place to another.

Each host has a link (`nic`) and disks, each site a link to the rest of the world (`uplink`), and home has one. A link
has two directions that do not disturb each other. Hosts of one site reach each other without its uplink.
Rule: a link that the platform does not name is not there, and takes no time; links are made when they are needed first.
"""

from __future__ import annotations

from random import Random

from bough.model.ids import Seconds
from bough.sim.data.simulated_store import SimulatedStore
from bough.sim.platforms.availability_traces import Trace
from bough.sim.platforms.link_specs import LinkSpec, read_rate
from bough.sim.platforms.network import Link
from bough.sim.platforms.platform import Platform, SitePlatform

Route = tuple[Link, ...]
_IN, _OUT = "in", "out"


class Topology:
    """See the module."""

    def __init__(self, platform: Platform, seed: int = 0) -> None:
        self.platform = platform
        self._seed = seed
        self.varying: dict[Link, tuple[float, Trace]] = {}  # full bandwidth, and how much of it there is
        self._links: dict[tuple[str, str, str], Link | None] = {}  # by kind, whose it is, direction
        self._routes: dict[tuple[str, str, str, str], Route] = {}
        self._local: dict[tuple[str, str, str, bool], Route] = {}  # between a task and the store that it uses

    def links(self) -> list[Link]:
        """All that there are so far."""
        return [link for link in self._links.values() if link is not None]

    def site(self, name: str) -> SitePlatform:
        """What the platform says of a site; one that it does not know has no links and no bounds."""
        return self.platform.site.get(name, _BARE)

    def from_home(self, store: SimulatedStore) -> Route:
        """From home to a store."""
        return self._route(("", "home"), (store.site, store.name))

    def to_home(self, store: SimulatedStore) -> Route:
        """From a store to home."""
        return self._route((store.site, store.name), ("", "home"))

    def between(self, source: SimulatedStore, target: SimulatedStore) -> Route:
        """From one store to another."""
        return self._route((source.site, source.name), (target.site, target.name))

    def reading(self, site: str, host: str, *, shared: bool) -> Route:
        """From the store of a host, or of its site, to a task on that host."""
        key = "read", site, host, shared
        known = self._local.get(key)
        if known is None:
            disk = self._disk("read", site, "" if shared else host)
            # free within a site unless its store has a speed
            nic = self._nic(site, host, _IN) if shared and disk is not None else None
            known = self._local[key] = tuple([link for link in (disk, nic) if link is not None])
        return known

    def writing(self, site: str, host: str, *, shared: bool) -> Route:
        """From a task to the store of its host, or of its site."""
        key = "write", site, host, shared
        known = self._local.get(key)
        if known is None:
            disk = self._disk("write", site, "" if shared else host)
            nic = self._nic(site, host, _OUT) if shared and disk is not None else None
            known = self._local[key] = tuple([link for link in (nic, disk) if link is not None])
        return known

    def latency(self, route: Route) -> Seconds:
        """Before its first byte."""
        return sum(link.latency for link in route)

    def _route(self, source: tuple[str, str], target: tuple[str, str]) -> Route:
        key = (*source, *target)
        known = self._routes.get(key)
        if known is None:
            known = self._routes[key] = tuple(self._find(source, target))
        return known

    def _find(self, source: tuple[str, str], target: tuple[str, str]) -> list[Link]:
        found: list[Link | None] = []
        (from_site, from_host), (to_site, to_host) = source, target
        if from_site:
            found.append(self._disk("read", from_site, from_host))
            found.append(self._nic(from_site, from_host, _OUT) if from_host else None)
        if from_site != to_site:
            found.append(self._uplink(from_site, _OUT))
            found.append(self._uplink(to_site, _IN))
        if to_site and to_host:
            found.append(self._nic(to_site, to_host, _IN))
        return [link for link in found if link is not None]

    def _uplink(self, site: str, way: str) -> Link | None:
        """Of a site, or of home (no site)."""
        return self._link("uplink", site, way, self.site(site).uplink if site else self.platform.home)

    def _nic(self, site: str, host: str, way: str) -> Link | None:
        return self._link("nic", f"{site}/{host}", way, self.site(site).nic)

    def _disk(self, kind: str, site: str, host: str) -> Link | None:
        """Of a host, or of the store of a site (no host)."""
        spec = self.site(site)
        rate = read_rate(spec.disk_read if kind == "read" else spec.disk_write)
        return self._link("disk", f"{site}/{host}", kind, LinkSpec(rate) if rate else None)

    def _link(self, kind: str, owner: str, way: str, spec: LinkSpec | None) -> Link | None:
        key = kind, owner, way
        if key not in self._links:
            name = f"{kind} {owner or 'home'} {way}"
            link = self._links[key] = spec.make(name) if spec is not None else None
            if link is not None and spec is not None and spec.availability is not None:
                self.varying[link] = (
                    link.bandwidth,
                    spec.availability.make(Random(f"availability {self._seed} {name}")),
                )
        return self._links[key]


_BARE = SitePlatform()
