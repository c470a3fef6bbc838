"""The cache that the executors of a host share: what it keeps, what it gives up, and what its processes may do."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
from hashlib import blake2b
from pathlib import Path
from typing import NoReturn

import pytest

from bough.errors import SiteError
from bough.executor.files.caches import host_cache
from bough.executor.files.caches.host_cache import (
    ArrivingContent,
    CacheLedger,
    HostCache,
    cache_folder,
    default_place,
    list_contents,
    mark_of,
    part_path,
)
from bough.policies.eviction.eviction_names import load_eviction
from bough.wire.file_messages import DIGEST


def digest_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST).digest()


def begin(cache: HostCache, data: bytes) -> ArrivingContent:
    arriving = cache.receive(digest_of(data), len(data))
    assert arriving is not None
    return arriving


def bring(cache: HostCache, data: bytes) -> bytes:
    arriving = begin(cache, data)
    arriving.add(data)
    assert arriving.finish()
    return digest_of(data)


def contents_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if len(path.name) == 2 * DIGEST)


def test_a_content_has_its_name_once_it_was_compared(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"))
    arriving = begin(cache, b"abcdef")
    arriving.add(b"abc")
    assert not cache.has(digest_of(b"abcdef"))
    arriving.add(b"def")
    assert arriving.finish()
    path = Path(cache.path(digest_of(b"abcdef")))
    assert path.read_bytes() == b"abcdef"
    assert path.stat().st_mode & 0o777 == 0o555
    assert cache.has(digest_of(b"abcdef"), 6)
    assert os.stat(tmp_path / "c").st_mode & 0o777 == 0o700


def test_what_is_not_what_it_was_to_be_is_not_kept_and_can_come_again(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"))
    arriving = begin(cache, b"abc")
    arriving.add(b"xyz")
    assert not arriving.finish()
    assert contents_in(tmp_path / "c") == []
    arriving.add(b"abc")
    assert arriving.finish()
    assert cache.has(digest_of(b"abc"))


def test_the_rest_goes_before_what_is_pinned(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"), 10, load_eviction("lru"))
    a, b = bring(cache, b"aaaa"), bring(cache, b"bbbb")
    pinned = cache.pin(a, "task")
    assert Path(pinned).read_bytes() == b"aaaa"
    assert cache.pin(b, "other")
    cache.unpin("other")
    c = bring(cache, b"cccc")
    assert [cache.has(one) for one in (a, b, c)] == [True, False, True]
    cache.unpin("task")
    assert not os.path.exists(pinned)
    assert cache.pin(c, "task")
    bring(cache, b"dddd")
    assert [cache.has(one) for one in (a, c)] == [False, True]


def test_what_a_task_had_above_the_bound_goes_when_the_task_has_ended(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"), 10, load_eviction("fifo"))
    gone: list[bytes] = []
    cache.on_evicted = gone.append
    inputs = []
    for data in (b"aaaa", b"bbbb", b"cccc", b"dddd"):
        inputs.append(bring(cache, data))
        assert cache.pin(inputs[-1], "task")
    assert sum(cache.contents().values()) == 16
    assert cache.unpin("task") == inputs
    assert sum(cache.contents().values()) == 8
    assert gone == inputs[:2]


def test_the_end_of_a_task_costs_the_same_however_much_another_one_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = HostCache(str(tmp_path / "c"), 20)
    for number in range(30):
        assert cache.pin(bring(cache, b"of the other %d" % number), "other")
    mine = bring(cache, b"mine")
    assert cache.pin(mine, "task")
    looked: list[bytes] = []
    give_up = cache._give_up
    monkeypatch.setattr(cache, "_give_up", lambda digest: looked.append(digest) or give_up(digest))

    class Unwalked(dict[bytes, set[object]]):
        def items(self) -> NoReturn:
            raise AssertionError("all that is pinned is looked through")

        __iter__ = keys = values = items

    monkeypatch.setattr(cache, "_owners", Unwalked(cache._owners))
    assert cache.unpin("task") == [mine]
    assert looked == [mine]
    assert not cache.has(mine)


def test_one_of_several_owners_lets_go_of_one_content(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "cache"))
    first, second = bring(cache, b"first"), bring(cache, b"second")
    for digest in (first, second):
        assert cache.pin(digest, "held")
    assert cache.pin(first, "task")
    cache.release(first, "held")
    cache.release(first, "nobody")
    assert cache.is_pinned(first)
    cache.forget(first)
    assert cache.has(first)
    cache.release(first, "task")
    cache.forget(first)
    assert not cache.has(first)
    assert cache.is_pinned(second)
    cache.close()


def test_what_known_tasks_want_goes_last(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"), 10, load_eviction("needed-last"))
    a, b = bring(cache, b"aaaa"), bring(cache, b"bbbb")
    cache.wanted = {a: 2}
    c = bring(cache, b"cccc")
    assert [cache.has(one) for one in (a, b, c)] == [True, False, True]


def test_what_is_bigger_than_the_cache_is_its_readers_alone(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"), 10)
    small = bring(cache, b"small")
    big = bring(cache, b"b" * 11)
    assert cache.has(small)
    assert not cache.has(big)
    assert Path(cache.pin(big, "task", 11)).read_bytes() == b"b" * 11
    cache.unpin("task")
    assert not cache.pin(big, "task", 11)
    assert list(cache.contents()) == [small]


def test_a_content_that_a_task_has_changed_is_not_used_again(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"))
    gone: list[bytes] = []
    cache.on_evicted = gone.append
    digest = bring(cache, b"right")
    path = Path(cache.path(digest))
    pinned = Path(cache.pin(digest, "task"))
    pinned.chmod(0o755)  # as a task can that has a link to it
    pinned.write_bytes(b"wrong")
    assert not cache.has(digest)
    assert not path.exists()
    assert gone == [digest]
    assert not cache.pin(digest, "another task")
    bring(cache, b"right")
    assert Path(cache.pin(digest, "another task")).read_bytes() == b"right"
    path.unlink()
    assert not cache.has(digest)


def test_it_survives_its_executors_and_counts_what_others_bring(tmp_path: Path) -> None:
    first = HostCache(str(tmp_path / "c"), 10, load_eviction("lfu"))
    a, b = bring(first, b"aaaa"), bring(first, b"bbbb")
    assert first.pin(a, "task")
    first.close()
    second = HostCache(str(tmp_path / "c"), 10, load_eviction("lfu"))
    assert second.contents() == {a: 4, b: 4} == list_contents(str(tmp_path / "c"))
    other = HostCache(str(tmp_path / "c"), 10, load_eviction("lfu"))
    c = bring(other, b"cccc")
    assert [second.has(one) for one in (a, b, c)] == [True, False, True]  # a was used once, by the first
    assert second.contents() == {a: 4, c: 4}


def test_two_processes_do_not_bring_the_same_content(tmp_path: Path) -> None:
    one, other = HostCache(str(tmp_path / "c")), HostCache(str(tmp_path / "c"))
    arriving = begin(one, b"abcdef")
    assert other.receive(digest_of(b"abcdef"), 6) is None
    arriving.add(b"abc")
    arriving.leave()  # its process was killed
    again = begin(other, b"abcdef")
    assert again.written == 3
    again.add(b"def")
    assert again.finish()
    assert one.has(digest_of(b"abcdef"))


def test_pins_of_a_killed_executor_hold_nothing(tmp_path: Path) -> None:
    text = (
        "import sys; from bough.executor.files.caches.host_cache import HostCache; cache = HostCache(sys.argv[1], 10);"
        " print(cache.pin(bytes.fromhex(sys.argv[2]), 'task'), flush=True); sys.stdin.read()"
    )
    cache = HostCache(str(tmp_path / "c"), 10)
    a = bring(cache, b"aaaa")
    words = [sys.executable, "-c", text, str(tmp_path / "c"), a.hex()]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pin = Path(process.stdout.readline().strip())
        assert pin.exists()
        bring(cache, b"b" * 8)
        assert cache.has(a)  # the other executor has a task that needs it
        process.kill()
    again = HostCache(str(tmp_path / "c"), 10)  # makes room, too
    assert not pin.exists()
    assert sum(again.contents().values()) <= 10


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"))
    a = bring(cache, b"aaaa")
    subprocess.run(["rm", "-rf", str(tmp_path / "c")], check=True)
    assert not cache.has(a)
    assert not cache.pin(a, "task")
    bring(cache, b"aaaa")
    assert Path(cache.pin(a, "task")).read_bytes() == b"aaaa"
    assert cache.contents() == {a: 4}


def test_a_folder_that_cannot_be_used_any_more_has_nothing_and_says_why_when_it_is_written_to(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"))
    digest = bring(cache, b"content")
    subprocess.run(["rm", "-rf", cache.folder], check=True)
    (tmp_path / "c").write_text("of somebody else")
    assert not cache.pin(digest, "task")
    with pytest.raises((OSError, SiteError)):
        cache.receive(digest, 7)


def test_a_full_disk_takes_what_nobody_needs_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = HostCache(str(tmp_path / "c"))
    kept, idle = bring(cache, b"kept"), bring(cache, b"idle")
    assert cache.pin(kept, "a task")
    write, tried = os.write, []

    def full(number: int, data: bytes) -> int:
        if len(data) > 50:  # the ledger
            return write(number, data)
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


def test_who_runs_while_space_is_made_can_find_out(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"))
    other = HostCache(str(tmp_path / "c"))
    began = time.time()
    assert not cache.was_full_since(began - 1000)
    idle = bring(cache, b"idle")
    other.make_space(b"")
    assert not cache.has(idle)
    assert cache.was_full_since(began)
    assert not cache.was_full_since(time.time() + 1)


def test_what_goes_while_the_disk_is_full_leaves_a_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = HostCache(str(tmp_path / "c"))
    began = time.time()
    cache.forget(bring(cache, b"one"))
    assert not cache.was_full_since(began)
    monkeypatch.setattr(host_cache, "lacks_space", lambda _: True)
    cache.forget(bring(cache, b"two"))
    assert cache.was_full_since(began)


def test_a_full_disk_takes_what_was_half_brought_and_nobody_brings_any_more(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"))
    given_up, coming = begin(cache, b"aaaa"), begin(cache, b"bbbb")
    for arriving in (given_up, coming):
        arriving.add(b"aa")
    given_up.leave()
    cache.make_space(b"")
    assert not Path(part_path(cache.folder, digest_of(b"aaaa"))).exists()
    assert Path(part_path(cache.folder, digest_of(b"bbbb"))).read_bytes() == b"aa"
    coming.drop()


def test_a_disk_that_stays_full_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = HostCache(str(tmp_path / "c"))

    def full(number: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "full")

    arriving = begin(cache, b"abc")
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="full"):
        arriving.add(b"abc")
    arriving.drop()
    assert not os.path.exists(part_path(cache.folder, digest_of(b"abc")))


def test_outputs_are_kept_under_their_digests(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"), 10)
    (tmp_path / "out").write_bytes(b"made")
    (tmp_path / "big").write_bytes(b"x" * 11)
    (tmp_path / "link").symlink_to(tmp_path / "out")
    assert cache.adopt(str(tmp_path / "out"), digest_of(b"made"), 4)
    assert not cache.adopt(str(tmp_path / "out"), digest_of(b"made"), 4)  # it is there
    assert not cache.adopt(str(tmp_path / "big"), digest_of(b"x" * 11), 11)
    assert not cache.adopt(str(tmp_path / "link"), digest_of(b"other"), 4)
    assert not cache.adopt(str(tmp_path / "gone"), digest_of(b"gone"), 4)
    (tmp_path / "out").unlink()
    assert Path(cache.pin(digest_of(b"made"), "task", 4)).read_bytes() == b"made"
    assert contents_in(tmp_path / "c") == [digest_of(b"made").hex()]


def test_a_big_content_comes_where_the_host_takes_no_more_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    cache, data = HostCache(str(tmp_path / "c")), os.urandom(2 * host_cache._BIG)
    arriving = begin(cache, data)
    arriving.add(data[: host_cache._BIG])
    arriving.leave()
    arriving = begin(cache, data)
    assert arriving.written == host_cache._BIG
    arriving.restart()
    arriving.add(data)
    assert arriving.finish()
    assert cache.has(digest_of(data))


def test_the_ledger_stays_short_while_nothing_has_to_go(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"))
    a, records = bring(cache, b"aaaa"), 3 * 4096
    for task in range(records):
        assert cache.pin(a, task)
        cache.unpin(task)
    assert (tmp_path / "c" / "ledger").stat().st_size < records * CacheLedger._RECORD.size
    assert HostCache(str(tmp_path / "c"))._ledger.entries[a].uses == records


def test_what_is_noted_while_the_ledger_is_shortened_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, other = HostCache(str(tmp_path / "c")), HostCache(str(tmp_path / "c"))
    a = bring(cache, b"aaaa")
    for _ in range(4100):
        cache._ledger.used(a)
    replace, b = os.replace, list[bytes]()

    def bring_and_replace(old: str, new: str) -> None:
        if new.endswith("ledger"):
            b.append(bring(other, b"bbbb"))
        replace(old, new)

    monkeypatch.setattr(os, "replace", bring_and_replace)
    cache._ledger.shorten()
    assert cache.contents() == other.contents() == {a: 4, b[0]: 4}


def test_the_ledger_is_shortened_and_loses_nothing(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"), 100, load_eviction("lfu"))
    a, b = bring(cache, b"a" * 40), bring(cache, b"b" * 40)
    for _ in range(6000):
        cache.used(a)
    ledger = tmp_path / "c" / "ledger"
    assert ledger.stat().st_size > 6000 * 56
    other = HostCache(str(tmp_path / "c"), 100, load_eviction("lfu"))
    c = bring(other, b"c" * 40)
    assert ledger.stat().st_size < 100 * 56
    assert [cache.has(one) for one in (a, b, c)] == [True, False, True]
    assert cache.contents() == {a: 40, c: 40}


def test_a_ledger_that_was_lost_or_damaged_costs_nothing(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"))
    a = bring(cache, b"aaaa")
    (tmp_path / "c" / "ledger").write_bytes(b"\xff" * 77)
    again = HostCache(str(tmp_path / "c"))
    assert again.contents() == {a: 4}
    (tmp_path / "c" / "ledger").unlink()
    assert HostCache(str(tmp_path / "c")).contents() == {a: 4}


def test_what_another_user_owns_is_not_used(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a folder to somebody else needs root")
    (tmp_path / "c").mkdir()
    os.chown(tmp_path / "c", 12345, 12345)
    with pytest.raises(SiteError, match="belongs to uid 12345"):
        HostCache(str(tmp_path / "c"))


def test_marks_are_even_seconds_of_the_past() -> None:
    assert mark_of(b"\0" * 32) == 946_684_800
    assert mark_of(b"\xff" * 32) < 1_600_000_000
    assert mark_of(b"\xff" * 32) % 2 == 0


def test_the_place_is_the_executors_folder_or_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_place(str(tmp_path / "work"), is_pilot=False) == str(tmp_path / "work")
    assert default_place(str(tmp_path / "work"), is_pilot=True) == str(tmp_path / "bough")
    assert default_place("", is_pilot=False) == str(tmp_path / "bough")
    assert os.path.dirname(cache_folder("/dev/shm")) == "/dev/shm"


def test_stale_parts_are_removed_unless_somebody_writes_them(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"))
    left, living = begin(cache, b"left"), begin(cache, b"living")
    left.leave()
    for data in (b"left", b"living"):
        os.utime(part_path(cache.folder, digest_of(data)), (1, 1))
    HostCache(str(tmp_path / "c"))
    assert not os.path.exists(part_path(cache.folder, digest_of(b"left")))
    assert os.path.exists(part_path(cache.folder, digest_of(b"living")))
    living.drop()
    with open(tmp_path / "c" / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody has it


def test_what_is_to_be_sent_again_is_forgotten_unless_somebody_needs_it(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "c"))
    a, b = bring(cache, b"aaaa"), bring(cache, b"bbbb")
    assert cache.pin(b, "task")
    for digest in (a, b, digest_of(b"never")):
        cache.forget(digest)
    assert not cache.has(a)
    assert cache.has(b)
