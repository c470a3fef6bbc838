"""What the executors of one pilot share."""

from __future__ import annotations

import os

import pytest

from bough.executor import siblings
from bough.executor.executor_options import ExecutorOptions


@pytest.mark.parametrize(("total", "parts"), [(8, 2), (7, 3), (3, 3), (0, 2), (64, 5)])
def test_all_is_given_once_and_no_part_is_much_bigger(total: int, parts: int) -> None:
    cuts = [siblings.share_of(total, parts, which) for which in range(parts)]
    assert [index for start, stop in cuts for index in range(start, stop)] == list(range(total))
    assert max(stop - start for start, stop in cuts) - min(stop - start for start, stop in cuts) <= 1


def test_cores_memory_gpus_and_folders_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "a,b,c")
    pinned: list[list[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: pinned.append(list(cpus)))
    words = ["--server", "x", "--cores", "3", "--memory", "1000", "--work", "/w", "--executors", "2"]
    for which, gpus, cores in ((0, "a,b", 2.0), (1, "c", 1.0)):
        options = ExecutorOptions(words)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "a,b,c")
        siblings.take_share(options, which, 2, [4, 5, 6])
        assert (options.cores, options.memory, options.work) == (cores, 500, f"/w/{which}")
        assert os.environ["CUDA_VISIBLE_DEVICES"] == gpus
    assert pinned == [[4, 5], [6]]
    siblings.take_share(ExecutorOptions(words), 0, 2, [0, 1, 2, 3])
    assert len(pinned) == 2  # others use the host, too


def test_there_are_no_more_executors_than_cores() -> None:
    options = ExecutorOptions(["--server", "x", "--cores", "1.5", "--executors", "4"])
    assert siblings.part(options) is None
    assert options.cores == 1.5


def test_how_many_there_are_is_bounded() -> None:
    with pytest.raises(SystemExit):
        ExecutorOptions(["--server", "x", "--executors", "0"])
