from __future__ import annotations

import os
from pathlib import Path

import pytest

from bough.errors import StoreFailed
from bough.server.service import id_ranges
from bough.server.service.id_ranges import FILE, IdRanges


def test_ranges_do_not_overlap_and_know_their_run(tmp_path: Path) -> None:
    book = IdRanges(str(tmp_path))
    run, group = book.new_workflow()
    mine = book.give(run, 10)
    other_run, other_group = book.new_workflow()
    yours = book.give(other_run, 10)

    assert (run, other_run) == (1, 2)
    assert (mine.record, yours.record) == (1, 11)
    assert group not in range(mine.group, mine.group + 10)
    assert other_group not in range(mine.group, mine.group + 10)
    assert book.owns_record(run, 10)
    assert not book.owns_record(run, 11)
    assert book.owns_group(other_run, yours.group)
    assert not book.owns_group(run, yours.group)
    book.close()


def test_what_was_given_is_known_by_the_next_server(tmp_path: Path) -> None:
    book = IdRanges(str(tmp_path))
    book.begin(1, 7)
    run, _ = book.new_workflow()
    given = book.give(run, 100)
    executor = book.new_executor()
    book.close()

    again = IdRanges(str(tmp_path))

    assert (again.own_run, again.own_turn) == (1, 7)
    assert again.owns_record(run, given.record + 99)
    assert again.new_workflow() == (run + 1, given.group + 100)
    assert again.new_executor() == executor + 1
    again.close()


def test_a_line_that_a_crash_has_torn_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("range 2 1 1 10\nexecutor 4\nrange 3 11 1")

    book = IdRanges(str(tmp_path))

    assert book.owns_record(2, 5)
    assert not book.owns_record(3, 11)
    assert book.new_executor() == 5
    book.close()


def test_numbers_that_the_journal_has_are_not_given_again(tmp_path: Path) -> None:
    book = IdRanges(str(tmp_path))
    book.beyond(record=50, group=5, run=3, executor=2)

    assert book.new_workflow() == (4, 6)
    assert book.give(4, 10)[1:] == (51, 7, 10)
    assert book.new_executor() == 3
    book.close()


def test_nobody_is_given_more_than_the_most_or_less_than_one(tmp_path: Path) -> None:
    book = IdRanges(str(tmp_path))

    assert book.give(1, 0).many == 1
    assert book.give(1, 1 << 60).many == 1 << 32
    book.close()


def test_a_line_that_a_crash_has_torn_does_not_spoil_the_next(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("range 2 1 1 10\nrange 3 11 1")
    book = IdRanges(str(tmp_path))
    given = book.give(3, 10)
    book.close()

    again = IdRanges(str(tmp_path))

    assert again.owns_record(3, given.record + 9)
    assert again.give(4, 1).record > given.record + 9
    again.close()


def test_a_line_that_the_disk_takes_only_a_part_of_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = IdRanges(str(tmp_path))
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: write(fd, data[:5]))
        with pytest.raises(StoreFailed, match="is full"):
            book.give(2, 10)

    given = book.give(2, 10)

    assert (tmp_path / FILE).read_text() == f"range 2 {given.record} {given.group} 10\n"
    book.close()


def test_a_long_file_is_written_anew_without_what_nobody_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_ranges, "_LONG", 5)
    book = IdRanges(str(tmp_path))
    book.begin(1, 7)
    book.beyond(record=0, group=0, run=1, executor=0)
    given = {}
    for _ in range(10):
        run, _ = book.new_workflow()
        given[run] = book.give(run, 10)
    executor = book.new_executor()
    book.keep({3})
    after = book.give(3, 10)
    book.close()

    assert len((tmp_path / FILE).read_text().splitlines()) == 5
    again = IdRanges(str(tmp_path))
    assert (again.own_run, again.own_turn) == (1, 7)
    assert again.owns_record(3, given[3].record)
    assert again.owns_record(3, after.record)
    assert again.give(99, 10).record > after.record
    assert again.new_workflow()[0] > max(given)
    assert again.new_executor() == executor + 1
    again.close()
