"""Where big values lie in memory, and how much of it they may take.

They lie in folders of /dev/shm that only their user can reach: one of the script, with what its calls get, and one of
its server, with results. A folder is locked while its process lives (`private.TemporaryFolder`). Rule: who sees a
script end, its server or its executor, removes what it left; so does the next session.
"""

from __future__ import annotations

import functools
import os
from typing import Final

from bough.errors import BadValue
from bough.model.ids import read_bytes

MEMORY: Final = "/dev/shm"  # a file system that is memory
VALUES: Final = "values"  # the kind of these folders
VARIABLE: Final = "BOUGH_VALUE_MEMORY"  # most bytes that arguments, and results, of a session may take, as in "4GB"
_SHARE: Final = 0.3  # of the machine's memory, by default
_OF_FREE: Final = 0.5  # of what /dev/shm has left, by default


def value_memory(memory: str = MEMORY) -> int:
    """Bytes that the arguments, or the results, of a session may take: as the user says, or a part of what is free."""
    said = os.environ.get(VARIABLE)
    if said:
        try:
            return read_bytes(said)
        except ValueError:
            raise BadValue(f"${VARIABLE} is {said!r:.40}; give an amount of memory, such as 4GB") from None
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(min(machine * _SHARE, free_bytes(memory) * _OF_FREE))


def is_memory(descriptor: int) -> bool:
    """Whether an open file lies in memory."""
    return os.fstat(descriptor).st_dev == _device()


@functools.cache
def _device() -> int:
    try:
        return os.stat(MEMORY).st_dev
    except OSError:
        return -1


def free_bytes(folder: str) -> int:
    """Bytes that the file system of a folder has free; 0 when it cannot be asked."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize
