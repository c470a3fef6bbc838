"""A session without processes, for tests of the driver: arrays end by themselves, one after the other."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any


class FakeTask:
    """A command that succeeded."""

    index = 0
    host = "fake"

    def done(self) -> bool:
        return True

    def cancelled(self) -> bool:
        return False

    def exception(self, timeout: float | None = None) -> None:
        return None

    def _heard(self) -> None:
        return None


class FakeArray:
    """Commands that end when the session says so."""

    def __init__(self, length: int) -> None:
        self._elements = SimpleNamespace(left=length)
        self.ended = threading.Event()

    def __getitem__(self, index: int) -> FakeTask:
        assert self.ended.wait(60)
        return FakeTask()

    def wait_all(self) -> None:
        assert self.ended.wait(60)


class FakeSession:
    """Ends arrays in a thread, one after the other, and notes how many tasks were unfinished at most."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.most = 0
        self._left = 0
        self._waiting: deque[FakeArray] = deque()
        self._changed = threading.Condition()
        threading.Thread(target=self._end, daemon=True).start()

    def sweep(self, text: str, space: Any, **options: Any) -> FakeArray:
        return self.made(len(space))

    def options(self, **options: Any) -> FakeSession:
        return self

    def map(self, function: Any, rows: Any, *options: Any) -> FakeArray:
        return self.made(len(rows))

    def made(self, length: int) -> FakeArray:
        """An array of so many."""
        made = FakeArray(length)
        with self._changed:
            self.sizes.append(length)
            self._left += length
            self.most = max(self.most, self._left)
            self._waiting.append(made)
            self._changed.notify()
        return made

    def _end(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                array = self._waiting.popleft()
                self._left -= array._elements.left
            array._elements.left = 0
            array.ended.set()
