"""What our own kinds of sites share: a step of a test, room on a disk, and the options of a pilot's executor.

Rule: nothing here speaks with a site.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from bough.errors import SiteError
from bough.model.sites.resources import show_bytes
from bough.model.sites.site_specs import PLENTY, RESOURCE, PilotId, SiteSpec, cache_words
from bough.sites.site_kind import Checked, Surroundings

_ROOM: Final = 100_000_000  # bytes that must be free where executors run


async def run_step(kind: object, step: str) -> Checked:
    """Look at one thing, as `_check_STEP` of a kind does; what went wrong is the line."""
    try:
        return await getattr(kind, f"_check_{step}")()  # type: ignore[no-any-return]
    except SiteError as error:
        return Checked(False, str(error))


def check_space(spec: SiteSpec, found: Mapping[str, Any]) -> Checked:
    """Whether there is room where executors write, as a look at the site has found it."""
    place, free = spec.shared_dir or found["folder"], show_bytes(found["free"])
    if found["free"] < _ROOM:
        return Checked(False, f"{place} has {free} free, {show_bytes(_ROOM)} are needed: free some")
    return Checked(True, f"{place} has {free} free")


def pilot_words(
    name: str, spec: SiteSpec, around: Surroundings, pilot: PilotId, *, idle: float, give_up: float
) -> list[str]:
    """Options of the executor of a pilot. `idle`, `give_up`: seconds that it waits for work, and for a server."""
    words = ["--site", name, "--pilot", str(pilot), "--idle-timeout", f"{idle:g}"]
    words += ["--give-up", f"{give_up:g}", "--resource", f"{RESOURCE}{name}={PLENTY}"]
    words += cache_words(spec)
    if spec.shared_dir:
        words += ["--work", os.path.join(spec.shared_dir, f"bough-{around.key[:12]}", str(pilot))]
    return words
