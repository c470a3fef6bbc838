"""What the hosts behind a relay hold: who of the members has which content, and all that a site has behind the relay.

Executors of one host share its cache: one may report what another has brought, or evicted. So a holder is a host, and
what it holds is forgotten when its last member has left. A site's contents are counted: the server hears of one when
the first host of the site has it, and again when the last has lost it. Pure.

Rules: a report concerns the host of its member and no other. No change costs more than what it names, and what it
removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from bough.model.ids import ExecutorId
from bough.wire.file_messages import DIGEST

MOST_HELD: Final = 1 << 20  # contents of one host that are remembered

Held = tuple[bytes, int]  # digest and size


class Host(NamedTuple):
    """Hosts are known by their site and name."""

    site: str
    name: str


class SiteChange(NamedTuple):
    """What a site has behind the relay that it had not, and what it has no more."""

    added: list[Held]
    removed: list[bytes]


class MemberContents:
    """See the module."""

    def __init__(self) -> None:
        self._host_of: dict[ExecutorId, Host] = {}
        self._members: dict[Host, dict[ExecutorId, None]] = {}
        self._held: dict[Host, dict[bytes, int]] = {}  # with their sizes
        self._holders: dict[bytes, dict[Host, None]] = {}
        self._sites: dict[str, dict[bytes, int]] = {}  # how many hosts of a site have a content

    def join(self, member: ExecutorId, host: Host) -> None:
        """An executor is there."""
        self._host_of[member] = host
        self._members.setdefault(host, {})[member] = None

    def leave(self, member: ExecutorId) -> SiteChange:
        """An executor has left for good; with the last one of a host goes what that held."""
        host = self._host_of.pop(member, None)
        if host is None:
            return SiteChange([], [])
        members = self._members[host]
        del members[member]
        if members:
            return SiteChange([], [])
        del self._members[host]
        removed = [digest for digest in self._held.pop(host, {}) if self._lose(host, digest)]
        return SiteChange([], removed)

    def change(
        self, member: ExecutorId, added: Iterable[Held], removed: Iterable[bytes], *, whole: bool = False
    ) -> SiteChange:
        """The cache of a member's host gained and lost something; `whole`: what it gained is all that it holds."""
        host = self._host_of.get(member)
        if host is None:
            return SiteChange([], [])
        held, change = self._held.setdefault(host, {}), SiteChange([], [])
        gained = {digest: size for digest, size in added if len(digest) == DIGEST}
        lost = [digest for digest in held if digest not in gained] if whole else removed
        for digest in lost:
            if held.pop(digest, None) is not None and self._lose(host, digest):
                change.removed.append(digest)
        for digest, size in gained.items():
            if digest not in held and len(held) < MOST_HELD:
                held[digest] = size
                if self._gain(host, digest):
                    change.added.append((digest, size))
        return change

    def _gain(self, host: Host, digest: bytes) -> bool:
        """Whether it is the first of its site."""
        self._holders.setdefault(digest, {})[host] = None
        counts = self._sites.setdefault(host.site, {})
        counts[digest] = counts.get(digest, 0) + 1
        return counts[digest] == 1

    def _lose(self, host: Host, digest: bytes) -> bool:
        """Whether it was the last of its site."""
        holders, counts = self._holders[digest], self._sites[host.site]
        del holders[host]
        if not holders:
            del self._holders[digest]
        counts[digest] -= 1
        if counts[digest]:
            return False
        del counts[digest]
        if not counts:
            del self._sites[host.site]
        return True

    def holders(self, digest: bytes) -> Iterator[tuple[Host, Iterable[ExecutorId]]]:
        """The hosts that hold a content, with their members."""
        for host in self._holders.get(digest, ()):
            yield host, self._members[host]

    def of_site(self, site: str) -> list[Held]:
        """All that a site has behind the relay."""
        found = []
        for digest in self._sites.get(site, ()):
            host = next(host for host in self._holders[digest] if host.site == site)
            found.append((digest, self._held[host][digest]))
        return found
