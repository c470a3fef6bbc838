from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from bough.api.futures.remote_exceptions import load_exception
from bough.executor.host import disk_space_wait
from bough.executor.host.disk_space_wait import GivenUp, SpaceWait
from bough.executor.worker.serialisation import (
    SMALL,
    Packed,
    exception_failure,
    loading_failure,
    one_line,
    pack,
    pack_results,
    write_result,
)
from bough.model.outcomes import Cause, Failure, ResultFile


def test_small_results_travel_together(tmp_path: Path) -> None:
    ((start, stop, data),) = pack_results(5, [1, "two", None], str(tmp_path), "r")
    assert (start, stop) == (5, 8)
    assert isinstance(data, bytes)
    assert pickle.loads(data) == [1, "two", None]


def test_big_results_get_files_and_small_neighbours_do_not(tmp_path: Path) -> None:
    values: list[object] = [1, b"x" * (SMALL + 1), 2, 3]
    found = list(pack_results(0, values, str(tmp_path), "r"))
    assert [stop for _, stop, _ in found] == [*[start for start, _, _ in found][1:], 4]
    loaded: list[object] = []
    for start, _, data in found:
        assert isinstance(data, ResultFile) == (start == 1)
        raw = Path(data.path).read_bytes() if isinstance(data, ResultFile) else data
        assert isinstance(raw, bytes)
        loaded += pickle.loads(raw)
    assert loaded == values


def test_only_the_guilty_result_fails(tmp_path: Path) -> None:
    found = list(pack_results(0, [0, 1, threading.Lock(), 3], str(tmp_path), "r"))
    failures = [(start, data) for start, _, data in found if isinstance(data, Failure)]
    assert [start for start, _ in failures] == [2]
    assert failures[0][1].cause == Cause.UNSENDABLE
    assert "_thread.lock" in failures[0][1].message
    assert sum(stop - start for start, stop, data in found if not isinstance(data, Failure)) == 3


def test_functions_travel_by_value_when_plain_pickle_cannot() -> None:
    assert pickle.loads(pack(lambda: 42))() == 42


def failure_of(fn: Any) -> Failure:
    try:
        fn()
    except BaseException as error:
        return exception_failure(error)
    raise AssertionError("did not raise")


def test_a_failure_has_the_exception_and_its_traceback() -> None:
    def inner() -> None:
        raise KeyError("colour")

    failure = failure_of(inner)
    assert isinstance(load_exception(failure), KeyError)
    assert "in inner" in failure.traceback
    assert failure.message == "KeyError: 'colour'"


def test_messages_are_one_line() -> None:
    assert one_line(ValueError("a\n  b")) == "ValueError: a b"
    assert one_line(ValueError()) == "ValueError"


@pytest.mark.parametrize(
    ("error", "cause", "word"),
    [
        (ModuleNotFoundError("No module named 'zzz'", name="zzz"), Cause.NOT_STARTED, "'zzz'"),
        (TypeError("bad bytes"), Cause.UNSENDABLE, "bad bytes"),
        (OSError(errno.ENOSPC, "No space left on device"), Cause.NOT_STARTED, "No space left"),
    ],
)
def test_what_cannot_be_loaded_says_what_is_missing(error: Exception, cause: Cause, word: str) -> None:
    failure = loading_failure(error, "the function")
    assert failure.cause == cause
    assert word in failure.message


# --- full disks -------------------------------------------------------------------------------------------


class FullDisk:
    """A disk that takes nothing, or half of it, so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int, number: int = errno.ENOSPC) -> None:
        self.left, self.number, self.tried = times, number, 0
        real = os.replace

        def replace(source: str, target: str) -> None:
            self.tried += 1
            if self.left:
                self.left -= 1
                raise OSError(self.number, os.strerror(self.number), source)
            real(source, target)

        monkeypatch.setattr(os, "replace", replace)
        monkeypatch.setattr(disk_space_wait, "TRY_AGAIN", 0.01)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_result_waits_for_a_full_store_and_says_so_once(monkeypatch, tmp_path, number) -> None:
    disk, said, marks = FullDisk(monkeypatch, 3, number), [], []
    pause = SpaceWait(said.append, mark=marks.append)
    found = write_result(Packed(b"result", []), str(tmp_path), "r", pause)
    assert marks == [True, True, True, False]
    write_result(Packed(b"another", []), str(tmp_path), "r", pause)
    assert marks == [True, True, True, False]
    found = write_result(Packed(b"result", []), str(tmp_path), "r", pause)
    assert found == ResultFile(str(tmp_path / "r.pickle"), 6)
    assert (tmp_path / "r.pickle").read_bytes() == b"result"
    assert os.listdir(tmp_path) == ["r.pickle"]
    assert disk.tried == 6
    assert len(said) == 1
    assert "the disk is full: free some space" in said[0]


def test_a_result_that_finds_the_executors_own_disk_full_is_a_failure_of_the_place(monkeypatch, tmp_path) -> None:
    FullDisk(monkeypatch, 1)
    found = write_result(Packed(b"result", []), str(tmp_path), "r")
    assert isinstance(found, Failure)
    assert (found.cause, found.site) == (Cause.EXCEPTION, True)
    assert isinstance(load_exception(found), OSError)
    assert os.listdir(tmp_path) == []


class WritesWhenPacked:
    def __reduce__(self) -> tuple[Any, ...]:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_result_whose_own_packing_meets_a_full_disk_is_not_called_unpicklable(tmp_path: Path) -> None:
    ((_, _, found),) = pack_results(0, [WritesWhenPacked()], str(tmp_path), "r")
    assert isinstance(found, Failure)
    assert (found.cause, found.site) == (Cause.EXCEPTION, True)
    assert "No space left" in found.message


def test_another_failure_to_write_a_result_is_not_waited_for(monkeypatch, tmp_path) -> None:
    FullDisk(monkeypatch, 1, errno.EIO)
    found = write_result(Packed(b"result", []), str(tmp_path), "r", SpaceWait())
    assert isinstance(found, Failure)
    assert found.site
    assert os.listdir(tmp_path) == []


def test_nobody_waits_for_a_result_that_nobody_wants(monkeypatch, tmp_path) -> None:
    FullDisk(monkeypatch, 1000)
    with pytest.raises(GivenUp):
        write_result(Packed(b"result", []), str(tmp_path), "r", SpaceWait(lambda _: None, lambda: True))
    assert os.listdir(tmp_path) == []


def test_what_is_printed_waits_for_space_whole_and_in_order(monkeypatch, tmp_path) -> None:
    """A disk that fills up takes a part of a line first."""
    monkeypatch.setattr(disk_space_wait, "TRY_AGAIN", 0.01)
    script = """
        import errno, io, os, sys
        from bough.executor import worker_protocol
        from bough.executor.host import disk_space_wait
        from bough.executor.worker import output_streams as streams
        disk_space_wait.TRY_AGAIN = 0.01
        real, calls, said = io.FileIO.write, [0], []
        class Small(streams._Counting.__base__):
            def write(self, data):
                calls[0] += 1
                if calls[0] % 3 == 1:
                    return real(self, bytes(data)[:2])
                if calls[0] % 3 == 2:
                    raise OSError(errno.ENOSPC, "full")
                return real(self, data)
        streams._Counting.__bases__ = (Small,)
        made = streams.Streams(sys.argv[1], "x1", worker_protocol.new_cells()[0], said.append)
        print("a line that is printed")
        print("and another one")
        made.take()
        assert len(said) == 1, said
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, (tmp_path / "x1.err").read_text() + done.stderr
    assert (tmp_path / "x1.out").read_text() == "a line that is printed\nand another one\n"
