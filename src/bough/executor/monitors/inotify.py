"""What the kernel tells of files: Linux' inotify, by ctypes.

Rule: a file that cannot be watched is no error; whoever asked looks again by the clock.
"""

from __future__ import annotations

import ctypes
import os
import struct

MODIFY = 0x2
_CREATE, _MOVED_TO = 0x100, 0x80
_IGNORED, _OVERFLOW = 0x8000, 0x4000
_ONESHOT = 0x80000000
_ONLYDIR = 0x01000000
_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """One inotify descriptor."""

    def __init__(self) -> None:
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        """The descriptor, or -1 if the kernel gives none."""
        return int(self._fd)

    def next_write(self, path: bytes) -> int:
        """Be told of the next time that a file is written, once; the number of the watch, -1: it cannot be watched."""
        return int(_libc.inotify_add_watch(self._fd, path, MODIFY | _ONESHOT))

    def new_names(self, folder: bytes) -> int:
        """Be told of all names that appear in a folder; the number of the watch, -1: it cannot be watched."""
        return int(_libc.inotify_add_watch(self._fd, folder, _CREATE | _MOVED_TO | _ONLYDIR))

    def remove(self, watch: int) -> None:
        """Be told no more."""
        _libc.inotify_rm_watch(self._fd, watch)

    def read(self) -> list[tuple[int, bytes]] | None:
        """What has happened: watches, with the name that appeared if it is one of a folder. None: some was lost."""
        found: list[tuple[int, bytes]] = []
        while True:
            try:
                data = os.read(self._fd, _BUFFER)
            except (BlockingIOError, OSError):
                return found
            at = 0
            while at < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                if mask & _OVERFLOW:
                    return None
                if not mask & _IGNORED:
                    found.append((watch, data[at : at + length].rstrip(b"\0")))
                at += length
