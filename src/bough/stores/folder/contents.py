"""Files by content, each once, under its digest in `files/AA/DIGEST` of a store; and which runs refer to them.

`Contents` writes and reads them. `FileReferences` records which runs need which contents, so that those of removed runs
can be deleted. Rule: a content with its final name is complete, on the disk and what its name says; a writer uses a
hidden name first. A reference is written before any peer is told that the content is there, and a content is deleted
only when no run refers to it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Self

from bough import private
from bough.errors import StoreFailed
from bough.wire.file_messages import DIGEST, PIECE

_HIDDEN = ".part-"
_SLICE = 100  # contents deleted at a time


class Contents:
    """A folder of contents. Methods may be called from any thread."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._numbers = itertools.count(1)

    def path(self, digest: bytes) -> str:
        """Where a content lies, or would."""
        if len(digest) != DIGEST:
            raise StoreFailed(f"a content is named by {DIGEST} bytes, not by {len(digest)}")
        name = digest.hex()
        return f"{self.folder}/{name[:2]}/{name}"

    def has(self, digest: bytes) -> bool:
        """Whether a content is here."""
        return os.path.exists(self.path(digest))

    def size(self, digest: bytes) -> int:
        """The bytes of a content; -1 when it is not here."""
        try:
            return os.stat(self.path(digest)).st_size
        except OSError:
            return -1

    def read(self, digest: bytes, offset: int, length: int) -> bytes:
        """A piece of a content."""
        try:
            descriptor = os.open(self.path(digest), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreFailed(f"the content {digest.hex()} cannot be read: {error.strerror}") from error
        try:
            return os.pread(descriptor, max(0, min(length, PIECE)), max(0, offset))
        finally:
            os.close(descriptor)

    def receive(self, digest: bytes = b"") -> Incoming:
        """Begin to write a content; without a digest its name is known only at the end."""
        private.make_folder(self.folder)
        return Incoming(self, digest, f"{self.folder}/{_HIDDEN}{os.getpid()}-{next(self._numbers)}")

    def put_many(self, contents: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep small contents, by digest: each is complete and on the disk, and each folder is synced once.

        One that is not what its digest says is left out: it is its sender's affair, not that of the others.
        """
        folders: dict[str, None] = {}
        for digest, data in dict(contents).items():
            with contextlib.suppress(StoreFailed), self.receive(digest) as incoming:
                incoming.write(data)
                incoming.finish(sync_folder=False)
                folders[os.path.dirname(self.path(digest))] = None
        for folder in folders:
            private.sync_folder(folder)

    def sweep(self) -> None:
        """Delete contents that were left half-written; only the holder of the store may call this."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.folder):
                if name.startswith(_HIDDEN):
                    os.unlink(f"{self.folder}/{name}")


class Incoming:
    """A content that is being written."""

    def __init__(self, contents: Contents, digest: bytes, hidden: str) -> None:
        self._contents = contents
        self._wanted = digest
        self._hidden = hidden
        self._digest = blake2b(digest_size=DIGEST)
        self._file = open(hidden, "xb", 0, opener=private.opener)  # noqa: SIM115 -- closed by `finish` or `drop`
        self.size = 0

    def write(self, data: bytes) -> None:
        """The next bytes: all of them, or none and OSError, after which they may be written again."""
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError:
            self._file.truncate(self.size)
            self._file.seek(self.size)
            raise
        self._digest.update(data)
        self.size += len(data)

    def finish(self, elsewhere: str = "", *, sync_folder: bool = True) -> bytes:
        """Give the complete content its name, or another path; StoreFailed when it is not what was announced."""
        digest = self._digest.digest()
        if self._wanted and digest != self._wanted:
            self.drop()
            raise StoreFailed("what arrived is not what was announced: the file changed on its way")
        os.fsync(self._file.fileno())
        path = elsewhere or self._contents.path(digest)
        private.make_folder(os.path.dirname(path))
        os.replace(self._hidden, path)
        self._file.close()  # last: what fails before may be tried again
        if sync_folder:
            private.sync_folder(os.path.dirname(path))
        return digest

    def drop(self) -> None:
        """Delete what was written."""
        self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._hidden)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if exc[0] is not None:
            self.drop()


class FileReferences:
    """Which runs refer to which contents: a file for each run, `files/runs/RUN`, holds its digests end to end."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._folder = f"{contents.folder}/runs"
        self.runs: dict[int, set[bytes]] = {}
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                if name.isdecimal():
                    with open(f"{self._folder}/{name}", "rb") as file:
                        data = file.read()
                    whole = len(data) - len(data) % DIGEST
                    self.runs[int(name)] = {data[at : at + DIGEST] for at in range(0, whole, DIGEST)}

    def add(self, run: int, digests: Iterable[bytes]) -> None:
        """A run refers to these contents; OSError when that cannot be written."""
        known = self.runs.setdefault(run, set())
        new = [digest for digest in dict.fromkeys(digests) if digest not in known]
        if new:
            private.make_folder(self._folder)
            with open(f"{self._folder}/{run}", "ab", opener=private.opener) as file:
                if file.tell() % DIGEST:  # a writer that was killed left a part of one
                    file.truncate(file.tell() - file.tell() % DIGEST)
                file.write(b"".join(new))
            known.update(new)

    def is_referred(self, digest: bytes) -> bool:
        """Whether some run refers to a content."""
        return any(digest in digests for digests in self.runs.values())

    def sweep(self, removed: Iterable[int]) -> bool:
        """Delete some contents that only removed runs refer to; whether there may be more."""
        gone = next((run for run in removed if run in self.runs), None)
        if gone is None:
            return False
        mine = self.runs[gone]
        others = [digests for run, digests in self.runs.items() if run != gone]
        for _ in range(min(_SLICE, len(mine))):
            digest = mine.pop()
            if not any(digest in digests for digests in others):
                with contextlib.suppress(OSError):
                    os.unlink(self._contents.path(digest))
        if not mine:
            del self.runs[gone]
            with contextlib.suppress(OSError):
                os.unlink(f"{self._folder}/{gone}")
        return True
