from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bough import private
from bough.movers import mapped_memory, result_memory
from bough.movers.kept_maps import kept_maps
from bough.movers.result_memory import FREE, IN_MEMORY, LINK, MADE, copy_to_disk, put_in_memory
from bough.movers.value_files import _map_buffer, map_file
from bough.movers.value_places import MEMORY, VARIABLE


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


@pytest.fixture
def in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    monkeypatch.setenv(VARIABLE, "100MiB")
    memory = Path(MEMORY) / f"bough-test-{os.getpid()}-{os.urandom(4).hex()}"
    memory.mkdir(0o700)
    (tmp_path / LINK).symlink_to(memory)
    yield str(tmp_path), memory
    kept_maps.forget()
    private.remove_tree(str(memory))


@pytest.mark.skipif(not os.path.isdir(MEMORY), reason="this machine has no /dev/shm")
@pytest.mark.parametrize("size", [IN_MEMORY, (20 << 20) + 4097])
def test_the_map_by_which_a_new_file_was_written_is_there_for_the_next_result(
    in_memory: tuple[str, Path], size: int
) -> None:
    results, memory = in_memory
    parts = [b"head", os.urandom(size), b"", os.urandom(5)]
    path = put_in_memory(results, "r", parts, size + 9)
    assert Path(path).read_bytes() == b"".join(parts)
    status = os.stat(path)
    assert kept_maps.has(status.st_dev, status.st_ino, is_writable=True)
    os.rename(path, memory / f"{FREE}{size + 9}-ab")
    again = put_in_memory(results, "s", [b"n" * size], size)
    assert os.stat(again).st_ino == status.st_ino
    assert Path(again).read_bytes() == b"n" * size


@pytest.mark.skipif(not os.path.isdir(MEMORY), reason="this machine has no /dev/shm")
def test_a_system_that_cannot_take_memory_for_a_map_writes_the_file(
    in_memory: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_memory, "_take_memory", lambda *_: errno.EINVAL)
    data = os.urandom(9 << 20)
    assert Path(put_in_memory(in_memory[0], "r", [data], len(data))).read_bytes() == data


@pytest.mark.skipif(not os.path.isdir(MEMORY), reason="this machine has no /dev/shm")
def test_memory_that_is_full_after_all_leaves_nothing(
    in_memory: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    took: list[int] = []
    real = mapped_memory._take_memory

    def take(address: int, count: int) -> int:
        took.append(count)
        return errno.ENOSPC if len(took) > 2 else real(address, count)

    monkeypatch.setattr(mapped_memory, "_take_memory", take)
    assert not put_in_memory(in_memory[0], "r", [os.urandom(64 << 20)], 64 << 20)
    assert not list(in_memory[1].iterdir())
    with open("/proc/self/smaps", encoding="utf-8") as file:
        lines = file.read().partition(str(in_memory[1]))[2].splitlines()
    assert "Rss:                   0 kB" in lines[:10]  # a map is kept, and no memory


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
