"""A full disk is told once, and again after there was space in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from server_fakes import FakeLoop

from bough.core.queries.answers import Attempt
from bough.server.turns import disk_space
from bough.server.turns.disk_space import FullDiskNotice, free_space

LITTLE, SOME, MUCH = 100_000, 300_000, 10 << 20


def a_notice(monkeypatch: Any) -> tuple[FakeLoop, list[str], list[int], FullDiskNotice]:
    """Spans 11 and 12 are of executor 1, span 21 is of executor 2; the free space is the list's only number."""
    loop, told, free = FakeLoop(), [], [MUCH]
    monkeypatch.setattr(disk_space, "free_space", lambda _: free[0])
    spans = {number: Attempt(number, number, 1, number // 10, "here", ((0, 2),)) for number in (11, 12, 21)}
    notice = FullDiskNotice(loop, SimpleNamespace(attempt=spans.get), "/store", told.append)
    notice.watch()
    return loop, told, free, notice


def test_a_full_disk_is_told_once_and_so_is_space(monkeypatch) -> None:
    loop, told, free, _ = a_notice(monkeypatch)
    for amount, count in ((MUCH, 0), (LITTLE, 1), (0, 1), (SOME, 1), (2 << 20, 2), (5 << 20, 2), (0, 3)):
        free[0] = amount
        loop.advance(1.0)
        assert len(told) == count, amount
    text = "free some space; results, outputs and files wait until then"
    assert told[0] == f"the disk of /store is full (100.0 kB left): {text}"
    assert told[1] == "there is space again on the disk of /store"


def test_what_waits_for_space_is_told_once_however_much_there_seems_to_be(monkeypatch) -> None:
    loop, told, free, notice = a_notice(monkeypatch)
    notice.awaited(1, [11, 12])
    notice.awaited(1, [12])
    notice.awaited(2, [21])
    loop.advance(3.0)
    assert [text.partition(" (")[0] for text in told] == ["the disk of /store is full"]
    assert [attempt.span for attempt, _ in notice.waiting()] == [12, 21]
    assert {said for _, said in notice.waiting()} == {
        "waits for space on the disk of /store, to write its result or output"
    }
    notice.awaited(1, [])
    assert len(told) == 1
    notice.awaited(2, [])
    assert told[1:] == ["there is space again on the disk of /store"]
    assert not list(notice.waiting())
    notice.awaited(1, [11])
    free[0] = LITTLE
    loop.advance(1.0)
    notice.awaited(1, [])
    assert len(told) == 3  # the disk is still all but full
    free[0] = MUCH
    loop.advance(1.0)
    assert len(told) == 4


def test_an_executor_speaks_for_its_own_spans_alone(monkeypatch) -> None:
    _, told, _, notice = a_notice(monkeypatch)
    notice.awaited(2, [11, 99])
    assert not told
    assert not list(notice.waiting())


def test_a_disk_that_cannot_be_looked_at_is_not_full(tmp_path) -> None:
    assert free_space(str(tmp_path)) > 0
    assert free_space(str(tmp_path / "nowhere")) > 1 << 60
