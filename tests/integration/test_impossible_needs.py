"""What can never run is refused where it is submitted, at every door; a service waits for an executor that has it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from service_client import Service

import bough
from bough.api.session.session import Session
from bough.errors import UserError


def same(x: object = 0) -> object:
    return x


DOORS: dict[str, Callable[[Session], object]] = {
    "submit": lambda s: s.options(cores=64).submit(same),
    "map": lambda s: s.options(memory="900TB").map(same, range(3)),
    "command": lambda s: s.command("true", memory="900TB"),
    "words": lambda s: s.command(["true"], gpus=4096),
    "sweep": lambda s: s.sweep("echo {x}", bough.product(x=[1, 2]), resources={"license": 1}),
    "feed": lambda s: s.feed(same, iter([1]), cores=64),
    "feed of commands": lambda s: s.feed("echo {x}", iter([{"x": 1}]), cores=64),
    "options of options": lambda s: s.options(cores=64).options(retries=1).command("true"),
}


def test_every_door_of_a_session_refuses_and_stores_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Session(name="small", cores=2) as session:
        for door in DOORS.values():
            with pytest.raises(UserError, match="this can never run: it needs"):
                door(session)
        with session.group("g"), pytest.raises(UserError, match="it needs 64 cores, and this session has 2 cores"):
            session.command("true", cores=64)
        assert session.options(cores=2).submit(same, 7).result(60) == 7
        assert sum(session.progress.counts().values()) == 1


def test_a_list_of_commands_is_refused_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("touch made\nbig: cores=640 :: true\n")
    words = [sys.executable, "-m", "bough.cli.main", "run", "list.txt"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "list.txt:2" in done.stderr
    assert "it needs 640 cores" in done.stderr
    assert not (tmp_path / "made").exists()


def test_a_service_waits_and_explains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(service.home))
    monkeypatch.chdir(tmp_path)
    try:
        service.start()
        service.executor(cores=1)
        with Session(f"unix:{service.address}", name="big") as session:
            task = session.command("echo ran", cores=4, resources={"license": 1})
            said = task.explain()
            assert "cores 4 (the most there is: 1)" in said
            assert "license 1 (the most there is: 0)" in said
            service.executor("--resource", "license=1", cores=4)
            assert task.result(60).stdout == "ran\n"
    finally:
        service.clean_up()
