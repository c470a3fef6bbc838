"""What an executor keeps of what was brought to it, and the room it has for that."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

import pytest

from bough import private
from bough.executor.files.sandbox import ExecutorFolder
from bough.executor.files.staging import FileCache
from bough.wire.file_messages import DIGEST


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


def test_what_is_to_be_sent_again_is_forgotten_unless_somebody_needs_it(tmp_path: Path) -> None:
    cache = FileCache(str(tmp_path))
    a, b = bring(cache, b"aaaa"), bring(cache, b"bbbb")
    cache.pin(b, "task")
    for digest in (a, b, digest_of(b"never")):
        cache.forget(digest)
    assert not cache.has(a)
    assert cache.has(b)


def test_rooms_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    text = (
        "import sys; from bough.executor.files.sandbox import ExecutorFolder; mine = ExecutorFolder(sys.argv[1]);"
        " mine.open(); print(mine.folder, flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", text, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        other = Path(process.stdout.readline().strip())
        mine = ExecutorFolder(str(tmp_path))
        mine.open()
        assert other.is_dir()
        process.kill()
    mine.close()
    assert list(tmp_path.iterdir()) == [other]
    again = ExecutorFolder(str(tmp_path))
    again.open()
    assert list(tmp_path.iterdir()) == [Path(again.folder)]
    again.close()


def test_a_content_that_a_task_has_changed_is_not_used_again(tmp_path: Path) -> None:
    cache = FileCache(str(tmp_path))
    digest = bring(cache, b"right")
    path = Path(cache.path(digest))
    assert cache.has(digest)
    path.chmod(0o755)  # as a task can that has a link to it
    path.write_bytes(b"wrong")
    os.utime(path, ns=(1, 1))
    assert not cache.has(digest)
    assert not path.exists()
    bring(cache, b"right")
    assert cache.has(digest)
    assert path.read_bytes() == b"right"
    path.unlink()
    assert not cache.has(digest)


def test_outputs_that_the_server_cannot_see_lie_where_nobody_can_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(private, "temporary_place", lambda: str(tmp_path))
    (tmp_path / f"bough-{os.getuid()}").mkdir()  # what was used before, made by whoever was first
    room = ExecutorFolder()
    out, results = room.folders()
    assert (os.path.dirname(out), os.path.dirname(results)) == (room.folder, room.folder)
    assert os.stat(room.folder).st_mode & 0o777 == 0o700
    assert os.listdir(tmp_path / f"bough-{os.getuid()}") == []
    again = ExecutorFolder()
    assert again.folder != room.folder
    room.close()
    assert [path.name for path in tmp_path.iterdir()] == [f"bough-{os.getuid()}"]


def test_the_users_cache_and_a_folder_that_was_named_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    room = ExecutorFolder()
    room.open()
    assert os.path.dirname(room.folder) == str(tmp_path / "cache" / "bough")
    assert os.stat(tmp_path / "cache" / "bough").st_mode & 0o777 == 0o700
    room.close()
    named = ExecutorFolder(str(tmp_path / "named"))
    assert named.folders() == (str(tmp_path / "named/out"), str(tmp_path / "named/results"))
    named.open()
    assert os.path.dirname(named.folder) == str(tmp_path / "named")
    named.close()


def test_a_full_disk_takes_what_nobody_needs_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FileCache(str(tmp_path))
    kept, idle = bring(cache, b"kept"), bring(cache, b"idle")
    cache.pin(kept, "a task")
    write, tried = os.write, []

    def full(number: int, data: bytes) -> int:
        tried.append(len(data))
        if os.path.exists(cache.path(idle)):
            if len(tried) == 1:
                return write(number, data[:2])
            raise OSError(errno.ENOSPC, "full")
        return write(number, data)

    monkeypatch.setattr(os, "write", full)
    fresh = bring(cache, b"fresh")
    assert (cache.has(kept), cache.has(idle), cache.has(fresh)) == (True, False, True)
    assert Path(cache.path(fresh)).read_bytes() == b"fresh"
    assert tried == [5, 3, 3]


def test_a_disk_that_stays_full_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FileCache(str(tmp_path))

    def full(number: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", full)
    arriving = cache.receive(digest_of(b"abc"), 3)
    with pytest.raises(OSError, match="full"):
        arriving.add(0, b"abc")
    arriving.drop()
    assert list(tmp_path.iterdir()) == []
