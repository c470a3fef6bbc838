"""Refuses work that can never run in a session that only this machine serves.

Rule: the error names what is needed, what there is, and what to do; nothing of the submission is stored by then.
"""

from __future__ import annotations

import socket

from bough.errors import InvalidWorkload
from bough.executor.host.machine_capacity import machine_attributes, machine_capacity
from bough.model.sites.requirements import as_known, read_requirement
from bough.model.sites.resources import OWN_PYTHON, Needs, describe

LOCAL = "local"  # the site that is this machine


def refuse_impossible(needs: Needs, cores: float, gpus: int | None = None) -> None:
    """Raise an error if an embedded session with some cores and GPUs can never have what is needed."""
    if needs.sites and LOCAL not in needs.sites:
        raise InvalidWorkload(
            f"this can never run: it is bound to {', '.join(needs.sites)}, and this session runs on this machine only,"
            f" which is the site {LOCAL}; open it with bough.Session(sites=[...])"
        )
    if needs.requires:
        _refuse_unmet(needs.requires, machine_capacity(cores, gpus))
    lacking = needs.beyond(machine_capacity(cores, gpus))
    if not lacking:
        return
    wanted = describe({name: amount for name, (amount, _) in lacking.items()})
    there = [describe({name: most}) if most else f"no {name}" for name, (_, most) in lacking.items()]
    raise InvalidWorkload(
        f"this can never run: it needs {wanted}, and this session has {' and '.join(there)}; ask for less, or give the"
        " work to a service (bough server start), which executors on other machines can join (bough executor start)"
    )


def _refuse_unmet(requires: str, capacity: Needs) -> None:
    known = as_known(tuple(machine_attributes().items())) | {
        "cores": capacity.cores,
        "memory_gb": capacity.memory / 1e9,
        "gpus": capacity.gpus,
        "site": LOCAL,
        "host": socket.gethostname(),
        "python": OWN_PYTHON,
    }
    unmet = [f"{part}: this machine has {has}" for part, has in read_requirement(requires).unmet(known)]
    if unmet:
        raise InvalidWorkload(
            f"this can never run: it requires {'; '.join(unmet)}; ask for less, or open the session with sites that"
            " have it: bough.Session(sites=[...])"
        )
