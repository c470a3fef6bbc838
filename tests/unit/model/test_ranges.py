"""Ranges of indexes, held against plain sets."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.model.arrays import ranges


def spread(parts: ranges.Ranges) -> set[int]:
    return {index for start, stop in parts for index in range(start, stop)}


def is_tidy(parts: ranges.Ranges) -> bool:
    return all(a < b for a, b in parts) and all(x[1] <= y[0] for x, y in itertools.pairwise(parts))


@pytest.mark.parametrize(
    ("before", "cut", "taken", "after"),
    [
        ([[0, 10]], (0, 4), [[0, 4]], [[4, 10]]),
        ([[0, 10]], (0, 10), [[0, 10]], []),
        ([[0, 10]], (4, 6), [[4, 6]], [[0, 4], [6, 10]]),
        ([[0, 10]], (6, 10), [[6, 10]], [[0, 6]]),
        ([[0, 10]], (8, 20), [[8, 10]], [[0, 8]]),
        ([[0, 10]], (0, 0), [], [[0, 10]]),
        ([[0, 10]], (5, 5), [], [[0, 10]]),
        ([[0, 2], [4, 6]], (1, 5), [[1, 2], [4, 5]], [[0, 1], [5, 6]]),
        ([[0, 2], [4, 6]], (2, 4), [], [[0, 2], [4, 6]]),
        ([], (0, 5), [], []),
    ],
)
def test_taking_returns_what_was_there_and_leaves_the_rest(
    before: ranges.Ranges, cut: tuple[int, int], taken: ranges.Ranges, after: ranges.Ranges
) -> None:
    left = [list(part) for part in before]
    assert ranges.take(left, *cut) == taken
    assert left == after


@given(st.sets(st.integers(0, 30)), st.integers(0, 30), st.integers(0, 10))
def test_taking_agrees_with_sets(content: set[int], start: int, length: int) -> None:
    left: ranges.Ranges = []
    for index in sorted(content):
        ranges.add(left, index, index + 1)
    taken = ranges.take(left, start, start + length)
    assert spread(taken) == content & set(range(start, start + length))
    assert spread(left) == content - set(range(start, start + length))
    assert is_tidy(left)


@given(st.permutations(range(12)))
def test_adding_in_any_order_keeps_the_list_sorted_and_merged(order: list[int]) -> None:
    parts: ranges.Ranges = []
    for n, index in enumerate(order, 1):
        ranges.add(parts, index, index + 1)
        assert spread(parts) == set(order[:n])
        assert is_tidy(parts)
        assert all(x[1] < y[0] for x, y in itertools.pairwise(parts)), "not merged"
    assert parts == [[0, 12]]


def test_size_counts_indexes() -> None:
    assert ranges.size([]) == 0
    assert ranges.size([[0, 3], [5, 6]]) == 4


@given(st.binary(max_size=40).map(lambda b: bytes(x % 4 for x in b)), st.sets(st.integers(0, 3)), st.data())
def test_runs_are_maximal_and_complete(states: bytes, wanted: set[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(states)))
    stop = data.draw(st.integers(start, len(states)))
    found = ranges.runs_of(states, bytes(sorted(wanted)), start, stop)
    assert spread(found) == {i for i in range(start, stop) if states[i] in wanted}
    assert all(x[1] < y[0] for x, y in itertools.pairwise(found))
