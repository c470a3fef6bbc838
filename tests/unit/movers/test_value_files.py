from __future__ import annotations

import fcntl
import gc
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bough import private
from bough.api.pickling import loads_unread
from bough.model.packed_values import APART, pieces
from bough.movers import value_files
from bough.movers.kept_maps import kept_maps
from bough.movers.mapped_memory import address_of, are_same, copy_into, map_pages
from bough.movers.value_files import (
    Unread,
    forget_recent,
    joined_apart,
    left_unread,
    map_file,
    overwrite,
    pack_apart,
    read_value,
    write_file,
)
from bough.movers.value_places import MEMORY


class Block:
    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Block, (pickle.PickleBuffer(self.data),)


def packed(value: object) -> tuple[bytes, list[memoryview]]:
    buffers: list[memoryview] = []
    head = pickle.dumps(value, 5, buffer_callback=lambda buffer: buffers.append(buffer.raw()))
    return head, buffers


def test_a_value_is_read_back_as_views_that_outlive_its_file(tmp_path: Path) -> None:
    path = str(tmp_path / "v")
    size = write_file(path, pieces(*packed(Block(bytearray(b"ab" * APART)))))
    assert os.path.getsize(path) == size
    found = read_value(path)
    os.unlink(path)
    assert isinstance(found.data, memoryview)
    assert found.data.readonly
    assert found.data == b"ab" * APART
    with pytest.raises(TypeError):
        found.data[0] = 1


def test_a_plain_pickle_is_read_too(tmp_path: Path) -> None:
    path = str(tmp_path / "v")
    write_file(path, [pickle.dumps([1, 2])])
    assert read_value(path) == [1, 2]


def test_a_file_that_is_empty_or_of_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="0 bytes"):
        map_file(str(path))
    path.write_bytes(b"12345")
    with pytest.raises(ValueError, match="5 bytes instead of 6"):
        map_file(str(path), 6)


def test_more_files_can_be_mapped_than_opened(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        views = []
        for number in range(400):
            path = str(tmp_path / str(number))
            write_file(path, [bytes([number % 256]) * 100])
            views.append(map_file(path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [view[0] for view in views] == [number % 256 for number in range(400)]


def test_arguments_are_joined_with_their_buffers(tmp_path: Path) -> None:
    path = str(tmp_path / "b")
    write_file(path, [b"z" * APART])
    head, _ = packed([1, Block(bytearray(b"z" * APART))])
    data = pack_apart(head, [(path, APART, b"identity")])
    assert len(data) < 1000
    number, block = pickle.loads(data)
    assert (number, bytes(block.data)) == (1, b"z" * APART)
    os.unlink(path)
    assert loads_unread(data) == Unread(head, (b"identity",)) == left_unread(head, [("elsewhere", 1, b"identity")])


def test_a_file_that_is_mapped_is_not_used_again_and_one_that_is_not_is(tmp_path: Path) -> None:
    first, second, third = (str(tmp_path / name) for name in "abc")
    write_file(first, [b"1" * APART])
    head, _ = packed(Block(bytearray(APART)))
    block = joined_apart(head, [(first, APART, b"")])
    new = memoryview(b"2" * APART)
    assert overwrite(first, second, new) is None
    assert os.path.exists(first)
    forget_recent()
    assert bytes(block.data) == b"1" * APART
    del block
    gc.collect()
    pages = overwrite(first, second, new)
    assert pages is not None
    assert not os.path.exists(first)
    assert bytes(joined_apart(head, [(second, APART, b"")]).data) == bytes(new)
    forget_recent()
    assert overwrite(second, third, memoryview(b"3" * (APART - 5)), pages) is pages
    assert Path(third).read_bytes() == b"3" * (APART - 5)


def test_a_killed_reader_maps_nothing_any_more(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    write_file(path, [b"1" * APART])
    code = (
        "import sys\nfrom bough.movers.value_files import _map_buffer\n"
        f"pages = _map_buffer({path!r}, {APART})\nprint('mapped', flush=True)\nsys.stdin.read()"
    )
    reader = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"mapped\n"
    assert overwrite(path, path + "2", memoryview(b"2" * APART)) is None
    reader.kill()
    reader.communicate()
    assert overwrite(path, path + "2", memoryview(b"2" * APART)) is not None


def test_a_reader_that_comes_while_a_file_is_used_again_does_not_get_the_new_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "a")
    write_file(path, [b"1" * APART])
    real = fcntl.flock

    def flock(descriptor: int, how: int) -> None:
        if how == fcntl.LOCK_SH:  # the reader has opened it, and has no lock yet
            monkeypatch.setattr(value_files.fcntl, "flock", real)
            overwrite(path, path + "2", memoryview(b"2" * APART))
        real(descriptor, how)

    monkeypatch.setattr(value_files.fcntl, "flock", flock)
    with pytest.raises(FileNotFoundError):
        joined_apart(packed(Block(bytearray(APART)))[0], [(path, APART, b"")])


def test_memory_is_compared_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1" * 5000)
    view = map_file(str(path))
    assert are_same(view, b"1" * 5000, 5000)
    assert not are_same(view, b"1" * 4999 + b"2", 5000)
    assert address_of(view) % 4096 == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        map_pages(-1, 10)


def test_maps_are_kept_and_show_what_is_written_over_them() -> None:
    folder = Path(MEMORY) / f"bough-test-{os.getpid()}-{os.urandom(4).hex()}"
    folder.mkdir(0o700)
    head = packed(Block(bytearray(APART)))[0]
    try:
        first, second = str(folder / "a"), str(folder / "b")
        write_file(first, [b"1" * APART])
        block = joined_apart(head, [(first, APART, b"")])
        assert overwrite(first, second, memoryview(b"2" * APART)) is None  # it is in use
        address = address_of(block.data)
        assert bytes(block.data) == b"1" * APART
        del block
        gc.collect()
        assert overwrite(first, second, memoryview(b"2" * (APART - 1))) is not None
        again = joined_apart(head, [(second, APART - 1, b"")])
        assert address_of(again.data) == address
        assert bytes(again.data) == b"2" * (APART - 1)
        del again
        kept_maps.forget()
        gc.collect()
        with open("/proc/self/maps", encoding="utf-8") as file:
            assert second not in file.read()
    finally:
        kept_maps.forget()
        private.remove_tree(str(folder))


@pytest.mark.parametrize("size", [1, (8 << 20) - 1, 8 << 20, (32 << 20) + 5, (50 << 20) + 3])
def test_much_memory_is_copied_and_compared_in_parts(size: int) -> None:
    source = os.urandom(1 << 20) * (size // (1 << 20) + 1)
    target = bytearray(size)
    copy_into(target, source, size)
    assert target == source[:size]
    assert are_same(target, source, size)
    for at in {0, size // 2, size - 1}:
        target[at] ^= 1
        assert not are_same(target, source, size)
        target[at] ^= 1
