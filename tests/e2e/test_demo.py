"""The folding example, small: generations run, the picture appears, and a second run reuses all of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "folding"
BOUGH = Path(sys.executable).with_name("bough")
SMALL = ("--sequence", "HPHPPHHPHPPHPHHPPHPH", "--instances", "6", "--iterations", "10", "--generations", "3")


def _bough(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MPLCONFIGDIR": str(folder / "matplotlib"), "COLUMNS": "100"}
    return subprocess.run(
        [BOUGH, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("fold.py", "plot.py", "workflow.py"):
        shutil.copy(EXAMPLE / name, tmp_path)
    return tmp_path


def test_the_demo_folds_draws_and_reuses_everything_the_second_time(folder: Path) -> None:
    first = _bough(folder, "run", "workflow.py", *SMALL)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "Generations" in first.stdout
    assert (folder / "folding.png").read_bytes().startswith(b"\x89PNG")
    folds = sorted((folder / "folds").rglob("*.json"))
    assert len(folds) in {12, 18}
    before = {path: path.stat().st_mtime_ns for path in [*folds, folder / "folding.png"]}

    began = time.monotonic()
    second = _bough(folder, "run", "workflow.py", *SMALL)
    took = time.monotonic() - began
    assert second.returncode == 0, second.stdout + second.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert took < 20  # two seconds on an idle machine; a test shares it

    counted = _bough(
        folder, "sql", "--json", "select sum(reused) as reused, sum(length) as tasks from tasks where run = 2"
    )
    [row] = json.loads(counted.stdout)
    assert row["reused"] == row["tasks"] == len(folds) + 1


def test_a_changed_program_is_run_again(folder: Path) -> None:
    assert _bough(folder, "run", "workflow.py", *SMALL).returncode == 0
    picture = (folder / "folding.png").stat().st_mtime_ns
    with (folder / "plot.py").open("a") as program:
        program.write("# changed\n")
    assert _bough(folder, "run", "workflow.py", *SMALL).returncode == 0
    assert (folder / "folding.png").stat().st_mtime_ns != picture
