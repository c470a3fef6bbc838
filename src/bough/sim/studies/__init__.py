"""Published studies, run again with our scheduler: one module a study, found by its name here.

Rule: a study gives rows of what we get, what that is compared with, whose figure that is and how far these are apart,
and judges nothing; a figure that is no agreement says so in its note.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, cast

from bough.errors import UserError
from bough.sim.studies.study_rows import StudyResult


class StudyEntry(NamedTuple):
    """Where a study is, and what it is about."""

    module: str
    about: str
    is_campaign: bool = False  # many simulations that do not know of each other: `run` takes `full` and `each`


STUDIES = {
    "trellisdag": StudyEntry(
        "trellisdag",
        "checkers databases of up to 7 kings under TrellisDAG (Goldenberg, 2003): minimal schedules, "
        "the price of supergroups, few hosts",
    ),
    "data-conscious": StudyEntry(
        "data_conscious_study",
        "pipelines of BLAST and parsing over 2 to 32 placeholders under FCFS, SJF and Data-Conscious scheduling (Lamb)",
    ),
    "batching": StudyEntry(
        "batching", "3,916 proteins through BLAST and parsing, by how many tasks go out with one call (Lamb)"
    ),
    "provisioning": StudyEntry(
        "falkon", "48 resources and 18 stages of tasks under Falkon's provisioner (Raicu, 2009), and under ours"
    ),
    "storage-affinity": StudyEntry(
        "storage_affinity_study",
        "six executions of a job with 2 GB of input over a grid, under Storage Affinity, WQR and XSufferage (Santos "
        "Neto, 2004): 120 cells once; --quick: 6 of them; --full: 25 times each",
        is_campaign=True,
    ),
    "data-diffusion": StudyEntry(
        "data_diffusion_study",
        "caches on nodes beside a shared file system (Raicu, 2009): growing and waving arrivals, all pairs, stacking; "
        "made smaller: --full runs them whole",
        is_campaign=True,
    ),
    "diffusion-model": StudyEntry(
        "diffusion_model_study",
        "the abstract model of data diffusion (Raicu, 2009) beside live runs of our own that are recorded in it",
    ),
    "two-mark": StudyEntry(
        "two_mark_study", "2Mark, caches that cooperate (Raicu, 2009): what each phase costs beside the best, on traces"
    ),
}


class Study(Protocol):
    """What the module of a study has."""

    def run(self, *, quick: bool) -> StudyResult:
        """Run it."""


class Campaign(Protocol):
    """What the module of a study has that consists of many simulations."""

    def run(self, *, quick: bool, full: bool, each: Callable[..., Iterable[object]]) -> StudyResult:
        """Run it."""


def run(
    name: str, *, quick: bool = False, full: bool = False, each: Callable[..., Iterable[object]] = map
) -> StudyResult:
    """The rows and figures of a study; a quick one leaves out what takes long, a full one nothing.

    `each` runs the simulations of a campaign, as `map` does.
    """
    if name not in STUDIES:
        raise UserError(f"there is no study {name!r}; there are: {', '.join(STUDIES)}")
    entry = STUDIES[name]
    module = importlib.import_module(f"bough.sim.studies.{entry.module}")
    if entry.is_campaign:
        return cast(Campaign, module).run(quick=quick, full=full, each=each)
    return cast(Study, module).run(quick=quick)
