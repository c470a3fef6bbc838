"""Inputs of a command in the submitter's directory that are not there: temporary outputs that other hosts hold.

A workflow may have executors that see its directory and some that do not. What the latter make and is temporary stays
in the caches of their hosts; a reader in the directory has it brought to its place there, where its command looks.
Rule: a copy is complete when it has its name, and is marked, so that the server removes it with its last reader.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from bough.executor.files.command_files.declared_outputs import remove
from bough.executor.host.disk_space_wait import is_full
from bough.executor.host.processes import Unstartable
from bough.model.files import hidden_path
from bough.movers.folder_archive import BadArchive, unpack_file
from bough.movers.local import bring_to_place


def put_in_places(files: Mapping[str, str], folders: Collection[str], attempt: tuple[int, int, int]) -> None:
    """Put contents, which lie in the cache by their digests, to their places; Unstartable when that cannot be.

    `folders`: those that are archives. `attempt`: record, index and number, for hidden names.
    """
    for path, content in files.items():
        hidden = hidden_path(path, *attempt)
        try:
            if path in folders:
                _unpack(content, path, hidden)
            else:
                bring_to_place(content, bytes.fromhex(os.path.basename(content)), path, hidden)
        except (OSError, BadArchive) as error:
            full = isinstance(error, OSError) and is_full(error)
            raise Unstartable(f"its input cannot be put to its place {path}: {error}", full=full) from error


def _unpack(archive: str, path: str, hidden: str) -> None:
    remove(hidden)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        unpack_file(archive, hidden)
        os.rename(hidden, path)
    except OSError:
        if not os.path.isdir(path):  # else another reader was faster
            raise
    finally:
        remove(hidden)
