"""A campaign of simulations as a workflow: the same report, to the byte, as one after the other."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

import bough
from bough.cli.main import main
from bough.sim.experiment import simulate
from bough.sim.platforms.platform import read_platform
from bough.sim.workload import SimulatedTask, Workload

WORK = Workload("w", [SimulatedTask(f"t{n}", 1.0 + n % 7, (n - 4,) if n > 3 else ()) for n in range(60)])
PLATFORM = read_platform("[site.a]\nhosts = 3\nspeed = [0.5, 2]\n")
POLICIES = ["fifo", "ljf", "heft"]


def test_in_a_session_and_in_threads_the_report_is_the_same_to_the_byte(tmp_path: Path) -> None:
    alone = msgspec.json.encode(simulate(WORK, PLATFORM, POLICIES, seeds=10, noise=0.3))
    with bough.Session(store=tmp_path / "store", cores=2) as session:
        report = simulate(WORK, PLATFORM, POLICIES, seeds=10, noise=0.3, session=session)
    assert msgspec.json.encode(report) == alone
    with ThreadPoolExecutor(3) as threads:
        assert msgspec.json.encode(simulate(WORK, PLATFORM, POLICIES, seeds=10, noise=0.3, session=threads)) == alone
    assert len(report.runs) == 30


def _done(store: Path) -> tuple[int, int]:
    """Of the last run: how many simulations are done, and how many of these are of an earlier run."""
    if not (store / "journal.db").exists():
        return 0, 0
    with closing(sqlite3.connect(store / "journal.db", timeout=30)) as database:
        rows = database.execute("SELECT done, reused FROM tasks ORDER BY id DESC LIMIT 1").fetchall()
    return rows[0] if rows else (0, 0)


def test_a_campaign_that_was_killed_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(tmp_path / "home"))
    words = ["simulate", "--workload", "moldyn:10", "--cores", "16", "--seeds", "60", "--noise", "0.2", "--json"]
    command = [sys.executable, "-m", "bough.cli.main", *words]
    whole = subprocess.run(command, check=True, capture_output=True).stdout
    kept = [*command, "--parallel", "1", "--store", "kept"]
    first = subprocess.Popen(kept, stdout=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + 60
    while not (done := _said_done(tmp_path / "kept")) and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert done
    again = subprocess.run(kept, check=True, capture_output=True)
    assert again.stdout == whole
    total, reused = _done(tmp_path / "kept")
    assert (total, reused >= done) == (60, True)
    assert main([*words, "--store", "kept"]) == 2


def _said_done(store: Path) -> int:
    """How many simulations are done, as the live server says."""
    said = [sys.executable, "-m", "bough.cli.main", "status", "--store", str(store), "--json"]
    found = subprocess.run(said, check=False, capture_output=True)
    return int(msgspec.json.decode(found.stdout)["counts"]["done"]) if found.returncode == 0 else 0
