"""Names of files in a playpen and in a storage: the part of a path behind `$PLAYPEN/` or `$STORAGE/`.

A playpen is the folder of one attempt, empty at first and deleted at the end. A storage is a folder of a host and a
user, which stays. Rule: a name has no step up and no root, so that nothing outside of the two is ever reached.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bough.errors import BadValue
from bough.model.bounds import shown

STORAGE: Final = "STORAGE"  # variables of a command that runs in a playpen
PLAYPEN: Final = "PLAYPEN"
_LONGEST: Final = 4096


class RemotePlace(NamedTuple):
    """Where a file is: in the storage or in the playpen, and its name there."""

    stored: bool
    name: str


def read_remote(remote: str, *, stored: bool = False) -> RemotePlace:
    """A remote name as users write it; `stored`: it means the storage even if it does not say so."""
    name = remote
    for variable, is_storage in ((STORAGE, True), (PLAYPEN, False)):
        for prefix in (f"${variable}/", f"${{{variable}}}/"):
            if remote.startswith(prefix):
                name, stored = remote[len(prefix) :], is_storage
    pieces = [piece for piece in name.split("/") if piece not in {"", "."}]
    if not pieces or name.startswith("/") or ".." in pieces or "\0" in name or len(name) > _LONGEST:
        raise BadValue(f"{shown(remote)} is no name of a file in a playpen or in $STORAGE")
    if any(len(piece.encode("utf-8", "surrogateescape")) > 255 for piece in pieces):
        raise BadValue(f"{shown(remote)} has a name of more than 255 bytes")
    return RemotePlace(stored, "/".join(pieces))


def check_remote(remote: str, *, stored: bool = False) -> None:
    """BadValue when a remote name leaves its folder."""
    read_remote(remote, stored=stored)
