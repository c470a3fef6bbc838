"""Contents that were brought to an executor, kept for its next tasks as long as there is room.

Rules: what a task that was not told of yet needs is pinned and stays; of the rest the least recently used goes first.
A content is compared with its digest when it comes, nobody else can reach it, and one that a task has changed since (it
may have a link to it) is not used again.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from hashlib import blake2b

from bough import private
from bough.executor.pausing import is_full
from bough.wire.filemessages import DIGEST

LIMIT = 10 << 30  # bytes kept
_MODE = 0o555  # read-only, and executable: a program may be among them


class FileCache:
    """A folder of contents, by digest."""

    def __init__(self, folder: str, limit: int = LIMIT) -> None:
        self._folder = folder
        self._limit = limit
        self._sizes: OrderedDict[bytes, int] = OrderedDict()  # the least recently used first
        self._stamps: dict[bytes, tuple[int, int, int]] = {}  # what they looked like when they were compared
        self._total = 0
        self._pins: dict[object, set[bytes]] = {}
        private.make_folder(folder)

    def path(self, digest: bytes) -> str:
        """Where a content lies."""
        return f"{self._folder}/{digest.hex()}"

    def has(self, digest: bytes) -> bool:
        """Whether it is here, as it came; it counts as used."""
        if digest not in self._sizes:
            return False
        if _stamp(self.path(digest)) != self._stamps[digest]:
            self._drop(digest)
            return False
        self._sizes.move_to_end(digest)
        return True

    def pin(self, digest: bytes, owner: object) -> None:
        """Keep a content until its owner lets go."""
        self._pins.setdefault(owner, set()).add(digest)

    def unpin(self, owner: object) -> None:
        """An owner lets go of all."""
        self._pins.pop(owner, None)

    def receive(self, digest: bytes, size: int) -> Arriving:
        """Begin to write one."""
        return Arriving(self, digest, size)

    def added(self, digest: bytes, size: int) -> None:
        """A content is complete."""
        if digest not in self._sizes:
            self._total += size
        self._sizes[digest] = size
        self._stamps[digest] = _stamp(self.path(digest))
        self._make_room(digest)

    def _make_room(self, newest: bytes) -> None:
        if self._total > self._limit:
            self._shrink(newest, self._limit)

    def make_space(self, newest: bytes) -> None:
        """The disk is full: all goes that nobody needs."""
        self._shrink(newest, 0)

    def _shrink(self, newest: bytes, limit: int) -> None:
        pinned = set().union(*self._pins.values(), {newest})
        for digest in [digest for digest in self._sizes if digest not in pinned]:
            if self._total <= limit:
                return
            self._drop(digest)

    def _drop(self, digest: bytes) -> None:
        self._total -= self._sizes.pop(digest)
        del self._stamps[digest]
        with contextlib.suppress(OSError):
            os.unlink(self.path(digest))


def _stamp(path: str) -> tuple[int, int, int]:
    """What changes when a content does: its file, its size, the time it was written."""
    try:
        state = os.lstat(path)
    except OSError:
        return 0, 0, 0
    return state.st_ino, state.st_size, state.st_mtime_ns


class Arriving:
    """A content that comes in pieces, in whatever order."""

    def __init__(self, cache: FileCache, digest: bytes, size: int) -> None:
        self._cache = cache
        self.digest = digest
        self.size = size
        self.written = 0
        self._early: dict[int, bytes] = {}
        self._sum = blake2b(digest_size=DIGEST)
        self._hidden = f"{cache.path(digest)}.{os.getpid()}.part"
        self._number = private.opener(self._hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def add(self, offset: int, data: bytes) -> None:
        """A piece; OSError when it cannot be written."""
        if offset >= self.written:
            self._early[offset] = data
        while self.written in self._early:
            piece = self._early.pop(self.written)
            if not piece:
                break
            self._write(piece)
            self._sum.update(piece)
            self.written += len(piece)

    def _write(self, piece: bytes) -> None:
        made_space, view = False, memoryview(piece)
        while view:
            try:
                view = view[os.write(self._number, view) :]
            except OSError as error:
                if made_space or not is_full(error):
                    raise
                made_space = True
                self._cache.make_space(self.digest)

    def finish(self) -> None:
        """All has come: OSError when it is not what it was to be."""
        if self._sum.digest() != self.digest:
            raise OSError(0, "what arrived is not what was announced")
        os.fchmod(self._number, _MODE)
        os.close(self._number)
        self._number = -1
        os.replace(self._hidden, self._cache.path(self.digest))
        self._cache.added(self.digest, self.size)

    def forget_early(self) -> None:
        """What came before its turn will be sent again."""
        self._early.clear()

    def drop(self) -> None:
        """Leave nothing."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1
        with contextlib.suppress(OSError):
            os.unlink(self._hidden)
