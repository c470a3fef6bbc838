"""Strangers: the oldest gives way to a new one, once it has had its time; the log does not grow."""

from __future__ import annotations

from bough.transport.listener import Refusals, UnprovenPeer, UnprovenPeers


class Crowd:
    def __init__(self, most: int) -> None:
        self.strangers = UnprovenPeers(most, silent=1.0, speaking=10.0)
        self.dropped: list[str] = []

    def come(self, name: str, now: float, *, speaks: bool = False) -> UnprovenPeer:
        stranger = UnprovenPeer(lambda: self.dropped.append(name), now)
        self.strangers.add(stranger, speaks=speaks)
        return stranger


def test_who_has_been_there_longest_gives_way_once_it_has_had_its_time() -> None:
    crowd = Crowd(2)
    crowd.come("a", 0.0)
    assert not crowd.strangers.is_full
    crowd.come("b", 0.5)
    assert crowd.strangers.is_full
    assert crowd.strangers.free_at() == 1.0
    crowd.strangers.drop_due()
    assert crowd.dropped == ["a"]
    assert crowd.strangers.free_at() == 1.5


def test_who_speaks_has_more_time_than_who_is_silent() -> None:
    crowd = Crowd(2)
    speaker = crowd.come("speaker", 0.0)
    crowd.strangers.spoke(speaker)
    crowd.come("silent", 5.0)
    assert crowd.strangers.free_at() == 6.0
    crowd.strangers.drop_due()
    assert crowd.dropped == ["silent"]
    assert crowd.strangers.free_at() == 10.0


def test_a_new_silent_one_does_not_give_way_for_a_handshake_that_took_too_long() -> None:
    crowd = Crowd(2)
    crowd.come("slow", 0.0, speaks=True)
    crowd.come("new", 9.9)
    assert crowd.strangers.free_at() == 10.0
    crowd.strangers.drop_due()
    assert crowd.dropped == ["slow"]


def test_who_was_let_in_gives_way_no_more() -> None:
    crowd = Crowd(1)
    crowd.strangers.remove(crowd.come("in", 0.0))
    assert len(crowd.strangers) == 0
    assert not crowd.strangers.drop_oldest()
    crowd.strangers.spoke(crowd.come("again", 0.0))
    assert crowd.strangers.drop_oldest()
    assert crowd.dropped == ["again"]


def test_the_log_is_spared_and_says_how_much() -> None:
    lines: list[str] = []
    refusals = Refusals(lines.append)
    for _ in range(1000):
        refusals.refused("a", "x", 1.0)
    assert len(lines) == 20
    refusals.refused("a", "x", 30.0)
    assert lines[20:] == ["980 more refusals were not logged", "a connection from a was refused: x"]
