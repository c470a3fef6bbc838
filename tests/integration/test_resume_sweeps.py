"""Sweeps that build on each other element by element, run again after something changed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import bough
from bough.errors import Clash

LENGTHS = (1, 2, 3)
PATIENCE = 60.0
BLOCKED = "touch started; while [ -e wait ]; do sleep 0.01; done; echo {k} > {o:w}"


def run(folder: Path) -> list[str]:
    """Run two sweeps, the second reading what the first wrote; return which of their commands really ran."""
    log = folder / "log.txt"
    log.write_text("")
    with bough.Session(name="sweeps", reuse="always") as s:
        first = s.sweep("echo a{i} >> log.txt; echo {i} > {o:w}", bough.product(i=LENGTHS), o="a{i}.txt")
        second = s.sweep(
            "echo b{i} >> log.txt; cat {x:r} > {o:w}", bough.product(i=LENGTHS), x="a{i}.txt", o="b{i}.txt"
        )
        third = s.sweep("echo c{i} >> log.txt; true", bough.product(i=LENGTHS), after=[second])
        for array in (first, second, third):
            array.wait_all()
            assert [task.result().returncode for task in array] == [0, 0, 0]
    return sorted(log.read_text().split())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_element_runs_again_when_what_it_reads_was_made_again(folder: Path) -> None:
    assert run(folder) == ["a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "c3"]
    assert run(folder) == []
    os.remove("a2.txt")
    assert run(folder) == ["a2", "b2", "c1", "c2", "c3"]
    assert run(folder) == []
    assert (folder / "b2.txt").read_text() == "2\n"


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.005)


def sweep(session: bough.Session) -> bough.Array:
    return session.sweep(BLOCKED, bough.tie(k=["a", "b"]), o="out/{k}.txt")


def feed(session: bough.Session) -> bough.Array:
    return session.feed(BLOCKED, iter([{"k": "a", "o": "out/a.txt"}, {"k": "b", "o": "out/b.txt"}]))


def lose(submit: Callable[[bough.Session], bough.Array]) -> None:
    """Kill the server of a run while the first element of its array runs."""
    Path("wait").touch()
    session = bough.Session(name="lost", cores=1)
    try:
        submit(session)
        until(lambda: os.path.exists("started"), "the element to start")
        os.kill(session.pid, signal.SIGKILL)
    finally:
        with contextlib.suppress(bough.BoughError):
            session.shutdown()


@pytest.mark.parametrize("submit", [sweep, feed])
def test_an_output_whose_success_was_never_recorded_does_not_block_the_next_run(
    folder: Path, submit: Callable[[bough.Session], bough.Array]
) -> None:
    lose(submit)
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out" / "a.txt").write_text("of the run that was killed\n")
    (folder / "wait").unlink()
    with bough.Session(name="lost", cores=1) as session:
        submit(session).wait_all(PATIENCE)
    assert [(folder / "out" / f"{k}.txt").read_text() for k in "ab"] == ["a\n", "b\n"]


@pytest.mark.parametrize("submit", [sweep, feed])
def test_a_file_that_a_stranger_wrote_while_its_task_ran_is_never_reused_as_its_output(
    folder: Path, submit: Callable[[bough.Session], bough.Array]
) -> None:
    (folder / "wait").touch()
    with bough.Session(name="lost", cores=1, reuse="always") as session:
        array = submit(session)
        until(lambda: os.path.exists("started"), "the element to start")
        (folder / "out" / "a.txt").write_text("of a stranger\n")
        (folder / "wait").unlink()
        array.wait_all(PATIENCE)
    for _ in range(2):
        assert [(folder / "out" / f"{k}.txt").read_text() for k in "ab"] == ["a\n", "b\n"]
        with bough.Session(name="lost", cores=1, reuse="always") as session:
            submit(session).wait_all(PATIENCE)


def test_a_file_that_no_run_declared_still_clashes_after_a_kill(folder: Path) -> None:
    lose(sweep)
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out" / "c.txt").write_text("theirs\n")
    (folder / "wait").unlink()
    with bough.Session(name="lost", cores=1) as session:
        for _ in range(2):  # what is refused is not claimed
            with pytest.raises(Clash, match=r"c\.txt, which .* is there already and not of this workflow"):
                session.sweep(BLOCKED, bough.tie(k=["a", "c"]), o="out/{k}.txt")
        sweep(session).wait_all(PATIENCE)
    with bough.Session(name="lost", cores=1) as session, pytest.raises(Clash, match=r"c\.txt"):
        session.sweep(BLOCKED, bough.tie(k=["a", "c"]), o="out/{k}.txt")
    assert (folder / "out" / "c.txt").read_text() == "theirs\n"
