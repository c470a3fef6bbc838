"""A full disk is told once, and again after there was space in between."""

from __future__ import annotations

from server_fakes import FakeLoop

from bough.server.turns import disk_space
from bough.server.turns.disk_space import FullDiskNotice, free_space


def test_a_full_disk_is_told_once_and_so_is_space(monkeypatch) -> None:
    loop, told, free = FakeLoop(), [], [10 << 20]
    monkeypatch.setattr(disk_space, "free_space", lambda _: free[0])
    FullDiskNotice(loop, "/store", told.append)
    for amount, count in ((10 << 20, 0), (100_000, 1), (0, 1), (300_000, 1), (2 << 20, 2), (5 << 20, 2), (0, 3)):
        free[0] = amount
        loop.advance(1.0)
        assert len(told) == count, amount
    assert told[0] == "the disk of /store is full: free some space; results, outputs and files wait until then"
    assert told[1] == "there is space again on the disk of /store"


def test_a_disk_that_cannot_be_looked_at_is_not_full(tmp_path) -> None:
    assert free_space(str(tmp_path)) > 0
    assert free_space(str(tmp_path / "nowhere")) > 1 << 60
