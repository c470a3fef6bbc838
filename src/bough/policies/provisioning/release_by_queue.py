"""Centralised release: by the length of the queue (Raicu 2009, 3.2.1; spec 3.9).

Nothing ready: all that is idle is released. Fewer than `q` tasks ready: one. Pilots that wait go, too, if nothing is
ready and nothing is to come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bough.policy.interface import PilotSite, ProvisioningView, Release


class ReleaseByQueue:
    """See the module."""

    def __init__(self, fewest: int = 1) -> None:
        self._fewest = fewest  # q

    def release(self, view: ProvisioningView, sites: Sequence[PilotSite], /) -> Iterator[Release]:
        """All that is idle, or one."""
        demands = list(view.demand())
        for site in sites:
            ready = sum(demand.ready for demand in demands if site.could_fit(demand.needs))
            if ready >= self._fewest:
                continue
            idle = site.idle()
            for pilot in idle if not ready else idle[:1]:
                yield Release(pilot.id, "the queue is empty" if not ready else f"fewer than {self._fewest} tasks wait")
            if not ready and not view.unfinished:
                for pilot in site.waiting():
                    yield Release(pilot.id, "there is nothing left to do")
