"""Things to come, in the order of their time."""

from __future__ import annotations

from bough.sim.simulation import Agenda


def test_things_come_by_time_and_then_in_the_order_they_were_put_down() -> None:
    agenda: Agenda[str] = Agenda()
    for when, thing in [(2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b")]:
        agenda.put(when, thing)
    assert len(agenda) == 4
    assert agenda.next_time() == 1.0
    assert [agenda.pop() for _ in range(4)] == [(1.0, "a"), (1.0, "b"), (2.0, "c"), (2.0, "d")]
    assert agenda.next_time() is None
    assert not agenda


def test_things_need_not_be_comparable() -> None:
    agenda: Agenda[object] = Agenda()
    agenda.put(1.0, {})
    agenda.put(1.0, {})
    assert agenda.pop() == (1.0, {})
