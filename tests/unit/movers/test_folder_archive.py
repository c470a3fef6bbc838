from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from bough.movers.folder_archive import (
    BadArchive,
    UnpackableFolder,
    archive_digest,
    pack,
    pack_file,
    replace_folder,
    stays_inside,
    unpack,
    unpack_file,
    unpack_pieces,
)


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    data = io.BytesIO()
    with tarfile.open(mode="w", fileobj=data, format=tarfile.PAX_FORMAT) as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    data.seek(0)
    return data


def member(name: str, kind: bytes = tarfile.REGTYPE, leads_to: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, leads_to
    return info


def test_the_same_files_make_the_same_bytes_whoever_has_them_and_whenever(tmp_path: Path) -> None:
    for name, order in (("one", "abc"), ("two", "cba")):
        (tmp_path / name / "deep/er").mkdir(parents=True)
        for letter in order:
            (tmp_path / name / letter).write_text(letter)
        (tmp_path / name / "deep/run").write_text("#!/bin/sh\n")
        (tmp_path / name / "deep/run").chmod(0o700 if name == "one" else 0o755)
    os.utime(tmp_path / "two/a", (1, 1))
    assert archive_digest(str(tmp_path / "one")) == archive_digest(str(tmp_path / "two"))
    (tmp_path / "two/a").write_text("other")
    assert archive_digest(str(tmp_path / "one")) != archive_digest(str(tmp_path / "two"))


def test_an_unpacked_folder_has_files_programs_links_and_empty_folders(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "sub").mkdir()
    (source / "run").write_text("x")
    (source / "run").chmod(0o755)
    (source / "sub/link").symlink_to("../run")
    (source / "sub/to folder").symlink_to("../empty")
    packed = pack_file(str(source), str(tmp_path / "archive"))
    assert packed.size == (tmp_path / "archive").stat().st_size
    unpack_file(str(tmp_path / "archive"), str(tmp_path / "there"))
    assert archive_digest(str(tmp_path / "there")) == packed
    assert os.access(tmp_path / "there/run", os.X_OK)
    assert (tmp_path / "there/sub/link").readlink() == Path("../run")
    assert (tmp_path / "there/empty").is_dir()


def test_a_link_to_a_file_outside_travels_as_that_file_and_any_other_is_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (tmp_path / "outside.txt").write_text("outside")
    (source / "file").symlink_to("../outside.txt")
    pack_file(str(source), str(tmp_path / "archive"))
    unpack_file(str(tmp_path / "archive"), str(tmp_path / "there"))
    assert not (tmp_path / "there/file").is_symlink()
    assert (tmp_path / "there/file").read_text() == "outside"
    (source / "gone").symlink_to("/nowhere/at/all")
    with pytest.raises(UnpackableFolder, match=r"gone leads out of .*, where nothing is"):
        archive_digest(str(source))
    (source / "gone").unlink()
    (source / "folder").symlink_to(tmp_path)
    with pytest.raises(UnpackableFolder, match=r"folder leads out of .*, which is no file"):
        archive_digest(str(source))
    (source / "folder").unlink()
    os.mkfifo(source / "pipe")
    with pytest.raises(UnpackableFolder, match="pipe is neither a file nor a folder"):
        archive_digest(str(source))


@pytest.mark.parametrize(
    ("name", "target", "inside"),
    [
        ("a", "b", True),
        ("a/b", "../c", True),
        ("a/b", "../../c", False),
        ("a", "/etc/passwd", False),
        ("a", "..", False),
        ("a/b", "..", True),
        ("a", "x/../../y", False),
        ("a", "x/../y", False),  # x may be a link that leads up
        ("a", "", False),
        ("a", "./b//c", True),
        ("a/b/c", "../../d/e", True),
    ],
)
def test_links_that_may_lead_out_are_told_from_those_that_cannot(name: str, target: str, inside: bool) -> None:
    assert stays_inside(name, target) is inside


@pytest.mark.parametrize(
    "hostile",
    [
        [(member("../x"), b"evil")],
        [(member("/x"), b"evil")],
        [(member("a/../../x"), b"evil")],
        [(member("a//x"), b"evil")],
        [(member("a/./x"), b"evil")],
        [(member(".."), b"evil")],
        [(member("../x", tarfile.DIRTYPE), b"")],
        [(member("l", tarfile.SYMTYPE, ".."), b""), (member("l/x"), b"evil")],
        [(member("l", tarfile.SYMTYPE, "d"), b""), (member("l/x"), b"evil")],
        [(member("l", tarfile.SYMTYPE, "d"), b""), (member("l", tarfile.DIRTYPE), b"")],
        [(member("l", tarfile.SYMTYPE, "/etc"), b"")],
        [(member("l", tarfile.LNKTYPE, "../outside"), b"")],
        [(member("null", tarfile.CHRTYPE), b"")],
        [(member("disk", tarfile.BLKTYPE), b"")],
        [(member("pipe", tarfile.FIFOTYPE), b"")],
        [(member("a"), b"1"), (member("a"), b"2")],
        [(member("a"), b"1"), (member("a/b"), b"2")],
        [(member("a/b"), b"1"), (member("a"), b"2")],
    ],
)
def test_a_hostile_archive_leaves_nothing_outside(tmp_path: Path, hostile: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    with pytest.raises(BadArchive):
        unpack(archive(*hostile), str(tmp_path / "there"))
    assert outside.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["outside", "there"]


def test_links_of_an_environment_lead_anywhere_but_nothing_is_written_behind_them(tmp_path: Path) -> None:
    made = archive((member("bin/python", tarfile.SYMTYPE, "/usr/bin/python3"), b""), (member("bin/x"), b"y"))
    unpack(made, str(tmp_path / "there"), any_links=True)
    assert os.readlink(tmp_path / "there/bin/python") == "/usr/bin/python3"
    hostile = archive((member("l", tarfile.SYMTYPE, str(tmp_path)), b""), (member("l/x"), b"evil"))
    with pytest.raises(BadArchive, match="which is no folder"):
        unpack(hostile, str(tmp_path / "other"), any_links=True)
    hostile = archive((member("l", tarfile.LNKTYPE, "../../etc/passwd"), b""))
    with pytest.raises(BadArchive, match="would leave the folder"):
        unpack(hostile, str(tmp_path / "third"), any_links=True)
    assert sorted(os.listdir(tmp_path)) == ["other", "there", "third"]


def test_names_of_ten_thousand_characters_are_an_error_of_the_file_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        unpack(archive((member("x" * 10_000), b"evil")), str(tmp_path / "there"))
    assert os.listdir(tmp_path / "there") == []


def test_what_is_no_archive_or_ends_early_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match="cannot be read"):
        unpack(io.BytesIO(b"no archive" * 100), str(tmp_path / "a"))
    whole = archive((member("a"), os.urandom(100_000))).getvalue()
    with pytest.raises(BadArchive):
        unpack(io.BytesIO(whole[:50_000]), str(tmp_path / "b"))


def test_pieces_that_are_not_what_was_announced_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_bytes(os.urandom(3_000_000))
    sink = io.BytesIO()
    packed = pack(str(source), sink)
    whole = sink.getvalue()
    unpack_pieces(lambda at: whole[at : at + (1 << 20)], packed.digest, str(tmp_path / "right"))
    assert archive_digest(str(tmp_path / "right")) == packed
    damaged = whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:]
    with pytest.raises(OSError, match="not what was announced"):
        unpack_pieces(lambda at: damaged[at : at + (1 << 20)], packed.digest, str(tmp_path / "wrong"))


def test_a_folder_takes_the_place_of_another_or_of_a_file(tmp_path: Path) -> None:
    for before in ("folder", "file", "nothing"):
        place, new = tmp_path / before, tmp_path / f"new-{before}"
        new.mkdir()
        (new / "x").write_text("new")
        if before == "folder":
            place.mkdir()
            (place / "old").write_text("old")
        elif before == "file":
            place.write_text("old")
        replace_folder(str(new), str(place))
        assert os.listdir(place) == ["x"]
