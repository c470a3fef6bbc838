"""What this machine has for tasks: the one answer, for the executor that runs here and for sessions that only run here.

Rule: a session refuses at submission what its executor would never start, so both ask here.
"""

from __future__ import annotations

import os

from bough.executor.devices import find_gpus
from bough.model.resources import Needs


def machine_memory() -> int:
    """Bytes of memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def machine_capacity(cores: float, gpus: int | None = None) -> Needs:
    """What the executor of an embedded session has, which was given some cores, and GPUs or else all there are."""
    return Needs(cores=cores, memory=machine_memory(), gpus=len(find_gpus().names) if gpus is None else gpus)
