"""A session without processes, for tests of the driver: arrays end by themselves, one after the other."""

from __future__ import annotations

import threading
import time
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
    """Ends arrays in a thread, one after the other, and notes how many tasks were unfinished at most.

    `one_by_one`: also the elements of an array end one after the other, with a moment between them.
    """

    def __init__(self, *, one_by_one: bool = False) -> None:
        self._one_by_one = one_by_one
        self.may_end = threading.Event()
        self.may_end.set()
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
            assert self.may_end.wait(60)
            while array._elements.left:
                count = 1 if self._one_by_one else array._elements.left
                if self._one_by_one:
                    time.sleep(0.0005)
                with self._changed:
                    self._left -= count
                array._elements.left -= count
            array.ended.set()
