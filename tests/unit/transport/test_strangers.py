"""Strangers: who fails too often is barred for a while; neither memory nor the log grows."""

from __future__ import annotations

from bough.transport.strangers import Strangers


def test_ten_failures_in_ten_seconds_bar_an_address_for_ten_seconds() -> None:
    strangers = Strangers(lambda _: None)
    for n in range(9):
        strangers.failed("a", "x", float(n))
    assert not strangers.is_barred("a", 9.0)
    strangers.failed("a", "x", 9.5)
    assert strangers.is_barred("a", 9.5)
    assert strangers.is_barred("a", 19.4)
    assert not strangers.is_barred("b", 9.5)
    assert not strangers.is_barred("a", 19.5)


def test_failures_far_apart_bar_nobody() -> None:
    strangers = Strangers(lambda _: None)
    for n in range(100):
        strangers.failed("a", "x", n * 1.2)
    assert not strangers.is_barred("a", 120.0)


def test_the_log_is_spared_and_says_how_much() -> None:
    lines: list[str] = []
    strangers = Strangers(lines.append, most=10**9)
    for _ in range(1000):
        strangers.failed("a", "x", 1.0)
    assert len(lines) == 20
    strangers.failed("a", "x", 30.0)
    assert lines[20:] == ["980 more refusals were not logged", "a connection from a was refused: x"]


def test_a_million_addresses_are_not_remembered() -> None:
    strangers = Strangers(lambda _: None, most=1)
    for n in range(20_000):
        strangers.failed(f"{n}", "x", 1.0)
    assert not strangers.is_barred("0", 1.0)
    assert strangers.is_barred("19999", 1.0)
    assert len(strangers._barred) <= 4096
    assert len(strangers._failures) <= 4096
