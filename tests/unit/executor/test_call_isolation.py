"""Copies that calls get of their arguments: what they share with the original is only what nobody can change."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from bough.executor.worker.call_isolation import is_fixed, own_copy, with_own_arguments

np = pytest.importorskip("numpy")

BIG = 1 << 20


def test_small_things_are_copied() -> None:
    value = {"seeds": [1, 2], "array": np.zeros(4), "path": Path("a"), "day": dt.date(2026, 1, 1)}
    copy = own_copy(value)
    copy["seeds"].append(3)
    copy["array"][0] = 1
    assert value["seeds"] == [1, 2]
    assert value["array"][0] == 0
    assert (copy["path"], copy["day"]) == (value["path"], value["day"])


@pytest.mark.parametrize("made", [np.zeros(BIG, dtype=np.uint8), np.zeros(BIG // 8, dtype="datetime64[s]")])
def test_what_a_big_read_only_array_holds_is_not_copied(made: Any) -> None:
    made.flags.writeable = False
    copy = own_copy([made])[0]
    assert np.shares_memory(copy, made)
    assert not copy.flags.writeable
    assert copy.dtype == made.dtype


def test_a_big_array_that_may_be_written_to_is_copied() -> None:
    made = np.zeros(BIG, dtype=np.uint8)
    copy = own_copy(made)
    copy[:] = 1
    assert made.max() == 0


def test_what_cannot_be_pickled_is_given_as_it_is() -> None:
    value = [lambda: 1, (n for n in range(3))]
    assert own_copy(value) is value


def test_a_class_made_here_is_the_same_class() -> None:
    made = type("Made", (), {"__module__": "__main__"})
    value = made()
    value.seen = []
    copy = own_copy(value)
    assert type(copy) is made
    assert copy is not value
    assert copy.seen is not value.seen


@pytest.mark.parametrize(("items", "star"), [([1, "a", None], False), ([(1, 2), (3, b"x")], True)])
def test_a_function_of_numbers_and_texts_is_called_as_it_is(items: list[Any], *, star: bool) -> None:
    assert with_own_arguments(len, items, star=star) is len


def test_tuples_of_numbers_are_fixed_and_tuples_of_lists_are_not() -> None:
    assert is_fixed((1, "a", 2.5))
    assert is_fixed(np.float64(1))
    assert not is_fixed(([],))
