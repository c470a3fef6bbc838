"""What a file holds, as a few bytes: by these a later run sees whether it is what it was.

A file of ordinary size counts by its content and may be copied or touched freely. A big file counts by size and time, a
folder by the names of what is in it and what its files hold. Digests of files are kept while size, time and inode stay.

Rule: a file that is not there has an identity of its own as an argument. What cannot be looked at has none.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

from bough.errors import BoughError
from bough.model.files import is_settled, is_url, site_file
from bough.model.ids import DIGEST_SIZE
from bough.model.refs import SIMPLE
from bough.model.spaces import Axis, Product, Space, Tie

WHOLE = 16 << 20  # files up to this size count by their content
MOST_FILES = 10_000  # of a folder that is an argument; a task with a bigger one is not reused
_ABSENT = b"absent"

_files: dict[str, tuple[tuple[int, int, int], bytes]] = {}


def file_identity(path: str, most: int = 0) -> bytes | None:
    """What a file holds: a digest of its content, for big ones of size and time; None if it is not there.

    OSError when it cannot be read, also when it is a folder of more than `most` files (0: any number).
    """
    if is_url(path):
        return _url_identity(path)
    try:
        looked, state = time.time_ns(), os.stat(path)
        if os.path.isdir(path):
            return _folder_identity(path, most)
        stamp = (state.st_size, state.st_mtime_ns, state.st_ino)
        known = _files.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        if state.st_size > WHOLE or not os.path.isfile(path):
            identity = blake2b(b"%d %d" % stamp[:2], digest_size=DIGEST_SIZE, person=b"stat").digest()
        else:
            with open(path, "rb") as file:
                identity = blake2b(file.read(), digest_size=DIGEST_SIZE).digest()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if is_settled(state.st_mtime_ns, looked):
        if len(_files) >= 100_000:
            _files.clear()
        _files[path] = (stamp, identity)
    return identity


def _url_identity(url: str) -> bytes:
    """What is at a URL, as fsspec tells it; where nothing does, one that no later run will have."""
    from bough.movers.remote_files import look

    if site_file(url)[0]:
        return os.urandom(DIGEST_SIZE)
    try:
        found = look(url)
    except BoughError:
        return os.urandom(DIGEST_SIZE)
    return found.identity(url) if found.mark else os.urandom(DIGEST_SIZE)


def _folder_identity(path: str, most: int) -> bytes:
    digest = blake2b(digest_size=DIGEST_SIZE, person=b"folder")
    seen = 0
    for folder, folders, names in os.walk(path):
        folders.sort()
        seen += len(names) + len(folders)
        if most and seen > most:
            raise OSError(f"{path} holds more than {most} files")
        for name in sorted((*folders, *names)):
            inside = os.path.join(folder, name)
            digest.update(os.fsencode(os.path.relpath(inside, path)) + b"\0" + _part_identity(inside))
    return digest.digest()


def _part_identity(path: str) -> bytes:
    """What something in a folder is; a link counts by where it leads."""
    state = os.lstat(path)
    if stat.S_ISLNK(state.st_mode):
        return b"link " + os.fsencode(os.readlink(path)) + b"\0"
    if stat.S_ISDIR(state.st_mode):
        return b"folder\0"
    return (b"program " if state.st_mode & 0o111 else b"file ") + (file_identity(path) or b"")


# --- paths among the arguments of functions -------------------------------------------------------------


def is_path(obj: object) -> bool:
    """Whether an object is a path of `pathlib`, also one that is not of this system."""
    pathlib = sys.modules.get("pathlib")
    return pathlib is not None and isinstance(obj, pathlib.PurePath)


def argument_identity(path: Any) -> bytes | None:
    """What an argument that is a `Path` stands for; None if that cannot be told, so that its task is not reused."""
    if not hasattr(path, "open"):  # a pure path names a file, and does not stand for one
        return b""
    try:
        found = file_identity(os.path.abspath(path), MOST_FILES)
    except (OSError, ValueError):
        return None
    return _ABSENT if found is None else found


def identities_in(items: Iterable[Any]) -> dict[str, bytes]:
    """What the paths among the arguments of an array stand for, by their texts; nothing for most arrays."""
    found: dict[str, bytes] = {}
    for path in _paths(items, set()):
        name = str(path)
        if name not in found:
            found[name] = argument_identity(path) or os.urandom(DIGEST_SIZE)  # which no later run will have
    return found


def paths_of(row: Any) -> Iterator[str]:
    """The texts of the paths in one row."""
    return map(str, _paths((row,), set()))


def _paths(items: Iterable[Any], inside: set[int]) -> Iterator[Any]:
    """Paths in lists, tuples, sets, dicts and spaces; `inside`: those that are being looked through."""
    if isinstance(items, Axis):
        items = items.values
    elif isinstance(items, Product | Tie):
        items = items.factors
    if isinstance(items, range) or SIMPLE.issuperset(map(type, items)) or id(items) in inside:
        return
    inside.add(id(items))
    for item in items:
        if isinstance(item, list | tuple | set | frozenset | Space):
            yield from _paths(item, inside)
        elif isinstance(item, dict):
            yield from _paths(list(item.values()), inside)
        elif is_path(item):
            yield item
    inside.discard(id(items))
