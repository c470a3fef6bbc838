"""What the documents show works: their files are written and their commands run, page by page, in order.

In README, tutorial and how-to pages a Python or text block whose first line is `# NAME` is the file NAME, and the lines
of a console block that begin with `$ ` are commands, which must succeed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorial").glob("*.md")),
    *sorted((ROOT / "docs" / "howto").glob("*.md")),
]
BLOCK = re.compile(r"^```(python|text|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w-]+\.(?:py|txt|jdf))\n")


def _run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "BOUGH_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_works(page: Path, tmp_path: Path) -> None:
    try:
        _show(page, tmp_path)
    finally:
        if (tmp_path / "home" / "server" / "server.json").exists():
            _run("bough server stop --executors", tmp_path)


def _show(page: Path, tmp_path: Path) -> None:
    for kind, text in BLOCK.findall(page.read_text()):
        named = FILE.match(text)
        if kind != "console" and named:
            (tmp_path / named[1]).write_text(text)
        for line in text.splitlines() if kind == "console" else []:
            if line.startswith("$ "):
                run = _run(line[2:], tmp_path)
                assert run.returncode == 0, f"{line}\n{run.stdout}{run.stderr}"
                assert "Traceback" not in run.stderr, f"{line}\n{run.stderr}"
