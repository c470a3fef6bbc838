"""Which elements of a new array earlier runs have done already."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bough.api.pickling import make_pages
from bough.api.submit.array_reuse import EarlierArray, NewArray, match, row_key
from bough.model.ids import RecordId
from bough.model.tasks import Reuse


def old(rows: Sequence[Any], done: list[tuple[int, int]], record: int = 1, *, table: bool = False) -> EarlierArray:
    pages = [] if table else [(page.start, page.stop, page.data) for page in make_pages(rows)]
    return EarlierArray(record, len(rows), pickle.dumps(rows) if table else b"", pages, done)


def new(rows: Sequence[Any], *, table: bool = False) -> NewArray:
    return NewArray(len(rows), pickle.dumps(rows) if table else b"", () if table else tuple(make_pages(rows)))


def reuse(start: int, stop: int, source_start: int, source: int = 1) -> Reuse:
    return Reuse(start, stop, RecordId(source), source_start)


def test_an_unchanged_table_is_taken_over_where_it_was_done() -> None:
    found = match([old(range(100), [(0, 40), (60, 100)], table=True)], new(range(100), table=True))
    assert found == (reuse(0, 40, 0), reuse(60, 100, 60))


def test_a_longer_table_takes_over_the_rows_it_shares() -> None:
    assert match([old(range(10), [(0, 10)], table=True)], new(range(5, 20), table=True)) == (reuse(0, 5, 5),)


def test_a_row_put_in_front_moves_the_others() -> None:
    assert match([old(["a", "b", "c"], [(0, 3)])], new(["x", "a", "b", "c"])) == (reuse(1, 4, 0),)


def test_equal_rows_claim_each_success_once() -> None:
    assert match([old(["a", "a", "b"], [(0, 3)])], new(["a", "a", "a"])) == (reuse(0, 2, 0),)


def test_several_runs_add_up_and_the_newest_comes_first() -> None:
    newest, oldest = old(["a", "b"], [(0, 1)], record=2), old(["a", "b"], [(0, 2)], record=1)
    assert match([newest, oldest], new(["a", "b"])) == (reuse(0, 1, 0, 2), reuse(1, 2, 1, 1))


def test_equal_numbers_of_different_kinds_are_different_rows() -> None:
    assert match([old([1, 0.0], [(0, 2)])], new([True, -0.0, 1.0])) == ()


def test_rows_that_cannot_be_compared_are_not_reused() -> None:
    assert row_key(threading.Lock()) is None
    assert row_key((1, threading.Lock())) is None


def test_rows_are_compared_by_a_key_that_says_more() -> None:
    found = match(
        [old(["a", "b"], [(0, 2)])],
        new(["a", "b"]),
        lambda row: (row, "now" if row == "a" else "same"),
        {1: lambda row: (row, "then" if row == "a" else "same")},
    )
    assert found == (reuse(1, 2, 1),)


@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 5), max_size=12), st.data())
def test_what_is_taken_over_is_equal_done_and_taken_once(
    before: list[int], after: list[int], data: st.DataObject
) -> None:
    ends = data.draw(st.lists(st.booleans(), min_size=len(before), max_size=len(before)))
    done = [(i, i + 1) for i, end in enumerate(ends) if end]
    pairs = [
        (i, found.source_start + i - found.start)
        for found in match([old(before, done)], new(after))
        for i in range(found.start, found.stop)
    ]
    assert all(after[i] == before[j] and ends[j] for i, j in pairs)
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)
    available = [before[j] for j in range(len(before)) if ends[j]]
    assert len(pairs) == sum(min(after.count(x), available.count(x)) for x in set(after))
