"""Many tasks: results in order, memory that hardly grows, and chains of commands whose every output is checked.

`BOUGH_FULL=1` runs the 10,000 commands of the full size; by default it is 2,000.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from processes import Processes, memory_of

import bough
from bough.stores.sql.sqlite import SqliteStore

FULL = bool(os.environ.get("BOUGH_FULL"))
CHAINS = 1000 if FULL else 200
LINKS = 10
BYTES_A_TASK = 100


nothing = lambda number: number  # noqa: E731 - a lambda travels by value: workers cannot import this module


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_map_of_100000_gives_its_results_in_order(here: Path) -> None:
    with bough.Session(name="order") as session:
        assert list(session.map(nothing, range(100_000))) == list(range(100_000))
        assert session.map(nothing, range(100_000)).results() == list(range(100_000))


@pytest.mark.slow
def test_the_server_s_memory_grows_by_less_than_100_bytes_a_task(here: Path) -> None:
    """The slope between two sizes, so that what is paid once (caches, page tables) does not count."""
    with bough.Session(name="memory") as session:
        assert session.map(nothing, range(100_000)).results()[-1] == 99_999
        before = memory_of(session.pid)
        kept = [session.map(nothing, range(start, start + 100_000)) for start in range(0, 400_000, 100_000)]
        for number, array in enumerate(kept):
            assert array.results() == list(range(number * 100_000, (number + 1) * 100_000))
        grown = memory_of(session.pid) - before
        print(f"{grown / 400_000:.1f} bytes a task, {memory_of(session.pid) >> 20} MB in all")
        assert grown < BYTES_A_TASK * 400_000


@pytest.mark.slow
def test_the_first_100000_tasks_cost_less_than_100_bytes_each(here: Path) -> None:
    with bough.Session(name="first") as session:
        assert session.map(nothing, range(1000)).results()[-1] == 999  # everything is loaded
        before = memory_of(session.pid)
        assert session.map(nothing, range(100_000)).results() == list(range(100_000))
        grown = memory_of(session.pid) - before
        print(f"{grown / 100_000:.1f} bytes a task")
        assert grown < BYTES_A_TASK * 100_000


@pytest.mark.slow
@pytest.mark.timeout(900 if FULL else 120)
def test_chains_of_commands_make_every_output(here: Path) -> None:
    commands = CHAINS * LINKS
    with bough.Session(name="chains") as session:
        last = []
        for chain in range(CHAINS):
            previous = session.command("echo {text} > {dst:w}", text=f"{chain}.0", dst=f"out/{chain}-0.txt")
            for link in range(1, LINKS):
                previous = session.command(
                    "cat {src:r} > {dst:w}; echo {text} >> {dst:w}",
                    src=previous,
                    text=f"{chain}.{link}",
                    dst=f"out/{chain}-{link}.txt",
                )
            last.append(previous)
        for task in last:
            assert task.result().returncode == 0
        store = Path(session.store)
    made = sorted(os.listdir(here / "out"))
    assert made == sorted(f"{chain}-{link}.txt" for chain in range(CHAINS) for link in range(LINKS))
    for chain in range(CHAINS):
        lines: list[str] = []
        for link in range(LINKS):
            lines.append(f"{chain}.{link}\n")
            assert (here / "out" / f"{chain}-{link}.txt").read_text() == "".join(lines)
    check_chains(store, commands, here)
    Processes(store).wait_until_gone()


def check_chains(store: Path, commands: int, folder: Path) -> None:
    """The jobs database knows all of it, and each task began after the one it reads from had ended."""
    catch_up = SqliteStore(str(store))  # a session leaves the rest of the tables to whoever asks for them
    catch_up.project()
    catch_up.close()
    database = sqlite3.connect(f"file:{store / 'journal.db'}?mode=ro", uri=True)
    try:
        rows = database.execute("SELECT state, attempt, count(*) FROM tasks GROUP BY state, attempt").fetchall()
        assert rows == [("done", 1, commands)]
        files = database.execute("SELECT path, size FROM files").fetchall()
        assert len(files) == commands
        for path, size in files:
            assert Path(path).parent == folder / "out"
            assert os.stat(path).st_size == size
        early = database.execute(
            "SELECT count(*) FROM after JOIN tasks t ON t.id = after.id JOIN tasks p ON p.id = after.on_id"
            " WHERE t.started < p.ended"
        ).fetchone()
        assert early == (0,)
        waits = database.execute("SELECT count(*) FROM after").fetchone()[0]
        assert waits == commands - CHAINS
    finally:
        database.close()
