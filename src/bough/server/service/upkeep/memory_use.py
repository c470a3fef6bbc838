"""Giving memory that is free back to the system, and saying how much there is.

Rule: only what is free anyway is given back; where the C library cannot, nothing happens.
"""

from __future__ import annotations

import ctypes
import os


def resident() -> int:
    """Bytes of this process that are in memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def give_back() -> None:
    """Return what the C library keeps for later: after much was freed that is most of a process."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return  # not the GNU C library
    trim(0)
