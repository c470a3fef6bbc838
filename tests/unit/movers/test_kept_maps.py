from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bough.movers import kept_maps as module
from bough.movers.kept_maps import KeptMaps
from bough.movers.mapped_memory import copy_into, read_only


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "a").write_bytes(b"1" * 9000)
    opened = os.open(tmp_path / "a", os.O_RDWR)
    yield opened
    os.close(opened)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_mapped(path: Path) -> bool:
    return f"{path}\n" in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_a_file_is_mapped_once_and_again_when_more_of_it_is_wanted(descriptor: int) -> None:
    maps = KeptMaps()
    first = maps.pages(descriptor, 5000)
    assert maps.pages(descriptor, 4000) is first
    longer = maps.pages(descriptor, 9000)
    assert longer is not first
    assert bytes(read_only(longer)) == b"1" * 9000
    maps.forget()


def test_what_is_written_by_one_map_is_read_by_another(descriptor: int) -> None:
    maps = KeptMaps()
    read, written = maps.pages(descriptor, 9000), maps.pages(descriptor, 9000, is_writable=True)
    copy_into(written, b"22", 2, at=7)
    assert bytes(read_only(read))[:10] == b"1111111221"
    status = os.fstat(descriptor)
    assert maps.has(status.st_dev, status.st_ino, is_writable=True)
    maps.forget()
    assert not maps.has(status.st_dev, status.st_ino)


def test_a_map_that_is_kept_holds_no_lock(descriptor: int, tmp_path: Path) -> None:
    maps = KeptMaps()
    locked = os.open(tmp_path / "a", os.O_RDONLY)
    fcntl.flock(locked, fcntl.LOCK_SH)
    maps.pages(locked, 9000)
    os.close(locked)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    maps.forget()


def test_what_is_not_asked_for_is_let_go_of(descriptor: int, tmp_path: Path) -> None:
    maps = KeptMaps(idle=0.05)
    for _ in range(2):  # also when all were let go of before
        maps.pages(descriptor, 9000)
        until(lambda: not is_mapped(tmp_path / "a"))
    used = maps.pages(descriptor, 9000)
    status = os.fstat(descriptor)
    until(lambda: not maps.has(status.st_dev, status.st_ino))
    assert is_mapped(tmp_path / "a")
    assert bytes(read_only(used)) == b"1" * 9000


def test_no_more_are_kept_than_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    maps = KeptMaps()
    for name in "abcda":
        (tmp_path / name).write_bytes(name.encode() * 100)
        with open(tmp_path / name, "rb") as file:
            maps.pages(file.fileno(), 100)
    assert [name for name in "abcd" if is_mapped(tmp_path / name)] == ["a", "c", "d"]
    maps.forget()
    assert not [name for name in "abcd" if is_mapped(tmp_path / name)]
