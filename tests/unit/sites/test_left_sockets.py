"""Folders for sockets that killed servers and lost tunnels leave in the folder for temporary files."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bough import private
from bough.server import socket_path
from bough.sites.head import far_side

LONG_AGO = time.time() - 2 * 3600


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="swept"))  # short: sockets are bound in it
    yield folder
    private.remove_tree(str(folder))


def left(place: Path, digit: str, *, user: int | None = None) -> Path:
    folder = place / f"bough-{os.geteuid() if user is None else user}-{digit * 16}"
    folder.mkdir(0o700)
    return folder


def bound(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)
    return listener


def grow_old(place: Path) -> None:
    for folder in place.iterdir():
        os.utime(folder, (LONG_AGO, LONG_AGO))


def test_what_nobody_holds_or_answers_at_is_removed(place: Path) -> None:
    left(place, "0")
    bound(left(place, "1") / "server").close()
    unnumbered = place / f"bough-{'2' * 16}"  # of a service whose own folder has a long name
    unnumbered.mkdir(0o700)
    bound(unnumbered / "server.sock").close()
    grow_old(place)
    far_side.sweep_sockets(str(place))
    assert not list(place.iterdir())


def test_what_is_in_use_stays(place: Path) -> None:
    fresh = left(place, "0")
    held, alive, file, other = (left(place, digit) for digit in "1234")
    several = left(place, "5")
    (file / "notes").write_text("the user's")
    strange = place / "bough-0-notours"
    strange.mkdir()
    other.rename(elsewhere := place / f"bough-{os.geteuid() + 1}-{'4' * 16}")
    bound(several / "dead").close()
    with bound(alive / "server"), bound(several / "server"):
        grow_old(place)
        os.utime(fresh)
        lock = private.hold_folder(str(held))
        try:
            far_side.sweep_sockets(str(place))
        finally:
            os.close(lock)
        assert sorted(place.iterdir()) == sorted([fresh, held, alive, file, several, strange, elsewhere])
        assert sorted(os.listdir(several)) == ["dead", "server"]
    grow_old(place)
    far_side.sweep_sockets(str(place))
    assert sorted(place.iterdir()) == sorted([file, strange, elsewhere])


def test_no_more_is_looked_at_than_may_be(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for digit in "01234":
        left(place, digit)
    grow_old(place)
    monkeypatch.setattr(far_side, "_MOST_SWEPT", 3)
    far_side.sweep_sockets(str(place))
    assert len(list(place.iterdir())) == 2


HOLDER = """
import sys
from bough.server import socket_path

print(socket_path.short_folder(sys.argv[1], "ssh"), flush=True)
sys.stdin.read()
"""


def test_the_next_server_sweeps_what_a_killed_one_left(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    homes = [place / (name * 100) for name in "abc"]
    words = [sys.executable, "-c", HOLDER]
    holders = []
    for home in homes[:2]:
        holder = subprocess.Popen([*words, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        holders.append((holder, Path(holder.stdout.readline().strip())))
    (killed, its), (living, others) = holders
    killed.kill()
    killed.wait()
    assert its.parent == others.parent == place
    grow_old(place)
    try:
        ours = Path(socket_path.short_folder(str(homes[2]), "ssh"))
        assert socket_path.short_folder(str(homes[2]), "ssh") == str(ours)
        assert not its.exists()
        assert others.exists()
        socket_path.leave_short_folders()
        assert not ours.exists()
    finally:
        living.communicate()
        socket_path.leave_short_folders()
        killed.communicate()
