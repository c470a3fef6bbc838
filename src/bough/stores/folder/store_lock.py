"""The lock of a store in a folder: a kernel lock on the file `lock`, which holds the pid and host of its holder.

Rule: the lock is the kernel's, so it ends with the process, however that ends. The file stays and names its last
holder, since a process that only asks (`is_held`) writes nothing into it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from typing import Final, Self

from bough import private
from bough.errors import BoughError, StoreFailed, StoreHeld
from bough.stores.folder.store_folder import make_store_folder

FILE: Final = "lock"
_TAKEN: Final = frozenset({errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK})
_NOT_OFFERED: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


class StoreLock:
    """Held from construction to `release`; `StoreHeld` names the process that has it."""

    def __init__(self, directory: str | os.PathLike[str], *, holder: int = 0) -> None:
        """`holder` is the pid that others are told, if it is not ours: of the script for which we hold it."""
        self.directory = os.fspath(directory)
        self._number = -1
        path = os.path.join(self.directory, FILE)
        try:
            make_store_folder(self.directory)
            number = private.opener(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise _failed(self.directory, error) from error
        try:
            self._take(number)
            if not _is_same(path, number):
                raise StoreHeld(f"the store {self.directory} is being removed; try again")
            text = f"{holder or os.getpid()} {socket.gethostname()}\n".encode()
            os.pwrite(number, text, 0)  # over the last holder's: a reader finds a whole line at any time
            os.ftruncate(number, len(text))
        except BaseException as error:
            os.close(number)
            if isinstance(error, OSError):
                raise _failed(self.directory, error) from error
            raise
        self._number = number

    def _take(self, number: int) -> None:
        taken = _take(number, fcntl.LOCK_EX)
        if taken is None:
            raise StoreFailed(f"the file system of {self.directory} offers no locks: choose another place with store=")
        if not taken:
            raise StoreHeld(held_by(self.directory))

    def release(self) -> None:
        """Release the lock."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _failed(directory: str, error: OSError) -> BoughError:
    from bough.stores.store_errors import failed  # late: it loads SQLite, which those that only look do not need

    return failed(directory, error)


def _is_same(path: str, number: int) -> bool:
    """Whether a file is still at its place: its store may have been removed before we had the lock."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(number))
    except FileNotFoundError:
        return False


def _take(number: int, kind: int) -> bool | None:
    """Take a lock without waiting; False if another process has it, None if there are no locks."""
    for lock in (fcntl.flock, fcntl.lockf):  # some network file systems offer only the second
        try:
            lock(number, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            if error.errno not in _NOT_OFFERED:
                raise
        else:
            return True
    return None


def is_held(directory: str | os.PathLike[str]) -> bool:
    """Whether a process holds a store; the question changes nothing, and delays only a process that locks just now."""
    try:
        number = os.open(os.path.join(directory, FILE), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _take(number, fcntl.LOCK_SH) is False
    except OSError:
        return False
    finally:
        os.close(number)


def holder(directory: str | os.PathLike[str]) -> tuple[int, str]:
    """The pid and host written in the lock file, (0, "") when none is there."""
    try:
        with open(os.path.join(directory, FILE), encoding="utf-8") as file:
            words = file.readline().split()
        return int(words[0]), words[1]
    except (OSError, ValueError, IndexError):
        return 0, ""


def held_by(directory: str | os.PathLike[str]) -> str:
    """The message for the process that comes second."""
    return f"the store {directory} is held by {who_holds(directory)}; wait for it or end it"


def who_holds(directory: str | os.PathLike[str]) -> str:
    """The last holder, for messages."""
    pid, host = holder(directory)
    return f"pid {pid} on host {host}" if pid else "another process"
