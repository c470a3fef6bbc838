"""Refuses work that can never run in a session that only this machine serves.

Rule: the error names what is needed, what there is, and what to do; nothing of the submission is stored by then.
"""

from __future__ import annotations

from bough.errors import InvalidWorkload
from bough.executor.machine_capacity import machine_capacity
from bough.model.resources import Needs, describe


def refuse_impossible(needs: Needs, cores: float, gpus: int | None = None) -> None:
    """Raise an error if an embedded session with some cores and GPUs can never have what is needed."""
    lacking = needs.beyond(machine_capacity(cores, gpus))
    if not lacking:
        return
    wanted = describe({name: amount for name, (amount, _) in lacking.items()})
    there = [describe({name: most}) if most else f"no {name}" for name, (_, most) in lacking.items()]
    raise InvalidWorkload(
        f"this can never run: it needs {wanted}, and this session has {' and '.join(there)}; ask for less, or give the"
        " work to a service (bough server start), which executors on other machines can join (bough executor start)"
    )
