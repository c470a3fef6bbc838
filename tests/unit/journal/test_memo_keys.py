"""Memo keys: equal for equal computations, different for everything else."""

from __future__ import annotations

from bough.model.memo_keys import array_mark, full_key, success_mark


def test_a_key_has_sixteen_bytes_and_is_the_same_every_time():
    assert len(full_key(b"content", 0, [])) == 16
    assert full_key(b"content", 0, [b"m"]) == full_key(b"content", 0, [b"m"])
    assert full_key(b"content", 0, []).hex() == "a550d6fc62233951b547eba4db3e476d"


def test_content_occurrence_and_marks_all_count():
    keys = {
        full_key(b"a", 0, []),
        full_key(b"b", 0, []),
        full_key(b"a", 1, []),
        full_key(b"a", 0, [b""]),
        full_key(b"a", 0, [b"x", b"y"]),
        full_key(b"a", 0, [b"y", b"x"]),
        full_key(b"a", 0, [b"xy"]),
        full_key(b"ax", 0, [b"y"]),
    }
    assert len(keys) == 8


def test_the_mark_of_a_success_names_record_index_and_attempt():
    marks = {success_mark(1, 2, 3), success_mark(2, 1, 3), success_mark(1, 3, 2), success_mark(1, 2, 4)}
    assert len(marks) == 4


def test_the_mark_of_an_array_does_not_depend_on_how_it_was_cut():
    whole = array_mark([(1, 0, 100, 1)])
    assert array_mark([(1, 0, 30, 1), (1, 30, 0, 2), (1, 30, 70, 1)]) == whole
    assert array_mark([(1, n, 1, 1) for n in range(100)]) == whole


def test_the_mark_of_an_array_depends_on_sources_attempts_and_order():
    marks = {
        array_mark([]),
        array_mark([(1, 0, 100, 1)]),
        array_mark([(1, 0, 100, 2)]),
        array_mark([(2, 0, 100, 1)]),
        array_mark([(1, 0, 50, 1), (1, 50, 50, 2)]),
        array_mark([(1, 50, 50, 1), (1, 0, 50, 1)]),
        array_mark([(1, 0, 50, 1), (1, 51, 49, 1)]),
        array_mark([(1, 0, 99, 1)]),
    }
    assert len(marks) == 8
