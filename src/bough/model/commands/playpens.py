"""Names of files in a playpen and in a storage: the part of a path behind `$PLAYPEN/` or `$STORAGE/`.

A playpen is the folder of one attempt, empty at first and deleted at the end. A storage is a folder of a host and a
user, which stays. Rule: a name has no step up and no root, so that nothing outside of the two is ever reached.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final, NamedTuple

from bough.errors import BadValue
from bough.model.bounds import shown
from bough.model.commands.command import Transfer
from bough.model.files import absolute, is_url, output_place

STORAGE: Final = "STORAGE"  # variables of a command that runs in a playpen
PLAYPEN: Final = "PLAYPEN"
_LONGEST: Final = 4096


class RemotePlace(NamedTuple):
    """Where a file is: in the storage or in the playpen, and its name there."""

    stored: bool
    name: str


@functools.lru_cache(256)  # elements of arrays often have the same names
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


def local_place(kind: str, path: str, cwd: str) -> str:
    """The absolute path at the submitter of a file that is put, stored or got; BadValue when it has none."""
    if not path or "\0" in path:
        raise BadValue(f"{kind} holds {shown(path)}; give paths")
    if is_url(path):
        raise BadValue(f"{kind} {path}: a URL is read by a slot of the command, as {{x:r}}")
    return output_place(path, cwd) if kind == "get" else absolute(path, cwd)


def put_files(transfers: Iterable[Transfer]) -> list[str]:
    """The paths at the submitter that are sent for each attempt anew."""
    return [one.local for one in transfers if one.kind == "put"]


def stored_files(transfers: Iterable[Transfer]) -> list[str]:
    """The paths at the submitter that are sent where they are not stored yet."""
    return [one.local for one in transfers if one.kind == "store"]


def got_files(transfers: Iterable[Transfer]) -> dict[str, str]:
    """The paths at the submitter that are brought back, by the slots that they have as outputs of the command."""
    return {get_slot(one): one.local for one in transfers if one.kind == "get"}


def get_slot(one: Transfer) -> str:
    """What a file that is got is called among the outputs of its command."""
    return f"get {one.remote}"


def last_part(path: str) -> str:
    """What a file is called at the other end, if nothing is said of it."""
    return path.rstrip("/").rpartition("/")[2]
