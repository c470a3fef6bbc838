"""What a folder looks like from outside: by this a later run sees whether an output that is a folder is unchanged.

Who writes a folder as another host had it gives it that one's time. Rule: its state is found without reading a file.
Whatever is added, removed or written below the folder changes it, but for a file that is replaced by one of the same
size and time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
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


def set_folder_time(path: str, mtime_ns: int) -> None:
    """Give all in a folder one time, so that its state has that."""
    for below in (*_all_below(path), path):
        os.utime(below, ns=(mtime_ns, mtime_ns), follow_symlinks=False)


def sync_tree(path: str) -> None:
    """Have all of a folder on the disk."""
    for below in (*_all_below(path), path):
        if not os.path.islink(below):
            descriptor = os.open(below, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _all_below(path: str) -> Iterator[str]:
    """All files, links and folders in a folder, each before the folder that has it."""
    for place, folders, files in os.walk(path, topdown=False):
        for name in (*files, *folders):
            yield f"{place}/{name}"
