"""Grouped release: the pilots of one allocation leave together (Raicu 2009, 5.2.1, wanted there; spec 2.4, 3.9).

Batch systems often free nothing before the whole request has ended, so a part of it that leaves early helps nobody.
An allocation is released when all of its pilots have been idle for `idle` seconds and nothing is ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bough.policy.interface import AskAgain, PilotSite, PilotView, ProvisioningView, Release


class ReleaseGrouped:
    """See the module."""

    def __init__(self, idle: float = 60.0) -> None:
        self._idle = idle

    def release(self, view: ProvisioningView, sites: Sequence[PilotSite], /) -> Iterator[Release | AskAgain]:
        """Allocations of which nothing is busy, and nothing waits."""
        demands = list(view.demand())
        for site in sites:
            if any(site.could_fit(demand.needs) for demand in demands):
                continue
            groups: dict[int, list[PilotView]] = {}
            for pilot in site.idle():
                groups.setdefault(pilot.allocation, []).append(pilot)
            if groups:
                yield from self._release(view.now, site, groups)

    def _release(self, now: float, site: PilotSite, groups: dict[int, list[PilotView]]) -> Iterator[Release | AskAgain]:
        for allocation, idle in groups.items():
            if len(idle) < site.allocation_size(allocation):
                continue
            due = max(pilot.idle_since for pilot in idle) + self._idle
            if now < due:
                yield AskAgain(due)
                continue
            for pilot in idle:
                yield Release(pilot.id, f"all of allocation {allocation} had nothing to do for {self._idle:g} s")
