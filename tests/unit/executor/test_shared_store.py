"""The shared store of a site: what is kept, what is given up, and how hosts wait for each other."""

from __future__ import annotations

import os
import threading
from hashlib import blake2b
from pathlib import Path

import pytest

from bough.executor.files.caches.shared_store import LEAST, SharedStore

SIZE = LEAST


def content(number: int) -> tuple[bytes, bytes]:
    data = bytes([number]) * SIZE
    return data, blake2b(data, digest_size=32).digest()


def put(store: SharedStore, folder: Path, number: int) -> tuple[bytes, list[bytes] | None]:
    data, digest = content(number)
    source = folder / f"source-{number}"
    source.write_bytes(data)
    return digest, store.publish(str(source), digest, SIZE)


def test_what_one_host_has_put_there_another_reads(tmp_path: Path) -> None:
    one, other = SharedStore(str(tmp_path / "s")), SharedStore(str(tmp_path / "s"))
    digest, gone = put(one, tmp_path, 1)
    assert gone == []
    number = other.open(digest, SIZE)
    assert os.pread(number, SIZE, 0) == content(1)[0]
    os.close(number)
    assert other.contents() == {digest: SIZE}
    assert os.stat(tmp_path / "s").st_mode & 0o777 == 0o700


def test_a_file_that_is_something_else_gets_no_name(tmp_path: Path) -> None:
    store = SharedStore(str(tmp_path / "s"))
    source = tmp_path / "wrong"
    source.write_bytes(b"x" * SIZE)
    assert store.publish(str(source), content(1)[1], SIZE) is None
    assert os.listdir(tmp_path / "s") == []


def test_one_that_became_shorter_is_dropped(tmp_path: Path) -> None:
    store = SharedStore(str(tmp_path / "s"))
    digest, _ = put(store, tmp_path, 1)
    os.truncate(store.path(digest), 5)
    assert store.open(digest, SIZE) == -1
    assert not store.has(digest)


def test_what_was_not_used_for_the_longest_time_makes_room_also_for_what_others_add(tmp_path: Path) -> None:
    stores = [SharedStore(str(tmp_path / "s"), limit=4 * SIZE) for _ in range(2)]
    digests = [put(stores[number % 2], tmp_path, number)[0] for number in range(4)]
    for age, digest in enumerate(digests):
        os.utime(stores[0].path(digest), (1000 + age, 1000 + age))
    os.close(stores[1].open(digests[0], SIZE))  # it was used just now
    stores[0]._scanned = -99.0  # long ago
    _, gone = put(stores[0], tmp_path, 9)
    assert gone is not None
    assert digests[1] in gone
    assert digests[0] not in gone
    assert sum(stores[1].contents().values()) <= 4 * SIZE


@pytest.mark.parametrize("size", [LEAST - 1, 3 * SIZE])
def test_the_smallest_and_what_is_bigger_than_all_are_not_kept(tmp_path: Path, size: int) -> None:
    assert not SharedStore(str(tmp_path), limit=2 * SIZE).keeps(size)


def test_one_host_fetches_and_the_others_wait_for_it(tmp_path: Path) -> None:
    one, other = SharedStore(str(tmp_path / "s")), SharedStore(str(tmp_path / "s"))
    digest = content(1)[1]
    claim = one.claim(digest)
    assert claim is not None
    assert other.claim(digest) is None
    waited = threading.Thread(target=other.wait, args=(digest,))
    waited.start()
    waited.join(0.3)
    assert waited.is_alive()
    put(one, tmp_path, 1)
    claim.release()
    waited.join(60)
    assert not waited.is_alive()
    assert other.has(digest)


def test_the_claim_of_a_host_that_died_is_void_after_a_while(tmp_path: Path) -> None:
    one, other = SharedStore(str(tmp_path / "s")), SharedStore(str(tmp_path / "s"), void=0.2)
    digest = content(1)[1]
    assert one.claim(digest) is not None
    other.wait(digest)
    assert other.claim(digest) is not None


def test_a_folder_that_cannot_be_written_keeps_nobody_waiting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    store = SharedStore(str(tmp_path / "file" / "s"))
    claim = store.claim(content(1)[1])
    assert claim is not None
    claim.release()
    assert put(store, tmp_path, 1)[1] is None
    assert store.contents() == {}
