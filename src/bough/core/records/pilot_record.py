"""A pilot: what was asked of a site, and how far that has come.

Rule: a record changes only through `core.pilots`, along the edges of `model.site_specs`; one that ended is forgotten.
"""

from __future__ import annotations

from bough.model.ids import Seconds
from bough.model.site_specs import PilotId, PilotState


class PilotRecord:
    """See the module."""

    __slots__ = ("asked", "handle", "id", "site", "state")

    def __init__(self, id_: PilotId, site: str, asked: Seconds) -> None:
        self.id = id_
        self.site = site
        self.asked = asked  # when
        self.state = PilotState.ASKED
        self.handle = ""  # what the site calls it

    @property
    def starting(self) -> bool:
        """Whether it may still bring executors that are not there yet."""
        return self.state is not PilotState.RUNNING
