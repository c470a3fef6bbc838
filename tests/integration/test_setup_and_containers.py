"""Commands with a setup and in a container. The runtime is a program of the test that notes how it was called."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bough
from bough.errors import TaskFailed, UserError

RUNTIME = """#!/bin/sh
# stands for apptainer and docker: notes its words, and runs what stands behind the image
echo "$@" >> "$NOTES"
while [ "$1" != tools.sif ]; do shift; done
shift
INSIDE=yes exec "$@"
"""


@pytest.fixture(autouse=True)
def runtimes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both programs in PATH."""
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("apptainer", "docker", "own-runtime"):
        (place / name).write_text(RUNTIME)
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_setup_runs_first_and_its_failure_is_the_commands(runtimes: Path) -> None:
    with bough.Session(on_failure="ignore") as session:
        first = session.command("echo $FROM_SETUP $1", setup="export FROM_SETUP=set\nset -- x")
        assert first.result(60).stdout == "set\n"
        words = session.command(["echo", "a  b"], setup="cd /")  # words are not split again
        assert words.result(60).stdout == "a  b\n"
        failed = session.command("echo never > never.txt", setup="false | true")
        assert isinstance(failed.exception(60), TaskFailed)
        assert not (runtimes / "never.txt").exists()
        swept = session.sweep("echo {x} $S", bough.product(x=[1, 2]), setup="export S=s")
        assert sorted(one.stdout for one in swept.results()) == ["1 s\n", "2 s\n"]


def test_a_command_runs_in_its_container_with_its_files(runtimes: Path) -> None:
    (runtimes / "in.txt").write_text("b\na\n")
    with bough.Session() as session:
        made = session.command(
            "sort {i:r} > {o:w}; echo $INSIDE $X",
            i="in.txt",
            o="out/sorted.txt",
            env={"X": "x"},
            container="apptainer:tools.sif",
            setup="export LOADED=1",
        )
        assert made.result(60).stdout == "yes x\n"
        session.command("true", container="docker:tools.sif", env={"X": "x"}).result(60)
    assert (runtimes / "out/sorted.txt").read_text() == "a\nb\n"
    apptainer, docker = (runtimes / "notes").read_text().splitlines()
    assert apptainer.startswith(f"exec --bind {runtimes} --pwd {runtimes} tools.sif")
    assert f"--user {os.geteuid()}:{os.getegid()}" in docker
    assert "--env X --env BOUGH_TASK" in docker


def test_the_executor_says_how_containers_are_run(runtimes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOUGH_CONTAINER_COMMAND", "own-runtime now {image} {command}")
    with bough.Session(on_failure="ignore") as session:
        assert session.command("echo $INSIDE", container="docker:tools.sif").result(60).stdout == "yes\n"
    assert (runtimes / "notes").read_text().startswith("now tools.sif")
    monkeypatch.setenv("BOUGH_CONTAINER_COMMAND", "nowhere-to-be-found {image} {command}")
    with bough.Session(on_failure="ignore", name="other") as session:
        error = session.command("true", container="docker:tools.sif").exception(60)
        assert "nowhere-to-be-found" in str(error)


def test_setup_and_container_count_for_reuse_and_places_do_not(runtimes: Path) -> None:
    def run(**options: str) -> None:
        with bough.Session(name="again", reuse="always") as session:
            session.command("echo >> ran.txt", **options).result(60)

    for options in ({}, {"setup": "true"}, {"container": "apptainer:tools.sif"}):
        before = len((runtimes / "ran.txt").read_text()) if (runtimes / "ran.txt").exists() else 0
        run(**options)
        run(**options, requires="cores >= 1", sites="local")
        assert len((runtimes / "ran.txt").read_text()) == before + 1


def test_what_is_wrong_is_said_at_once() -> None:
    with bough.Session() as session:
        for options in ({"container": "tools.sif"}, {"setup": 3}, {"container": "docker:a\nb"}):
            with pytest.raises(UserError):
                session.command("true", **options)  # type: ignore[arg-type]
        with pytest.raises(UserError, match="setup is for commands"):
            session.sweep(pow, bough.product(x=[1]), setup="true")


def test_the_command_line_has_them(runtimes: Path) -> None:
    words = ["-m", "bough.cli.main", "run", "--setup", "export A=a", "--container", "apptainer:tools.sif"]
    done = subprocess.run(
        [sys.executable, *words, "--", "echo $A $INSIDE"], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "a yes\n"
    done = subprocess.run(
        [sys.executable, *words, "--array", "1-2", "--", "echo {} $A"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert sorted(done.stdout.split("\n")) == ["", "1 a", "2 a"]
