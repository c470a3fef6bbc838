"""What a folder looks like from outside: by this a later run sees whether an output that is a folder is unchanged.

Rule: it reads no file. Whatever is added, removed or written below the folder changes it, but for a file that is
replaced by one of the same size and time.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class FolderState(NamedTuple):
    """The bytes of all files below a folder, and the latest time of anything in it."""

    size: int
    mtime_ns: int


def folder_state(path: str) -> FolderState:
    """How a folder is now; OSError when it cannot be looked at."""
    size, latest = 0, os.stat(path).st_mtime_ns
    stack = [path]
    while stack:
        with os.scandir(stack.pop()) as entries:
            for entry in entries:
                state = entry.stat(follow_symlinks=False)
                latest = max(latest, state.st_mtime_ns)
                if entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)
                else:
                    size += state.st_size
    return FolderState(size, latest)
