"""How the bytes of files move on one machine: digest, link or copy, into a content store and out of it.

Client, executor and server share it. Rule: a path holds a complete file or none; a copy is written under a hidden name
beside its path first.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from bough import private
from bough.folder_state import folder_state
from bough.model.outcomes import kept_time
from bough.wire.file_messages import DIGEST, PIECE

if TYPE_CHECKING:
    from bough.movers.content_store import ContentStore


class ContentCopy(NamedTuple):
    """A content to be copied to a path; until the copy is complete it has a hidden name beside that."""

    digest: bytes
    path: str
    hidden: str
    mode: int = 0o644
    folder: bool = False  # the content is the archive of one


def put(content: str, path: str) -> None:
    """A content at a path, read-only: linked, or copied for a user who could write to it all the same."""
    import shutil  # late: executors and servers start without it

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


def bring_in(store: ContentStore, path: str) -> tuple[bytes, int]:
    """Copy a file as it is now into a store; the digest and size of what was read. OSError: it cannot be read."""
    with open(path, "rb") as source:
        incoming = store.receive()
        try:
            while data := source.read(PIECE):
                incoming.write(data)
            return incoming.finish(), incoming.size
        except BaseException:
            incoming.drop()
            raise


def bring_in_folder(store: ContentStore, path: str) -> tuple[bytes, int]:
    """Pack a folder as it is now into a store; the digest and size of its archive."""
    from bough.movers.folder_archive import pack  # few servers see folders

    incoming = store.receive()
    try:
        packed = pack(path, incoming)
        incoming.finish()
    except BaseException:
        incoming.drop()
        raise
    return packed.digest, packed.size


def give_out(store: ContentStore, copies: Sequence[ContentCopy]) -> list[int]:
    """Copy contents of a store to their paths: all files, or none, unless the last renames fail.

    The answer has their times of change in nanoseconds. OSError when one cannot be written.
    """
    times: dict[int, int] = {}
    order = sorted(range(len(copies)), key=lambda at: not copies[at].folder)  # a file may lie in a folder among them
    try:
        for at in order:
            times[at] = _copy_out(store, copies[at])
            if copies[at].folder:
                _show_folder(copies[at])
        for at in order:
            if not copies[at].folder:
                os.replace(copies[at].hidden, copies[at].path)
    except BaseException:
        for one in copies:
            with contextlib.suppress(OSError):
                if one.folder:
                    private.remove_tree(one.hidden)
                else:
                    os.unlink(one.hidden)
        raise
    return [times[at] for at in range(len(copies))]


def _unpack_out(store: ContentStore, copy: ContentCopy) -> int:
    from bough.movers.folder_archive import unpack_pieces

    private.remove_tree(copy.hidden)
    unpack_pieces(lambda offset: store.read(copy.digest, offset, PIECE), copy.digest, copy.hidden)
    return kept_time(folder_state(copy.hidden).mtime_ns)


def _show_folder(copy: ContentCopy) -> None:
    from bough.movers.folder_archive import replace_folder

    replace_folder(copy.hidden, copy.path)


def _copy_out(store: ContentStore, copy: ContentCopy) -> int:
    os.makedirs(os.path.dirname(copy.path), exist_ok=True)
    if copy.folder:
        return _unpack_out(store, copy)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(copy.hidden)
    with open(copy.hidden, "xb", opener=_as_umask_allows) as target:
        allowed = os.fstat(target.fileno()).st_mode  # all that the umask leaves
        os.fchmod(target.fileno(), copy.mode & 0o777 & allowed)
        digest, offset = blake2b(digest_size=DIGEST), 0
        while data := store.read(copy.digest, offset, PIECE):
            digest.update(data)
            target.write(data)
            offset += len(data)
        if digest.digest() != copy.digest:
            raise OSError(errno.EIO, "the content was damaged in the store", copy.path)
        target.flush()
        os.fsync(target.fileno())
        return kept_time(os.fstat(target.fileno()).st_mtime_ns)


def _as_umask_allows(path: str, flags: int) -> int:
    return os.open(path, flags, 0o777)
