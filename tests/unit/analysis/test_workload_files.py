"""Workloads from Python, of whatever `bough simulate` takes: every form of a file, a store, and what is neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bough
from bough.analysis import read_workload
from bough.errors import UserError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_flat_list_is_simulated_from_python(folder: Path) -> None:
    (folder / "list.txt").write_text("a: attr.seconds=4 :: true\nb: attr.seconds=2 after=a :: true\n")
    work = bough.analysis.read_workload("list.txt")
    assert [(task.name, task.seconds, task.after) for task in work.tasks] == [("a", 4.0, ()), ("b", 2.0, (0,))]
    assert bough.sim.simulate(work, bough.sim.one_site(2), "fifo").runs[0].makespan == 6.0
    assert read_workload(folder / "list.txt") == work


def test_arguments_and_times_are_given_as_on_the_command_line(folder: Path) -> None:
    (folder / "wave.py").write_text(
        "from bough.describe import arguments, level\nn = arguments(int)\n@level([(i,) for i in range(n)])\n"
        "def Tile(g, i):\n    g.task(f'./sweep {i}')\n"
    )
    assert [task.seconds for task in read_workload("wave.py", ["3"], seconds=90).tasks] == [90.0] * 3
    with pytest.raises(UserError, match="nothing is known of how long"):
        read_workload("wave.py", ["3"])


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        ("nowhere.json", {}, "cannot read nowhere.json"),
        ("script.py", {}, "submits by itself; run it once, and simulate its store"),
        ("other.json", {}, "neither a recorded workflow"),
        ("list.txt", {"run": 2}, "no store of a run"),
        ("list.txt", {"seconds": -1}, "seconds is -1"),
        (3, {}, "3 is no path"),
        (b"list.txt", {}, "is no path"),
    ],
)
def test_what_is_no_workload_is_said(folder: Path, path: Any, options: dict[str, Any], said: str) -> None:
    (folder / "script.py").write_text("print('hello')\n")
    (folder / "other.json").write_text("{}")
    (folder / "list.txt").write_text("true\n")
    with pytest.raises(UserError, match=said):
        read_workload(path, **options)


def test_the_simulator_points_there() -> None:
    with pytest.raises(UserError, match=r"bough\.analysis\.read_workload"):
        bough.sim.simulate("list.txt", bough.sim.one_site(), "fifo")  # type: ignore[arg-type]
