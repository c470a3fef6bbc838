"""A small run of the descriptions' fuzzer, as a program of its own: it changes folder, environment and streams."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.fuzz.fuzz_descriptions import FORMS

FUZZER = Path(__file__).with_name("fuzz_descriptions.py")


def test_broken_descriptions_are_read_or_refused() -> None:
    words = [sys.executable, str(FUZZER), "--inputs", "6000", "--processes", "15", "--seed", "20261116"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=115, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    for form in FORMS:
        assert f" {form}: exit 0" in done.stdout
