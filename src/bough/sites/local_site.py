"""The machine on which the server runs, as a site: a pilot is an executor here.

Rule: pilots are started, found and ended by the same errands as on a host that SSH reaches, without the way there.
"""

from __future__ import annotations

from bough.errors import UserError
from bough.model.sites.site_specs import SiteSpec
from bough.sites.site_kind import Surroundings
from bough.sites.ssh_site import DirectSite


class LocalSite(DirectSite):
    """See `site_kind`."""

    steps = ("python", "space")
    give_up = 600.0

    def __init__(self, name: str, spec: SiteSpec, around: Surroundings) -> None:
        if spec.ssh or spec.python or spec.batch != "none":
            raise UserError(f"site {name} is this machine: it has no ssh, python and batch of its own")
        super().__init__(name, spec, around)
