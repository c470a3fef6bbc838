"""The content store of a site in its shared folder: what one of its hosts has fetched from elsewhere, all have.

A content is a file named by its digest, and its time of change says when it was used last. Executors on different hosts
use the store at once; so nothing rests on locks or appended records, which many network file systems keep badly. A
content is written beside its place and renamed. Who is about to fetch one from elsewhere leaves a claim, so that the
others wait for it; a claim that its owner does not write to any more is void, and two who fetch the same do no harm.
What a host remembers of files may be old (sshfs: 20 s, also that a file is there which is not any more); so whether
one is there is found out by opening it, and a claim that lives has other bytes each time.

Rules: a content has its name only once it is complete and was compared with its digest; a reader compares it again. The
bytes of all contents are at most the limit, and those that were used last stay. Only its user reaches it. Whatever
fails here costs only the fetching from elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from bough import private
from bough.errors import SiteError
from bough.wire.file_messages import DIGEST

SHARED_LIMIT: Final = 100 << 30  # bytes kept, unless it is said otherwise
LEAST: Final = 1 << 16  # bytes: smaller contents come from the server, in less time than a file takes to be made
_READ: Final = 1 << 20
_NAME = re.compile(rf"[0-9a-f]{{{2 * DIGEST}}}\Z")
_CLAIM, _NEW = ".claim", ".new"
_TOUCH: Final = 60.0  # seconds: a later use is noted no earlier
_SCAN: Final = 10.0  # seconds after which what others have added is looked for
_SLACK: Final = 64  # the part of the limit that is freed besides what is needed
_STALE: Final = 3600.0  # seconds after which what nobody finishes is removed
_HEARTBEAT: Final = 2.0  # seconds between two touches of a claim
_VOID: Final = 30.0  # seconds without a touch after which a claim is void
_MARK: Final = 8  # bytes of a claim
_POLL: Final = 0.1  # seconds between two looks at another's claim


def store_folder(place: str) -> str:
    """The folder of the store in a site's shared folder."""
    return os.path.join(os.path.abspath(place), f"bough-shared-{os.geteuid()}")


class _Kept(NamedTuple):
    """A content in the store."""

    used: float
    size: int
    digest: bytes


class Claim:
    """The announcement that a content is about to come. Touch it now and then; `release` when it came, or will not."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._touched = time.monotonic()

    def touch(self) -> None:
        """It is still on its way."""
        now = time.monotonic()
        if now - self._touched >= _HEARTBEAT:
            self._touched = now
            with contextlib.suppress(OSError):
                _write_mark(os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW))

    def release(self) -> None:
        """Let others go on."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)


class SharedStore:
    """See the module. Any thread may use it. `void`: seconds without a touch that end a claim."""

    def __init__(self, folder: str, limit: int = SHARED_LIMIT, *, void: float = _VOID) -> None:
        self.folder = folder
        self.limit = limit
        self._void = void
        self._lock = threading.Lock()
        self._total = 0
        self._scanned = -_SCAN
        self._is_made = False

    def path(self, digest: bytes) -> str:
        """Where a content lies, or would."""
        return f"{self.folder}/{digest.hex()}"

    def keeps(self, size: int) -> bool:
        """Whether contents of a size are kept here."""
        return LEAST <= size <= self.limit

    # --- reading -----------------------------------------------------------------------------------

    def open(self, digest: bytes, size: int) -> int:
        """A descriptor of a content; -1: it is not here."""
        try:
            number = os.open(self.path(digest), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return -1
        state = os.fstat(number)
        if state.st_size != size:
            os.close(number)
            self.drop(digest)
            return -1
        if time.time() - state.st_mtime > _TOUCH:
            with contextlib.suppress(OSError):
                os.utime(self.path(digest))
        return number

    def has(self, digest: bytes) -> bool:
        """Whether a content is here."""
        return _is_there(self.path(digest))

    def drop(self, digest: bytes) -> None:
        """A content is not what it should be."""
        with contextlib.suppress(OSError):
            os.unlink(self.path(digest))

    def contents(self) -> dict[bytes, int]:
        """All that is here, with its bytes."""
        return {one.digest: one.size for one in self._scan()}

    # --- coming ------------------------------------------------------------------------------------

    def claim(self, digest: bytes) -> Claim | None:
        """Say that a content is about to be fetched; None: another host has said so."""
        path = f"{self.path(digest)}{_CLAIM}"
        try:
            self._make()
            _write_mark(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return None
        except (OSError, SiteError):  # SFTP has no word for a file that is there already; else nobody waits
            return None if _is_there(path) else Claim("")
        return Claim(path)

    def wait(self, digest: bytes) -> None:
        """Wait while another host fetches a content: until its claim is gone, or void, which ends it."""
        path = f"{self.path(digest)}{_CLAIM}"
        seen, since = b"", time.monotonic()
        while True:
            try:
                mark = _read_mark(path)
            except OSError:
                return
            now = time.monotonic()
            if mark != seen:
                seen, since = mark, now
            elif now - since > self._void:
                Claim(path).release()
                return
            time.sleep(_POLL)

    def publish(self, source: str, digest: bytes, size: int) -> list[bytes] | None:
        """Keep a copy of a file that has a content; what was given up for it. None: it is not kept."""
        hidden = f"{self.path(digest)}.{os.urandom(8).hex()}{_NEW}"
        try:
            self._make()
            if self.has(digest):
                return []
            with self._lock:
                gone = self._make_room(size)
            if not self._copy(source, hidden, digest):
                return None
            os.replace(hidden, self.path(digest))
        except (OSError, SiteError):
            return None
        finally:
            with contextlib.suppress(OSError):
                os.unlink(hidden)
        with self._lock:
            self._total += size
        return gone

    @staticmethod
    def _copy(source: str, hidden: str, digest: bytes) -> bool:
        found = blake2b(digest_size=DIGEST)
        with open(source, "rb") as read, open(hidden, "wb", opener=private.opener) as write:
            while data := read.read(_READ):
                found.update(data)
                write.write(data)
            write.flush()
            os.fsync(write.fileno())  # other hosts see it whole, and an error is told before it has its name
        return found.digest() == digest

    # --- room --------------------------------------------------------------------------------------

    def _make(self) -> None:
        if not self._is_made or not os.path.isdir(self.folder):
            private.make_folder(self.folder)
            self._is_made = True

    def _make_room(self, size: int) -> list[bytes]:
        """Give up what was not used for the longest time, until there is room; by one who has the lock."""
        now = time.monotonic()
        if self._total + size <= self.limit and now - self._scanned < _SCAN:
            return []
        kept = sorted(self._scan())
        self._scanned, self._total = now, sum(one.size for one in kept)
        gone: list[bytes] = []
        if self._total + size <= self.limit:
            return gone
        for one in kept:
            if self._total + size <= self.limit - self.limit // _SLACK:
                break
            self.drop(one.digest)
            self._total -= one.size
            gone.append(one.digest)
        return gone

    def _scan(self) -> Iterator[_Kept]:
        """What is here; what nobody will finish is removed."""
        try:
            entries = os.scandir(self.folder)
        except OSError:
            return
        with entries:
            for entry in entries:
                try:
                    state = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if _NAME.match(entry.name):
                    yield _Kept(state.st_mtime, state.st_size, bytes.fromhex(entry.name))
                elif entry.name.endswith((_NEW, _CLAIM)) and time.time() - state.st_mtime > _STALE:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)


def _is_there(path: str) -> bool:
    """Whether a file is there now, by the word of who keeps it."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _write_mark(number: int) -> None:
    """Give a claim bytes that it never had, and close it."""
    try:
        os.pwrite(number, os.urandom(_MARK), 0)
    finally:
        os.close(number)


def _read_mark(path: str) -> bytes:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.pread(number, _MARK, 0)
    finally:
        os.close(number)
