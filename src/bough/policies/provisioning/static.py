"""Static: every site has all the pilots that it may have for as long as there is something to do.

This is Falkon with an endless idle time (Raicu 2009, 5.3.2, "Falkon-inf"): nothing waits for an allocation, and much is
idle. Rule: where nothing of what is ready could run nothing is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from bough.policy.interface import AskFor, ProvisioningView


class Static:
    """See the module."""

    def provision(self, view: ProvisioningView, /) -> Iterator[AskFor]:
        """One wish a site."""
        if not view.unfinished:
            return
        needs = [demand.needs for demand in view.demand()]
        for site in view.sites():
            if site.room and (site.pilots or any(site.could_fit(one) for one in needs)):
                yield AskFor(site.name, site.room, "the site has all its pilots while there is something to do")
