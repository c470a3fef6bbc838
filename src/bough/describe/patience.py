"""Reading without the garbage collector: a big description is many objects that all stay.

The collector would look at all of them again and again, which makes reading slower than linear. Rule: it goes on
afterwards, whatever happened.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep the collector away while a description is read."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
