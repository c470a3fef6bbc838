"""A minute of the soak; see soak.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from soak import soak

SECONDS = float(os.environ.get("BOUGH_SOAK_SECONDS", "60"))
TASKS = int(os.environ.get("BOUGH_SOAK_TASKS", str(int(SECONDS / 600 * 200_000))))
SEED = int(os.environ.get("BOUGH_SOAK_SEED", "1"))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 1.5 + 400)
def test_after_a_soak_every_task_is_done_once_per_success_and_nothing_is_left(tmp_path: Path) -> None:
    soak(tmp_path, SECONDS, TASKS, SEED)
