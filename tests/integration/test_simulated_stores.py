"""A run of a session as a workload: from Python and on the command line, by its store, its journal and its number."""

from __future__ import annotations

from pathlib import Path

import pytest

import bough
from bough.errors import UnknownName


def test_the_store_of_a_run_is_simulated_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with bough.Session(name="nap", cores=1) as s:
        first = s.command("sleep 0.05", name="first")
        s.command("sleep 0.05", name="second", after=first).result()
    work = bough.analysis.read_workload(".bough/nap")
    assert [(task.name, task.after) for task in work.tasks] == [("first", ()), ("second", (0,))]
    assert all(0.05 <= task.seconds < 60 for task in work.tasks)
    assert bough.analysis.read_workload(tmp_path / ".bough/nap/journal.db", run=1) == work
    (run,) = bough.sim.simulate(work, bough.sim.one_site(2), "fifo").runs
    assert run.makespan == pytest.approx(sum(task.seconds for task in work.tasks))
    with pytest.raises(UnknownName, match="has no run 7"):
        bough.analysis.read_workload(".bough/nap", run=7)
