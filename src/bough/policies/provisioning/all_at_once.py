"""All at once: one request for all that is lacking (Raicu 2009, 3.2.1, 5.2.1; n resources, 1 request).

Best at an idle site; at a busy one a big request may wait for long.
"""

from __future__ import annotations

from collections.abc import Iterator

from bough.policy.interface import PilotSite


class AllAtOnce:
    """See the module."""

    def requests(self, pilots: int, site: PilotSite, /) -> Iterator[int]:
        """One."""
        yield pilots
