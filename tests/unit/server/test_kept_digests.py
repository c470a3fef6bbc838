"""Which content a file had is known to the next server of a store; what may have changed is read again."""

from __future__ import annotations

import asyncio
import os
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bough.model.files import is_settled
from bough.server.files import stored_files
from bough.server.files.stored_files import StoredFiles
from bough.stores.folder.kept_digests import KeptDigests

STAMP = (5, 1_700_000_000_123_456_789, 7)
DIGEST = b"d" * 32


def digest_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=32).digest()


def test_what_is_noted_is_known_to_the_next_one_and_the_latest_counts(tmp_path: Path) -> None:
    path = str(tmp_path / "files" / "seen")
    first = KeptDigests(path)
    assert first.get("/a") is None
    first.note("/a", STAMP, b"old" * 8)
    first.note("/a", STAMP, DIGEST)
    first.note("/odd \udcff\n name", STAMP, DIGEST)
    first.note("https://host/x", (-1, "etag"), DIGEST)
    again = KeptDigests(path)
    assert again.get("/a") == (STAMP, DIGEST)
    assert again.get("/odd \udcff\n name") == (STAMP, DIGEST)
    assert again.get("https://host/x") == ((-1, "etag"), DIGEST)
    assert again.get("/b") is None


def test_the_oldest_are_forgotten_and_the_file_stays_small(tmp_path: Path) -> None:
    kept = KeptDigests(str(tmp_path / "seen"), most=4)
    for number in range(40):
        kept.note(f"/{number}", STAMP, DIGEST)
    assert len((tmp_path / "seen").read_bytes().splitlines()) <= 9
    for one in (kept, KeptDigests(str(tmp_path / "seen"), most=4)):
        assert [number for number in range(40) if one.get(f"/{number}")] == [36, 37, 38, 39]


def test_a_line_that_was_cut_off_costs_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "seen"
    kept = KeptDigests(str(path))
    kept.note("/a", STAMP, DIGEST)
    kept.note("/b", STAMP, DIGEST)
    path.write_bytes(path.read_bytes()[:-9])
    after = KeptDigests(str(path))
    after.note("/c", STAMP, DIGEST)
    again = KeptDigests(str(path))
    assert [again.get(name) is not None for name in ("/a", "/b", "/c")] == [True, False, True]


def test_a_file_that_cannot_be_written_costs_nothing_but_the_memory(tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    kept = KeptDigests(str(tmp_path / "seen"))
    kept.note("/a", STAMP, DIGEST)
    assert kept.get("/a") == (STAMP, DIGEST)


def test_a_file_is_settled_when_another_change_would_give_it_another_time() -> None:
    second = 1_000_000_000
    odd = 1_700_000_000 * second + 123
    assert is_settled(odd, odd + second // 10)
    assert not is_settled(odd, odd + second // 100)
    assert not is_settled(odd - 123, odd + second)  # whole seconds may be all that is told
    assert is_settled(odd - 123, odd + 3 * second)
    assert is_settled(odd + 3600 * second, odd)  # a time in the future was set by somebody


def opened(folder: Path, loop: asyncio.AbstractEventLoop) -> StoredFiles:
    shell: Any = SimpleNamespace(
        info=SimpleNamespace(folder=lambda name: str(folder / name)),
        loop=loop,
        on_facts=[],
        background=SimpleNamespace(when_folded=lambda _: None),
        store=SimpleNamespace(keep_contents=lambda _: None),
    )
    return StoredFiles(shell)


def write(path: Path, data: bytes, age: float = 60.0) -> str:
    path.write_bytes(data)
    changed = stored_files.time.time_ns() - int(age * 1e9)
    os.utime(path, ns=(changed, changed // 1000 * 1000 + 1))
    return str(path)


def test_a_server_that_begins_again_identifies_files_and_reads_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        loop = asyncio.get_running_loop()
        path = write(tmp_path / "a", b"hello")
        (tmp_path / "folder").mkdir()
        write(tmp_path / "folder" / "b", b"inside")
        os.utime(tmp_path / "folder", (1_700_000_000, 1_700_000_000))
        first = opened(tmp_path / "store", loop)
        assert first.content_seen(path) is None
        assert await first.bring_in(path) == (digest_of(b"hello"), 5)
        packed = await first.bring_in(str(tmp_path / "folder"))
        with monkeypatch.context() as blocked:
            blocked.setattr(stored_files, "bring_in", None)  # whoever reads a file fails
            blocked.setattr(stored_files, "bring_in_folder", None)
            again = opened(tmp_path / "store", loop)
            assert again.content_seen(path) == (digest_of(b"hello"), 5)
            assert await again.bring_in(path) == (digest_of(b"hello"), 5)
            assert again.content_seen(str(tmp_path / "folder")) == packed
            assert await again.bring_in(str(tmp_path / "folder")) == packed
        write(tmp_path / "a", b"other")
        assert again.content_seen(path) is None
        assert await again.bring_in(path) == (digest_of(b"other"), 5)

    asyncio.run(go())


def test_a_file_that_may_have_been_written_as_it_was_looked_at_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        loop = asyncio.get_running_loop()
        path = write(tmp_path / "a", b"first")
        state = os.stat(path)
        monkeypatch.setattr(stored_files.time, "time_ns", lambda: state.st_mtime_ns + 1_000_000)  # a millisecond later
        files = opened(tmp_path / "store", loop)
        assert await files.bring_in(path) == (digest_of(b"first"), 5)
        assert files.content_seen(path) == (digest_of(b"first"), 5)  # good enough to place a task by
        with open(path, "r+b") as file:  # the same inode and size, within the tick of the clock
            file.write(b"after")
        os.utime(path, ns=(state.st_mtime_ns, state.st_mtime_ns))
        for again in (files, opened(tmp_path / "store", loop)):
            assert await again.bring_in(path) == (digest_of(b"after"), 5)

    asyncio.run(go())


def test_a_big_file_that_is_new_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    bring_in = stored_files.bring_in
    monkeypatch.setattr(stored_files, "_BIG", 4)
    monkeypatch.setattr(stored_files, "bring_in", lambda store, path: read.append(path) or bring_in(store, path))

    async def go() -> None:
        path = write(tmp_path / "a", b"hello", age=0.0)
        for files in [opened(tmp_path / "store", asyncio.get_running_loop()) for _ in range(2)]:
            assert await files.bring_in(path) == (digest_of(b"hello"), 5)

    asyncio.run(go())
    assert len(read) == 1
