"""The folder of a store on the disk: journal, outputs, results and arguments, which only its owner can read.

A store in PostgreSQL has one, too. Rule: the folder of an old store is closed to others when its owner opens it; a
folder that holds other things and that others can reach is refused, and stays as it is.
"""

from __future__ import annotations

import os
from typing import Final

from bough import private
from bough.errors import UserError

FOLDERS: Final = ("out", "results", "args", "spill")
OPENED: Final = "opened"  # the file that says when the latest run was opened
CLOSED: Final = "other users could reach the store {}: it is closed to them now"
_JOURNAL: Final = "journal.db"
_FILES: Final = (
    *(f"{_JOURNAL}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")),
    *("lock", "numbers", OPENED, "server.json", "server.log", "executor.log", "token", "unfinished", "owner", "places"),
)


def make_store_folder(directory: str) -> bool:
    """Make a store's folder, or close that of one that is there; whether others could reach it before.

    UserError when it is a folder for other things, SiteError when it is not ours, OSError when it cannot be made.
    """
    if private.is_open(directory):
        _refuse_shared(directory)
    if not private.make_folder(directory):
        return False
    for name in _FILES:
        private.close_file(os.path.join(directory, name))
    for name in (*FOLDERS, "files"):
        if os.path.isdir(os.path.join(directory, name)):
            private.make_folder(os.path.join(directory, name))
    return True


def why_unreadable(error: OSError | ValueError) -> str:
    """Why a file with a result or an output cannot be read, for messages."""
    if isinstance(error, FileNotFoundError):
        return 'it was deleted when a later run began; reuse="always" or memo=True keeps such files'
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def make_store_folders(directory: str) -> None:
    """Make the folders within a store; OSError when they cannot be."""
    for name in FOLDERS:
        private.make_folder(os.path.join(directory, name))


def path_in(folder: str, path: str) -> str:
    """Where a file lies whose path was noted when the store may have been elsewhere: it keeps its folder and name."""
    if path.startswith(folder + os.sep):
        return path
    moved = os.path.join(folder, os.path.basename(path))
    return moved if os.path.exists(moved) else path  # that of a store which was copied without its files stays


def _refuse_shared(directory: str) -> None:
    names = os.listdir(directory)
    if names and not {*_FILES}.intersection(names):
        raise UserError(
            f"{directory} holds other files, and other users can reach it: give the store a folder of its own,"
            f" or close this one with chmod 700 {directory}"
        )
