from __future__ import annotations

import pytest

from bough.errors import UserError
from bough.model.arrays.array_indices import (
    index_label,
    positions,
    range_label,
    read_indices,
    show_indices,
    task_label,
)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1-4", [1, 2, 3, 4]), ("7", [7]), ("1-9:3", [1, 4, 7]), ("8-9,1,5", [1, 5, 8, 9]), ("0-0", [0])],
)
def test_ranges_include_both_ends_and_grow(text: str, numbers: list[int]) -> None:
    parts = read_indices(text)

    assert [number for part in parts for number in part] == numbers
    assert read_indices(show_indices(parts)) == parts


@pytest.mark.parametrize(
    "text", ["", "a", "4-1", "1-", "-3", "1-9:0", "1,,2", "1.5", "1-5,5-9", "3,3", "1-" + "0" * 70_000]
)
def test_a_wrong_range_is_named(text: str) -> None:
    with pytest.raises(UserError, match="--array"):
        read_indices(text)


@pytest.mark.parametrize("text", ["1-30", "10-20:5,40", "7", "1-9:2,20-30", "0-44:3"])
def test_indexes_and_positions_are_each_others_inverse(text: str) -> None:
    flat = [number for part in read_indices(text) for number in part]

    assert [index_label(text, position) for position in range(len(flat))] == flat
    for first in range(46):
        for last in range(first, 46):
            wanted = [position for position, number in enumerate(flat) if first <= number <= last]
            assert list(range(*positions(text, first, last))) == wanted


def test_without_a_text_elements_count_from_zero() -> None:
    assert index_label("", 7) == 7
    assert positions("", 3, 40) == (3, 41)


def test_labels_hide_the_base_of_a_workflow() -> None:
    assert task_label(300_000_000_005, 6, "1-1000") == "5.7"
    assert range_label(300_000_000_005, 0, 3, "10-20:5,40") == "5.10-40"
    assert range_label(12, 3, 3) == "12.3"
