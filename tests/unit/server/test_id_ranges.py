from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from bough.errors import SiteError, StoreFailed
from bough.model.ids import NUMBERS
from bough.server.service import id_ranges
from bough.server.service.id_ranges import FILE, IdRange, IdRanges

HERE = socket.gethostname()


def opened(book: IdRanges, name: str = "w", highest: int = 0) -> int:
    run, _ = book.new_workflow()
    book.name_workflow(run, name, highest)
    return run


def numbers(given: IdRange) -> tuple[int, int]:
    return given.record % NUMBERS, given.many


def test_every_workflow_counts_from_one(tmp_path: Path) -> None:
    book = IdRanges(str(tmp_path))
    run, other = opened(book, "one"), opened(book, "two")
    mine, yours = book.give(run, 10), book.give(other, 10)

    assert numbers(mine) == numbers(yours) == (1, 10)
    assert mine.record != yours.record
    assert not {*range(mine.group, mine.group + 10)} & {*range(yours.group, yours.group + 10)}
    assert book.owns_record(run, mine.record + 9)
    assert not book.owns_record(run, mine.record + 10)
    assert not book.owns_record(run, yours.record)
    assert book.owns_group(other, yours.group)
    assert not book.owns_group(run, yours.group)
    book.close()


def test_what_a_client_that_left_did_not_use_is_given_to_the_next(tmp_path: Path) -> None:
    book = IdRanges(str(tmp_path))
    run = opened(book)
    first = book.give(run, 16, 10, "far")
    book.use(run, first.record)
    book.left(run, 10, "far")

    assert numbers(book.give(run, 16, 11, "far")) == (2, 16)
    book.close()


def test_what_a_lost_client_elsewhere_may_still_use_is_kept_for_it(tmp_path: Path) -> None:
    book = IdRanges(str(tmp_path))
    run = opened(book)
    first = book.give(run, 16, 10, "far")

    assert numbers(book.give(run, 16, 11, "far")) == (17, 16)
    assert book.owns_record(run, first.record + 15)
    book.close()


def test_what_a_dead_process_of_this_host_had_is_given_again(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    book = IdRanges(str(tmp_path))
    run = opened(book)
    first = book.give(run, 1_000_000, gone.pid, HERE)
    book.use(run, first.record + 2)

    assert numbers(book.give(run, 16, os.getpid(), HERE)) == (4, 16)
    assert numbers(book.give(run, 16, os.getpid(), HERE)) == (20, 16)  # a live one keeps its own
    book.close()


def test_runs_of_one_name_go_on_counting(tmp_path: Path) -> None:
    book = IdRanges(str(tmp_path))
    run = opened(book)
    book.use(run, book.give(run, 100, os.getpid(), HERE).record + 4)
    book.ended(run)

    again = opened(book)

    assert book.knows("w")
    assert numbers(book.give(again, 100, os.getpid(), HERE)) == (6, 100)
    assert book.base_of(again) == book.base_of(run)
    book.close()


def test_what_was_given_is_known_by_the_next_server(tmp_path: Path) -> None:
    book = IdRanges(str(tmp_path))
    book.begin(1, 7)
    run = opened(book, "name with = and ü")
    given = book.give(run, 100, 10, "far")
    executor = book.new_executor()
    book.close()

    again = IdRanges(str(tmp_path))
    again.name_workflow(run, "name with = and ü", given.record + 3)

    assert (again.own_run, again.own_turn) == (1, 7)
    assert again.knows("name with = and ü")
    assert again.owns_record(run, given.record + 99)
    assert numbers(again.give(run, 1, 11, "far")) == (101, 1)  # the client may come back
    again.left(run, 10, "far")
    again.left(run, 11, "far")
    assert numbers(again.give(run, 1, 12, "far")) == (5, 1)
    assert again.new_workflow()[0] == run + 1
    assert again.new_executor() == executor + 1
    again.close()


def test_workflows_of_an_earlier_version_go_on_from_their_highest_number(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("run 1 1\nrange 2 1 1 16\nrange 2 17 18 16\nexecutor 4\n")
    book = IdRanges(str(tmp_path))
    book.name_workflow(2, "w", 17)

    given = book.give(2, 16, 10, "far")

    assert (given.record, given.group) == (2 * NUMBERS + 18, 34)
    assert book.owns_record(2, 17)
    assert not book.owns_record(2, 40)
    assert book.owns_group(2, 18)
    book.close()


def test_a_store_without_its_file_gets_the_base_from_its_records(tmp_path: Path) -> None:
    book = IdRanges(str(tmp_path))
    book.beyond(group=5, run=8, executor=2)
    run = opened(book, "w", 3 * NUMBERS + 7)

    assert run == 9
    assert book.give(run, 1).record == 3 * NUMBERS + 8
    assert book.new_executor() == 3
    book.close()


def test_a_line_that_a_crash_has_torn_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("range 2 1 1 10\nexecutor 4\nworkflow 3 30000")
    book = IdRanges(str(tmp_path))
    run = opened(book)
    given = book.give(run, 10)
    book.close()

    again = IdRanges(str(tmp_path))

    assert again.owns_record(2, 5)
    assert again.owns_record(run, given.record + 9)
    assert again.new_executor() == 5
    again.close()


def test_nobody_is_given_more_than_the_most_or_less_than_one(tmp_path: Path) -> None:
    book = IdRanges(str(tmp_path))
    run = opened(book)

    assert book.give(run, 0).many == 1
    assert book.give(run, 1 << 60).many == 1 << 32
    book.use(run, NUMBERS - 5)
    with pytest.raises(SiteError, match="no numbers left"):
        book.give(run, 16)
    book.close()


def test_a_line_that_the_disk_takes_only_a_part_of_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = IdRanges(str(tmp_path))
    run = opened(book)
    before = (tmp_path / FILE).read_text()
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: write(fd, data[:5]))
        with pytest.raises(StoreFailed, match="is full"):
            book.give(run, 10, 7, "far")

    given = book.give(run, 10, 7, "far")

    line = f"lent {run} {given.record} {given.group} 10 7 ={b'far'.hex()}\n"
    assert (tmp_path / FILE).read_text() == before + line
    book.close()


def test_a_long_file_is_written_anew_without_what_nobody_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_ranges, "_LONG", 5)
    book = IdRanges(str(tmp_path))
    book.begin(1, 7)
    run, other = opened(book, "kept"), opened(book, "gone")
    for pid in range(1, 41):
        book.use(run, book.give(run, 16, pid, "far").record)
        book.left(run, pid, "far")
        book.use(other, book.give(other, 16, pid, "far").record)
    executor = book.new_executor()
    book.keep({run})
    after = book.give(run, 16, 41, "far")
    book.close()

    assert len((tmp_path / FILE).read_text().splitlines()) < 90
    again = IdRanges(str(tmp_path))
    assert (again.own_run, again.own_turn) == (1, 7)
    assert numbers(after) == (41, 16)
    assert again.owns_record(run, after.record)
    again.name_workflow(99, "gone")
    assert numbers(again.give(99, 1)) == (40 * 16 - 14, 1)  # after the last one used, not after the last one given
    assert again.new_workflow()[0] == 100
    assert again.new_executor() == executor + 1
    again.close()
