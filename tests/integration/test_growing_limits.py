"""Retries with more memory or time each, with real processes."""

from __future__ import annotations

from pathlib import Path

import bough

HOG = "import time; data = bytearray(150 << 20); time.sleep(1.5)"


def test_attempts_get_more_memory_and_time_until_they_suffice(tmp_path: Path) -> None:
    with bough.Session(cores=2, store=tmp_path / "store") as session:
        hog = session.command("python3 -c {code}", code=HOG, memory="60MB*2", retries=3)
        slow = session.command("sleep 1", timeout="0.4s*2", retries=3)
        assert hog.result(60).returncode == slow.result(60).returncode == 0
        with session.jobs() as jobs:
            rows = jobs.query("SELECT id, state, message FROM attempts ORDER BY id, attempt")[1]
    told = [(number, state, message or "") for number, state, message in rows]
    assert [state for number, state, _ in told if number == hog.id] == ["failed", "failed", "done"]
    limits = [message.rpartition("the limit is ")[2] for number, _, message in told if number == hog.id]
    assert limits[:2] == ["60.0 MB", "120.0 MB"]
    times = [message for number, _, message in told if number == slow.id]
    assert times[:2] == ["ran longer than 0.4 s", "ran longer than 0.8 s"]
