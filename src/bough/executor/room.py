"""A folder for one executor's life: for sandboxes, and for what was brought to it.

Rule: it is locked as long as its executor lives and removed when that ends; those of executors that were killed are
removed by the next one that uses the same folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import time

_MARK = "room-"


class Room:
    """See the module. Nothing is made before it is opened."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._lock = -1
        self.folder = f"{work}/{_MARK}{socket.gethostname()}-{os.getpid()}"

    def open(self) -> None:
        """Make it, if it is not there."""
        if self._lock >= 0:
            return
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        self._lock = os.open(f"{self.folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in os.listdir(self._work):
            if name.startswith(_MARK) and _is_left(f"{self._work}/{name}"):
                remove_tree(f"{self._work}/{name}")

    def close(self) -> None:
        """Remove it."""
        if self._lock >= 0:
            remove_tree(self.folder)
            os.close(self._lock)
            self._lock = -1


def _is_left(folder: str) -> bool:
    """Whether nobody has a room any more; one that is just being made may have no lock yet."""
    try:
        lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def remove_tree(path: str) -> None:
    """Delete a folder, also one whose folders were made read-only; what cannot be deleted now is tried once more."""
    for attempt in range(2):
        shutil.rmtree(path, onerror=_make_writable)
        if not os.path.lexists(path):
            return
        if not attempt:
            time.sleep(0.01)


def _make_writable(_function: object, path: str, _error: object) -> None:
    try:
        os.chmod(os.path.dirname(path), 0o700)
        os.chmod(path, 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        else:
            os.unlink(path)
    except OSError:
        return
