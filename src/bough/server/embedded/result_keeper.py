"""Makes big results durable: a thread copies them from memory to the store, behind the tasks.

See `result_memory`. Rules: the copy takes the place of the link only when it is on the disk. A full disk is waited for.
What is left in memory when the session ends is copied then; what a killed server left is lost, and its tasks run anew.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Final

from bough import logs, private
from bough.errors import SiteError
from bough.movers.result_memory import FREE, LINK, MADE, copy_to_disk
from bough.movers.value_places import MEMORY, VALUES

_DELAY: Final = 0.25  # seconds after which a result is copied: first come those who wait for it
_QUIET: Final = 10.0  # seconds without a new one after which unused memory is given back
_AGAIN: Final = 2.0  # seconds after which one that could not be copied, or has no name yet, is looked at again
_POOL: Final = 1 << 30  # most bytes of files that wait to be used again
_LEFT: Final = 60.0  # seconds after which a result without a name was left by a worker that died
_NICE: Final = 10


class ResultKeeper:
    """See the module. One thread calls `look` and `close`; its own does the rest."""

    def __init__(self, folder: str, memory: str = MEMORY) -> None:
        self._folder = folder  # of results in the store
        self._wake = threading.Event()
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._changed = 0
        self._memory = private.TemporaryFolder(VALUES, memory)
        self._is_there = False
        if not os.path.isdir(memory):
            return
        try:
            self._path = self._memory.make()
            hidden = os.path.join(folder, f".link-{os.getpid()}")
            os.symlink(self._path, hidden)
            os.replace(hidden, os.path.join(folder, LINK))
            self._changed = os.stat(self._path).st_mtime_ns
            self._is_there = True
        except (OSError, SiteError) as error:
            logs.warning("no-value-memory", f"big results go to the disk at once: {error}")
            self._memory.remove()

    def look(self) -> None:
        """See whether there is something new; called after every turn."""
        if not self._is_there:
            return
        try:
            changed = os.stat(self._path).st_mtime_ns
        except OSError:
            return
        if changed != self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="bough-results", daemon=True)
                self._thread.start()
            self._changed = changed
            self._wake.set()

    def close(self) -> None:
        """Copy what is left, and remove the folder in memory; for the second time nothing is done."""
        if not self._is_there or self._is_closing:
            return
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        left = self._keep_all()
        if left:
            logs.error("results-not-kept", f"{left} big results could not be copied to the store; their tasks run anew")
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._folder, LINK))
        self._memory.remove()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        left = 0
        while not self._is_closing:
            if not self._wake.wait(_AGAIN if left else _QUIET) and not left:
                self._give_back()
                self._wake.wait()
            self._wake.clear()
            if not self._is_closing:
                time.sleep(_DELAY)
            left = self._keep_all()

    def _keep_all(self) -> int:
        """Copy all results that have a name; how many are left: they could not be copied, or have no name yet."""
        left = 0
        for name in self._names(MADE):
            try:
                left += not self._keep(name)
            except OSError as error:
                logs.warning("result-not-kept", f"a result is not copied to the store yet: {error}")
                left += 1
        return left

    def _keep(self, name: str) -> bool:
        """Copy a result; False if it has no name yet."""
        source = os.path.join(self._path, name)
        path = os.path.join(self._folder, name.removeprefix(MADE))
        try:
            is_named = os.readlink(path) == source
        except OSError:
            is_named = False
        if is_named:
            hidden = os.path.join(self._folder, f".{name}.part")
            copy_to_disk(source, hidden)
            os.replace(hidden, path)
        elif time.time() - os.stat(source).st_mtime < _LEFT and not self._is_closing:
            return False  # a worker is about to name it, or has died
        size = os.stat(source).st_size
        free = sum(self._size(one) for one in self._names(FREE))
        if free + size <= _POOL and not self._is_closing:
            os.rename(source, os.path.join(self._path, f"{FREE}{size}-{os.urandom(4).hex()}"))
        else:
            os.unlink(source)
        return True

    def _give_back(self) -> None:
        """Nothing is new for a while: memory that waits to be used again is not needed."""
        for name in self._names(FREE):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._path, name))

    def _names(self, begin: str) -> list[str]:
        try:
            return [name for name in os.listdir(self._path) if name.startswith(begin)]
        except OSError:
            return []

    def _size(self, name: str) -> int:
        try:
            return os.stat(os.path.join(self._path, name)).st_size
        except OSError:
            return 0
