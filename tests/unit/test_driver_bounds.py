"""The driver's bounds with a fake session: what has not ended is bounded, what nobody collects is not."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

from bough.driver import Driver


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
        made = FakeArray(len(space))
        with self._changed:
            self.sizes.append(len(space))
            self._left += len(space)
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


def test_a_producer_that_issues_23000_jobs_before_its_only_barrier_is_not_held_for_ever() -> None:
    session = FakeSession()
    with Driver(session, buffer_size=100) as made:  # type: ignore[arg-type]
        made.set_group("g", 16)
        for i in range(23_000):
            made.exec_async(["true"], producer=i % 3, group="g" if i % 2 else None)
        assert made.wait_all() == [0] * 23_000
    assert sum(session.sizes) == 23_000
    assert session.most <= 100


def test_a_thousand_jobs_at_factor_16_are_62_full_bundles_and_one_of_8() -> None:
    session = FakeSession()
    with Driver(session) as made:  # type: ignore[arg-type]
        made.set_group("g", 16, timeout=600)
        for _ in range(1000):
            made.exec_async(["true"], group="g")
        made.wait_all()
    assert session.sizes == [16] * 62 + [8]


def test_many_pipelines_in_the_making_do_not_fill_the_buffer() -> None:
    session = FakeSession()
    made = Driver(session, buffer_size=100)  # type: ignore[arg-type]
    for number in range(300):
        made.create_pipeline(f"p{number}", 2)
        made.exec_async("true", group=f"p{number}")  # a second round would complete them
    assert made.submissions == 0
    made.stop(drain=False)
