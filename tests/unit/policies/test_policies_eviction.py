"""Which content goes first from a full cache: the golden cases of falkon.md 3.4, one a policy."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from bough.errors import UnknownName
from bough.policies.eviction.eviction_names import load_eviction


class Content(NamedTuple):
    """Three of them fit; o was inserted first and used often, n is new."""

    name: str
    inserted: float
    used: float
    uses: int
    wanted: int = 0
    size: int = 1


OLD = Content("old", inserted=1, used=9, uses=5)
MIDDLE = Content("middle", inserted=2, used=4, uses=3, wanted=2)
RARE = Content("rare", inserted=3, used=6, uses=1, wanted=1)


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("fifo", ["old", "middle", "rare"]),
        ("lru", ["middle", "rare", "old"]),
        ("lfu", ["rare", "middle", "old"]),
        ("needed-last", ["old", "rare", "middle"]),
    ],
)
def test_the_victims_are_those_of_the_table(policy: str, order: list[str]) -> None:
    found = load_eviction(policy)
    contents = [RARE, OLD, MIDDLE]
    assert [one.name for one in sorted(contents, key=lambda it: found.rank(it, Random(1)))] == order


def test_ties_of_lfu_go_by_last_use() -> None:
    lfu = load_eviction("lfu")
    one, other = Content("one", 1, 5, 2), Content("other", 2, 3, 2)
    assert lfu.rank(other, Random(1)) < lfu.rank(one, Random(1))


def test_without_known_tasks_what_is_needed_last_is_lru() -> None:
    found, lru = load_eviction("needed-last"), load_eviction("lru")
    contents = [one._replace(wanted=0) for one in (RARE, OLD, MIDDLE)]
    ranked = [sorted(contents, key=lambda it: policy.rank(it, Random(1))) for policy in (found, lru)]
    assert ranked[0] == ranked[1]


def test_chance_takes_each_about_as_often_and_the_same_dice_take_the_same() -> None:
    found = load_eviction("random")
    dice, again = Random(7), Random(7)
    victims = [min((OLD, MIDDLE, RARE), key=lambda it: found.rank(it, dice)).name for _ in range(3000)]
    repeated = [min((OLD, MIDDLE, RARE), key=lambda it: found.rank(it, again)).name for _ in range(3000)]
    assert victims == repeated
    assert all(900 < victims.count(name) < 1100 for name in ("old", "middle", "rare"))


def test_an_unknown_policy_is_the_users_error() -> None:
    with pytest.raises(UnknownName, match="known are: needed-last, lru"):
        load_eviction("lruu")
