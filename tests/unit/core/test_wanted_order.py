"""The contents of a place come in the order of their keys, whatever came and left between two looks."""

from __future__ import annotations

from array import array
from random import Random

import pytest

from bough.core.records.indexes.data_places import Place

CONTENT = 0xFFFFFFFF
FIRST = 3


@pytest.mark.parametrize("many", [5, 40, 400, 4000])
@pytest.mark.parametrize("seed", range(5))
def test_a_place_names_the_greatest_keys_first(many: int, seed: int) -> None:
    dice, place, keys = Random(seed), Place("s/h"), dict[int, int]()  # the keys of the contents that it should have
    wanting = array("i", (1,)) * (many * 3)
    coming = iter(dice.sample(range(many * 3), many * 3))
    for _ in range(3 * many):
        if len(keys) < many or dice.random() < 0.5:
            content = next(coming, None)
            if content is not None:
                keys[content] = dice.randint(1, many) << 72 | content
                place.add((content,), (keys[content],))
        elif dice.random() < 0.5:
            gone = dice.choice(list(keys))
            del keys[gone]
            place.listed.discard(gone)  # as what a cache lost
        else:
            gone = dice.choice(list(keys))
            del keys[gone]
            wanting[gone] = 0  # as what nobody reads any more
        if dice.random() < 0.2:
            place.drop_first(wanting)
            expected = max(keys.values(), default=None)
            assert (place.wanted[-1] if place.wanted else None) == expected
            assert place.wanted == sorted(place.wanted)
            assert len(place.wanted) >= min(FIRST, len(keys))
    while keys:
        place.drop_first(wanting)
        first = max(keys.values())
        assert place.wanted[-1] == first
        del keys[first & CONTENT]
        place.listed.discard(first & CONTENT)
    place.drop_first(wanting)
    assert place.wanted == []


def test_what_many_contents_cost_is_bounded_by_those_that_are_there() -> None:
    place = Place("s/h")
    for content in range(20_000):
        place.add((content,), ((content * 7919 % 20_011) << 72 | content,))
        if content >= 100:
            place.listed.discard(content - 100)  # a cache of a hundred
    assert len(place.listed) == 100
    assert place.count < 400, "keys of what left are dropped now and then"
