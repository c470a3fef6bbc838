"""Turns exceptions of SQLite and the file system into errors that say what a person can do.

Rule: no exception of SQLite or of the file system leaves `stores`; it becomes a `StoreFailed`, which is transient where
trying again can help.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bough.errors import BoughError, InternalError, StoreFailed

_PRIMARY: Final = 0xFF  # the low byte of an extended result code
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR, *FULL})
_OF_DATA: Final = frozenset({"DataError", "IntegrityError"})  # as every database module names them (PEP 249)
_FULL_BELOW: Final = 1 << 20  # bytes free under which an I/O error is taken for a full disk


def failed(path: str, error: Exception) -> StoreFailed:
    """The `StoreFailed` for an exception."""
    if _is_full(path, error):
        text = f"the disk of {path} is full: free some space and run again; nothing acknowledged is lost"
        return StoreFailed(text, transient=True)
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    number = getattr(error, "errno", 0)
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return StoreFailed(f"the store {path} is busy with another process: try again", transient=True)
    if code == sqlite3.SQLITE_READONLY or number in {errno.EROFS, errno.EACCES, errno.EPERM}:
        return StoreFailed(f"the store {path} cannot be written: check its permissions, or choose another with store=")
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return StoreFailed(f"the store {path} is damaged ({error}): move it away to begin anew")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreFailed(f"the store {path} cannot be opened: check that its directory is there and yours")
    return StoreFailed(f"the store {path} cannot be used: {error}")


def is_passing(error: Exception) -> bool:
    """Whether trying again later can help."""
    if isinstance(error, StoreFailed):
        return error.transient
    return getattr(error, "errno", 0) in _PASSING


def is_of_data(error: BaseException) -> bool:
    """Whether an exception is caused by the data to be folded, not by the database, the disk or this process."""
    cause = error.__cause__ if isinstance(error, StoreFailed) and error.__cause__ is not None else error
    names = {kind.__name__ for kind in type(cause).__mro__}
    if "Error" in names or isinstance(cause, sqlite3.Error):  # a database's own
        return not names.isdisjoint(_OF_DATA)
    if isinstance(cause, BoughError):
        return isinstance(cause, InternalError)
    return isinstance(cause, Exception) and not isinstance(cause, OSError | MemoryError)


@contextmanager
def reported(path: str) -> Iterator[None]:
    """Turn exceptions of SQLite and of the file system into `StoreFailed`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise failed(path, error) from error


def _is_full(path: str, error: Exception) -> bool:
    if getattr(error, "errno", 0) in FULL:
        return True
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    if code == sqlite3.SQLITE_FULL:
        return True
    if code != sqlite3.SQLITE_IOERR:
        return False
    try:
        space = os.statvfs(path)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < _FULL_BELOW
