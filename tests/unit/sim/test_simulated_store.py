"""A simulated cache: what each eviction policy gives up, and that pins and the bound hold."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.policies.eviction.eviction_names import load_eviction
from bough.sim.data.simulated_store import SimulatedStore

POLICIES = ["needed-last", "lru", "lfu", "fifo", "random"]


def store(policy: str = "lru", limit: float = 30) -> SimulatedStore:
    return SimulatedStore("h", "s", limit, load_eviction(policy), Random(1))


@pytest.mark.parametrize(("policy", "gone"), [("fifo", 1), ("lru", 2), ("lfu", 3), ("needed-last", 2)])
def test_the_policy_says_who_goes(policy: str, gone: int) -> None:
    """1 came first, 2 was used least recently, 3 least often, and 1 and 3 are wanted."""
    cache = store(policy)
    for file in (1, 2, 3):
        cache.add(file, 10, float(file))
    cache.want(1, 2)
    cache.want(3, 1)
    for now, file in enumerate((2, 2, 3, 1, 1), 10):
        cache.use(file, now)
    cache.add(4, 10, 20.0)
    cache.pin(4)
    assert cache.make_room() == [gone]


def test_what_is_wanted_no_more_goes_first() -> None:
    cache = store("needed-last", 20)
    cache.want(1, 1)
    cache.add(1, 10, 0.0)
    cache.add(2, 10, 1.0)
    cache.want(1, -1)
    cache.add(3, 10, 2.0)
    assert cache.make_room() == [1]


def test_random_eviction_takes_each_as_often() -> None:
    cache, gone = store("random", 100), [0] * 30
    for file in range(10):
        cache.add(file, 10, 0.0)
    for _ in range(3000):
        cache.add(99, 10, 0.0)
        cache.pin(99)
        (file,) = cache.make_room()
        gone[file] += 1
        cache.drop(99)
        cache.add(file, 10, 0.0)
    assert all(230 < count < 370 for count in gone[:10])


@given(
    st.sampled_from(POLICIES),
    st.lists(st.tuples(st.sampled_from("aupnw"), st.integers(0, 8), st.integers(0, 40)), max_size=60),
)
def test_held_bytes_are_within_the_limit_but_for_pins(policy: str, steps: list[tuple[str, int, int]]) -> None:
    cache, pins = store(policy, 60), dict.fromkeys(range(9), 0)
    for now, (step, file, size) in enumerate(steps):
        if step == "a" and file not in cache:
            cache.add(file, size, now)
        elif step == "u" and file in cache:
            cache.use(file, now)
        elif step == "p" and file in cache:
            cache.pin(file)
            pins[file] += 1
        elif step == "n" and pins[file]:
            cache.unpin(file)
            pins[file] -= 1
        elif step == "w":
            cache.want(file, 1 if size % 2 else -1)
        for gone in cache.make_room():
            assert not pins[gone]
        assert cache.held <= max(60, cache.pinned)
        assert all(file in cache for file, count in pins.items() if count)


def test_a_cache_without_a_bound_gives_up_nothing() -> None:
    cache = store("lru", inf)
    for file in range(1000):
        cache.add(file, 10**12, 0.0)
    assert cache.make_room() == []
    assert cache.held == 10**15
