"""Available: what the site says is free now, and the rest when there is more (Raicu 2009, 5.2.1, there *optimal*).

Falkon did not have it, because batch systems rarely say what is free. At a site that does not say it, one pilot waits
at a time: while it waits nothing is free, and when it has come there may be more.
"""

from __future__ import annotations

from collections.abc import Iterator

from bough.policy.interface import PilotSite


class Available:
    """See the module."""

    def requests(self, pilots: int, site: PilotSite, /) -> Iterator[int]:
        """At most one."""
        free = site.available if site.available is not None else int(not site.starting)
        if min(pilots, free) > 0:
            yield min(pilots, free)
