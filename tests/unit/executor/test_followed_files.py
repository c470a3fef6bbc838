"""Files as they grow: appended, replaced, cut off, late, and looked at by the clock where the kernel tells nothing."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from bough.executor.monitors import followed_files
from bough.executor.monitors.followed_files import AwaitedName, FileFollower, FollowedFile


class Reader:
    """Follows one file, as the watcher does."""

    def __init__(self, path: Path, begin: int = 0) -> None:
        self.follower = FileFollower()
        self.read: list[bytes] = []
        self.file = FollowedFile(str(path), begin, self.read.append, lambda: self.read.append(b"|"))
        self.follower.follow(self.file)

    def round(self) -> bytes:
        """What comes in when the kernel has something to tell, or nothing for a moment."""
        if select.select([self.follower.inotify.fileno()], [], [], 0.5)[0]:
            self.follower.hear()
        return self.rest()

    def rest(self) -> bytes:
        while self.follower.is_behind:
            self.follower.read_some(0.0)
        found, self.read[:] = b"".join(self.read), []
        return found


def test_a_file_that_grows_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one")
    reader = Reader(path, 1)
    assert reader.rest() == b"ne"
    with path.open("ab", buffering=0) as file:
        for piece in (b"two", b"three", b"x" * 600_000):
            file.write(piece)
            assert reader.round() == piece
    assert reader.rest() == b""
    reader.follower.forget(reader.file)


def test_the_end_of_a_file_may_be_known(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"mine, not mine")
    reader = Reader(path)
    reader.file.end = 4
    assert reader.rest() == b"mine"


def test_a_file_that_is_cut_off_or_replaced_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"first version")
    reader = Reader(path)
    assert reader.rest() == b"first version"
    path.write_bytes(b"new")
    assert reader.round() + reader.round() == b"|new"
    (tmp_path / "g").write_bytes(b"another file")
    os.replace(tmp_path / "g", path)
    reader.file.renew()
    reader.follower.wake(reader.file)
    assert reader.rest() == b"|another file"


@pytest.mark.parametrize("on_network", [False, True])
def test_names_are_waited_for(tmp_path: Path, on_network: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_files, "is_network_filesystem", lambda _path: on_network)
    follower = FileFollower()
    path = tmp_path / "late"
    looks: list[bool] = []

    def look() -> bool:
        looks.append(path.exists())
        return looks[-1]

    follower.await_name(AwaitedName(str(path), look))
    assert not any(looks)
    path.touch()
    if on_network:
        assert follower.next_look <= 0
        follower.look(1.0)
    else:
        assert select.select([follower.inotify.fileno()], [], [], 10)[0]
        follower.hear()
    assert looks[-1]
    count = len(looks)
    follower.look(5.0)
    assert follower.next_look == float("inf")  # nothing is waited for
    assert len(looks) == count


def test_a_folder_that_is_not_there_is_looked_at_by_the_clock(tmp_path: Path) -> None:
    follower = FileFollower()
    path = tmp_path / "a" / "b"
    seen: list[bool] = []

    def look() -> bool:
        seen.append(path.exists())
        return seen[-1]

    awaited = AwaitedName(str(path), look)
    follower.await_name(awaited)
    assert follower.next_look <= 0
    follower.look(1.0)
    assert follower.next_look == 1.0 + followed_files.LOOK
    path.parent.mkdir()
    path.touch()
    follower.look(2.0)
    assert seen[-1]


def test_files_on_a_network_are_looked_at_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_files, "is_network_filesystem", lambda _path: True)
    path = tmp_path / "f"
    path.write_bytes(b"one")
    reader = Reader(path)
    assert reader.rest() == b"one"
    with path.open("ab") as file:
        file.write(b"two")
    reader.follower.look(10.0)
    assert reader.rest() == b"two"
    assert reader.follower.next_look == 11.0
    reader.follower.forget(reader.file)
    reader.follower.look(12.0)
    assert reader.follower.next_look == float("inf")


def test_two_readers_of_one_file_are_both_told(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"")
    follower = FileFollower()
    read: dict[int, bytes] = {0: b"", 1: b""}

    def taker(number: int) -> FollowedFile:
        def take(data: bytes) -> None:
            read[number] += data

        return FollowedFile(str(path), 0, take)

    files = [taker(number) for number in read]
    for file in files:
        follower.follow(file)
    follower.read_some(0.0)
    path.write_bytes(b"both")
    assert select.select([follower.inotify.fileno()], [], [], 10)[0]
    follower.hear()
    while follower.is_behind:
        follower.read_some(0.0)
    assert read == {0: b"both", 1: b"both"}
    follower.forget(files[0])
    with path.open("ab") as file:
        file.write(b" one")
    assert select.select([follower.inotify.fileno()], [], [], 10)[0]
    follower.hear()
    follower.read_some(0.0)
    assert read == {0: b"both", 1: b"both one"}
