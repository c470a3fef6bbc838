"""Any tree comes back as it was, and no archive, whatever is in it, writes outside of its folder."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bough.errors import BoughError
from bough.movers.folder_archive import archive_digest, pack, unpack

NAMES = st.binary(min_size=1, max_size=12).filter(lambda name: name not in {b".", b".."} and not set(name) & {0, 47})
LEAVES = st.one_of(
    st.binary(max_size=3000).map(lambda data: ("file", data)),
    st.binary(max_size=30).map(lambda data: ("program", data)),
    st.sampled_from([b"x", b"a/b", b"./a"]).map(lambda target: ("link", target)),
)
TREES = st.recursive(
    LEAVES, lambda inner: st.dictionaries(NAMES, inner, max_size=4).map(lambda d: ("folder", d)), max_leaves=12
)


def make(path: bytes, tree: tuple[str, object]) -> None:
    kind, what = tree
    if kind == "folder":
        os.makedirs(path, exist_ok=True)
        for name, inner in what.items():
            make(path + b"/" + name, inner)
    elif kind == "link":
        os.symlink(what, path)
    else:
        with open(path, "wb") as file:
            file.write(what)
        os.chmod(path, 0o755 if kind == "program" else 0o644)


def look(path: bytes) -> object:
    if os.path.islink(path):
        return "link", os.readlink(path)
    if os.path.isdir(path):
        return "folder", {name: look(path + b"/" + name) for name in os.listdir(path)}
    kind = "program" if os.stat(path).st_mode & 0o100 else "file"
    return kind, Path(os.fsdecode(path)).read_bytes()


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, TREES, max_size=4))
def test_any_tree_comes_back_as_it_was(tree: dict[bytes, tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, there = os.fsencode(folder) + b"/source", os.fsencode(folder) + b"/there"
        make(source, ("folder", tree))
        sink = io.BytesIO()
        packed = pack(os.fsdecode(source), sink)
        assert packed == archive_digest(os.fsdecode(source))
        sink.seek(0)
        unpack(sink, os.fsdecode(there))
        assert look(there) == look(source)


PATHS = st.lists(st.sampled_from(["a", "b", "..", ".", "", "l", "\0", "x" * 300]), min_size=1, max_size=5).map("/".join)
KINDS = st.sampled_from(
    [
        *(tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE),
        *(tarfile.CONTTYPE, tarfile.AREGTYPE),
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(PATHS, KINDS, PATHS), max_size=8), st.booleans())
@example([("a", tarfile.SYMTYPE, "\0/" + "x" * 300)], True)
def test_no_archive_writes_outside_of_its_folder(members: list[tuple[str, bytes, str]], any_links: bool) -> None:
    data = io.BytesIO()
    with tarfile.open(mode="w", fileobj=data, format=tarfile.PAX_FORMAT) as tar:
        for name, kind, leads_to in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, leads_to
            content = b"evil" if kind in {tarfile.REGTYPE, tarfile.AREGTYPE} else b""
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    data.seek(0)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "outer/inner/there")
        target.parent.mkdir(parents=True)
        with contextlib.suppress(BoughError, OSError):
            unpack(data, str(target), any_links=any_links)
        assert os.listdir(folder) == ["outer"]
        assert os.listdir(target.parent) in (["there"], [])
        for path in target.rglob("*"):
            if not any_links:
                assert Path(os.path.realpath(path)).is_relative_to(os.path.realpath(target)), path


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=4000), st.integers(0, 3000))
def test_damaged_archives_are_refused_in_one_line(noise: bytes, at: int) -> None:
    data = io.BytesIO()
    with tarfile.open(mode="w", fileobj=data) as tar:
        info = tarfile.TarInfo("a/b")
        info.size = 100
        tar.addfile(info, io.BytesIO(bytes(100)))
    damaged = data.getvalue()[:at] + noise
    with tempfile.TemporaryDirectory() as folder:
        said = ""
        try:
            unpack(io.BytesIO(damaged), f"{folder}/there")
        except (BoughError, OSError) as error:
            said = str(error)
        assert "\n" not in said
        assert os.listdir(folder) == ["there"]
