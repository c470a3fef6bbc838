"""A run of a session as a workload: from Python and on the command line, by its store, its journal and its number."""

from __future__ import annotations

from pathlib import Path

import pytest

import bough
from bough.analysis.replayed_runs import predict, recorded_run
from bough.cli.commands.simulate import recorded_graph
from bough.errors import UnknownName
from bough.model.sites.resources import Needs


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


def test_what_tasks_asked_for_is_known_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with bough.Session(name="asking", cores=4) as s:
        s.command("true", name="big", memory="64MB")
        s.command("true", name="plain")
        s.command("true", name="picky", requires="cores >= 1", sites=["local"])
        s.sweep("true {n}", bough.product(n=range(3)), memory="32MB")
    work = bough.analysis.read_workload(".bough/asking")
    needs = {task.name: task.needs for task in work.tasks[:3]}
    assert needs["big"] == Needs(1, 64_000_000)
    assert needs["plain"] == Needs(1)
    assert (needs["picky"].sites, needs["picky"].requires) == (("local",), "cores >= 1")
    assert [task.memory for task in work.tasks[3:]] == [32_000_000] * 3
    run = recorded_run(recorded_graph(".bough/asking"))
    assert run.executors[0].has.cores == 4
    assert predict(run).outcome.ended
