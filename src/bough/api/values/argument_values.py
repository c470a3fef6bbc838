"""The big buffers of a session's arguments: each is written once, into memory that all workers map.

They lie in a folder of /dev/shm that only we can reach; when that is full, or holds as much as it may, further ones are
written to the store. A call refers to them by name. A buffer that holds the same bytes as one that is there is that
one: its bytes are compared, so that an array that was changed meanwhile is another one.

Rules: what a call gets is what its arguments held when it was submitted. A buffer stays while a task that has not
succeeded, a shared value or a reader needs it; and, as long as there is room, while the array that it was written from
lives, because that may be given to another call. It also stays until its content was noted for later runs, which is
done when its tasks are. A file that no process maps any more may become that of another buffer: memory that is there is
written three times as fast as new memory. What is left of those is freed when nothing new comes. Nothing outlives the
session: what one that was killed left, its server removes, or the next session.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from bough import private
from bough.api.values.value_identities import ValueIdentities, mark_of, new_number
from bough.errors import SiteError
from bough.executor.host.disk_space_wait import SpaceWait, patiently
from bough.movers.mapped_memory import are_same, read_only
from bough.movers.value_files import Ref, map_file, overwrite, write_file
from bough.movers.value_places import MEMORY, VALUES, free_bytes, value_memory

_SPARE: Final = 64 << 20  # bytes that are left free there
_POOL: Final = 1 << 30  # most bytes of files that wait to be used again
_FITS: Final = 2  # a file may be used again for a buffer that is not smaller than a half of it


class KeptBuffer:
    """One buffer that was written."""

    __slots__ = ("holders", "identity", "in_memory", "is_gone", "mark", "pages", "path", "size", "source", "view")

    def __init__(self, path: str, size: int, mark: bytes, *, in_memory: bool) -> None:
        self.path, self.size, self.mark, self.in_memory = path, size, mark, in_memory
        self.identity = b""
        self.holders = 1
        self.pages: Any = None  # the map by which it was written, if its file had been another one's
        self.source: weakref.ref[Any] | None = None  # what it was written from
        self.view: memoryview | None = None  # a map of it, once something was compared with it
        self.is_gone = False

    @property
    def ref(self) -> Ref:
        """What travels in its place."""
        return self.path, self.size, self.identity


class _HeldByArray:
    """Buffers that all elements of an array need, and which elements have succeeded: a byte for each."""

    __slots__ = ("_is_done", "_left", "buffers")

    def __init__(self, length: int, buffers: Sequence[KeptBuffer]) -> None:
        self.buffers = buffers
        self._left = length
        self._is_done = bytearray(length)

    def succeeded(self, start: int, stop: int) -> bool:
        """Elements have succeeded, perhaps not for the first time; whether all have."""
        stop = min(stop, len(self._is_done))
        self._left -= self._is_done.count(0, start, stop)
        self._is_done[start:stop] = b"\x01" * (stop - start)
        return not self._left


class ArgumentValues:
    """See the module. `first` is the first record of the run: files in the store are named by it."""

    is_here = True  # this process can read them

    def __init__(self, store: str, first: int, limit: int | None = None, memory: str = MEMORY) -> None:
        self._store, self._first = store, first
        self._memory = memory
        self._limit = value_memory(memory) if limit is None else limit
        self._folder = private.TemporaryFolder(VALUES, memory)
        self._names = itertools.count(1)
        self._owner = os.getpid()  # processes that the script forks remove nothing
        self._lock = threading.Lock()
        self._buffers: dict[tuple[int, bytes], list[KeptBuffer]] = {}  # by size and mark
        self._idle: dict[KeptBuffer, None] = {}  # that nothing holds but what they were written from; the oldest first
        # what the garbage collector told: a buffer whose source has gone (0), or that has a holder less (1)
        self._collected: deque[tuple[KeptBuffer, int]] = deque()
        self._held: dict[int, dict[int, list[KeptBuffer]]] = {}  # by record and element
        self._held_by_arrays: dict[int, _HeldByArray] = {}  # by record
        self.is_closed = False
        self._pool: dict[
            str, tuple[int, Any]
        ] = {}  # files that nothing needs: size, and the map by which they are written
        self.identities = ValueIdentities(store, self._empty_pool)
        self.in_memory = 0  # bytes in /dev/shm

    # --- buffers ------------------------------------------------------------------------------------

    def keep(self, view: memoryview, source: Any = None) -> KeptBuffer:
        """Have the bytes of a buffer in a file; the caller holds it until it calls `let_go`."""
        self.identities.is_urgent = True
        try:
            return self._keep(view, source)
        finally:
            self.identities.is_urgent = False

    def _keep(self, view: memoryview, source: Any) -> KeptBuffer:
        mark = mark_of(view)
        found = self._same(view, mark)
        if found is None:
            if source is not None:
                self._forget_former(source)
            found = self._written(view, mark)
            number = self.identities.find(view, mark)
            found.identity = number or new_number()
            with self._locked():
                self._buffers.setdefault((found.size, mark), []).append(found)
                if number is None:
                    found.holders += 1
            if number is None:
                done = functools.partial(self.let_go, [found])
                self.identities.note_later(found.path, found.size, mark, found.identity, done)
        if source is not None and (found.source is None or found.source() is None):
            with contextlib.suppress(TypeError):  # most things can be referred to weakly
                found.source = weakref.ref(source, lambda _: self.collected([found], 0))
        return found

    def _forget_former(self, source: Any) -> None:
        """Remove what nothing needs of what an array held before it was changed."""
        with self._locked():
            for one in [one for one in self._idle if one.source is not None and one.source() is source]:
                self._remove(one)

    def _same(self, view: memoryview, mark: bytes) -> KeptBuffer | None:
        """A buffer that holds the same bytes."""
        with self._locked():
            candidates = list(self._buffers.get((view.nbytes, mark), ()))
            for one in candidates:
                one.holders += 1
                self._idle.pop(one, None)
        found = None
        others = []
        for one in candidates:
            if found is None and _holds(one, view):
                found = one
            else:
                others.append(one)
        self.let_go(others)
        return found

    def _written(self, view: memoryview, mark: bytes) -> KeptBuffer:
        size, name = view.nbytes, f"{self._first}.{next(self._names)}-{os.urandom(4).hex()}.pickle"
        found = self._used_again(view, name, mark)
        if found is not None:
            return found
        folder = self._take_room(size)
        if folder:
            try:
                write_file(path := os.path.join(folder, name), [view])
            except OSError:  # it is full after all: others use it, too
                self._give_room(size)
            else:
                return KeptBuffer(path, size, mark, in_memory=True)
        path = os.path.join(self._store, "args", name)
        patiently(f"an argument of {size} bytes", lambda: write_file(path, [view]), SpaceWait())
        return KeptBuffer(path, size, mark, in_memory=False)

    def _used_again(self, view: memoryview, name: str, mark: bytes) -> KeptBuffer | None:
        """A buffer in a file that was another one's."""
        with self._locked():
            found_there = reversed(self._pool.items())  # those first that workers have mapped not long ago
            fitting = [path for path, (size, _) in found_there if view.nbytes <= size <= _FITS * view.nbytes]
            taken = {path: self._pool.pop(path) for path in sorted(fitting, key=lambda path: self._pool[path][0])}
        found = None
        for path, (size, pages) in list(taken.items()):
            new = os.path.join(os.path.dirname(path), name)
            try:
                pages = overwrite(path, new, view, pages)  # noqa: PLW2901
            except OSError:
                continue
            if pages is not None:
                del taken[path]
                found = KeptBuffer(new, view.nbytes, mark, in_memory=True)
                found.pages = pages
                self._give_room(size - view.nbytes)
                break
        with self._locked():
            self._pool |= taken
        return found

    def _empty_pool(self) -> None:
        with self._locked():
            for path, (size, _) in self._pool.items():
                self.in_memory -= size
                with contextlib.suppress(OSError):
                    os.unlink(path)
            self._pool.clear()

    def _take_room(self, size: int) -> str:
        """The folder in memory into which a buffer may go; empty: none. What nothing needs makes room for it."""
        if self._pool and not self._has_room(size):
            self._empty_pool()
        with self._locked():
            while self._idle and not self._has_room(size):
                self._remove(next(iter(self._idle)), for_good=True)
            if not self._has_room(size) or self.is_closed:
                return ""
            try:
                folder = self._folder.make()
            except (OSError, SiteError):
                return ""
            self.in_memory += size
            return folder

    def _give_room(self, size: int) -> None:
        with self._locked():
            self.in_memory -= size

    def _has_room(self, size: int) -> bool:
        return self.in_memory + size <= self._limit and size + _SPARE <= free_bytes(self._memory)

    # --- who holds them -----------------------------------------------------------------------------

    def hold(self, record: int, start: int, stop: int, buffers: Sequence[KeptBuffer]) -> None:
        """Elements of a task or array need these until they have succeeded."""
        with self._locked():
            held = self._held.setdefault(record, {})
            for index in range(start, stop):
                held.setdefault(index, []).extend(buffers)
            for one in buffers:
                one.holders += stop - start

    def hold_array(self, record: int, length: int, buffers: Sequence[KeptBuffer]) -> None:
        """An array of any length needs these until all its elements have succeeded."""
        with self._locked():
            self._held_by_arrays[record] = _HeldByArray(length, buffers)
            for one in buffers:
                one.holders += 1

    def hold_too(self, buffers: Sequence[KeptBuffer]) -> None:
        """Another one needs these, which somebody holds, until it calls `let_go`."""
        with self._locked():
            for one in buffers:
                one.holders += 1

    def succeeded(self, record: int, start: int = 0, stop: int = 1) -> None:
        """Elements have succeeded, or were cancelled."""
        if record not in self._held and record not in self._held_by_arrays:
            return
        found: list[KeptBuffer] = []
        with self._locked():
            array = self._held_by_arrays.get(record)
            if array is not None and array.succeeded(start, stop):
                del self._held_by_arrays[record]
                found += array.buffers
            held = self._held.get(record, {})
            indices = range(start, stop) if stop - start <= len(held) else [at for at in held if start <= at < stop]
            for index in indices:
                found += held.pop(index, [])
            if not held:
                self._held.pop(record, None)
        self.let_go(found)

    def let_go(self, buffers: Sequence[KeptBuffer]) -> None:
        """A holder of each of these needs it no more."""
        with self._locked():
            for one in buffers:
                self._lose(one, 1)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            yield
            while self._collected:
                self._lose(*self._collected.popleft())

    def collected(self, buffers: Sequence[KeptBuffer], holders: int = 1) -> None:
        """As `let_go`, by the garbage collector: in any thread, which may hold the lock already."""
        self._collected += [(one, holders) for one in buffers]
        if self._lock.acquire(blocking=False):
            self._lock.release()
            with self._locked():
                return

    def _lose(self, buffer: KeptBuffer, holders: int) -> None:
        buffer.holders -= holders
        if not buffer.holders:
            self._settle(buffer)
        elif buffer.holders == 1 and os.getpid() == self._owner:
            self.identities.note_soon(buffer.path)  # if that is what holds it

    def _settle(self, buffer: KeptBuffer) -> None:
        """Nothing holds it: it stays only for what it was written from."""
        if buffer.source is not None and buffer.source() is not None and buffer.in_memory:
            self._idle[buffer] = None
        else:
            self._remove(buffer)

    def _remove(self, buffer: KeptBuffer, *, for_good: bool = False) -> None:
        self._idle.pop(buffer, None)
        if buffer.is_gone or os.getpid() != self._owner:
            return
        buffer.is_gone = True
        same = self._buffers.get((buffer.size, buffer.mark), [])
        if buffer in same:
            same.remove(buffer)
            if not same:
                del self._buffers[buffer.size, buffer.mark]
        pages, buffer.pages, buffer.view = buffer.pages, None, None
        if buffer.in_memory and not for_good and not self.is_closed and self._pool_size() + buffer.size <= _POOL:
            self._pool[buffer.path] = (buffer.size, pages)
            self.identities.call_when_quiet()
            return
        if buffer.in_memory:
            self.in_memory -= buffer.size
        with contextlib.suppress(OSError):
            os.unlink(buffer.path)

    def _pool_size(self) -> int:
        return sum(size for size, _ in self._pool.values())

    def close(self) -> None:
        """The session has ended: remove all."""
        if self.is_closed or os.getpid() != self._owner:
            return
        self.is_closed = True
        self.identities.close()
        with self._locked():
            for one in [one for same in self._buffers.values() for one in same]:
                self._remove(one)
        self._folder.remove()


def _holds(buffer: KeptBuffer, view: memoryview) -> bool:
    try:
        if buffer.view is None:
            pages = buffer.pages
            buffer.view = map_file(buffer.path, buffer.size) if pages is None else read_only(pages)
    except (OSError, ValueError):
        return False
    return are_same(view, buffer.view, buffer.size)
