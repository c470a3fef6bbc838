"""When work of earlier runs counts: after a run that ended well all is new, after an unfinished one it goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bough
from bough.errors import UserError

PATIENCE = 60.0  # seconds; a deadline, not a pause


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(name: str) -> str:
    return Path(name).read_text()


def dice() -> float:
    return random.SystemRandom().random()


def dice_of(thing: object) -> float:
    return random.SystemRandom().random()


@bough.memo
def lasting_dice(x: int) -> float:
    return random.SystemRandom().random() + x


def environment() -> str:
    return os.environ["FLAVOUR"]


def fails() -> None:
    raise ValueError("as it should")


def run_script(folder: Path, *arguments: str, ok: bool = True) -> list[str]:
    """Run flow.py in a folder; what it printed, as words."""
    words = [sys.executable, "flow.py", *arguments]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode == 0) == ok, done.stderr
    return done.stdout.split()


def write_script(folder: Path, body: str) -> None:
    head = "import random, sys, time, pathlib, bough\ndef dice(*x): return random.SystemRandom().random()\n"
    (folder / "flow.py").write_text(head + textwrap.dedent(body))


# --- runs that ended well ---------------------------------------------------------------------------------


def test_after_a_good_end_everything_is_read_thrown_and_looked_up_anew(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(flavour: str) -> list[Any]:
        monkeypatch.setenv("FLAVOUR", flavour)
        with bough.Session(name="anew", cores=2) as session:
            tasks = [session.submit(read, "data.txt"), session.submit(environment), session.submit(dice)]
            array = session.map(dice_of, range(2))
            date = session.command("date +%N")
            found = [*(task.result() for task in tasks), *array, date.result().stdout]
            assert session.progress.reused == 0
            return found

    (here / "data.txt").write_text("yesterday")
    first = run("vanilla")
    (here / "data.txt").write_text("today")
    second = run("lemon")
    assert (first[:2], second[:2]) == (["yesterday", "vanilla"], ["today", "lemon"])
    assert not set(first[2:]) & set(second[2:])


def test_what_says_memo_and_what_declares_its_files_is_reused_whatever_the_mode(here: Path) -> None:
    (here / "in.txt").write_text("one")

    def run(**how: Any) -> tuple[list[bool], str]:
        with bough.Session(name="memo", cores=2, **how) as session:
            asked = session.options(memo=True)
            tasks = [
                session.submit(lasting_dice, 3),
                asked.submit(dice),
                session.submit(bough.memo(abs), -3),
                session.command("echo $RANDOM", memo=True),
                session.command("cat {i:r} > {o:w}; echo $RANDOM", i="in.txt", o="out.txt"),
                session.options(memo=False).submit(lasting_dice, 3),
                session.command("echo > {o:w}", o="again.txt", memo=False),
                asked.map(dice_of, [1])[0],
                session.sweep("cat {i:r} > {o:w}", bough.product(i=["in.txt"]), o="{i.stem}.copy")[0],
                session.submit(dice),
                session.sweep("echo {x}", bough.product(x=[1]))[0],
            ]
            for task in tasks:
                task.result()
            return [task.reused for task in tasks], (here / "out.txt").read_text()

    lasting = [True, True, True, True, True, False, False, True, True]
    assert run() == ([False] * 11, "one")
    assert run() == ([*lasting, False, False], "one")
    (here / "in.txt").write_text("two")
    lasting[4] = lasting[8] = False
    assert run() == ([*lasting, False, False], "two")
    (here / "out.txt").unlink()
    lasting[8] = True
    assert run() == ([*lasting, False, False], "two")
    (here / "out.txt").write_text("meddled with")
    (here / "in.copy").unlink()
    lasting[8] = False
    assert run() == ([*lasting, False, False], "two")
    assert run(reuse="never") == ([False] * 11, "two")
    assert run(reuse="always") == ([True] * 5 + [False] * 2 + [True] * 4, "two")


def test_contradictions_and_unknown_words_are_refused(here: Path) -> None:
    with pytest.raises(UserError, match=r"fresh=True and reuse='always' contradict"):
        bough.Session(fresh=True, reuse="always")
    with pytest.raises(UserError, match=r"reuse is 'sometimes'; give 'resume', 'always', 'never'"):
        bough.Session(reuse="sometimes")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"memo is for a function, not 3"):
        bough.memo(3)  # type: ignore[type-var]
    with bough.Session(fresh=True, reuse="never") as session, pytest.raises(UserError, match=r"memo is 'yes'; give"):
        session.command("true", memo="yes")  # type: ignore[arg-type]


# --- unfinished runs --------------------------------------------------------------------------------------


def test_a_chain_of_unfinished_runs_is_one_until_a_run_ends_well(here: Path) -> None:
    def run(how: str) -> tuple[list[float], int]:
        found: list[float] = []
        reused = 0
        try:
            with bough.Session(name="chain", cores=2) as session:
                found = [session.submit(dice).result(), session.submit(dice).result(), *session.map(dice_of, "ab")]
                if how == "further":
                    found.append(session.submit(dice_of, 7).result())
                if how == "failure":
                    assert session.submit(fails).exception()
                if how == "cancelled":
                    session.command("sleep 600").cancel()
                reused = session.progress.reused
                if how in {"raise", "further"}:
                    raise KeyError(how)
        except KeyError:
            pass
        return found, reused

    first, reused = run("raise")
    assert reused == 0
    second, reused = run("further")
    assert (second[:4], reused) == (first, 4)
    third, reused = run("failure")
    assert (third, reused) == (first, 4)  # of the first run, although the second one did not run them
    fourth, reused = run("further")
    assert (fourth, reused) == (second, 5)
    fifth, reused = run("cancelled")  # what the script itself cancels is no failure
    assert (fifth, reused) == (first, 4)
    sixth, reused = run("well")
    assert reused == 0
    assert not set(sixth) & set(first)


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


def test_a_killed_script_goes_on_and_one_that_ended_well_does_not(here: Path) -> None:
    write_script(
        here,
        """
        with bough.Session() as s:
            print(s.submit(dice).result(), flush=True)
            if len(sys.argv) > 1:
                pathlib.Path("started").touch()
                time.sleep(600)
        """,
    )
    process = subprocess.Popen([sys.executable, "flow.py", "wait"], cwd=here, stdout=subprocess.PIPE, text=True)
    until((here / "started").exists, "the first result")
    process.send_signal(signal.SIGKILL)
    first = process.communicate(timeout=PATIENCE)[0].split()
    second = run_script(here)
    assert second == first
    assert run_script(here) != second


def test_an_error_after_the_sessions_makes_their_runs_unfinished(here: Path) -> None:
    write_script(
        here,
        """
        for number in (1, 2):  # two sessions of one name, one after the other
            with bough.Session() as s:
                print(s.submit(dice, number).result())
        if sys.argv[1:] == ["late"]:
            raise ValueError("the plot was wrong")
        """,
    )
    first = run_script(here, "late", ok=False)
    second = run_script(here, "late", ok=False)
    assert second == first
    assert run_script(here) == first
    assert not set(run_script(here)) & set(first)


def test_the_second_session_of_a_script_goes_on_where_it_was_although_the_first_ends_well_again(here: Path) -> None:
    write_script(
        here,
        """
        with bough.Session() as s:
            print(s.submit(dice, 1).result())
        with bough.Session() as s:
            print(s.submit(dice, 2).result(), flush=True)
            if sys.argv[1:] == ["bad"]:
                s.submit(dice, 3, why=lambda: 1).cancel(), s.submit(int, "x").exception()
        """,
    )
    first = run_script(here, "bad")
    second = run_script(here)
    assert second[0] != first[0]
    assert second[1] == first[1]
    third = run_script(here)
    assert not set(third) & set(second)


# --- files as arguments -----------------------------------------------------------------------------------


def test_paths_among_arguments_count_by_what_their_files_hold(here: Path) -> None:
    one, two, missing, folder = Path("one.txt"), Path("two.txt"), Path("missing.txt"), Path("folder")
    one.write_text("1")
    two.write_text("2")
    folder.mkdir()

    def run() -> list[bool]:
        with bough.Session(name="paths", cores=2, reuse="always") as session:
            loose = [
                session.submit(dice_of, one),
                session.submit(dice_of, [two, missing]),
                session.submit(dice_of, thing={"deep": (1, one)}),
                session.submit(dice_of, folder),
                session.submit(dice_of, str(one)),
            ]
            arrays = [
                session.map(dice_of, [one, two]),
                session.map(dice_of, bough.product(a=[1], b=[one, two])),
                session.map(dice_of, [[one], [two]]),
            ]
            tasks = [*loose, *(task for array in arrays for task in array.tasks())]
            for task in tasks:
                task.result()
            return [task.reused for task in tasks]

    assert run() == [False] * 11
    assert run() == [True] * 11
    one.write_text("changed")
    assert run() == [False, True, False, True, True] + [False, True] * 3
    os.utime(one, (0, 0))  # touched, not changed
    assert run() == [True] * 11
    missing.write_text("there")
    (folder / "new").write_text("file")
    assert run() == [True, False, True, False, True] + [True] * 6


# --- the command line -------------------------------------------------------------------------------------


def test_bough_run_reuses_always_unless_it_is_told_otherwise_and_says_so(here: Path) -> None:
    write_script(here, "with bough.Session() as s:\n    print(s.submit(dice).result())\n")

    def run(*options: str) -> tuple[str, str, int]:
        words = [sys.executable, "-m", "bough.cli.main", "run", *options, "flow.py"]
        done = subprocess.run(words, cwd=here, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return done.stdout, done.stderr, done.returncode

    first, said, _ = run()
    assert "reused" not in said
    second, said, _ = run()
    assert second == first
    assert "1 done, 1 reused in " in said
    assert said.endswith("; --fresh runs what was reused, too\n")
    third, said, _ = run("--reuse", "resume")
    assert third != first
    assert "reused" not in said
    assert run()[0] == third
    assert run("--fresh")[0] not in {first, third}
    _, said, code = run("--fresh", "--reuse", "always")
    assert (code, said) == (2, "bough: --fresh and --reuse always contradict each other; leave one of them out\n")
