"""Files that are written to their places in one go: all of them, or none."""

from __future__ import annotations

import os
import shutil
from hashlib import blake2b
from io import BytesIO
from pathlib import Path

import pytest

from bough.folder_state import folder_state
from bough.movers.folder_archive import BadArchive, pack
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


# --- folders -------------------------------------------------------------------------------------------


def folder(path: Path, *, time: int = TIME, **files: bytes) -> tuple[bytes, ContentCopy]:
    """A folder with some files, as its archive."""
    made = path.parent / f"made-{path.name}"
    (made / "deep").mkdir(parents=True)
    for name, data in files.items():
        (made / "deep" / name).write_bytes(data)
    (made / "link").symlink_to("deep")
    archive = BytesIO()
    packed = pack(str(made), archive)
    shutil.rmtree(made)
    return archive.getvalue(), ContentCopy(packed.digest, str(path), f"{path}.hidden", folder=True, time=time)


def test_folders_are_in_their_places_with_one_time_and_files_in_them_come_after(tmp_path: Path) -> None:
    into = file(tmp_path / "out/deep/b", b"b", time=TIME + 1)
    write_together([into, folder(tmp_path / "out", a=b"a")])
    assert (tmp_path / "out/link/a").read_bytes() == b"a"
    assert (tmp_path / "out/deep/b").read_bytes() == b"b"
    write_together([folder(tmp_path / "other", a=b"a")])
    assert folder_state(str(tmp_path / "other")).mtime_ns == TIME
    assert not list(tmp_path.rglob("*.hidden"))


def test_a_folder_that_is_there_and_the_same_stays_and_another_one_goes(tmp_path: Path) -> None:
    write_together([folder(tmp_path / "out", time=TIME - 5, a=b"a")])
    before = os.stat(tmp_path / "out/deep/a").st_ino
    write_together([folder(tmp_path / "out", a=b"a")])
    assert os.stat(tmp_path / "out/deep/a").st_ino == before  # somebody may be reading it
    assert folder_state(str(tmp_path / "out")).mtime_ns == TIME
    write_together([folder(tmp_path / "out", a=b"b")])
    assert (tmp_path / "out/deep/a").read_bytes() == b"b"
    assert not list(tmp_path.rglob("*.hidden"))


def test_what_is_no_archive_of_a_folder_leaves_nothing(tmp_path: Path) -> None:
    data, copy = file(tmp_path / "out", b"no archive at all" * 100)
    with pytest.raises(BadArchive):
        write_together([file(tmp_path / "good", b"good"), (data, copy._replace(folder=True))])
    assert list(tmp_path.iterdir()) == []
