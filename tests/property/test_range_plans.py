"""Which bytes are there, on their way, and wanted: whatever order they come in, and whatever breaks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.executor.files.transfers import range_plan
from bough.executor.files.transfers.range_plan import RangePlan


def test_ranges_are_taken_in_order_and_handed_on_in_order() -> None:
    got = bytearray()
    plan = RangePlan(0, 10, got.extend)
    first, second, third = plan.take(4), plan.take(4), plan.take(4)
    assert (first, second, third) == (range(4), range(4, 8), range(8, 10))
    assert not plan.take(4)
    plan.put(4, b"4567")
    assert (plan.complete, plan.came, bytes(got)) == (0, 4, b"")
    plan.put(0, b"01")
    assert bytes(got) == b"01"
    plan.put(2, b"23")
    assert bytes(got) == b"01234567"
    plan.put(8, b"89")
    assert plan.is_complete
    assert bytes(got) == b"0123456789"


def test_what_is_given_back_is_taken_first_and_what_came_is_kept() -> None:
    got = bytearray()
    plan = RangePlan(2, 12, got.extend)
    broken, other = plan.take(5), plan.take(3)
    plan.put(other.start, b"789")
    plan.put(2, b"23")
    plan.give_back(broken[2:])
    assert plan.left == 5
    assert plan.take(2) == range(4, 6)
    assert plan.take(9) == range(6, 7)
    assert plan.take(9) == range(10, 12)
    plan.put(6, b"6")
    plan.put(4, b"45")
    assert bytes(got) == b"23456789"


def test_nothing_is_taken_too_far_ahead_of_what_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_plan, "AHEAD", 4)
    plan = RangePlan(0, 100, lambda _: None)
    assert [plan.take(2), plan.take(2)] == [range(2), range(2, 4)]
    assert not plan.take(2)
    plan.put(2, b"23")
    assert not plan.take(2)
    plan.put(0, b"0")
    assert plan.take(2) == range(4, 6)


@pytest.mark.parametrize(("offset", "data"), [(0, b"0123456789x"), (8, b"xx"), (-1, b"x"), (1 << 62, b"x"), (1, b"x")])
def test_bytes_that_were_not_asked_for_are_refused(offset: int, data: bytes) -> None:
    plan = RangePlan(0, 10, lambda _: None)
    plan.take(8)
    plan.put(0, b"01")
    with pytest.raises(ValueError, match="not asked for"):
        plan.put(offset, data)


@given(size=st.integers(0, 400), start=st.integers(0, 50), ahead=st.integers(1, 200), seed=st.integers(0, 1 << 32))
def test_whatever_breaks_and_in_whatever_order_it_comes_the_bytes_are_right(
    size: int, start: int, ahead: int, seed: int
) -> None:
    dice = random.Random(seed)
    content, got = dice.randbytes(start + size), bytearray()
    plan = RangePlan(start, start + size, got.extend)
    taken: list[range] = []
    before, range_plan.AHEAD = range_plan.AHEAD, ahead  # type: ignore[misc]
    try:
        while not plan.is_complete:
            if dice.random() < 0.4 or not taken:
                span = plan.take(dice.randrange(1, 60))
                assert span or taken, "somebody can always go on"
                taken += [span] if span else []
                continue
            one = taken.pop(dice.randrange(len(taken)))
            if dice.random() < 0.3:
                plan.give_back(one)
                continue
            count = dice.randrange(1, len(one) + 1)
            plan.put(one.start, content[one.start : one.start + count])
            taken += [one[count:]] if one[count:] else []
            assert bytes(got) == content[start : plan.complete]
            assert plan.came - len(got) <= ahead + 60
            covered = sorted(place for span in taken for place in span)
            assert len(covered) == len(set(covered)), "a byte is brought by one at a time"
            assert plan.left + len(covered) + plan.came == size
    finally:
        range_plan.AHEAD = before  # type: ignore[misc]
    assert bytes(got) == content[start:]
