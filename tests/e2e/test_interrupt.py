"""Ctrl-C and TERM: once is polite, twice is at once, the state is kept, and nothing outlives the script."""

from __future__ import annotations

import signal
import sqlite3
import textwrap
import time
from pathlib import Path

import pytest
from processes import Processes, Script, kill, started, until

QUICK = 4.0  # seconds in which a script that was told to stop has ended, on a busy machine


class Place:
    """A folder with one script, which runs in a session called `work`."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        self.path = folder / "work.py"
        self.store = folder / ".bough" / "work"
        self.path.write_text(textwrap.dedent(text))

    def start(self) -> tuple[Script, Processes]:
        return Script(self.path, cwd=self.folder), Processes(self.store)

    def started(self):  # type: ignore[no-untyped-def] # a context manager, as `processes.started` says
        return started(self.store, self.path, cwd=self.folder)

    def has(self, *names: str) -> bool:
        return all((self.folder / name).exists() for name in names)

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def tables(self, query: str) -> list[tuple[object, ...]]:
        database = sqlite3.connect(f"file:{self.store / 'journal.db'}?mode=ro", uri=True)
        try:
            return database.execute(query).fetchall()
        finally:
            database.close()


LONG = """
    import pathlib, time
    import bough
    with bough.Session(cores=2) as session:
        first = session.command("echo first >> log.txt")
        first.result()
        polite = session.command(
            "trap 'echo got-term >> log.txt; exit 3' TERM; echo polite >> log.txt; touch polite;"
            " test -e go || while :; do sleep 0.05; done; echo made > {dst:w}",
            dst="made.txt", name="polite",
        )
        other = session.command("touch other; test -e go || sleep 600", name="other")
        last = session.command("echo last >> log.txt", after=[polite, other])
        while not all(task.running() or task.done() for task in (polite, other)):
            time.sleep(0.01)
        pathlib.Path("told").touch()  # this process has heard that they run
        last.result()
"""


def test_one_ctrl_c_ends_running_tasks_keeps_the_state_and_the_next_run_goes_on(tmp_path: Path) -> None:
    place = Place(tmp_path, LONG)
    with place.started() as (script, processes):
        until(lambda: place.has("polite", "told") or script.is_over, "running tasks", story=script.said)
        pressed = time.monotonic()
        script.press()
        code = script.finish()
        assert time.monotonic() - pressed < QUICK
        assert code in {-signal.SIGINT, 1, 130}, script.said()
        assert processes.all() == []  # at once: the script waits for the end of what it started
    assert "stopping: ending 2 running tasks" in script.said()
    assert "KeyboardInterrupt" in script.said()
    assert place.lines("log.txt") == ["first", "polite", "got-term"]
    assert not place.has("made.txt")
    assert not list(tmp_path.glob(".bough-*"))
    assert place.tables("SELECT reason FROM runs") == [("interrupted",)]
    assert place.tables("SELECT state FROM tasks ORDER BY id")[0] == ("done",)
    assert not place.tables("SELECT id FROM tasks WHERE state IN ('placed', 'running', 'ready', 'waiting')")
    (tmp_path / "go").touch()
    with place.started() as (script, processes):
        assert script.finish() == 0, script.said()
        assert processes.all() == []
    assert place.lines("log.txt") == ["first", "polite", "got-term", "polite", "last"]
    assert (tmp_path / "made.txt").read_text() == "made\n"
    assert place.tables("SELECT reason FROM runs ORDER BY run") == [("interrupted",), ("done",)]


def test_a_second_ctrl_c_stops_at_once_also_what_does_not_listen(tmp_path: Path) -> None:
    place = Place(
        tmp_path,
        """
        import bough
        with bough.Session(cores=2) as session:
            done = session.command("echo once >> log.txt")
            done.result()
            deaf = session.command("trap 'touch heard' TERM; touch deaf; while :; do sleep 0.05; done")
            def busy():
                import signal, pathlib
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                pathlib.Path("busy").touch()
                while True:
                    pass
            session.submit(busy).result()
        """,
    )
    with place.started() as (script, processes):
        until(lambda: place.has("deaf", "busy") or script.is_over, "running tasks", story=script.said)
        script.press()
        until(lambda: place.has("heard") or script.is_over, "TERM for the command", story=script.said)
        assert not script.is_over
        pressed = time.monotonic()
        script.press()
        assert script.finish() != 0
        assert time.monotonic() - pressed < QUICK
        assert processes.all() == []
    assert place.tables("SELECT reason FROM runs") == [("interrupted",)]
    assert place.tables("SELECT count(*) FROM tasks WHERE state = 'done'") == [(1,)]


def test_ctrl_c_during_a_map_keeps_what_is_done(tmp_path: Path) -> None:
    place = Place(
        tmp_path,
        """
        import os, time
        import bough
        def slow(number):
            descriptor = os.open("log.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(descriptor, f"{number}\\n".encode())
            os.close(descriptor)
            time.sleep(0.01 if number < 60 or os.path.exists("go") else 600)
            return number * 2
        with bough.Session(cores=2) as session:
            values = list(session.map(slow, range(100)))
        assert values == [2 * number for number in range(100)], values
        """,
    )
    with place.started() as (script, processes):
        long_ones = lambda: [line for line in place.lines("log.txt") if int(line) >= 60]  # noqa: E731
        until(lambda: len(long_ones()) == 2 or script.is_over, "a long one on each core", story=script.said)
        script.press()
        assert script.finish() != 0
        assert processes.all() == []
    assert place.tables("SELECT done FROM tasks") == [(60,)]
    before = place.lines("log.txt")
    (tmp_path / "go").touch()
    with place.started() as (script, processes):
        assert script.finish() == 0, script.said()
    again = place.lines("log.txt")[len(before) :]
    assert sorted(map(int, again)) == list(range(60, 100))


def test_ctrl_c_while_the_session_opens_leaves_nothing(tmp_path: Path) -> None:
    place = Place(
        tmp_path, "import bough\nwith bough.Session() as session:\n    session.command('sleep 600').result()\n"
    )
    with place.started() as (script, processes):
        until(lambda: processes.of("server") or script.is_over, "the server", story=script.said)
        script.press()
        assert script.finish() != 0
        processes.wait_until_gone(QUICK)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_script_that_is_killed_takes_its_tasks_with_it_and_resumes(tmp_path: Path, number: int) -> None:
    place = Place(tmp_path, LONG)
    with place.started() as (script, processes):
        until(lambda: place.has("polite", "other") or script.is_over, "running tasks", story=script.said)
        script.press(number)
        assert script.finish() == -number
        processes.wait_until_gone(QUICK)
    assert place.lines("log.txt") == ["first", "polite", "got-term"]
    assert not list(tmp_path.glob(".bough-*"))
    (tmp_path / "go").touch()
    with place.started() as (script, processes):
        assert script.finish() == 0, script.said()
    assert place.lines("log.txt") == ["first", "polite", "got-term", "polite", "last"]


def test_a_script_killed_before_its_tasks_were_told_of_is_resumed_at_once(tmp_path: Path) -> None:
    """The new server waits for the old one to leave, and the work goes on."""
    place = Place(tmp_path, LONG)
    with place.started() as (script, processes):
        until(lambda: place.has("polite", "other") or script.is_over, "running tasks", story=script.said)
        (tmp_path / "go").touch()
        script.press(signal.SIGKILL)
        script.finish()
        with place.started() as (second, _):
            assert second.finish() == 0, second.said()
        processes.wait_until_gone()
    assert place.lines("log.txt").count("first") == 1
    assert place.lines("log.txt")[-1] == "last"


def test_a_command_in_the_background_ends_with_the_script(tmp_path: Path) -> None:
    place = Place(
        tmp_path,
        """
        import bough
        with bough.Session(cores=2) as session:
            session.command("setsid sleep 600 & sleep 600 & touch started; wait").result()
        """,
    )
    with place.started() as (script, processes):
        until(lambda: place.has("started") or script.is_over, "the command", story=script.said)
        script.press()
        assert script.finish() != 0
        assert processes.all() == []


def test_when_everything_is_killed_at_once_the_next_run_clears_up_and_goes_on(tmp_path: Path) -> None:
    place = Place(
        tmp_path,
        """
        import bough
        with bough.Session(cores=2) as session:
            text = "echo half > {dst:w}; touch {flag}; test -e go || sleep 600; echo whole >> {dst:w}"
            done = session.command("echo once | tee -a log.txt > {dst:w}", dst="out/done.txt")
            done.result()
            loose = session.command(text, dst="out/loose.txt", flag="loose")
            swept = session.sweep(text, bough.tie(flag=["swept"]), dst="out/{flag}.txt")
            loose.result(), swept.results()
        """,
    )
    with place.started() as (script, processes):
        until(lambda: place.has("loose", "swept") or script.is_over, "half-written outputs", story=script.said)
        everybody: list[int] = []
        while new := {script.pid, *(pid for _, pid in processes.all())}.difference(everybody):
            for pid in new:
                kill(pid, number=signal.SIGSTOP)  # nobody may react to the end of another, or start one more
            everybody += new
        for pid in everybody:
            kill(pid)
        script.finish()
        processes.wait_until_gone()
    hidden = list((tmp_path / "out").glob(".bough-*"))
    assert len(hidden) == 2
    (tmp_path / "go").touch()
    with place.started() as (script, processes):
        assert script.finish() == 0, script.said()
        processes.wait_until_gone()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["done.txt", "loose.txt", "swept.txt"]
    assert (tmp_path / "out" / "swept.txt").read_text() == "half\nwhole\n"
    assert place.lines("log.txt") == ["once"]
    assert place.tables("SELECT reason FROM runs ORDER BY run") == [("crashed",), ("done",)]
