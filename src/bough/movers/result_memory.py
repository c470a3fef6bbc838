"""Big results in memory first: a worker writes them there, and the server makes them durable in the background.

The name of a result in the store is a link to its file in memory until the server has copied that to the disk and put
the copy in the link's place. So who opens the name finds the result at any time. A file in memory that was copied is
used again for the next result, once no process maps it.

Rules: a result has its name when it is complete, in memory or on the disk. Where there is no such memory, or no room in
it, a result is written to the disk at once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Sequence
from typing import Final

from bough import private
from bough.errors import BadValue
from bough.model.packed_values import Buffer
from bough.movers.kept_maps import kept_maps
from bough.movers.value_files import write_pieces
from bough.movers.value_places import free_bytes, is_memory, value_memory

LINK: Final = ".memory"  # in the folder of results: leads to the folder in memory, while there is one
IN_MEMORY: Final = 4 << 20  # bytes; smaller ones go to the disk at once
FREE: Final = "free-"  # how files begin that are to be used again; then their size
MADE: Final = "made-"  # how those of results do; then their name in the store
_FITS: Final = 2  # a file is used again for a result that is not smaller than a half of it
_SPARE: Final = 64 << 20  # bytes that are left free there
_PIECE: Final = 8 << 20  # bytes that are copied at a time
_BLOCK: Final = 4096  # bytes: what is written past the kernel's cache is a multiple of it


def put_in_memory(result_dir: str, name: str, parts: Sequence[Buffer], size: int) -> str:
    """Write a result into memory; the path, or empty: it must be written to the disk."""
    if size < IN_MEMORY:
        return ""
    try:
        folder = os.readlink(os.path.join(result_dir, LINK))
        path = os.path.join(folder, MADE + name)
        if not _write_again(folder, path, parts, size):
            if _taken(folder) + size > value_memory(folder) or size + _SPARE > free_bytes(folder):
                return ""
            _write_new(path, parts, size)
    except (OSError, BadValue):
        return ""
    return path


def _taken(folder: str) -> int:
    """Bytes that results take already."""
    return sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(folder))


def _write_again(folder: str, path: str, parts: Sequence[Buffer], size: int) -> bool:
    """Write a result into a file that was another one's; False: there is none that fits and that nobody maps."""
    device = os.stat(folder).st_dev
    fitting: list[tuple[bool, int, str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            there = entry.name.removeprefix(FREE).partition("-")[0]
            if entry.name.startswith(FREE) and there.isdecimal() and size <= int(there) <= _FITS * size:
                is_mapped = kept_maps.has(device, entry.inode(), is_writable=True)
                fitting.append((not is_mapped, int(there), entry.path))
    for _, _, former in sorted(fitting):
        with contextlib.suppress(OSError):  # another worker was faster
            if _take(former, path, parts, size):
                return True
    return False


def _take(former: str, path: str, parts: Sequence[Buffer], size: int) -> bool:
    descriptor = os.open(former, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        if not os.path.samestat(os.stat(former), os.fstat(descriptor)):
            return False
        os.rename(former, path)
        try:
            _write_by_map(descriptor, parts, size)
            os.ftruncate(descriptor, size)
        except OSError:
            os.unlink(path)
            raise
    finally:
        os.close(descriptor)
    return True


def _write_new(path: str, parts: Sequence[Buffer], size: int) -> None:
    """Write a result into a new file: by the map by which the next one is written there."""
    descriptor = private.opener(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        os.ftruncate(descriptor, size)
        try:
            _write_by_map(descriptor, parts, size, is_new=True)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            write_pieces(descriptor, parts)  # this system cannot
    except OSError:
        os.unlink(path)
        os.ftruncate(descriptor, 0)  # what was taken for it is free at once, though a map of it is kept
        raise
    finally:
        os.close(descriptor)


def _write_by_map(descriptor: int, parts: Sequence[Buffer], size: int, *, is_new: bool = False) -> None:
    """Write a result into a file that is not shorter: by a map, which is faster where the pages are at hand."""
    if not is_memory(descriptor):
        write_pieces(descriptor, parts)
        return
    from bough.movers.mapped_memory import copy_into

    pages = kept_maps.pages(descriptor, size, is_writable=True, is_new=is_new)
    at = 0
    for part in parts:
        view = memoryview(part).cast("B")
        if view.nbytes:
            copy_into(pages, view, view.nbytes, at, is_new=is_new)
            at += view.nbytes


def copy_to_disk(source: str, target: str) -> None:
    """Copy a file in memory to the disk; it is there for good when this returns. OSError leaves nothing.

    The copy goes past the kernel's cache where that is possible: that would be a second copy in memory.
    """
    from_ = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(from_).st_size
        to = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            done = _copy_past_cache(from_, target, size)
            while done < size:
                os.lseek(to, done, os.SEEK_SET)
                done += os.sendfile(to, from_, done, min(_PIECE, size - done))
            os.fsync(to)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(target)
            raise
        finally:
            os.close(to)
    finally:
        os.close(from_)


def _copy_past_cache(source: int, target: str, size: int) -> int:
    """Copy whole blocks; how many bytes that was: 0 where the file system cannot."""
    from bough.movers.mapped_memory import map_pages, read_only

    end = size - size % _BLOCK
    try:
        to = os.open(target, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return 0
    done = 0
    try:
        view = read_only(map_pages(source, size))
        while done < end:
            count = os.write(to, view[done : min(done + _PIECE, end)])
            done += count - count % _BLOCK
            if count % _BLOCK:
                break
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
            raise
    finally:
        os.close(to)
    return done
