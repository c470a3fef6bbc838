"""Files of a site's storage that an errand sends: real errands on this very machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bough.errors import SiteError
from bough.sites.head.errands import LocalConnection, receive
from bough.sites.site_kind import SentFile


def fetch(path: Path | str, target: Path, known: str = "") -> SentFile:
    request = {"what": "send", "key": "", "path": str(path), "known": known}
    return asyncio.run(LocalConnection("").fetch(request, str(target)))


def settled(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    os.utime(path, (1, 1))
    return path


def test_a_file_comes_whole_and_not_again_while_it_is_what_it_was(tmp_path: Path) -> None:
    data = os.urandom(3_000_000) + b"\nbough-answer:{}\n"
    file = settled(tmp_path / "a file's name", data)
    sent = fetch(file, tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == data
    assert (sent.size, sent.came) == (len(data), True)
    assert sent.mark
    again = fetch(file, tmp_path / "two", sent.mark)
    assert again == SentFile(len(data), sent.mark, False)
    assert not (tmp_path / "two").exists()
    settled(file, b"other")
    assert fetch(file, tmp_path / "three", sent.mark).came
    assert (tmp_path / "three").read_bytes() == b"other"
    file.write_bytes(b"")
    assert fetch(file, tmp_path / "four") == SentFile(0, "", True)  # it was written a moment ago


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/nowhere/x", "this machine: /nowhere/x is not there"),
        ("/dev/zero", "is no file, and only an executor there can send a folder"),
        ("/", "is no file"),
        ("/" + "x" * 300, "is not there"),
        ("/a\0b", "is not there"),
    ],
)
def test_what_cannot_be_sent_is_said(tmp_path: Path, path: str, said: str) -> None:
    with pytest.raises(SiteError, match=said):
        fetch(path, tmp_path / "one")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo hello; exit 3", "did not do what it was asked for"),
        ('echo \'bough-answer:{"ok": {"size": 9, "mark": "", "follows": "x"}}\'; echo short', "ended before all"),
        ('echo \'bough-answer:{"ok": {"size": "many"}}\'', "cannot be read"),
        ("echo 'bough-answer:{\"ok\": {}}'", "cannot be read"),
        ("echo 'bough-answer:[]'", "cannot be read"),
        ("head -c 1000000 /dev/zero", "cannot be read"),
        (
            'echo \'bough-answer:{"ok": {"size": 1e18, "mark": "", "follows": "x"}}\'',
            "the disk of the server has no room",
        ),
    ],
)
def test_a_host_that_says_something_else_harms_nobody(tmp_path: Path, script: str, said: str) -> None:
    with pytest.raises(SiteError, match=said):
        asyncio.run(receive(["sh", "-c", script], b"", "there", "python3", str(tmp_path / "one")))
