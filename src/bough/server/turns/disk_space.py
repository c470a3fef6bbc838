"""Tells users and operators that the disk of the store is full, and that everything waits for space.

The server notices itself when it cannot write its journal. Executors and clients that write big results, outputs and
arguments into the store wait by themselves, perhaps while the journal still has room. Rule: it is said once, and
again only after there was space in between.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_LOOK = 1.0  # seconds between looks
_FULL = 256 << 10  # bytes free: what a result that is written beside the journal has at least
_SPACE = 4 * _FULL  # with which it counts as over


class FullDiskNotice:
    """See the module. It looks until the loop ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: str, announce: Callable[[str], None]) -> None:
        self._loop = loop
        self._folder = folder
        self._announce = announce
        self._told = False
        self._look()

    def _look(self) -> None:
        self._loop.call_later(_LOOK, self._look)
        free = free_space(self._folder)
        if free < _FULL and not self._told:
            self._told = True
            text = "is full: free some space; results, outputs and files wait until then"
            self._announce(f"the disk of {self._folder} {text}")
        elif free >= _SPACE and self._told:
            self._told = False
            self._announce(f"there is space again on the disk of {self._folder}")


def free_space(folder: str) -> int:
    """Bytes that we may still write where a folder is; many when that cannot be told."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 1 << 62
    return found.f_bavail * found.f_frsize
