from __future__ import annotations

import pytest
from server_fakes import FakeLoop, FakeStore

from bough.errors import StoreFailed
from bough.server.turns import background
from bough.server.turns.background import Background


class SlowStore(FakeStore):
    """Needs several calls to catch up, and counts fsyncs."""

    def __init__(self, slices: int = 0) -> None:
        super().__init__()
        self.slices = slices
        self.syncs = 0

    def project(self, at_most: int = 0) -> bool:
        self.projected += 1
        self.slices -= 1
        return self.slices <= 0

    def sync(self) -> None:
        self.syncs += 1


def test_many_turns_share_one_fsync() -> None:
    loop, store = FakeLoop(), SlowStore()
    work = Background(loop, store, 1, bytes)
    for number in range(100):
        work.appended(number, 0)

    assert store.syncs == 0
    loop.advance(0.06)
    assert store.syncs == 1
    loop.advance(1)
    assert store.syncs == 1


def test_the_journal_is_folded_once_it_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, store = FakeLoop(), SlowStore()
    clock = [0.0]
    monkeypatch.setattr(background, "monotonic", lambda: clock[0])
    work = Background(loop, store, 1, bytes)
    clock[0] = 0.15
    work.appended(1, 0)

    clock[0] = 0.2
    loop.advance(0.2)
    assert store.projected == 0

    clock[0] = 0.5
    loop.advance(0.2)
    assert store.projected == 1


def test_who_wants_the_jobs_database_is_called_when_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, store = FakeLoop(), SlowStore(slices=3)
    clock = iter(range(1000))
    monkeypatch.setattr(background, "monotonic", lambda: next(clock))  # every slice is used up at once
    work = Background(loop, store, 1, bytes)
    called: list[int] = []

    work.when_folded(lambda: called.append(store.projected))

    assert called == []
    for _ in range(5):
        loop.advance(2)  # others get as much time in between as it took
    assert called == [3]


def test_while_many_tasks_come_nothing_is_folded_in_the_pauses_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, store = FakeLoop(), SlowStore()
    clock, records = [0.0], [0]
    monkeypatch.setattr(background, "monotonic", lambda: clock[0])
    work = Background(loop, store, 1, bytes, lambda: records[0])
    work.appended(1, 0)
    for _ in range(5):
        records[0] += 5_000
        clock[0] += 0.5
        loop.advance(0.2)
    assert store.projected == 0
    clock[0] += 0.5
    loop.advance(0.2)
    assert store.projected == 1


def test_a_snapshot_is_saved_after_many_turns_or_many_bytes() -> None:
    loop, store = FakeLoop(), SlowStore()
    work = Background(loop, store, 4, lambda: b"state")
    for number in range(1, 20_002):
        work.appended(number, 0)
    work.appended(20_002, 65 << 20)

    assert store.snapshots == [(20_000, 4, b"state"), (20_002, 4, b"state")]


def test_a_snapshot_that_cannot_be_saved_does_no_harm(capsys: pytest.CaptureFixture[str]) -> None:
    class FullStore(SlowStore):
        def save_snapshot(self, turn: int, run: int, data: bytes) -> None:
            raise StoreFailed("full")

    Background(FakeLoop(), FullStore(), 1, bytes).appended(1, 65 << 20)

    assert "no snapshot was saved: full" in capsys.readouterr().err


def test_a_big_state_is_not_saved_while_that_would_be_a_long_pause() -> None:
    store = FakeStore()
    work = Background(FakeLoop(), store, 4, lambda: b"state", lambda: 1_000_000)  # type: ignore[arg-type]
    for number in range(1, 20_010):
        work.appended(number, 0)
    assert store.snapshots == []
