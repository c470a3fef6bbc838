"""A small run of the wire's fuzzer."""

from __future__ import annotations

from tests.fuzz.fuzz_wire import UNIONS, attack


def test_hostile_frames_break_nothing() -> None:
    reports: list[str] = []
    counts, broken = attack(20_000, 20261115, reports.append)
    assert reports == []
    assert broken == 0
    ends = ("understood", "refused", "waiting")
    assert {f"{name}: {end}" for name in UNIONS for end in ends} <= counts.keys()
