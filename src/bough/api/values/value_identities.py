"""What a big buffer counts as in memo keys: a number drawn at random, which stands for its content in all runs.

A digest of 200 MB takes longer than all else that is done for a call. So a buffer gets a number at once, and a thread
reads it later and notes its digest with the number in the store: when the tasks that it is for are done, because its
memory is wanted for the next one then, or a second after it was written. A buffer of which size and mark (a digest of
samples) are in the notes may be one that was seen before: it is read at once, and gets the number of what has the same
digest.

Rule: two buffers have the same number only if their digests are the same. A number that was not noted, because the
script was killed before or the owner gave it up, is never met again: what was computed from it runs anew.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections import deque
from collections.abc import Callable
from hashlib import blake2b, sha256
from time import monotonic, sleep
from typing import Final, NamedTuple

from bough import private

FILE: Final = "value-ids"  # in the store
_NOTE: Final = struct.Struct("<Q8s32s16s")  # size, mark, digest, number
_MOST: Final = 1 << 15  # notes that are kept when the file is read: the latest
_NUMBER: Final = 16
_SAMPLES: Final = 16
_SAMPLE: Final = 1024  # bytes
_PIECE: Final = 1 << 20  # bytes that are read at a time, without the interpreter's lock
_NICE: Final = 10
_DELAY: Final = 1.0  # seconds after which it is read: first come the tasks that it is for
_SOON: Final = 0.02  # seconds after these are done: first comes the script that waits for them
_PAUSE: Final = 0.005  # seconds
_QUIET: Final = 10.0  # seconds without a new one, after which the owner is told
_PATIENCE: Final = 10.0  # seconds that a session's end waits for what is not noted yet


def mark_of(view: memoryview) -> bytes:
    """A digest of samples: another one for another content, mostly."""
    found = blake2b(digest_size=8)
    step = max(_SAMPLE, (view.nbytes - _SAMPLE) // (_SAMPLES - 1))
    for at in range(0, view.nbytes, step):
        found.update(view[at : at + _SAMPLE])
    found.update(view[-_SAMPLE:])
    return found.digest()


def content_digest(view: memoryview) -> bytes:
    """The digest of all of it."""
    found = sha256()  # most processors have instructions for it
    for at in range(0, view.nbytes, _PIECE):
        found.update(view[at : at + _PIECE])
    return found.digest()


class _Todo(NamedTuple):
    """A buffer that is to be noted, and what is called after that."""

    due: float
    path: str
    size: int
    mark: bytes
    number: bytes
    then: Callable[[], None]


class ValueIdentities:
    """See the module. One thread at a time asks; its owner sees to that."""

    def __init__(self, store: str, on_quiet: Callable[[], None] = lambda: None) -> None:
        self._on_quiet = on_quiet
        self._path = os.path.join(store, FILE)
        self._known: dict[tuple[int, bytes], dict[bytes, bytes]] | None = None
        self._lock = threading.Lock()  # guards `_known`
        self._todo: dict[str, _Todo] = {}  # by path; the oldest first
        self._done_with: deque[tuple[float, str]] = deque()  # those of them whose tasks are done: when due, and path
        self._wake = threading.Condition()  # guards what is to be noted
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self.is_urgent = False  # a buffer is being written: nothing is read meanwhile

    def find(self, view: memoryview, mark: bytes) -> bytes | None:
        """The number of a buffer that was noted; None: it is a new one."""
        with self._lock:
            known = dict(self._notes().get((view.nbytes, mark), ()))
        return known.get(content_digest(view)) if known else None

    def note_later(self, path: str, size: int, mark: bytes, number: bytes, then: Callable[[], None]) -> None:
        """Have the file of a new buffer read, and its number noted; `then` is called after that."""
        with self._wake:
            if not self._is_closed:
                self._todo[path] = _Todo(monotonic() + _DELAY, path, size, mark, number, then)
                self._start()
                return
        then()

    def note_soon(self, path: str) -> None:
        """No task needs this buffer now: what waits for its note is its memory."""
        with self._wake:
            if path in self._todo:
                self._done_with.append((monotonic() + _SOON, path))
                self._wake.notify()

    def call_when_quiet(self) -> None:
        """Call `on_quiet` when nothing was new for a while."""
        with self._wake:
            if not self._is_closed:
                self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="bough-value-ids", daemon=True)
            self._thread.start()
        self._wake.notify()

    def close(self) -> None:
        """Note what is left, which takes a second for each GB; no more is noted after it."""
        with self._wake:
            self._is_closed = True
            thread = self._thread
            self._wake.notify()
        if thread is not None:
            thread.join(_PATIENCE)

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while (found := self._next()) is not None:
            try:
                self._note(found)
            finally:
                found.then()

    def _next(self) -> _Todo | None:
        """The next one, when its time has come; None: there will be none."""
        is_told = False
        while True:
            with self._wake:
                while self._done_with and self._done_with[0][1] not in self._todo:
                    self._done_with.popleft()
                if self._todo:
                    due, path = next(iter(self._todo.values()))[:2]
                    if self._done_with:
                        due, path = min((due, path), self._done_with[0])
                    wait = 0.0 if self._is_closed else due - monotonic()
                    if wait <= 0:
                        return self._todo.pop(path)
                    self._wake.wait(wait)
                    continue
                if self._is_closed:
                    return None
                if self._wake.wait(None if is_told else _QUIET):
                    is_told = False
                    continue
            is_told = True
            self._on_quiet()

    def _note(self, todo: _Todo) -> None:
        _, path, size, mark, number, _ = todo
        try:
            digest = self._file_digest(path, size)
        except OSError:
            return  # it counts as a new one when it is met again
        with self._lock:
            same = self._notes().setdefault((size, mark), {})
            if digest in same:
                return  # one of the same content was noted meanwhile
            same[digest] = number
            with contextlib.suppress(OSError), open(self._path, "ab", opener=private.opener) as file:
                file.write(_NOTE.pack(size, mark, digest, number))

    def _file_digest(self, path: str, size: int) -> bytes:
        """As `content_digest`; read and not mapped, and not while somebody waits for a buffer to be written."""
        found = sha256()
        piece = memoryview(bytearray(min(_PIECE, size)))
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(piece):
                found.update(piece[:count])
                while self.is_urgent and not self._is_closed:
                    sleep(_PAUSE)
        return found.digest()

    def _notes(self) -> dict[tuple[int, bytes], dict[bytes, bytes]]:
        if self._known is None:
            self._known = {}
            for size, mark, digest, number in _NOTE.iter_unpack(self._read()):
                self._known.setdefault((size, mark), {})[digest] = number
        return self._known

    def _read(self) -> bytes:
        """The latest notes; a file with many more is written anew."""
        try:
            with open(self._path, "rb") as file:
                data = file.read()
        except OSError:
            return b""
        whole = data[: len(data) - len(data) % _NOTE.size]  # a note that was cut short counts for nothing
        kept = whole[-_MOST * _NOTE.size :]
        if len(kept) * 2 <= len(whole) or len(whole) != len(data):
            with contextlib.suppress(OSError):
                private.write_file(self._path, kept)
        return kept


def new_number() -> bytes:
    """A number for a buffer that was not seen before."""
    return os.urandom(_NUMBER)
