"""What a place holds comes in the order of weight and of coming, whatever came and left between two looks."""

from __future__ import annotations

from array import array
from random import Random

import pytest

from bough.core.records.indexes.data_places import CONTENTS, Place


@pytest.mark.parametrize("many", [5, 40, 400, 4000])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("weighs", [True, False])
def test_a_place_names_the_heaviest_first_and_of_equals_those_that_came_first(
    many: int, seed: int, weighs: bool
) -> None:
    dice = Random(seed)
    weights = array("Q", [dice.randint(1, many // 3) for _ in range(many * 3)])
    place = Place("s/h", weights if weighs else None)
    rank = dict[int, tuple[int, int]]()  # of the contents that it should have; the greatest comes first
    wanting = array("i", (1,)) * (many * 3)
    coming = iter(dice.sample(range(many * 3), many * 3))
    for turn in range(3 * many):
        if len(rank) < many or dice.random() < 0.5:
            content = next(coming, None)
            if content is not None:
                rank[content] = weights[content] if weighs else 1, -turn
                place.add((content,))
        elif dice.random() < 0.5:
            gone = dice.choice(list(rank))
            del rank[gone]
            place.listed.discard(gone)  # as what a cache lost
        else:
            gone = dice.choice(list(rank))
            del rank[gone]
            wanting[gone] = 0  # as what nobody reads any more
        if dice.random() < 0.2:
            place.drop_first(wanting)
            best = max(rank, key=rank.__getitem__, default=None)
            assert (place.wanted[-1] if place.wanted else None) == best
            assert len(place.wanted) >= min(CONTENTS, len(rank))
            in_order = [content for content in place.wanted if content in rank]
            assert in_order == sorted(in_order, key=rank.__getitem__)
            assert list(place.first()) == [one for one in place.wanted[: -CONTENTS - 1 : -1] if one in place.listed]
    while rank:
        place.drop_first(wanting)
        first = max(rank, key=rank.__getitem__)
        assert place.wanted[-1] == first
        del rank[first]
        place.listed.discard(first)
    place.drop_first(wanting)
    assert place.wanted == []


def test_what_many_contents_cost_is_bounded_by_those_that_are_there() -> None:
    place = Place("s/h", [content * 7919 % 20_011 for content in range(20_000)])
    for content in range(20_000):
        place.add((content,))
        if content >= 100:
            place.listed.discard(content - 100)  # a cache of a hundred
    assert len(place.listed) == 100
    assert place.count < 400, "what left is dropped now and then"


@pytest.mark.parametrize("weights", [None, [5, 7, 6]])
def test_contents_that_leave_and_come_back_are_not_listed_again_and_again(weights: list[int] | None) -> None:
    place = Place("s/h", weights)
    for turn in range(10_000):
        place.add((turn % 3,))
        if turn >= 1:
            place.listed.discard((turn - 1) % 3)  # a cache that has room for one
    assert place.listed == {9_999 % 3}
    assert place.count <= 2 * 3 + 64 + 3
