"""Movers copy into and out of anything that keeps contents: here a dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import pytest

from bough.movers.content_store import ContentStore, IncomingContent
from bough.movers.local import ContentCopy, bring_in, digest_of, give_out
from bough.wire.file_messages import DIGEST, PIECE


class Incoming:
    def __init__(self, kept: dict[bytes, bytes]) -> None:
        self._kept = kept
        self._data = b""
        self.dropped = False

    @property
    def size(self) -> int:
        return len(self._data)

    def write(self, data: bytes, /) -> None:
        self._data += data

    def finish(self, elsewhere: str = "", /) -> bytes:
        digest = blake2b(self._data, digest_size=DIGEST).digest()
        self._kept[digest] = self._data
        return digest

    def drop(self) -> None:
        self.dropped = True


class Memory:
    """A content store without a disk."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}

    def has(self, digest: bytes, /) -> bool:
        return digest in self.kept

    def size(self, digest: bytes, /) -> int:
        return len(self.kept[digest]) if digest in self.kept else -1

    def read(self, digest: bytes, offset: int, length: int, /) -> bytes:
        return self.kept[digest][offset : offset + length]

    def put_many(self, contents: Sequence[tuple[bytes, bytes]], /) -> None:
        self.kept.update(contents)

    def receive(self, digest: bytes = b"", /) -> IncomingContent:
        return Incoming(self.kept)


def test_a_file_goes_in_and_comes_out_as_it_was(tmp_path: Path) -> None:
    store: ContentStore = Memory()
    data = bytes(range(256)) * (PIECE // 256) + b"more than a piece"
    (tmp_path / "a").write_bytes(data)

    digest, size = bring_in(store, str(tmp_path / "a"))

    assert (digest, size) == (digest_of(str(tmp_path / "a")), len(data))
    assert store.size(digest) == size
    give_out(store, [ContentCopy(digest, str(tmp_path / "deep/b"), str(tmp_path / "deep/.b"))])
    assert (tmp_path / "deep/b").read_bytes() == data
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["b"]


def test_a_hidden_name_that_was_left_by_a_kill_is_no_obstacle(tmp_path: Path) -> None:
    store = Memory()
    digest = store.receive().finish()
    (tmp_path / ".b").write_bytes(b"half of it")

    give_out(store, [ContentCopy(digest, str(tmp_path / "b"), str(tmp_path / ".b"), 0o600)])

    assert (tmp_path / "b").read_bytes() == b""
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600


def test_what_is_damaged_leaves_nothing(tmp_path: Path) -> None:
    store = Memory()
    digest = store.receive().finish()
    store.kept[digest] = b"other"

    with pytest.raises(OSError, match="damaged in the store"):
        give_out(store, [ContentCopy(digest, str(tmp_path / "b"), str(tmp_path / ".b"))])

    assert list(tmp_path.iterdir()) == []
