from __future__ import annotations

import pytest

from bough.errors import BadValue
from bough.model.commands.playpens import RemotePlace, read_remote
from bough.model.files import (
    Manifest,
    absolute,
    check_url,
    is_pattern,
    is_url,
    matches,
    pack_manifest,
    site_file,
    unpack_manifest,
)


@pytest.mark.parametrize(
    ("path", "pattern", "found"),
    [
        ("/d/a.txt", "/d/*.txt", True),
        ("/d/.a.txt", "/d/*.txt", False),
        ("/d/.a.txt", "/d/.*.txt", True),
        ("/d/e/a.txt", "/d/*.txt", False),
        ("/d/e/a.txt", "/d/**/*.txt", True),
        ("/d/a.txt", "/d/**/*.txt", True),
        ("/d/.e/a.txt", "/d/**/*.txt", False),
        ("/d/e/f", "/d/**", True),
        ("/d", "/d/**", False),
        ("/d/a1", "/d/a?", True),
        ("/d/a/", "/d/a?", False),
        ("/d/a1*", "/d/[a-c][!2]*", True),
        ("/d/a2*", "/d/[a-c][!2]*", False),
        ("/d/a\n", "/d/a*", True),
        ("/d/a.txt\n", "/d/*.txt", False),
        ("/d/+.(x", "/d/+.(*", True),
        ("/d/x", "/d/[z-a]*", False),
        ("/etc/passwd", "/d/*", False),
        ("/d/../etc", "/d/*/etc", False),
    ],
)
def test_a_path_matches_as_a_shell_would_say(path: str, pattern: str, found: bool) -> None:
    assert matches(path, pattern) is found


def test_urls_files_of_sites_patterns_and_paths_are_told_apart() -> None:
    for url in ("s3://bucket/key", "http://h/x?y=*", "webdav+ssl://h/x", "alpha:/data/x", "a-1.b:/x"):
        assert is_url(url)
        assert not is_pattern(url)
        assert absolute(url, "/here") == url
    for path in ("a/b", "/a:/b", "./a:/b", "a b:/c", ":/x", "x/y:/z", "s3:bucket"):
        assert not is_url(path)
    assert absolute("./a:/b", "/here") == "/here/a:/b"
    assert site_file("alpha:/data/../x") == ("alpha", "/x")
    assert site_file("s3://bucket/x") == site_file("/x") == ("", "")
    assert is_pattern("a*")
    assert not is_pattern("run[3].txt")


def test_a_url_with_a_secret_is_refused_without_showing_it() -> None:
    assert check_url("sftp://me@host/x") == "sftp://me@host/x"
    for url in (
        "ftp://me:hunter2@host/x",
        "ftp://me:@host/x",
        "https://h/x?X-Amz-Signature=hunter2",
        "https://h/x?a=b&sig=hunter2",
    ):
        with pytest.raises(BadValue) as caught:
            check_url(url)
        assert "hunter2" not in str(caught.value)
    for url in ("s3://b/\0", "s3://b/\n", f"s3://b/{'x' * 10_000}", "zip://a::file:///etc/passwd"):
        with pytest.raises(BadValue):
            check_url(url)


def test_a_remote_name_stays_in_its_folder() -> None:
    assert read_remote("a//b/./c") == RemotePlace(False, "a/b/c")
    assert read_remote("$STORAGE/a") == read_remote("${STORAGE}/a") == read_remote("a", stored=True)
    assert read_remote("$PLAYPEN/a", stored=True) == RemotePlace(False, "a")
    for name in ("", ".", "..", "a/../b", "/a", "$STORAGE//..", "a\0", "x" * 256, "a/" * 3000):
        with pytest.raises(BadValue):
            read_remote(name)


def test_a_manifest_of_an_earlier_version_is_read() -> None:
    import zlib

    import msgspec

    old = zlib.compress(msgspec.msgpack.encode([{"/a": b"x"}, ["/b"]]), 1)
    assert unpack_manifest(old) == Manifest({"/a": b"x"}, {"/b"})
    made = unpack_manifest(pack_manifest({"/a": b""}, ["/b"], ["/a"], ["/out/*.txt"]))
    assert made == Manifest({"/a": b""}, {"/b"}, {"/a"}, {"/out/*.txt"})
    assert made.may_write("/b")
    assert made.may_write("/out/x.txt")
    assert not made.may_write("/out/x/y.txt")
