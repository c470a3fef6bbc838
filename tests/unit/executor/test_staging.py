"""The folders of an executor: whose they are, and when they go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bough import private
from bough.executor.files.command_files.sandbox import ExecutorFolder


def test_rooms_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    text = (
        "import sys; from bough.executor.files.command_files.sandbox import ExecutorFolder;"
        " mine = ExecutorFolder(sys.argv[1]); mine.open(); print(mine.folder, flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", text, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        other = Path(process.stdout.readline().strip())
        mine = ExecutorFolder(str(tmp_path))
        mine.open()
        assert other.is_dir()
        process.kill()
    mine.close()
    assert list(tmp_path.iterdir()) == [other]
    again = ExecutorFolder(str(tmp_path))
    again.open()
    assert list(tmp_path.iterdir()) == [Path(again.folder)]
    again.close()


def test_a_neighbour_is_busy_while_it_lives_and_has_a_sandbox(tmp_path: Path) -> None:
    text = (
        "import os, sys; from bough.executor.files.command_files.sandbox import ExecutorFolder;"
        " other = ExecutorFolder(sys.argv[1]); other.open(); worker = other.sandboxes_of('x1-0');"
        " os.makedirs(worker); print(worker, flush=True); sys.stdin.read()"
    )
    mine = ExecutorFolder(str(tmp_path))
    assert not mine.has_busy_neighbour()
    mine.open()
    os.makedirs(f"{mine.sandboxes_of('x1-0')}/1.0-1")
    words = [sys.executable, "-c", text, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = Path(process.stdout.readline().strip())
        assert not mine.has_busy_neighbour()
        (worker / "7.0-1").mkdir()
        assert mine.has_busy_neighbour()
        process.kill()
        process.wait()
    assert not mine.has_busy_neighbour()
    mine.close()


def test_outputs_that_the_server_cannot_see_lie_where_nobody_can_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(private, "temporary_place", lambda: str(tmp_path))
    (tmp_path / f"bough-{os.getuid()}").mkdir()  # what was used before, made by whoever was first
    room = ExecutorFolder()
    out, results = room.folders()
    assert (os.path.dirname(out), os.path.dirname(results)) == (room.folder, room.folder)
    assert os.stat(room.folder).st_mode & 0o777 == 0o700
    assert os.listdir(tmp_path / f"bough-{os.getuid()}") == []
    again = ExecutorFolder()
    assert again.folder != room.folder
    room.close()
    assert [path.name for path in tmp_path.iterdir()] == [f"bough-{os.getuid()}"]


def test_the_users_cache_and_a_folder_that_was_named_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    room = ExecutorFolder()
    room.open()
    assert os.path.dirname(room.folder) == str(tmp_path / "cache" / "bough")
    assert os.stat(tmp_path / "cache" / "bough").st_mode & 0o777 == 0o700
    room.close()
    named = ExecutorFolder(str(tmp_path / "named"))
    assert named.folders() == (str(tmp_path / "named/out"), str(tmp_path / "named/results"))
    named.open()
    assert os.path.dirname(named.folder) == str(tmp_path / "named")
    named.close()
