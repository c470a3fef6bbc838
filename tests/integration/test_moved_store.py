"""A project is moved or copied with its store: what was done is reused there, and can be looked at."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import bough, json
from pathlib import Path
def big(n): return b"x" * n
with bough.Session(name="w", reuse="always") as s:
    a = s.command("sort {src:r} > {dst:w}; echo sorted >&2", src="in.txt", dst="out.txt")
    b = s.command("cat {x:r} > {y:w}", x=a, y="sub/two.txt")
    sweep = s.sweep("cat {q:r} > {o:w}; echo {e}", bough.product(q=["in.txt"], e=[1, 2]), o="hits/{q.stem}.{e}.txt")
    c = s.command("echo plain", stdin=Path("in.txt"))
    f = s.submit(big, 3_000_000)
    g = s.submit(len, f)
    tasks = [a, b, *sweep, c, f, g]
    assert g.result() == len(f.result()) == 3_000_000
    assert (a.result().stderr, sweep[1].result().stdout) == ("sorted\\n", "2\\n")
    print(json.dumps({"reused": [task.reused for task in tasks], "two": b.outputs["y"]}))
"""


def run(folder: Path, *words: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "BOUGH_SERVER"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def bough(folder: Path, *words: str) -> str:
    return run(folder, "-m", "bough.cli.main", *words)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "in.txt").write_text("b\na\n")
    (folder / "script.py").write_text(SCRIPT)
    assert not any(json.loads(run(folder, "script.py"))["reused"])
    return folder


def test_a_moved_project_goes_on_where_it_was(project: Path) -> None:
    moved = project.rename(project.parent / "moved")
    assert bough(moved, "log", "1") == "sorted\n"
    assert "is done" in bough(moved, "explain", "1")
    assert bough(moved, "sql", "--json", "select count(*) as n from tasks") == '[{"n": 6}]\n'
    said = json.loads(run(moved, "script.py"))
    assert said == {"reused": [True] * 7, "two": f"{moved}/sub/two.txt"}
    assert bough(moved, "log", "--stderr", "1") == "sorted\n"
    third = moved.rename(project.parent / "third")
    assert json.loads(run(third, "script.py"))["reused"] == [True] * 7


def test_a_copy_is_a_project_of_its_own(project: Path) -> None:
    copy = project.parent / "copy"
    shutil.copytree(project, copy, symlinks=True)  # with times, as cp -a
    assert json.loads(run(copy, "script.py"))["reused"] == [True] * 7
    (copy / "out.txt").unlink()
    assert json.loads(run(copy, "script.py"))["reused"][0] is False  # its own file is gone
    assert json.loads(run(project, "script.py"))["reused"] == [True] * 7
