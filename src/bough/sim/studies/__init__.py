"""Published studies, run again with our scheduler: one module a study, found by its name here.

Rule: a study gives rows of what was published, what we get and how far these are apart, and judges nothing; a figure
that is no agreement says so in its note.
"""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from bough.errors import UserError
from bough.sim.studies.study_rows import StudyRow

STUDIES = {
    "trellisdag": "checkers databases of up to 7 kings under TrellisDAG (Goldenberg, 2003): minimal schedules, "
    "the price of supergroups, few hosts",
    "falkon": "48 resources and 18 stages of tasks under Falkon's provisioner (Raicu, 2009), and under ours",
}


class Study(Protocol):
    """What the module of a study has."""

    def run(self, *, quick: bool) -> list[StudyRow]:
        """Run it."""


def run(name: str, *, quick: bool = False) -> list[StudyRow]:
    """The rows of a study; a quick one leaves out what takes long."""
    if name not in STUDIES:
        raise UserError(f"there is no study {name!r}; there are: {', '.join(STUDIES)}")
    return cast(Study, importlib.import_module(f"bough.sim.studies.{name}")).run(quick=quick)
