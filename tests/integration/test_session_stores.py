"""Stores of sessions that were given no name: several at once, interrupted ones, and what they leave on the disk."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bough
from bough.errors import StoreHeld

PATIENCE = 60.0  # seconds; a deadline, not a pause
HEAD = """
import os, pathlib, random, sys, time, bough
def dice(*x): return random.SystemRandom().random()
def wait_for(name):
    while not os.path.exists(name): time.sleep(0.01)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


def write_script(folder: Path, body: str) -> None:
    (folder / "flow.py").write_text(HEAD + textwrap.dedent(body))


@contextlib.contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "flow.py", *arguments]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finished(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return out.split()


def run(folder: Path, *arguments: str) -> list[str]:
    with running(folder, *arguments) as process:
        return finished(process)


def stores(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / ".bough"))


def test_a_session_that_has_ended_gives_its_memory_back(here: Path) -> None:
    with bough.Session() as session:
        assert session.submit(abs, -1).result() == 1
    ended = weakref.ref(session)
    del session
    gc.collect()
    assert ended() is None


def test_a_cell_that_is_run_again_while_its_session_is_open_works(here: Path) -> None:
    write_script(
        here,
        """
        first = bough.Session()
        second = bough.Session()
        with bough.Session() as third:
            late = third.command("echo late")
        print(first.name, second.name, third.name)
        first.submit(dice).result(), second.submit(dice).result()
        print(late.result().stdout, *sorted(os.listdir(".bough")))  # what is there can be asked until the script ends
        with bough.Session() as fourth:
            print(fourth.name)
        """,
    )
    names = ["flow", "flow+2", "flow+3"]
    assert run(here) == [*names, "late", *names, "flow+3"]
    assert stores(here) == ["flow"]


def test_two_runs_at_once_do_not_meet_and_an_interrupted_one_finds_its_store_again(here: Path) -> None:
    write_script(
        here,
        """
        with bough.Session() as s:
            print(s.name, s.submit(dice).result(), flush=True)
            pathlib.Path("began-" + sys.argv[1]).touch()
            wait_for("go-" + sys.argv[1])
        """,
    )
    with running(here, "a") as first:
        until((here / "began-a").exists, "the first run")
        with running(here, "b") as second:
            until((here / "began-b").exists, "the second run")
            assert stores(here) == ["flow", "flow+2"]
            second.send_signal(signal.SIGKILL)
            interrupted = second.communicate(timeout=PATIENCE)[0].split()
        assert interrupted[0] == "flow+2"
        (here / "go-b").touch()
        (here / "go-c").touch()
        until(lambda: not Path(f"/proc/{second.pid}").exists(), "its end")
        (here / "go-a").touch()
        finished(first)
    other = run(here, "c")  # has other arguments, and leaves alone what is unfinished
    assert other[0] == "flow"
    assert stores(here) == ["flow", "flow+2"]
    assert run(here, "b") == interrupted
    assert stores(here) == ["flow"]


def test_a_given_name_and_a_given_store_are_refused_the_second_time(here: Path) -> None:
    with bough.Session(name="given") as one:
        with pytest.raises(StoreHeld, match=rf"is held by pid {os.getpid()} on host \S+; wait for it or end it"):
            bough.Session(name="given")
        with pytest.raises(StoreHeld):
            bough.Session(store=one.store)
    assert stores(here) == ["given"]


def test_files_of_runs_that_nothing_can_ask_for_are_deleted_by_the_next_run(here: Path) -> None:
    write_script(
        here,
        """
        with bough.Session() as s:
            s.submit(os.urandom, 600_000).result()
            s.submit(len, bytes(600_000)).result()
            s.command("head -c 200000 /dev/zero").result()
            s.map(os.urandom, [600_000]).results()
            s.options(memo=True).submit(os.urandom, 700_000).result()
            if len(sys.argv) > 1: s.submit(int, "x").exception()
        """,
    )

    def files() -> list[int]:
        return [len(os.listdir(here / ".bough" / "flow" / folder)) for folder in ("results", "args")]

    def size() -> int:
        return sum(path.stat().st_size for path in (here / ".bough").rglob("*") if path.is_file())

    run(here)
    assert files() == [3, 1]
    run(here)
    until(lambda: files() == [5, 1], "the deletion")  # those of the first run stay: it has what said memo
    before = size()
    run(here)
    until(lambda: files() == [5, 1], "the deletion")
    run(here, "fails")  # an unfinished run: what it has done is needed
    run(here, "fails")
    run(here)
    run(here)
    until(lambda: files() == [5, 1], "the deletion")
    assert size() < before + 200_000


def test_local_stores_are_removed_by_name_and_by_age(here: Path) -> None:
    def call(*words: str) -> tuple[int, str]:
        environment = {name: value for name, value in os.environ.items() if name != "BOUGH_SERVER"}
        environment["BOUGH_HOME"] = str(here / "home")
        words = (sys.executable, "-m", "bough.cli.main", *words)
        done = subprocess.run(
            words, cwd=here, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        return done.returncode, done.stdout + done.stderr

    for name in ("one", "two", "three"):
        with bough.Session(name=name) as session:
            session.command("echo > {o:w}", o=f"{name}.txt").result()
    assert call("prune", "--older-than", "1h") == (0, "nothing is that old\n")
    assert call("remove", "nothing") == (
        2,
        "bough: no store of the name 'nothing' in .bough; there are one, three, two\n",
    )
    with bough.Session(name="two"):
        code, said = call("remove", "one", "two")
        assert (code, stores(here)) == (2, ["one", "three", "two"])
        assert said == f"bough: two is in use: pid {os.getpid()} on host {os.uname().nodename}; wait for it or end it\n"
        code, said = call("prune", "--older-than", "1ms")
        assert (code, stores(here)) == (0, ["two"])
        assert said.startswith("removed one, last used ")
    assert call("remove", "two") == (0, f"removed two, the store {here / '.bough' / 'two'}\n")
    assert stores(here) == []
    assert sorted(path.name for path in here.glob("*.txt")) == ["one.txt", "three.txt", "two.txt"]
