"""What a file holds, as a short digest, so that a changed input is noticed.

Rule: a file of ordinary size counts by its content and may be copied or touched freely; a big one counts by
size and time, a folder by the sizes and times of the files in it. Digests are kept while size and time stay.
"""

from __future__ import annotations

import os
import time
from hashlib import blake2b

from bough.model.ids import DIGEST_SIZE

WHOLE = 16 << 20  # files up to this size count by their content

_files: dict[str, tuple[tuple[int, int, int], bytes]] = {}


def file_identity(path: str) -> bytes | None:
    """What a file holds: a digest of its content, for big ones of size and time; None if it is not there."""
    try:
        state = os.stat(path)
        if os.path.isdir(path):
            return _folder_identity(path)
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
    # one written a moment ago may change again without its time stamp moving
    if time.time_ns() - state.st_mtime_ns > 50_000_000:
        if len(_files) >= 100_000:
            _files.clear()
        _files[path] = (stamp, identity)
    return identity


def _folder_identity(path: str) -> bytes:
    digest = blake2b(digest_size=DIGEST_SIZE, person=b"folder")
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            state = os.lstat(os.path.join(folder, name))
            line = f"{os.path.relpath(folder, path)}/{name} {state.st_size} {state.st_mtime_ns}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.digest()
