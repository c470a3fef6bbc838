"""Values in files that all processes of a host map: written once, read without a copy.

A result is one file: head and buffers as `packed_values` lays them out. Of arguments each big buffer is a file of its
own, because many calls share it; what travels with a call is the head and the names of these files (`joined_apart`). A
file may lie in memory (/dev/shm) or on a disk, whose pages the kernel keeps in memory as long as there is room: readers
see no difference.

Rules: a file is written before its name is told, and not changed while a process maps it; no name is used twice. A map
is read-only and lives as long as something that was read from it, also when the file has been removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from bough import private
from bough.model.files import VALUES
from bough.model.packed_values import MOST_BEGIN, Buffer, is_split, split
from bough.model.refs import load_pickle
from bough.movers.kept_maps import kept_maps
from bough.movers.value_places import is_memory

if TYPE_CHECKING:
    from bough.movers.mapped_memory import Pages

_MOST_PIECES = 512  # that are written at once; the system takes 1,024
_TRIES = 100  # at opening a file whose copy on the disk takes its place
_MOST_PARTS = 32  # files in use that are read by maps that are kept
_MARK = b"joined_apart"  # in every pickle that names files of buffers

Ref = tuple[str, int, bytes]  # the path of a buffer's file, its size, and what stands for its content in memo keys
_maps: WeakValueDictionary[str, Pages] = WeakValueDictionary()
_parts: WeakValueDictionary[int, Pages] = WeakValueDictionary()  # what is read by maps that are kept
_recent: list[Pages] = []  # other maps of the last value that was read: the next one often has the same


class Unread(NamedTuple):
    """Stands for a value whose buffers were not read: equal if the value is, in all runs."""

    head: bytes
    identities: tuple[bytes, ...]


class _Joining:
    """Pickled in the place of a value."""

    def __init__(self, head: bytes, refs: Sequence[Ref]) -> None:
        self._parts = (head, tuple(refs))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes, tuple[Ref, ...]]]:
        return joined_apart, self._parts


def pack_apart(head: bytes, refs: Sequence[Ref]) -> bytes:
    """A pickle of the value that has this head and these buffers."""
    return pickle.dumps(_Joining(head, refs), 5)


def joined_apart(head: bytes, refs: Sequence[Ref], load: Callable[[Any, Sequence[Any]], Any] = load_pickle) -> Any:
    """The value of a head and of buffers that lie in files, as views of these; an empty head is in the first.

    `load` makes it of a pickle and buffers.
    """
    from bough.movers.mapped_memory import read_only  # late: few values are big

    far = [path for path, _, _ in refs if path.startswith(VALUES) and path not in _maps]
    places = _bring(far) if far else {}
    maps = [_map_buffer(path, size, places.get(path, "")) for path, size, _ in refs]
    _recent[:] = [one for one in maps if id(one) not in _parts]  # such a one would only lock its file
    views = [read_only(one) for one in maps]
    return load(head, views) if head else load(views[0], views[1:])


def left_unread(head: bytes, refs: Sequence[Ref]) -> Unread:
    """What an unpickler takes for `joined_apart` that is not to read files, which may be gone."""
    return Unread(head, tuple([identity for _, _, identity in refs]))


def names_files(data: bytes) -> bool:
    """Whether a pickle may name files of buffers."""
    return _MARK in data


def forget_recent() -> None:
    """Let go of what was mapped last, unless it is in use."""
    _recent.clear()


# --- files ----------------------------------------------------------------------------------------------


def map_file(path: str, size: int = 0) -> memoryview:
    """A read-only view of a file; OSError when it is not there, ValueError when it is empty, or not of this size."""
    from bough.movers.mapped_memory import map_pages, read_only

    with _opened(path, size) as (descriptor, there):
        return read_only(map_pages(descriptor, there))


@contextlib.contextmanager
def _opened(path: str, size: int = 0) -> Iterator[tuple[int, int]]:
    """A file that is open for reading, and its size."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.fstat(descriptor).st_size
        if not there or (size and there != size):
            raise ValueError(f"{path} has {there} bytes instead of {size or 'some'}")
        yield descriptor, there
    finally:
        os.close(descriptor)


def bring_by(bring: Callable[[list[str]], dict[str, str]]) -> None:
    """From now on, in this process, buffers that are named by their digests are brought in this way."""
    global _bring
    _bring = bring


def _cannot_bring(paths: list[str]) -> dict[str, str]:
    raise FileNotFoundError(errno.ENOENT, "values that are with the server are brought to workers only", paths[0])


_bring: Callable[[list[str]], dict[str, str]] = _cannot_bring


def _map_buffer(path: str, size: int, place: str = "") -> Pages:
    """The map of a buffer's file, which may lie elsewhere: the same one for all values that are in use."""
    place = place or path
    found = _maps.get(path)
    if found is None:
        with _locked(place, size) as (descriptor, there):
            found = _maps[path] = _pages_of(descriptor, there)
    return found


def _pages_of(descriptor: int, size: int) -> Pages:
    """The map of a locked file; it is locked as long as something uses this map.

    A map of a file in memory is kept: then what is read from it holds a descriptor, of which there are not many.
    """
    from bough.movers.mapped_memory import map_pages, part_of

    if len(_parts) < _MOST_PARTS and is_memory(descriptor):
        with contextlib.suppress(OSError):
            found = part_of(kept_maps.pages(descriptor, size), size, os.dup(descriptor))
            _parts[id(found)] = found
            return found
    return map_pages(descriptor, size)


@contextlib.contextmanager
def _locked(path: str, size: int = 0) -> Iterator[tuple[int, int]]:
    """As `_opened`; the file is not used again for something else while it is open, or a map of it lives."""
    for _ in range(_TRIES):
        with _opened(path, size) as (descriptor, there):
            with contextlib.suppress(OSError):  # some file systems have no locks: nothing is used again there
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                yield descriptor, there
                return
    raise FileNotFoundError(errno.ENOENT, "it is always another file", path)


def read_value(path: str, load: Callable[[Any, Sequence[Any]], Any] = load_pickle) -> Any:
    """The value in a file, its buffers as views of it; `load` makes it of a pickle and buffers."""
    with _locked(path) as (descriptor, there):
        if not is_split(os.pread(descriptor, MOST_BEGIN, 0)):
            with mmap.mmap(descriptor, there, prot=mmap.PROT_READ) as data:
                return load(data, ())
        from bough.movers.mapped_memory import read_only

        pages = read_only(_pages_of(descriptor, there))
    parts = split(pages)
    assert parts is not None
    return load(*parts)


@contextlib.contextmanager
def pickle_in(path: str) -> Iterator[mmap.mmap]:
    """The bytes of a file with a plain pickle, while they are read."""
    with _opened(path) as (descriptor, there), mmap.mmap(descriptor, there, prot=mmap.PROT_READ) as data:
        yield data


def overwrite(path: str, new: str, view: memoryview, pages: Any = None) -> Any:
    """Make of a buffer's file, which is not shorter, that of another buffer; None when some process maps it.

    `pages` is what this gave for the file before: the map by which it is written, which is made once.
    """
    from bough.movers.mapped_memory import copy_into, map_pages

    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return None
        os.rename(path, new)  # before a byte is changed: who opened it by its former name sees that it is gone
        if pages is None:
            pages = map_pages(descriptor, view.nbytes, is_writable=True)
        copy_into(pages, view, view.nbytes)
        os.ftruncate(descriptor, view.nbytes)
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # the map would keep it
    finally:
        os.close(descriptor)
    return pages


def write_file(path: str, parts: Sequence[Buffer]) -> int:
    """Write a file that only we can reach; its size. A file that cannot be written whole leaves nothing."""
    descriptor = private.opener(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        size = write_pieces(descriptor, parts)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(descriptor)
    return size


def write_pieces(descriptor: int, parts: Sequence[Buffer]) -> int:
    """Write pieces one behind the other; how many bytes that was."""
    size = 0
    left = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
    while left:
        count = os.writev(descriptor, left[:_MOST_PIECES])
        size += count
        while count:
            if count < left[0].nbytes:
                left[0] = left[0][count:]
                break
            count -= left.pop(0).nbytes
    return size
