"""What an executor keeps of what was brought to it, and the room it has for that."""

from __future__ import annotations

import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

import pytest

from bough.executor.filecache import FileCache
from bough.executor.room import Room
from bough.wire.filemessages import DIGEST


def digest_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST).digest()


def bring(cache: FileCache, data: bytes) -> bytes:
    arriving = cache.receive(digest_of(data), len(data))
    arriving.add(0, data)
    arriving.finish()
    return digest_of(data)


def test_pieces_may_come_in_any_order(tmp_path: Path) -> None:
    cache = FileCache(str(tmp_path))
    arriving = cache.receive(digest_of(b"abcdef"), 6)
    arriving.add(4, b"ef")
    arriving.add(2, b"cd")
    assert arriving.written == 0
    arriving.add(0, b"ab")
    arriving.add(0, b"ab")  # said again after a lost connection
    assert arriving.written == 6
    arriving.finish()
    path = Path(cache.path(digest_of(b"abcdef")))
    assert path.read_bytes() == b"abcdef"
    assert path.stat().st_mode & 0o777 == 0o555


def test_what_is_not_what_it_was_to_be_is_not_kept(tmp_path: Path) -> None:
    cache = FileCache(str(tmp_path))
    arriving = cache.receive(digest_of(b"abc"), 3)
    arriving.add(0, b"xyz")
    with pytest.raises(OSError, match="not what was announced"):
        arriving.finish()
    arriving.drop()
    assert list(tmp_path.iterdir()) == []
    assert not cache.has(digest_of(b"abc"))


def test_the_least_recently_used_goes_first_and_what_is_pinned_stays(tmp_path: Path) -> None:
    cache = FileCache(str(tmp_path), limit=10)
    a, b = bring(cache, b"aaaa"), bring(cache, b"bbbb")
    cache.pin(a, "task")
    assert cache.has(b)
    c = bring(cache, b"cccc")
    assert [cache.has(one) for one in (a, b, c)] == [True, False, True]
    cache.unpin("task")
    assert cache.has(c)
    bring(cache, b"dddd")
    assert [cache.has(one) for one in (a, c)] == [False, True]


def test_rooms_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    text = (
        "import sys; from bough.executor.room import Room; room = Room(sys.argv[1]); room.open();"
        " print(room.folder, flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", text, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        other = Path(process.stdout.readline().strip())
        mine = Room(str(tmp_path))
        mine.open()
        assert other.is_dir()
        process.kill()
    mine.close()
    assert list(tmp_path.iterdir()) == [other]
    again = Room(str(tmp_path))
    again.open()
    assert list(tmp_path.iterdir()) == [Path(again.folder)]
    again.close()
