"""A few threads that stay, for what the transfer process does at a time.

Rules: what is to be done waits for a free thread. So it does where the host takes no more threads, as long as there is
one; a process that cannot have one has nothing to begin with. Nobody waits for them when the process ends.
"""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]


class KeptThreads:
    """See the module: at most so many."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._waiting: SimpleQueue[Work] = SimpleQueue()
        self._left = 0  # what is to be done, and what is being done
        self._lock = threading.Lock()
        self._count = 0
        self._begin()

    def _begin(self) -> None:
        threading.Thread(target=self._run, name=f"{self._name}-{self._count}", daemon=True).start()
        self._count += 1

    def do(self, work: Work) -> None:
        """Do something when a thread is free."""
        with self._lock:
            self._left += 1
            if self._count < min(self._left, self._most):
                with contextlib.suppress(RuntimeError):  # the host takes no more: those that there are do it
                    self._begin()
        self._waiting.put(work)

    def _run(self) -> None:
        while True:
            work = self._waiting.get()
            try:
                work()
            except BaseException:  # noqa: BLE001 -- it concerns nothing else that is done here
                traceback.print_exc()
            del work  # and all it knew
            with self._lock:
                self._left -= 1


class Revocable:
    """Work that is done once, unless it was called off before it began."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._begun = threading.Lock()  # taken by whoever is first
        self.is_over = False

    def __call__(self) -> None:
        """Do it."""
        if self._begun.acquire(blocking=False):
            try:
                self._work()
            finally:
                self.is_over = True

    def call_off(self) -> bool:
        """Whether it was not too late."""
        return self._begun.acquire(blocking=False)
