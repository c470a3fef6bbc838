"""Knobs of a session that are best left alone: how tasks are bundled on their way, for who wants to draw curves.

Rule: without them everything is chosen by what was measured.
"""

from __future__ import annotations

from typing import TypedDict

from bough.errors import UserError
from bough.model.bounds import Index, shown, within


class Knobs(TypedDict, total=False):
    """What `Session` takes besides."""

    bundle: int  # most loose tasks in one message to the server, which goes when the one before is acknowledged
    pickup: int  # most tasks that are handed to an executor at once
    piggyback: bool  # False: work never travels with an acknowledgement, an executor asks for it first


def server_words(knobs: Knobs) -> list[str]:
    """What a session's own server is told."""
    pickup = _count("pickup", knobs.get("pickup"))
    words = ["--pickup", str(pickup)] if pickup else []
    return words + (["--no-piggyback"] if knobs.get("piggyback") is False else [])


def read_bundle(knobs: Knobs, *, is_remote: bool = False) -> int:
    """How many tasks go in one message, 0: as many as there are."""
    if is_remote:
        theirs = next((name for name in ("pickup", "piggyback") if name in knobs), "")
        if theirs:
            option = "--pickup N" if theirs == "pickup" else "--no-piggyback"
            raise UserError(f"{theirs} is a matter of the server: start it with {option}")
    return _count("bundle", knobs.get("bundle"))


def _count(name: str, given: object) -> int:
    if given is None:
        return 0
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise UserError(f"{name} is {shown(given)}; give a number of tasks, 1 or more")
    return within(name, given, Index)
