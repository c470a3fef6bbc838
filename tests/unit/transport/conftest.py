"""Every test has a home of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def bough_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOUGH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    return tmp_path / "home"
