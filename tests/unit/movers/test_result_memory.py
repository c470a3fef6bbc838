from __future__ import annotations

import os
from pathlib import Path

import pytest

from bough.movers import result_memory
from bough.movers.result_memory import FREE, IN_MEMORY, LINK, MADE, copy_to_disk, put_in_memory
from bough.movers.value_files import _map_buffer, map_file
from bough.movers.value_places import VARIABLE


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.setenv(VARIABLE, "100MiB")
    results, memory = tmp_path / "results", tmp_path / "memory"
    results.mkdir()
    memory.mkdir()
    (results / LINK).symlink_to(memory)
    return str(results), str(memory)


def test_a_big_result_goes_into_memory_and_a_small_one_does_not(folders: tuple[str, str]) -> None:
    results, memory = folders
    assert not put_in_memory(results, "r", [b"x" * (IN_MEMORY - 1)], IN_MEMORY - 1)
    path = put_in_memory(results, "r", [b"x", b"y" * IN_MEMORY], IN_MEMORY + 1)
    assert path == f"{memory}/{MADE}r"
    assert Path(path).read_bytes() == b"x" + b"y" * IN_MEMORY


def test_without_memory_it_goes_to_the_disk(tmp_path: Path, folders: tuple[str, str]) -> None:
    assert not put_in_memory(str(tmp_path), "r", [bytes(IN_MEMORY)], IN_MEMORY)
    os.rmdir(folders[1])
    assert not put_in_memory(folders[0], "r", [bytes(IN_MEMORY)], IN_MEMORY)


def test_results_take_no_more_memory_than_they_may(monkeypatch: pytest.MonkeyPatch, folders: tuple[str, str]) -> None:
    monkeypatch.setenv(VARIABLE, "20MiB")
    assert put_in_memory(folders[0], "r", [bytes(12 << 20)], 12 << 20)
    assert not put_in_memory(folders[0], "s", [bytes((8 << 20) + 1)], (8 << 20) + 1)
    assert put_in_memory(folders[0], "s", [bytes(8 << 20)], 8 << 20)


def test_some_memory_stays_free_for_others(monkeypatch: pytest.MonkeyPatch, folders: tuple[str, str]) -> None:
    monkeypatch.setattr(result_memory, "free_bytes", lambda _: 74 << 20)
    assert put_in_memory(folders[0], "r", [bytes(10 << 20)], 10 << 20)
    assert not put_in_memory(folders[0], "s", [bytes((10 << 20) + 1)], (10 << 20) + 1)


def test_memory_is_used_again_when_nobody_maps_it(folders: tuple[str, str]) -> None:
    results, memory = folders
    free = f"{memory}/{FREE}{IN_MEMORY + 10}-ab"
    Path(free).write_bytes(b"o" * (IN_MEMORY + 10))
    inode = os.stat(free).st_ino
    pages = _map_buffer(free, IN_MEMORY + 10)
    other = put_in_memory(results, "q", [b"n" * IN_MEMORY], IN_MEMORY)
    assert os.stat(other).st_ino != inode
    del pages
    path = put_in_memory(results, "r", [b"n" * IN_MEMORY], IN_MEMORY)
    assert os.stat(path).st_ino == inode
    assert Path(path).read_bytes() == b"n" * IN_MEMORY
    assert not os.path.exists(free)


@pytest.mark.parametrize("size", [1, 4096, 4097, (9 << 20) + 5])
def test_a_copy_on_the_disk_is_the_same(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "a").write_bytes(data)
    copy_to_disk(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_bytes() == data
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600
    assert bytes(map_file(str(tmp_path / "b"))) == data


def test_a_copy_that_finds_the_disk_full_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"1" * 100)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "sendfile", full)
    with pytest.raises(OSError, match="No space left"):
        copy_to_disk(str(tmp_path / "a"), str(tmp_path / "b"))
    assert os.listdir(tmp_path) == ["a"]
