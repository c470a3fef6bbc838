"""A campaign of simulations as a workflow: the same report, to the byte, as one after the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

import bough
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
