"""Files on one machine, as client and executor both handle them: digest, link or copy.

Rule: what is put at a path is read-only and the very content; a link is made only where it cannot be written to.
"""

from __future__ import annotations

import os
import shutil
from hashlib import blake2b

from bough.wire.file_messages import DIGEST, PIECE


def put(content: str, path: str) -> None:
    """A content at a path, read-only: linked, or copied for a user who could write to it all the same."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.getuid() != 0:
        try:
            os.link(content, path)
        except OSError:
            pass  # too many links, or another file system: copy
        else:
            return
    shutil.copy(content, path)


def digest_of(path: str) -> bytes:
    """The digest of what a file holds."""
    digest = blake2b(digest_size=DIGEST)
    with open(path, "rb") as file:
        while data := file.read(PIECE):
            digest.update(data)
    return digest.digest()
