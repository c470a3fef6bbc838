"""What the transfer process fetches from URLs: kept under its digest, whole or not at all."""

from __future__ import annotations

import errno
import os
import queue
import shutil
import threading
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from bough.errors import SiteError
from bough.executor.files.caches.host_cache import HostCache
from bough.executor.files.caches.url_marks import UrlMarks
from bough.executor.files.transfers.transfer_protocol import (
    FetchUrl,
    LookUrl,
    UrlFetched,
    UrlSeen,
    from_transfers_frames,
)
from bough.executor.files.transfers.url_fetching import UrlFetching
from bough.movers import remote_files
from bough.movers.remote_files import RemoteFile
from bough.wire.file_messages import DIGEST
from bough.wire.framing import frame

pytest.importorskip("fsspec")


def digest_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST).digest()


@pytest.fixture
def cache(tmp_path: Path) -> HostCache:
    return HostCache(str(tmp_path / "cache"), 1000)


def left(cache: HostCache) -> list[str]:
    """What lies beside contents and what belongs to the cache itself."""
    known = {"ledger", "lock", "full", "urls", os.path.basename(cache.pins)}
    return [name for name in os.listdir(cache.folder) if name not in known and len(name) != 2 * DIGEST]


def test_a_file_is_kept_under_its_digest_and_known_by_its_mark(tmp_path: Path, cache: HostCache) -> None:
    (tmp_path / "f.txt").write_bytes(b"data")
    url, fetching = f"file://{tmp_path}/f.txt", UrlFetching(cache)
    seen = fetching.seen(LookUrl(1, url))
    assert (seen.number, seen.size, seen.local, seen.error) == (1, 4, True, "")
    came, is_new = fetching.fetched(FetchUrl(2, url))
    assert is_new
    assert (came.number, came.digest, came.size, came.mark) == (2, digest_of(b"data"), 4, seen.mark)
    assert cache.contents() == {came.digest: 4}
    assert UrlMarks(cache).content(seen.mark) == (came.digest, 4)
    assert fetching.fetched(FetchUrl(3, url)) == (type(came)(3, came.digest, 4, came.mark), False)
    (tmp_path / "f.txt").write_bytes(b"changed")
    assert UrlMarks(cache).content(fetching.seen(LookUrl(4, url)).mark) is None
    assert fetching.fetched(FetchUrl(5, url))[0].digest == digest_of(b"changed")
    assert left(cache) == []


@pytest.mark.parametrize("size", [4, 1 << 63, 10**30, -7])
def test_whatever_a_server_says_of_a_file_can_be_told(
    tmp_path: Path, cache: HostCache, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    (tmp_path / "f.txt").write_bytes(b"data")
    url, fetching = f"file://{tmp_path}/f.txt", UrlFetching(cache)
    said = b'"\xe9t\xe9"'.decode("utf-8", "surrogateescape")  # as those who speak http read headers

    class Server(type(remote_files._filesystem(url)[0])):  # type: ignore[misc]
        def info(self, path: str, **more: Any) -> dict[str, Any]:
            return {"name": path, "type": "file", "size": size, "ETag": said}

    monkeypatch.setattr(remote_files, "_filesystem", lambda _: (Server(), f"{tmp_path}/f.txt"))
    told = queue.SimpleQueue[UrlSeen]()
    fetching.look(LookUrl(1, url), told.put)
    seen = told.get(timeout=60)  # else its task would wait for ever
    assert from_transfers_frames().feed(frame(seen)) == [seen]
    assert (seen.size, seen.error) == (size if size == 4 else -1, "")
    assert fetching.fetched(FetchUrl(2, url))[0].mark == seen.mark


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("times", [1, 9])
def test_what_is_removed_while_it_comes_is_fetched_again_a_few_times(
    tmp_path: Path, cache: HostCache, monkeypatch: pytest.MonkeyPatch, when: str, times: int
) -> None:
    (tmp_path / "f.txt").write_bytes(b"data")
    get, gone = remote_files._get, list[str]()

    def get_and_remove(url: str, hidden: str, size: int, most: int) -> None:
        if when == "after":
            get(url, hidden, size, most)
        if len(gone) < times:
            gone.append(hidden)
            shutil.rmtree(cache.folder)
        if when == "before":
            get(url, hidden, size, most)

    monkeypatch.setattr(remote_files, "_get", get_and_remove)
    came, _ = UrlFetching(cache).fetched(FetchUrl(1, f"file://{tmp_path}/f.txt"))
    if times == 1:
        assert (came.error, came.digest) == ("", digest_of(b"data"))
        assert cache.has(came.digest, 4)
    else:
        assert came.of_site  # it is there, and another host may keep it
        assert len(gone) == 4


def test_what_is_bigger_than_the_cache_is_its_readers_alone(tmp_path: Path, cache: HostCache) -> None:
    (tmp_path / "big").write_bytes(bytes(2000))
    came, _ = UrlFetching(cache).fetched(FetchUrl(1, f"file://{tmp_path}/big"))
    assert not cache.has(came.digest)
    assert cache.pin(came.digest, "task", 2000)
    assert left(cache) == []


@pytest.mark.parametrize("came", [b"dat", b"data and more"])
def test_what_comes_short_or_long_is_fetched_again_and_never_kept(
    tmp_path: Path, cache: HostCache, monkeypatch: pytest.MonkeyPatch, came: bytes
) -> None:
    (tmp_path / "f.txt").write_bytes(b"data")
    monkeypatch.setattr(remote_files, "_FIRST_PAUSE", 0.0)
    get = remote_files._get

    def spoil(url: str, hidden: str, size: int, most: int) -> None:
        get(url, hidden, size, most)
        Path(hidden).write_bytes(came)

    monkeypatch.setattr(remote_files, "_get", spoil)
    failed, _ = UrlFetching(cache).fetched(FetchUrl(1, f"file://{tmp_path}/f.txt"))
    assert f"{len(came)} bytes came of 4" in failed.error
    assert failed.of_site
    assert (cache.contents(), left(cache)) == ({}, [])
    monkeypatch.setattr(remote_files, "_get", get)
    assert UrlFetching(cache).fetched(FetchUrl(2, f"file://{tmp_path}/f.txt"))[0].digest == digest_of(b"data")


def test_a_full_disk_takes_what_nobody_needs_and_is_said_if_it_stays_full(
    tmp_path: Path, cache: HostCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").write_bytes(b"old")
    old, _ = UrlFetching(cache).fetched(FetchUrl(1, f"file://{tmp_path}/old"))

    def full(url: str, path: str, most: int) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(remote_files, "fetch", full)
    failed, _ = UrlFetching(cache).fetched(FetchUrl(2, f"file://{tmp_path}/old"))
    assert failed.full
    assert not cache.has(old.digest)
    assert left(cache) == []


@pytest.mark.parametrize(("transient", "of_site"), [(True, True), (False, False)])
def test_what_may_go_well_elsewhere_is_said(
    cache: HostCache, monkeypatch: pytest.MonkeyPatch, transient: bool, of_site: bool
) -> None:
    def fail(url: str) -> RemoteFile:
        raise SiteError(f"{url}: no", transient=transient)

    monkeypatch.setattr(remote_files, "look", fail)
    seen = UrlFetching(cache).seen(LookUrl(1, "http://h/x"))
    assert (seen.error, seen.of_site, seen.unable) == ("http://h/x: no", of_site, False)


def test_a_protocol_that_this_host_does_not_speak_is_for_the_server(cache: HostCache) -> None:
    seen = UrlFetching(cache).seen(LookUrl(1, "nope://h/x"))
    assert seen.unable
    assert "Protocol not known: nope" in seen.error


def test_a_file_of_the_site_is_copied_and_known_by_its_mark(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "cache"), 100_000)
    fetching, file = UrlFetching(cache), tmp_path / "storage.bin"
    file.write_bytes(b"site")
    os.utime(file, (1, 1))
    url = f"alpha:{file}"
    seen = fetching.seen(LookUrl(1, url))
    came, is_new = fetching.fetched(FetchUrl(2, url))
    assert (came.size, came.mark, came.folder, is_new) == (4, seen.mark, False, True)
    assert UrlMarks(cache).content(seen.mark) == (came.digest, 4)
    file.write_bytes(b"changed")
    assert fetching.seen(LookUrl(3, url)).mark != seen.mark
    (tmp_path / "folder").mkdir()
    folder, _ = fetching.fetched(FetchUrl(4, f"alpha:{tmp_path}/folder"))
    assert folder.folder
    assert folder.mark == b""
    for path, why in (("/nowhere", "/nowhere is not there at alpha"), ("/dev/zero", "neither a file nor a folder")):
        assert why in fetching.fetched(FetchUrl(5, f"alpha:{path}"))[0].error


class SlowServer:
    """In the place of what is at URLs: what is called slow stands still until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.begun: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.said: queue.SimpleQueue[int] = queue.SimpleQueue()
        monkeypatch.setattr(remote_files, "look", self._wait)
        monkeypatch.setattr(remote_files, "fetch", self._wait)

    def _wait(self, url: str, path: str = "", most: int = 0) -> RemoteFile:
        self.begun.put(url)
        if "slow" in url:
            self.go.wait(60)
        if path:
            Path(path).write_bytes(url.encode())
        return RemoteFile(len(url), "mark")

    def hear(self, said: UrlSeen | UrlFetched, *, is_new: bool = False) -> None:
        self.said.put(said.number)


def test_servers_that_stand_still_hold_up_nothing_that_a_task_waits_for(
    cache: HostCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fetching = SlowServer(monkeypatch), UrlFetching(cache)
    for number in range(1, 9):
        fetching.look(LookUrl(number, f"http://slow/{number}", early=True), slow.hear)
        fetching.fetch(FetchUrl(number + 10, f"http://slow/{number}", early=True), slow.hear)
    fetching.fetch(FetchUrl(30, "http://h/early", early=True), slow.hear)
    fetching.look(LookUrl(31, "http://h/x"), slow.hear)
    assert slow.said.get(timeout=60) == 31
    fetching.fetch(FetchUrl(32, "http://h/x"), slow.hear)
    assert slow.said.get(timeout=60) == 32
    fetching.fetch(FetchUrl(30, "http://h/early"), slow.hear)  # now a task waits for it
    assert slow.said.get(timeout=60) == 30
    slow.go.set()
    assert sorted(slow.said.get(timeout=60) for _ in range(16)) == [*range(1, 9), *range(11, 19)]


def test_what_is_being_fetched_early_is_not_fetched_twice_when_a_task_waits_for_it(
    cache: HostCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fetching = SlowServer(monkeypatch), UrlFetching(cache)
    fetching.fetch(FetchUrl(1, "http://slow/x", early=True), slow.hear)
    assert slow.begun.get(timeout=60) == "http://slow/x"
    fetching.fetch(FetchUrl(1, "http://slow/x"), slow.hear)
    fetching.look(LookUrl(2, "http://h/y"), slow.hear)
    assert slow.said.get(timeout=60) == 2
    slow.go.set()
    assert slow.said.get(timeout=60) == 1
    assert slow.begun.get(timeout=60) == "http://h/y"
    assert slow.begun.empty()
