"""The cache of a host: contents by digest in one folder, which all executors of a user on that host use at once.

A content is a file named by its digest. Its time of change is a mark made from the digest: whoever writes to it
changes that time, and it is not used again. A content that comes is written to `DIGEST.part`, which its writer has
locked: another executor that wants it waits for that one, as long as the part grows. To pin a content is to link it
into a folder of the executor's own, so that a pin ends with its executor, also if that is killed; what has a second
link is never evicted. When contents came and were used is in a ledger to which all append; it may be lost without harm.
The time of change of one empty file is when something was last removed while the disk was full.

Rules: a content has its name only once it was compared with its digest. The bytes of all contents are at most the
limit, but for those that are pinned; what is bigger than the limit is kept for its reader alone. No other user can
reach any of it. What another process, or the user, removes is fetched again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from queue import SimpleQueue
from random import Random
from typing import TYPE_CHECKING, Final

from bough import private
from bough.errors import SiteError
from bough.executor.host.disk_space_wait import is_full, lacks_space
from bough.filesystems import is_network_filesystem
from bough.movers.local import mark_of
from bough.policies.eviction.eviction_names import load_eviction
from bough.wire.file_messages import DIGEST

if TYPE_CHECKING:
    from bough.policy.interface import EvictionPolicy

LIMIT: Final = 10 << 30  # bytes kept, unless it is said otherwise
_MODE: Final = 0o555  # read-only, and executable: a program may be among them
_PART: Final = ".part"
_NEW: Final = ".new"
_LEDGER, _LOCK, _FULL = "ledger", "lock", "full"
_STALE: Final = 3600.0  # seconds after which a part that nobody writes is removed
_NAME = re.compile(rf"[0-9a-f]{{{2 * DIGEST}}}\Z")
_MANY: Final = 1000  # contents from which on a little more is evicted than is needed
_SLACK: Final = 64  # the part of the limit that is freed then
_READ: Final = 1 << 20
_BIG: Final = 4 << 20  # bytes of a content from which on its digest has a thread of its own, and of its steps


def default_place(work: str, *, is_pilot: bool) -> str:
    """The folder in which the cache of this host lies, unless one was named.

    In the executor's own folder, if the user named that; the folder of a pilot is that pilot's alone. Else in the
    user's cache, unless that is on a network: what several hosts see is no cache of one.
    """
    if work and not is_pilot:
        return os.path.abspath(work)
    named = os.environ.get("XDG_CACHE_HOME", "")
    cache = os.path.abspath(named) if named else os.path.join(os.path.expanduser("~"), ".cache")
    home = cache if os.path.isdir(cache) else os.path.dirname(cache)
    if os.path.isabs(cache) and os.access(home, os.W_OK) and not is_network_filesystem(home):
        return os.path.join(cache, "bough")
    return os.path.join(private.temporary_place(), f"bough-cache-{os.geteuid()}")


def cache_folder(place: str) -> str:
    """The folder of this host's cache in a place that hosts may share."""
    mark = blake2b(os.fsencode(socket.gethostname()), digest_size=4).hexdigest()
    return os.path.join(os.path.abspath(place), f"bough-contents-{os.geteuid()}-{mark}")


class CacheEntry:
    """What is known of a content."""

    __slots__ = ("inserted", "size", "used", "uses", "wanted")

    def __init__(self, size: int, inserted: float) -> None:
        self.size = size
        self.inserted = self.used = inserted
        self.uses = 0
        self.wanted = 0


class CacheLedger:
    """When contents came, were used and went: records at the end of one file. Any thread may use it."""

    _RECORD = struct.Struct("<BxxxIqd32s")  # kind, times, bytes, when, digest
    _ADDED, _USED, _REMOVED = 1, 2, 3

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._number = -1
        self._at = 0
        self.entries: dict[bytes, CacheEntry] = {}
        self.total = 0

    def added(self, digest: bytes, size: int) -> None:
        """A content has come."""
        self._append(self._ADDED, digest, size)

    def used(self, digest: bytes, times: int = 1) -> None:
        """A content was used; 0 times: it still is."""
        self._append(self._USED, digest, times=times)

    def removed(self, digest: bytes) -> None:
        """A content is not there any more."""
        self._append(self._REMOVED, digest)

    def _append(self, kind: int, digest: bytes, size: int = 0, times: int = 1) -> None:
        """Write a record; one that cannot be written is not missed."""
        with self._lock, contextlib.suppress(OSError):
            os.write(self._open(), self._RECORD.pack(kind, times, size, time.time(), digest))

    def _open(self) -> int:
        """The file that has the name now: somebody may have written a shorter one, or removed all."""
        if self._number >= 0:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(self._number), os.stat(self._path)):
                    return self._number
            self.close()
        self._number = private.opener(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._at, self.total = 0, 0
        self.entries.clear()
        return self._number

    def read(self) -> None:
        """Take in what all have written since the last time."""
        with self._lock:
            self._read()

    def _read(self) -> None:
        try:
            number = self._open()
            while data := os.pread(number, self._RECORD.size << 12, self._at):
                whole = len(data) - len(data) % self._RECORD.size
                if not whole:
                    return
                self._at += whole
                for record in self._RECORD.iter_unpack(data[:whole]):
                    self._fold(*record)
        except OSError:
            return

    def _fold(self, kind: int, times: int, size: int, when: float, digest: bytes) -> None:
        entry = self.entries.get(digest)
        if kind == self._ADDED:
            if entry is not None:
                self.total -= entry.size
            self.entries[digest] = CacheEntry(size, when)
            self.total += size
        elif entry is None:
            return
        elif kind == self._USED:
            entry.used = max(entry.used, when)
            entry.uses += times
        elif kind == self._REMOVED:
            self.total -= entry.size
            del self.entries[digest]

    @property
    def is_long(self) -> bool:
        """Whether it has many more records than are worth it, as far as it was read."""
        return self._at >= self._RECORD.size * (4 * len(self.entries) + 4096)

    def shorten(self) -> None:
        """Write anew what is worth it; by one who has the lock."""
        with self._lock:
            self._shorten()

    def _shorten(self) -> None:
        self._read()
        size, number = self._RECORD.size, self._open()
        if not self.is_long and os.fstat(number).st_size % size == 0:
            return
        pack, hidden = self._RECORD.pack, f"{self._path}.{os.getpid()}"
        with open(hidden, "wb", opener=private.opener) as file:
            for digest, entry in self.entries.items():
                file.write(pack(self._ADDED, 1, entry.size, entry.inserted, digest))
                if entry.uses:
                    file.write(pack(self._USED, entry.uses, 0, entry.used, digest))
        os.replace(hidden, self._path)
        late = bytearray()  # what others have written meanwhile
        while data := os.pread(number, size << 12, self._at + len(late)):
            late += data
        self._number = private.opener(self._path, os.O_RDWR | os.O_APPEND)
        os.close(number)
        self._at, self.total = 0, 0
        self.entries.clear()
        os.write(self._number, late[: len(late) // size * size])
        self._read()

    def close(self) -> None:
        """Use it no more."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1


class HostCache:
    """See the module. `pins`: the folder for pins of another process of this executor; else one is made."""

    def __init__(
        self, folder: str, limit: int = LIMIT, policy: EvictionPolicy | None = None, *, pins: str = ""
    ) -> None:
        self.folder = folder
        self.limit = limit
        self._policy = policy or load_eviction()
        self._dice = Random()
        self._ledger = CacheLedger(f"{folder}/{_LEDGER}")
        self.wanted: dict[bytes, int] = {}  # how many known tasks want a content
        self.on_evicted: Callable[[bytes], None] = lambda _: None
        self._owners: dict[bytes, set[object]] = {}  # by content
        self._pinned: dict[object, dict[bytes, None]] = {}  # the same, by owner
        self._own: private.TemporaryFolder | None = None
        self._make()
        if not pins:
            self._own = private.TemporaryFolder("pins", folder)
            pins = self._own.make()
            self._sweep()
            if not os.path.lexists(f"{folder}/{_FULL}"):
                self._mark_full(0.0)  # a full disk may not take a new file
        self.pins = pins

    def _make(self) -> None:
        place = os.path.dirname(self.folder)
        if not os.path.isdir(place):  # one that is there may be for all users, as /dev/shm is
            private.make_folder(place)
        private.make_folder(self.folder)

    def path(self, digest: bytes) -> str:
        """Where a content lies, or would."""
        return f"{self.folder}/{digest.hex()}"

    # --- what is here ------------------------------------------------------------------------------

    def has(self, digest: bytes, size: int = -1) -> bool:
        """Whether a content is here as it came."""
        return self._is_whole(self.path(digest), digest, size)

    def _is_whole(self, path: str, digest: bytes, size: int = -1) -> bool:
        try:
            state = os.lstat(path)
        except OSError:
            return False
        is_right = stat.S_ISREG(state.st_mode) and int(state.st_mtime) == mark_of(digest) and state.st_nlink > 0
        if is_right and (size < 0 or state.st_size == size):
            return True
        self.drop(digest)
        with contextlib.suppress(OSError):
            os.unlink(path)
        return False

    def contents(self) -> dict[bytes, int]:
        """All that is here, with its bytes, as the ledger says."""
        self._ledger.read()
        return {digest: entry.size for digest, entry in self._ledger.entries.items()}

    def used(self, digest: bytes, times: int = 1) -> None:
        """A content was read; 0 times: it still is."""
        self._ledger.used(digest, times)

    def drop(self, digest: bytes) -> None:
        """A content is not what it should be, or not there: forget it."""
        with contextlib.suppress(OSError):
            os.unlink(self.path(digest))
        self._ledger.removed(digest)
        self.on_evicted(digest)

    # --- pins --------------------------------------------------------------------------------------

    def pin(self, digest: bytes, owner: object, size: int = -1) -> str:
        """Keep a content until its owner unpins it: a path that stays until then; empty: it is not here, or no use."""
        path, pinned = self.path(digest), f"{self.pins}/{digest.hex()}"
        owners = self._owners.get(digest)
        if owners is None or not self._is_whole(pinned, digest, size):
            try:
                is_there = self._link(path, pinned, digest, size)
            except OSError:  # a disk made read-only, a mount that is gone: said when the content is to be written
                is_there = False
            if not is_there:
                return ""
            owners = self._owners.setdefault(digest, set())
        owners.add(owner)
        self._pinned.setdefault(owner, {})[digest] = None
        self._ledger.used(digest)
        return pinned

    def _link(self, path: str, pinned: str, digest: bytes, size: int) -> bool:
        with contextlib.suppress(FileExistsError):  # what was too big for the cache is there already
            try:
                os.link(path, pinned)
            except FileNotFoundError:
                if not os.path.lexists(path):
                    return self._is_whole(pinned, digest, size)  # it may be too big for the cache, and ours alone
                private.make_folder(self.pins)  # somebody has removed it
                os.link(path, pinned)
            except OSError:  # a file system without links, or too many: a copy is as good
                import shutil

                shutil.copyfile(path, pinned)
                os.chmod(pinned, _MODE)
                os.utime(pinned, (time.time(), mark_of(digest)))
        return self._is_whole(pinned, digest, size)

    def release(self, digest: bytes, owner: object) -> bool:
        """An owner needs one content no more; whether nobody here needs it now."""
        owners, own = self._owners.get(digest), self._pinned.get(owner)
        if own is not None:
            own.pop(digest, None)
            if not own:
                del self._pinned[owner]
        if owners is not None:
            owners.discard(owner)
            if not owners:
                del self._owners[digest]
                self.frees()
                with contextlib.suppress(OSError):
                    os.unlink(f"{self.pins}/{digest.hex()}")
                return True
        return False

    def unpin(self, owner: object) -> list[bytes]:
        """An owner needs none of its contents any more; those that nobody here needs now.

        Pins of a task with many inputs may have kept the cache above its bound: it goes back below it at once. Only
        these inputs are looked at, since all else that may go went when something came.
        """
        released = [digest for digest in list(self._pinned.get(owner, ())) if self.release(digest, owner)]
        if released:
            self._make_room(b"", self.limit, released)
        return released

    def is_pinned(self, digest: bytes) -> bool:
        """Whether this executor needs it."""
        return digest in self._owners

    def forget(self, digest: bytes) -> None:
        """Drop a content that no task has."""
        if not self.is_pinned(digest) and os.path.lexists(self.path(digest)):
            self._give_up(digest)

    # --- what comes --------------------------------------------------------------------------------

    def receive(self, digest: bytes, size: int) -> ArrivingContent | None:
        """Begin to write a content; None: another process is about to. OSError when it cannot be written."""
        return self._begin(digest, size, part_path(self.folder, digest))

    def receive_aside(self, digest: bytes, size: int) -> ArrivingContent | None:
        """The same beside another process, which may never end what it has begun."""
        return self._begin(digest, size, f"{self.path(digest)}.{os.getpid()}{_PART}")

    def _begin(self, digest: bytes, size: int, hidden: str) -> ArrivingContent | None:
        try:
            return ArrivingContent.begin(self, digest, size, hidden)
        except FileNotFoundError:  # somebody has removed the folder
            self._make()
            return ArrivingContent.begin(self, digest, size, hidden)

    def size_of_part(self, digest: bytes) -> int:
        """How much of a content has come; 0 if none does."""
        try:
            return os.stat(part_path(self.folder, digest)).st_size
        except OSError:
            return 0

    def arrived(self, digest: bytes, size: int, hidden: str) -> bool:
        """Give a complete content its name; False: it is too big, and kept for its reader."""
        if size > self.limit:
            if not os.path.isdir(self.pins):
                private.make_folder(self.pins)
            os.replace(hidden, f"{self.pins}/{digest.hex()}")
            return False
        os.replace(hidden, self.path(digest))
        self._ledger.added(digest, size)
        self._make_room(digest, self.limit)
        return True

    def new_file(self) -> str:
        """A path for something that comes and whose digest is not known yet; it is for `take_in`, or removed."""
        self._make()
        return f"{self.folder}/{os.urandom(8).hex()}{_NEW}"

    def take_in(self, hidden: str, digest: bytes, size: int) -> bool:
        """Give what came to a `new_file` its name, or remove it if the content is here; whether it was not."""
        if self.has(digest, size):
            os.unlink(hidden)
            return False
        seal(hidden, digest)
        self.arrived(digest, size, hidden)
        return True

    def adopt(self, path: str, digest: bytes, size: int) -> bool:
        """Keep a file that nobody writes any more, and whose digest this is; False: it is not kept."""
        if size > self.limit or self.has(digest, size):
            return False
        hidden = f"{self.path(digest)}.{os.getpid()}{_NEW}"
        try:
            self._make()
            try:
                os.link(path, hidden, follow_symlinks=False)
            except OSError:
                import shutil

                shutil.copyfile(path, hidden, follow_symlinks=False)
            state = os.lstat(hidden)
            if not stat.S_ISREG(state.st_mode) or state.st_size != size:
                raise OSError(0, "it has changed")
            seal(hidden, digest)
            return self.arrived(digest, size, hidden)
        except (OSError, SiteError):  # no room, no right: it is with the server
            with contextlib.suppress(OSError):
                os.unlink(hidden)
            return False

    # --- room --------------------------------------------------------------------------------------

    def make_space(self, newest: bytes) -> None:
        """The disk is full: drop all that is not pinned, and what came in part and nobody writes.

        Who was in want of space until then finds a mark of that.
        """
        self._mark_full(time.time())
        self._make_room(newest, 0)
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.endswith(_PART):
                    _remove_if_stale(entry.path, 0.0)

    def frees(self) -> None:
        """Something is about to be removed: if the disk is full until then, that is marked."""
        if lacks_space(self.folder):
            self._mark_full(time.time())

    def _mark_full(self, when: float) -> None:
        path = f"{self.folder}/{_FULL}"
        with contextlib.suppress(OSError):
            if not os.path.lexists(path):
                os.close(private.opener(path, os.O_WRONLY | os.O_CREAT))
            os.utime(path, (when, when))

    def disk_size(self) -> int:
        """The bytes that the disk has in all, whoever uses them."""
        try:
            state = os.statvfs(self.folder)
        except OSError:
            return 1 << 62
        return state.f_blocks * state.f_frsize or 1 << 62  # some file systems do not say

    def was_full_since(self, when: float) -> bool:
        """Whether something was removed here since then while there was no space."""
        try:
            return os.lstat(f"{self.folder}/{_FULL}").st_mtime >= when
        except OSError:
            return False

    def _make_room(self, newest: bytes, limit: int, among: Iterable[bytes] | None = None) -> None:
        """Give up what is not pinned, down to a limit; `among`: of these only."""
        ledger = self._ledger
        ledger.read()
        if ledger.total <= limit and not ledger.is_long:
            return
        with self._locked():
            ledger.read()  # another executor may have made room
            self._evict(newest, limit, among)
            with contextlib.suppress(OSError):
                ledger.shorten()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """While nobody else makes room."""
        try:
            lock = private.opener(f"{self.folder}/{_LOCK}", os.O_RDWR | os.O_CREAT)
        except OSError:
            yield  # the disk is full, or the folder gone: two at once make a little too much room
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _evict(self, newest: bytes, limit: int, among: Iterable[bytes] | None) -> None:
        ledger, policy, dice = self._ledger, self._policy, self._dice
        if ledger.total <= limit:
            return
        if len(ledger.entries) > _MANY:
            limit -= limit // _SLACK
        entries = [
            (digest, entry)
            for digest in (list(ledger.entries) if among is None else among)
            if (entry := ledger.entries.get(digest)) is not None
        ]
        for digest, entry in entries:
            entry.wanted = self.wanted.get(digest, 0)
        ranked = sorted((policy.rank(entry, dice), digest, entry.size) for digest, entry in entries)
        left = ledger.total
        for _, digest, size in ranked:
            if left <= limit:
                return
            if digest != newest and self._give_up(digest):
                left -= size

    def _give_up(self, digest: bytes) -> bool:
        """Remove a content, unless a task has it."""
        path = self.path(digest)
        with contextlib.suppress(FileNotFoundError):
            if os.lstat(path).st_nlink > 1:
                return False
            self.frees()
            os.unlink(path)
        self._ledger.removed(digest)
        self.on_evicted(digest)
        return True

    def _sweep(self) -> None:
        """Compare ledger and folder, and remove what nobody will finish."""
        with self._locked(), contextlib.suppress(OSError):
            self._ledger.shorten()
        found: set[bytes] = set()
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if _NAME.match(entry.name):
                    digest = bytes.fromhex(entry.name)
                    found.add(digest)
                    if digest not in self._ledger.entries and self.has(digest):
                        self._ledger.added(digest, entry.stat().st_size)
                elif entry.name.endswith((_PART, _NEW)):
                    _remove_if_stale(entry.path, _STALE)
        for digest in self._ledger.entries.keys() - found:
            self._ledger.removed(digest)
        self._make_room(b"", self.limit)

    def close(self) -> None:
        """The executor ends; what is here stays."""
        self._ledger.close()
        if self._own is not None:
            self._own.remove()


def list_contents(folder: str) -> dict[bytes, int]:
    """What the ledger of a cache that may be there says; the cache is not opened."""
    if not os.path.exists(f"{folder}/{_LEDGER}"):
        return {}
    ledger = CacheLedger(f"{folder}/{_LEDGER}")
    ledger.read()
    ledger.close()
    return {digest: entry.size for digest, entry in ledger.entries.items()}


def seal(path: str, digest: bytes) -> None:
    """Mark a file as what its digest says: read-only, with the time of change that belongs to it."""
    os.chmod(path, _MODE)
    os.utime(path, (time.time(), mark_of(digest)))


def part_path(folder: str, digest: bytes) -> str:
    """Where a content is while it comes: a file that grows at its end, and is locked by who writes it."""
    return f"{folder}/{digest.hex()}{_PART}"


def _remove_if_stale(path: str, seconds: float) -> None:
    """Remove what nobody writes, and nobody has written for so long."""
    with contextlib.suppress(OSError):
        if seconds and time.time() - os.lstat(path).st_mtime < seconds:
            return
        number = private.opener(path, os.O_RDWR)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(number)


class _Sum:
    """The digest of a file that grows at its end: of a big one it is computed in a thread, behind the writer.

    The thread takes big steps: each needs Python's lock twice, and on a busy machine the writer waits for a thread
    that was put aside while it had the lock.
    """

    def __init__(self, number: int, size: int) -> None:
        self._number = number
        self._sum = blake2b(digest_size=DIGEST)
        self._there = self._told = 0
        self._ends: SimpleQueue[int | None] = SimpleQueue()  # how far the file reaches; None: to here
        self._thread: threading.Thread | None = None
        if size >= _BIG:
            thread = threading.Thread(target=self._follow, daemon=True)
            with contextlib.suppress(RuntimeError):  # the host takes no more: the writer does it
                thread.start()
                self._thread = thread

    @property
    def reads_itself(self) -> bool:
        """Whether what was written need not be handed over."""
        return self._thread is not None

    def grow(self, count: int, data: memoryview | bytes) -> None:
        """Bytes were written."""
        if self._thread is None:
            self._sum.update(data)
            return
        self._there += count
        if self._there - self._told >= _BIG:
            self._told = self._there
            self._ends.put(self._there)

    def _follow(self) -> None:
        view, done = memoryview(bytearray(_BIG)), 0
        while (end := self._ends.get()) is not None:
            while done < end:
                try:
                    count = os.preadv(self._number, [view[: end - done]], done)
                except OSError:
                    count = 0
                if not count:
                    return  # it was cut off, or cannot be read: the digest will be another
                self._sum.update(view[:count])
                done += count

    def end(self) -> bytes:
        """The digest of all that was written."""
        if self._thread is not None:
            self._ends.put(self._there)
            self._ends.put(None)
            self._thread.join()
        return self._sum.digest()


class ArrivingContent:
    """A content that comes, its bytes in order. What was left by a writer that died is used."""

    def __init__(self, cache: HostCache, digest: bytes, size: int, number: int, hidden: str) -> None:
        self._cache = cache
        self._hidden = hidden
        self._number = number
        self.digest = digest
        self.size = size
        self.written = 0
        self._sum = _Sum(number, size)
        self._take_over()

    @classmethod
    def begin(cls, cache: HostCache, digest: bytes, size: int, hidden: str) -> ArrivingContent | None:
        """Lock the part of that path; None: another process has it."""
        while True:
            number = private.opener(hidden, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(number), os.lstat(hidden)):
                    return cls(cache, digest, size, number, hidden)
            except BlockingIOError:
                os.close(number)
                return None
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(number)
                raise
            os.close(number)  # its writer has just finished

    def _take_over(self) -> None:
        there = os.fstat(self._number).st_size
        if there > self.size:
            self.restart()
            return
        if self._sum.reads_itself:
            self._sum.grow(there, b"")
            self.written = there
        while self.written < there:
            data = os.pread(self._number, _READ, self.written)
            if not data:
                break
            self._sum.grow(len(data), data)
            self.written += len(data)
        os.lseek(self._number, self.written, os.SEEK_SET)

    def add(self, data: bytes | memoryview) -> None:
        """The next bytes; OSError when they cannot be written."""
        made_space, view = False, memoryview(data)
        while view:
            try:
                count = os.write(self._number, view)
            except OSError as error:
                if made_space or not is_full(error):
                    raise
                made_space = True
                self._cache.make_space(self.digest)
                continue
            self._sum.grow(count, view[:count])
            self.written += count
            view = view[count:]

    def finish(self) -> bool:
        """Whether all that has come is what it was to be; then it has its name, else it is empty again."""
        if self.written != self.size or self._sum.end() != self.digest:
            self.restart()
            return False
        seal(self._hidden, self.digest)
        try:
            self._cache.arrived(self.digest, self.size, self._hidden)
        finally:
            self._close()
        return True

    def restart(self) -> None:
        """Begin anew."""
        self._sum.end()
        os.ftruncate(self._number, 0)
        os.lseek(self._number, 0, os.SEEK_SET)
        self._sum = _Sum(self._number, self.size)
        self.written = 0

    def drop(self) -> None:
        """Leave nothing."""
        if self._number >= 0:
            self._cache.frees()
            with contextlib.suppress(OSError):
                os.unlink(self._hidden)
            self._close()

    def leave(self) -> None:
        """Write no more; who wants the content may use what is there."""
        if self._number >= 0:
            self._close()

    def _close(self) -> None:
        self._sum.end()
        os.close(self._number)
        self._number = -1
