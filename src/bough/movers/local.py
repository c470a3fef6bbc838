"""How the bytes of files move on one machine: digest, link or copy, into a content store and out; what patterns match.

Client, executor and server share it. Rule: a path holds a complete file or none; a copy is written under a hidden name
beside its path first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from bough import private
from bough.folder_state import folder_state, set_folder_time, sync_tree
from bough.model.files import matches
from bough.model.outcomes import kept_time
from bough.wire.file_messages import DIGEST, PIECE

if TYPE_CHECKING:
    from bough.movers.content_store import ContentStore


_EPOCH: Final = 946_684_800  # marks are even seconds from then on: every file system can keep them


class ContentCopy(NamedTuple):
    """A content to be copied to a path; until the copy is complete it has a hidden name beside that."""

    digest: bytes
    path: str
    hidden: str
    mode: int = 0o644
    folder: bool = False  # the content is the archive of one
    time: int = 0  # nanoseconds: of its last change, if that is to be kept


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


def mark_of(digest: bytes) -> int:
    """The time of change, in seconds, by which a file with a content is known to be as it was brought."""
    return _EPOCH + 2 * (int.from_bytes(digest[:4], "big") >> 4)


def is_brought(path: str, digest: bytes, size: int) -> bool:
    """Whether what lies at a path is a copy as `bring_to_place` made it, and nobody has changed since."""
    try:
        state = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(state.st_mode) and state.st_size == size and int(state.st_mtime) == mark_of(digest)


def bring_to_place(content: str, digest: bytes, path: str, hidden: str) -> None:
    """A copy of a content at a path, where its user may do with it as he likes; marked, so that it can be known.

    What has come there meanwhile stays: another reader was faster, or whoever writes it back.
    """
    import shutil  # late: executors and servers start without it

    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        shutil.copyfile(content, hidden)
        os.utime(hidden, (mark_of(digest), mark_of(digest)))
        try:
            os.link(hidden, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            os.replace(hidden, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(hidden)


def expand(pattern: str) -> list[str]:
    """The paths that match an absolute pattern now, as `model.files.matches` means it, in order."""
    import glob  # few commands have patterns

    return sorted({path for path in glob.iglob(pattern, recursive=True) if matches(path, pattern)})


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
            _drop_hidden(one)
        raise
    return [times[at] for at in range(len(copies))]


def write_together(copies: Sequence[tuple[bytes, ContentCopy]]) -> None:
    """Write files to their paths, as `give_out` does, and on the disk when this returns: each folder is synced once.

    All are written before the first is synced, so that the disk has much to do at once. Folders among them come first,
    one by one, since a file may lie in one. OSError, or BadArchive for what is no archive of a folder.
    """
    folders = dict.fromkeys(os.path.dirname(one.path) for _, one in copies)
    try:
        for data, one in copies:
            if blake2b(data, digest_size=DIGEST).digest() != one.digest:
                raise OSError(errno.EIO, "it was damaged on its way", one.path)
        for folder in folders:
            os.makedirs(folder, exist_ok=True)
        for data, one in copies:
            if one.folder:
                _write_folder(data, one)
        _write_files([(data, one) for data, one in copies if not one.folder])
    except BaseException:
        for _, one in copies:
            _drop_hidden(one)
        raise
    for folder in folders:
        private.sync_folder(folder)


def _write_files(files: Sequence[tuple[bytes, ContentCopy]]) -> None:
    for data, one in files:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(one.hidden)
        with open(one.hidden, "xb", opener=_as_umask_allows) as target:
            _set_mode(target.fileno(), one)
            target.write(data)
    for _, one in files:
        descriptor = os.open(one.hidden, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if one.time:
                os.utime(descriptor, ns=(one.time, one.time))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    for _, one in files:
        os.replace(one.hidden, one.path)


def _write_folder(archive: bytes, copy: ContentCopy) -> None:
    _unpack_out(lambda offset: archive[offset : offset + PIECE], copy)
    sync_tree(copy.hidden)
    _show_folder(copy)


def _drop_hidden(copy: ContentCopy) -> None:
    with contextlib.suppress(OSError):
        if copy.folder:
            private.remove_tree(copy.hidden)
        else:
            os.unlink(copy.hidden)


def _set_mode(descriptor: int, copy: ContentCopy) -> None:
    allowed = os.fstat(descriptor).st_mode  # all that the umask leaves
    os.fchmod(descriptor, copy.mode & 0o777 & allowed)


def _unpack_out(read: Callable[[int], bytes], copy: ContentCopy) -> int:
    """Make a folder at its hidden name; `read` gives the piece of its archive at an offset."""
    from bough.movers.folder_archive import unpack_pieces

    private.remove_tree(copy.hidden)
    unpack_pieces(read, copy.digest, copy.hidden)
    if copy.time:
        set_folder_time(copy.hidden, copy.time)
    return kept_time(folder_state(copy.hidden).mtime_ns)


def _show_folder(copy: ContentCopy) -> None:
    """Give a folder its name. One that is there and is the same stays: a task may be reading what was brought there."""
    from bough.movers.folder_archive import replace_folder

    if copy.time and _is_same_folder(copy):
        set_folder_time(copy.path, copy.time)
        private.remove_tree(copy.hidden)
    else:
        replace_folder(copy.hidden, copy.path)


def _is_same_folder(copy: ContentCopy) -> bool:
    from bough.movers.folder_archive import UnpackableFolder, archive_digest

    try:
        if os.path.islink(copy.path) or folder_state(copy.path).size != folder_state(copy.hidden).size:
            return False
        return archive_digest(copy.path).digest == copy.digest
    except (OSError, UnpackableFolder):
        return False


def _copy_out(store: ContentStore, copy: ContentCopy) -> int:
    os.makedirs(os.path.dirname(copy.path), exist_ok=True)
    if copy.folder:
        return _unpack_out(lambda offset: store.read(copy.digest, offset, PIECE), copy)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(copy.hidden)
    with open(copy.hidden, "xb", opener=_as_umask_allows) as target:
        _set_mode(target.fileno(), copy)
        digest, offset = blake2b(digest_size=DIGEST), 0
        while data := store.read(copy.digest, offset, PIECE):
            digest.update(data)
            target.write(data)
            offset += len(data)
        if digest.digest() != copy.digest:
            raise OSError(errno.EIO, "the content was damaged in the store", copy.path)
        target.flush()
        if copy.time:
            os.utime(target.fileno(), ns=(copy.time, copy.time))
        os.fsync(target.fileno())
        return kept_time(os.fstat(target.fileno()).st_mtime_ns)


def _as_umask_allows(path: str, flags: int) -> int:
    return os.open(path, flags, 0o777)
