"""Where a program shows things: a terminal, a notebook, a pipe; with colours or without.

Rule: IPython is looked for among the modules that are loaded, never imported to find out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

_NO = frozenset({"0", "no", "off", "false"})


def has_colour(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a stream should get colours: a terminal, and NO_COLOR is not set."""
    return not environment.get("NO_COLOR") and environment.get("TERM") != "dumb" and stream.isatty()


def show_seconds(seconds: float) -> str:
    """A duration as people say it: 0.42 s, 12.3 s, 4 min 05 s, 3 h 07 min."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def notebook() -> Any | None:
    """IPython's shell, if it is that of a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell if getattr(shell, "kernel", None) is not None else None


def after_each_cell(call: Callable[[], object]) -> Callable[[], None]:
    """Have something called at the end of each cell, if this is a notebook; a function that ends that."""
    events = getattr(notebook(), "events", None)
    if events is None:
        return lambda: None

    def at_end(*_: object) -> None:
        call()

    events.register("post_run_cell", at_end)
    return lambda: events.unregister("post_run_cell", at_end)


def is_watched_by_people(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a picture may be drawn unasked: on a terminal, and not in tests, a CI or a prompt of Python's."""
    if "pytest" in sys.modules or environment.get("CI") or hasattr(sys, "ps1"):
        return False
    return environment.get("TERM") != "dumb" and stream.isatty()


def environment_switch(name: str) -> bool | None:
    """What a variable of the environment says: yes, no, or nothing."""
    said = os.environ.get(name, "").strip().lower()
    return None if not said else said not in _NO
