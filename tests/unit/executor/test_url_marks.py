"""Which contents of a host's cache were found at URLs."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

import pytest

from bough.executor.files.caches import url_marks
from bough.executor.files.caches.host_cache import HostCache
from bough.executor.files.caches.url_marks import UrlMarks
from bough.wire.file_messages import DIGEST


def keep(cache: HostCache, data: bytes) -> tuple[bytes, int]:
    path = cache.new_file()
    Path(path).write_bytes(data)
    digest = blake2b(data, digest_size=DIGEST).digest()
    cache.take_in(path, digest, len(data))
    return digest, len(data)


def test_a_mark_counts_while_its_content_is_here_and_outlives_its_executor(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "cache"))
    content = keep(cache, b"data")
    UrlMarks(cache).note(b"m" * 16, *content)
    assert UrlMarks(cache).content(b"m" * 16) == content
    assert UrlMarks(cache).content(b"n" * 16) is None
    cache.close()
    again = HostCache(str(tmp_path / "cache"))
    assert UrlMarks(again).content(b"m" * 16) == content
    again.forget(content[0])
    assert UrlMarks(again).content(b"m" * 16) is None


def test_what_has_no_mark_is_never_known(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "cache"))
    marks = UrlMarks(cache)
    marks.note(b"", *keep(cache, b"data"))
    assert marks.content(b"") is None
    assert not os.path.exists(tmp_path / "cache/urls")


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 100])
def test_a_damaged_mark_counts_as_none(tmp_path: Path, damage: bytes) -> None:
    cache = HostCache(str(tmp_path / "cache"))
    marks = UrlMarks(cache)
    marks.note(b"m" * 16, *keep(cache, b"data"))
    (tmp_path / "cache/urls" / (b"m" * 16).hex()).write_bytes(damage)
    assert marks.content(b"m" * 16) is None


def test_their_number_is_bounded_and_those_of_contents_that_are_gone_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(url_marks, "_MOST", 4)
    cache = HostCache(str(tmp_path / "cache"))
    marks = UrlMarks(cache)
    gone, kept = keep(cache, b"gone"), keep(cache, b"kept")
    cache.forget(gone[0])
    names = [bytes([number]) * 16 for number in range(5)]
    for number, mark in enumerate(names):
        marks.note(mark, *(kept if number in {0, 4} else gone))
    assert [mark for mark in names if marks.content(mark)] == [names[0], names[4]]
    assert len(os.listdir(tmp_path / "cache/urls")) == 2


def test_a_folder_that_was_removed_costs_a_fetch_and_no_more(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "cache"))
    os.rmdir(cache.pins)
    for path in (tmp_path / "cache").iterdir():
        path.unlink()
    os.rmdir(tmp_path / "cache")
    marks = UrlMarks(cache)
    assert marks.content(b"m" * 16) is None
    content = keep(cache, b"data")
    marks.note(b"m" * 16, *content)
    assert marks.content(b"m" * 16) == content
