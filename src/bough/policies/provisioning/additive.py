"""Additive: the first request is for one pilot, each that follows for one more (Raicu 2009, 3.2.1, 5.2.1).

n pilots take ceil((sqrt(8n + 1) - 1) / 2) requests, the last of which may be smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from bough.policy.interface import PilotSite


class Additive:
    """See the module."""

    def requests(self, pilots: int, site: PilotSite, /) -> Iterator[int]:
        """1, 2, 3 and so on."""
        for size in count(1):
            if pilots <= 0:
                return
            yield min(size, pilots)
            pilots -= size
