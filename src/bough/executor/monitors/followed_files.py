"""Files as they grow, and names as they appear: by inotify, and by a look once a second where that tells nothing.

A file that grows is watched for one write, read to its end, and watched again: a busy file costs an event per round of
the watcher, not one per write, and a quiet one costs nothing. A file that is not there yet is waited for in its folder.

Rules: a file is watched before it is read, so that no write is missed. No more than `CHUNK` bytes are read at a time,
so that all files have their turn.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable

from bough.executor.monitors.inotify import Inotify
from bough.filesystems import is_network_filesystem

CHUNK = 256 << 10  # bytes that are read at a time
_DOUBT = 0.02  # seconds by which times of files lag behind the clock
LOOK = 1.0  # seconds between looks at what the kernel tells nothing of


class FollowedFile:
    """One file that one engine follows. `take` gets what was written, `begin_anew` hears that it was replaced."""

    def __init__(
        self, path: str, begin: int, take: Callable[[bytes], None], begin_anew: Callable[[], None] | None = None
    ) -> None:
        self.path = path
        self.at = begin
        self.end: int | None = None  # where it ends, once that is known
        self.seen = False  # it was there
        self.is_waiting = False  # in the queue of files that are to be read
        self.watch = -1  # of inotify; -1: none
        self._take = take
        self._begin_anew = begin_anew
        self._fd = -1
        self._inode = 0

    def open(self) -> bool:
        """Open it if it is there."""
        if self._fd < 0:
            try:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                self._inode = os.fstat(self._fd).st_ino
                self.seen = True
            except OSError:
                return False
        return True

    def size_before(self, time: float) -> int:
        """Its size if it was last written before this time, with some doubt about clocks; else 0."""
        state = os.fstat(self._fd)
        return state.st_size if state.st_mtime < time - _DOUBT else 0

    def close(self) -> None:
        """Close it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def renew(self) -> None:
        """Another file may have its name now: read that from its beginning."""
        with contextlib.suppress(OSError):
            if self._fd >= 0 and os.stat(self.path).st_ino != self._inode:
                self.close()
                self._restart()

    def _restart(self) -> None:
        self.at = 0
        if self._begin_anew is not None:
            self._begin_anew()

    def read(self) -> bool:
        """Read a chunk and pass it on; whether there may be more."""
        size = CHUNK if self.end is None else min(CHUNK, self.end - self.at)
        if size <= 0 or not self.open():
            return False
        try:
            data = os.pread(self._fd, size, self.at)
            if not data and self._begin_anew is not None and os.fstat(self._fd).st_size < self.at:
                self._restart()  # it was cut off
                data = os.pread(self._fd, size, 0)
        except OSError:
            return False
        if not data:
            return False
        self.at += len(data)
        self._take(data)
        return len(data) == size and (self.end is None or self.at < self.end)


class AwaitedName:
    """Somebody waits for a name in a folder: `look` is called when it may be there, until it returns True."""

    __slots__ = ("folder", "look", "name")

    def __init__(self, path: str, look: Callable[[], bool]) -> None:
        folder, _, self.name = path.rpartition("/")
        self.folder = folder or "/"
        self.look = look


class FileFollower:
    """All files that are followed, and all names that are waited for."""

    def __init__(self) -> None:
        self.inotify = Inotify()
        self._files: dict[int, list[FollowedFile]] = {}  # by watch
        self._folders: dict[int, str] = {}  # by watch
        self._watched: dict[str, int] = {}  # watches of folders
        self._awaited: dict[str, dict[str, list[AwaitedName]]] = {}  # by folder and name
        self._waiting: deque[FollowedFile] = deque()  # to be read
        self._looked_at: dict[FollowedFile, None] = {}  # by the clock
        self.next_look = float("inf")
        self.judged = 0  # bytes that were passed on, of all files
        self._networks: dict[str, bool] = {}  # whether a folder lies on one

    def follow(self, file: FollowedFile) -> None:
        """Read a file from now on."""
        self.wake(file)

    def forget(self, file: FollowedFile) -> None:
        """Follow a file no more."""
        file.close()
        file.path = ""
        self._looked_at.pop(file, None)
        mates = self._files.get(file.watch)
        if mates is not None:
            mates.remove(file)
            if not mates:
                del self._files[file.watch]
                self.inotify.remove(file.watch)
        file.watch = -1

    def await_name(self, awaited: AwaitedName) -> None:
        """Look for a name now and whenever it may have appeared, until `look` returns True."""
        if awaited.look():
            return
        folder, name = awaited.folder, awaited.name
        self._awaited.setdefault(folder, {}).setdefault(name, []).append(awaited)
        if folder not in self._watched:
            watch = self.inotify.new_names(os.fsencode(folder))
            if watch >= 0 and not self._is_on_network(folder):
                self._watched[folder] = watch
                self._folders[watch] = folder
            else:
                self.next_look = min(self.next_look, 0.0)
        self._look_for(folder, name)  # it may have come in between

    def unawait(self, awaited: AwaitedName) -> None:
        """Nobody waits any more."""
        names = self._awaited.get(awaited.folder, {})
        waiting = names.get(awaited.name, [])
        if awaited in waiting:
            waiting.remove(awaited)
            if not waiting:
                del names[awaited.name]
            self._leave_folder(awaited.folder)

    def _leave_folder(self, folder: str) -> None:
        """Be told no more of a folder in which nothing is waited for."""
        if not self._awaited.get(folder):
            self._awaited.pop(folder, None)
            watch = self._watched.pop(folder, -1)
            if watch >= 0:
                del self._folders[watch]
                self.inotify.remove(watch)

    def wake(self, file: FollowedFile) -> None:
        """Have a file read soon."""
        if not file.is_waiting:
            file.is_waiting = True
            self._waiting.append(file)

    # --- what happens ---

    def hear(self) -> None:
        """Take in what the kernel tells."""
        events = self.inotify.read()
        if events is None:  # too much at once: look at everything
            for files in self._files.values():
                for file in files:
                    file.watch = -1
                    self.wake(file)
            self._files.clear()
            self._look_for_all()
            return
        for watch, name in events:
            folder = self._folders.get(watch)
            if folder is not None:
                self._look_for(folder, os.fsdecode(name))
            for file in self._files.pop(watch, ()):
                file.watch = -1
                self.wake(file)

    def look(self, now: float) -> None:
        """Look at what the kernel tells nothing of."""
        for file in self._looked_at:
            self.wake(file)
        self._look_for_all(only_unwatched=True)
        unseen = any(folder not in self._watched for folder in self._awaited)
        self.next_look = now + LOOK if self._looked_at or unseen else float("inf")

    def _look_for_all(self, *, only_unwatched: bool = False) -> None:
        for folder in list(self._awaited):
            if not (only_unwatched and folder in self._watched):
                for name in list(self._awaited[folder]):
                    self._look_for(folder, name)

    def _look_for(self, folder: str, name: str) -> None:
        for awaited in list(self._awaited.get(folder, {}).get(name, ())):
            if awaited.look():
                self.unawait(awaited)

    @property
    def is_behind(self) -> bool:
        """Whether files wait to be read."""
        return bool(self._waiting)

    def read_some(self, now: float) -> None:
        """Read a chunk of each file that waits."""
        for _ in range(len(self._waiting)):
            file = self._waiting.popleft()
            file.is_waiting = False
            if file.path:
                self.read(file, now)

    def read(self, file: FollowedFile, now: float) -> None:
        """Read a chunk of a file; it waits again if there may be more."""
        if file.watch < 0 and file.end is None and file not in self._looked_at:
            self._watch(file, now)
        before = file.at
        more = file.read()
        self.judged += abs(file.at - before)
        if more and file.path:
            self.wake(file)

    def _watch(self, file: FollowedFile, now: float) -> None:
        if not file.open():
            return
        watch = self.inotify.next_write(os.fsencode(file.path))
        if watch >= 0:
            file.watch = watch
            self._files.setdefault(watch, []).append(file)
        if watch < 0 or self._is_on_network(os.path.dirname(file.path)):
            self._looked_at[file] = None
            self.next_look = min(self.next_look, now + LOOK)

    def _is_on_network(self, folder: str) -> bool:
        found = self._networks.get(folder)
        if found is None:
            if len(self._networks) > 4096:
                self._networks.clear()
            found = self._networks[folder] = is_network_filesystem(folder)
        return found
