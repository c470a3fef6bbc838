"""Whose fault a failure is: the task's own, or the place's, where the same task may work elsewhere.

Rule: only what speaks clearly of the place is blamed on it: nothing was started at all, or the system said that a disk
is full, a file handle stale, a device broken. Whether it works elsewhere is for the core to find out.
"""

from __future__ import annotations

import errno
import os

_ERRORS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ESTALE,
        errno.EIO,
        errno.EROFS,
        errno.ENFILE,
        errno.EMFILE,
        errno.ENODEV,
        errno.EHOSTDOWN,
    }
)
_NOT_FOUND = 127
_WORDS = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EIO, errno.EROFS))


def is_of_place(error: BaseException) -> bool:
    """Whether an exception speaks of the place where it was raised."""
    return isinstance(error, OSError) and error.errno in _ERRORS


def speaks_of_place(stderr: str, exit_code: int | None = None) -> bool:
    """Whether the last words of a command do; a shell says by its exit code that it found no program."""
    if exit_code == _NOT_FOUND and "not found" in stderr:
        return True
    return any(word in stderr for word in _WORDS)
