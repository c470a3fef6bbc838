"""Maps of files in memory that a process keeps for a while: such files are used again, their pages then at hand.

To have the pages of 200 MB at hand for the first time takes as long as to copy them. A map that is kept holds no lock,
so that it keeps nobody from writing over its file; whoever reads or writes by it locks the file himself.

Rule: a map pins the memory of a file that was removed. So at most `MOST` are kept, each until it was not asked for
during `IDLE` seconds; what is still used of it then lives on by itself.
"""

from __future__ import annotations

import os
import threading
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bough.movers.mapped_memory import Pages

MOST: Final = 32
IDLE: Final = 10.0  # seconds, as files that are to be used again wait for it

Key = tuple[int, int, bool]  # device and inode of a file, and whether it is written by the map


class KeptMaps:
    """See the module; any thread may ask."""

    def __init__(self, idle: float = IDLE) -> None:
        self._idle = idle
        self._lock = threading.Lock()
        self._maps: dict[Key, tuple[float, Pages]] = {}  # the one that was asked for last is the last
        self._owner = 0  # the process whose thread lets go of them: one that was forked needs its own

    def pages(self, descriptor: int, size: int, *, is_writable: bool = False, is_new: bool = False) -> Pages:
        """A map of an open file, at least of its first `size` bytes; OSError when that is not possible.

        `is_new`: see `map_pages`.
        """
        status = os.fstat(descriptor)
        key = (status.st_dev, status.st_ino, is_writable)
        with self._lock:
            _, found = self._maps.get(key, (0.0, None))
            if found is None or len(found) < size:
                found = _map_unlocked(descriptor, size, is_writable=is_writable, is_new=is_new)
            self._maps.pop(key, None)
            self._maps[key] = (monotonic(), found)
            dropped = [self._maps.pop(next(iter(self._maps)))] if len(self._maps) > MOST else []
            if self._owner != os.getpid():
                self._owner = os.getpid()
                threading.Thread(target=self._let_go, name="bough-maps", daemon=True).start()
        del dropped  # not before: to unmap takes a while
        return found

    def has(self, device: int, inode: int, *, is_writable: bool = False) -> bool:
        """Whether a file is mapped already."""
        return (device, inode, is_writable) in self._maps

    def forget(self) -> None:
        """Let go of all."""
        with self._lock:
            dropped, self._maps = self._maps, {}
        del dropped

    def _let_go(self) -> None:
        while True:
            sleep(self._idle)
            old = monotonic() - self._idle
            with self._lock:
                dropped = [key for key, (asked, _) in self._maps.items() if asked <= old]
                gone = [self._maps.pop(key) for key in dropped]
                if not self._maps:
                    self._owner = 0
            del gone
            if not self._owner:
                return


def _map_unlocked(descriptor: int, size: int, *, is_writable: bool, is_new: bool) -> Pages:
    """A map of a file, by a descriptor of its own: a map keeps the locks of the one that it was made by."""
    from bough.movers.mapped_memory import map_pages

    flags = os.O_RDWR if is_writable else os.O_RDONLY
    other = os.open(f"/proc/self/fd/{descriptor}", flags | os.O_CLOEXEC)
    try:
        return map_pages(other, size, is_writable=is_writable, is_new=is_new)
    finally:
        os.close(other)


kept_maps: Final = KeptMaps()
