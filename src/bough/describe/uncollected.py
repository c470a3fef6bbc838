"""Making many things that are all kept, without the collector looking through them for garbage again and again."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected(*, for_ever: bool = False) -> Iterator[None]:
    """Leave the collector aside meanwhile; `for_ever`: it never looks at what was made, for a process soon to end."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if for_ever:
            gc.freeze()
        if collects:
            gc.enable()
