"""Who has the folder of a relay, and what those who look at it leave behind."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from pathlib import Path

import pytest

from bough.errors import StoreHeld
from bough.relay import relay_home
from bough.relay.relay_home import RelayNote
from bough.stores.folder.store_lock import StoreLock, held_by, holder, is_held
from bough.transport import home


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOUGH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(relay_home, "_GLANCE", 0.05)
    return Path(home.make_relay_dir())


def test_looking_whether_a_relay_runs_leaves_no_trace(folder: Path) -> None:
    relay_home.write_note(RelayNote(4_000_000, "host", "unix:x", "x", "y", 0.0))
    assert relay_home.running() is None
    assert not (folder / "lock").exists()
    (folder / "lock").write_text("4000000 host\n")  # of a killed one
    assert relay_home.running() is None
    assert (folder / "lock").read_text() == "4000000 host\n"


def test_a_relay_that_runs_is_found_by_its_lock(folder: Path) -> None:
    lock = relay_home.lock_folder()
    relay_home.write_note(RelayNote(os.getpid(), "host", "unix:x", "x", "y", 0.0))
    assert is_held(folder)
    assert relay_home.running() is not None
    lock.release()
    assert not is_held(folder)
    assert relay_home.running() is None


def test_a_second_relay_is_told_who_is_there(folder: Path) -> None:
    lock = relay_home.lock_folder()
    with pytest.raises(StoreHeld, match=f"pid {os.getpid()} on host {socket.gethostname()}"):
        relay_home.lock_folder()
    (folder / "lock").write_text("")  # as a full disk may leave it
    with pytest.raises(StoreHeld, match=r"runs already in .*: another process; end it") as told:
        relay_home.lock_folder()
    assert "pid 0" not in str(told.value)
    lock.release()


def test_who_looks_is_not_taken_for_a_holder_by_others_who_look(folder: Path) -> None:
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # somebody looks, and is stopped meanwhile
        assert not is_held(folder)
    relay_home.lock_folder().release()


def test_those_who_look_do_not_keep_a_relay_from_starting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_home, "_GLANCE", 20.0)
    relay_home.write_note(RelayNote(4_000_000, "host", "unix:x", "x", "y", 0.0))
    relay_home.lock_folder().release()
    over = threading.Event()
    said: set[tuple[int, str]] = set()

    def look() -> None:
        while not over.is_set():
            relay_home.running()
            said.add(holder(folder))

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for one in lookers:
        one.start()
    try:
        for _ in range(50):
            relay_home.lock_folder().release()
    finally:
        over.set()
        for one in lookers:
            one.join()
    assert said == {(os.getpid(), socket.gethostname())}  # never pid 0


def test_the_lock_file_always_names_a_whole_holder(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(f"123456789 {'a-very-long-host-name' * 3}\n")
    with StoreLock(tmp_path):
        assert holder(tmp_path) == (os.getpid(), socket.gethostname())
        assert (tmp_path / "lock").read_text() == f"{os.getpid()} {socket.gethostname()}\n"
        with open(tmp_path / "lock", "a") as file:
            file.write("st-name\n")  # what is there in the instant before the rest of the old line is cut off
        assert f"pid {os.getpid()} on host {socket.gethostname()};" in held_by(tmp_path)
