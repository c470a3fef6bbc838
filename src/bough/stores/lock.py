"""Who holds a store: a lock on the file `lock`, with pid and host inside for others to read.

Rule: the lock is the kernel's, so it is gone with the process, however that ends; the file stays.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from typing import Final, Self

from bough.errors import StoreFailed, StoreHeld
from bough.stores.faults import failed

FILE: Final = "lock"
_TAKEN: Final = frozenset({errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK})
_NOT_OFFERED: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


class StoreLock:
    """Held from construction to `release`; `StoreHeld` names who has it instead."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = os.fspath(directory)
        self._number = -1
        try:
            os.makedirs(self.directory, exist_ok=True)
            number = os.open(os.path.join(self.directory, FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise failed(self.directory, error) from error
        try:
            self._take(number)
            os.ftruncate(number, 0)
            os.pwrite(number, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
        except BaseException as error:
            os.close(number)
            if isinstance(error, OSError):
                raise failed(self.directory, error) from error
            raise
        self._number = number

    def _take(self, number: int) -> None:
        for lock in (fcntl.flock, fcntl.lockf):  # some network file systems offer only the second
            try:
                lock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in _TAKEN:
                    raise StoreHeld(held_by(self.directory)) from None
                if error.errno not in _NOT_OFFERED:
                    raise
            else:
                return
        raise StoreFailed(f"the file system of {self.directory} offers no locks: choose another place with store=")

    def release(self) -> None:
        """Let others have the store."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def holder(directory: str | os.PathLike[str]) -> tuple[int, str]:
    """The pid and host written in the lock file, (0, "") when none is there."""
    try:
        with open(os.path.join(directory, FILE), encoding="utf-8") as file:
            words = file.read().split()
        return int(words[0]), words[1]
    except (OSError, ValueError, IndexError):
        return 0, ""


def held_by(directory: str | os.PathLike[str]) -> str:
    """The message for the second to come."""
    pid, host = holder(directory)
    who = f"pid {pid} on host {host}" if pid else "another process"
    return f"the store {directory} is held by {who}; wait for it or end it"
