"""One at a time: as many requests as pilots are lacking, each for one (Raicu 2009, 3.2.1, 5.2.1; n requests).

Best at a busy site, where small requests are filled in between others; each costs the batch system some time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from bough.policy.interface import PilotSite


class OneAtATime:
    """See the module."""

    def requests(self, pilots: int, site: PilotSite, /) -> Iterator[int]:
        """Each for one."""
        return repeat(1, pilots)
