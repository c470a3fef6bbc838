"""A service of real processes without anything that runs tasks, for tests of sites, and its command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import PATIENCE
from workshop import Workshop

from bough.api.session.session import opened_sessions


class Shop(Workshop):
    """A server without anything that runs tasks."""

    def bough(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "bough.cli.main", *words],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}{self.log()}"
        return done.stdout + done.stderr

    def log(self) -> str:
        return self.server.said() if self.server is not None else ""

    def pilots(self) -> list[object]:
        return [pilot for site in self.ask("sites") for pilot in site["pilots"]]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    folder = tmp_path / "w"
    folder.mkdir()
    monkeypatch.chdir(folder)
    made = Shop(folder)
    made.environment["XDG_CACHE_HOME"] = str(folder / "cache")
    made.environment["PYTHONWARNINGS"] = "ignore"
    monkeypatch.setenv("BOUGH_HOME", str(made.home))
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    yield made
    made.clean_up()
    opened_sessions.clear()
