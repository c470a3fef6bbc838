"""Files that are written to their places in one go: all of them, or none."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

import pytest

from bough.movers.local import ContentCopy, write_together
from bough.wire.file_messages import DIGEST
from tests.second_user import umask

TIME = 1_600_000_000_123_456_789


def file(path: Path, data: bytes, *, mode: int = 0o644, time: int = 0) -> tuple[bytes, ContentCopy]:
    digest = blake2b(data, digest_size=DIGEST).digest()
    return data, ContentCopy(digest, str(path), f"{path}.hidden", mode, time=time)


def test_they_are_in_their_places_with_their_modes_and_times(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"before")
    files = [
        file(tmp_path / "deep/er/a", b"a", mode=0o755, time=TIME),
        file(tmp_path / "deep/b", b""),
        file(tmp_path / "old", b"after", mode=0o400),
    ]
    with umask(0o027):
        write_together(files)
    assert (tmp_path / "deep/er/a").read_bytes() == b"a"
    state = os.stat(tmp_path / "deep/er/a")
    assert (state.st_mode & 0o777, state.st_mtime_ns) == (0o750, TIME)
    assert (tmp_path / "deep/b").read_bytes() == b""
    assert (tmp_path / "old").read_bytes() == b"after"
    assert os.stat(tmp_path / "old").st_mode & 0o777 == 0o400
    assert not list(tmp_path.rglob("*.hidden"))


def test_one_that_cannot_be_written_or_is_wrong_leaves_none(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_bytes(b"a file")
    with pytest.raises(OSError, match="blocked"):
        write_together([file(tmp_path / "good", b"good"), file(tmp_path / "blocked/x", b"x")])
    right = file(tmp_path / "good", b"good")
    with pytest.raises(OSError, match="damaged on its way"):
        write_together([right, (b"other", right[1]._replace(path=str(tmp_path / "wrong")))])
    assert [path.name for path in tmp_path.iterdir()] == ["blocked"]
