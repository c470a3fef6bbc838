"""Exponential: the first request is for one pilot, each that follows for twice as many (Raicu 2009, 3.2.1, 5.2.1).

n pilots take ceil(log2(n + 1)) requests, the last of which may be smaller.
"""

from __future__ import annotations

from collections.abc import Iterator

from bough.policy.interface import PilotSite


class Exponential:
    """See the module."""

    def requests(self, pilots: int, site: PilotSite, /) -> Iterator[int]:
        """1, 2, 4 and so on."""
        size = 1
        while pilots > 0:
            yield min(size, pilots)
            pilots -= size
            size *= 2
