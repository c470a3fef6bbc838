"""When a disk is too small for a task: what counts, and what may still change."""

from __future__ import annotations

import os
from pathlib import Path

from bough.executor.host.small_disks import DiskSpace, Shortage, SmallDisks, spaces_of

TASK = (7, 0)


def shortage(
    ended: float,
    free: int = 95,
    inputs: int = 40,
    alone: bool = True,
    evicted: int = 0,
    began: float = -1.0,
    ran: bool = True,
) -> Shortage:
    began = ended - 1 if began < 0 else began
    return Shortage(inputs, (DiskSpace("/x", free, 100),), began, ended, alone=alone, evicted=evicted, ran=ran)


def test_the_second_failure_with_the_whole_disk_says_what_was_needed_and_what_there_was() -> None:
    disks = SmallDisks()
    assert not disks.why_too_small(TASK, shortage(10))
    why = disks.why_too_small(TASK, shortage(20))
    assert "its inputs have 40 B" in why
    assert "more than the 95 B that it could have on the disk of /x (100 B)" in why
    assert "--work" in why


def test_what_others_keep_is_waited_for_but_not_for_ever() -> None:
    disks = SmallDisks()
    assert not any(disks.why_too_small(TASK, shortage(when, free=50)) for when in (10, 20, 300, 600))
    assert "of which others keep 50 B" in disks.why_too_small(TASK, shortage(615, free=50))


def test_while_others_run_there_and_keep_much_nothing_counts() -> None:
    disks = SmallDisks()
    assert not any(disks.why_too_small(TASK, shortage(when, free=50, alone=False)) for when in range(0, 10_000, 100))


def test_others_that_run_there_and_keep_next_to_nothing_are_not_waited_for() -> None:
    disks = SmallDisks()
    assert not disks.why_too_small(TASK, shortage(10, alone=False))
    assert disks.why_too_small(TASK, shortage(20, alone=False))


def test_two_that_were_short_of_space_at_once_may_each_have_enough_alone() -> None:
    disks = SmallDisks()
    for when in range(10, 100, 10):
        assert not disks.why_too_small(TASK, shortage(when, began=when - 9))
        assert not disks.why_too_small((8, 0), shortage(when + 1, began=when - 9))


def test_what_the_cache_gave_up_for_it_may_have_been_what_it_lacked() -> None:
    disks = SmallDisks()
    assert not any(disks.why_too_small(TASK, shortage(when, evicted=30)) for when in (10, 20, 30))


def test_inputs_that_would_fit_several_times_were_kept_out_by_others_or_by_a_quota() -> None:
    disks = SmallDisks()
    for free in (95, 50):
        assert not any(disks.why_too_small(TASK, shortage(when, free, 10, ran=False)) for when in (10, 20, 300, 1000))
    assert not disks.why_too_small(TASK, shortage(1010, inputs=40, ran=False))
    assert disks.why_too_small(TASK, shortage(1020, inputs=40, ran=False))


def test_when_there_is_more_space_than_before_counting_begins_anew() -> None:
    disks = SmallDisks()
    assert not disks.why_too_small(TASK, shortage(10, free=50))
    assert not disks.why_too_small(TASK, shortage(1000, free=95))
    assert disks.why_too_small(TASK, shortage(1010, free=95))


def test_of_a_task_like_one_that_was_too_big_one_failure_is_enough() -> None:
    disks = SmallDisks()
    disks.why_too_small(TASK, shortage(10))
    assert disks.why_too_small(TASK, shortage(20))
    assert not disks.why_too_small((7, 1), shortage(30, inputs=39))
    assert disks.why_too_small((7, 2), shortage(40))
    assert not disks.why_too_small((8, 0), shortage(50))


def test_folders_on_one_disk_are_one_disk(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (one,) = spaces_of([(str(tmp_path), 0), (str(tmp_path / "a"), 0), (str(tmp_path / "none"), 0)])
    state = os.statvfs(tmp_path)
    assert one.whole == (state.f_blocks - state.f_bfree + state.f_bavail) * state.f_frsize
    assert 0 < one.free <= one.whole
