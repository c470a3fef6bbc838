"""A small run of the command line's fuzzer, as a program of its own: it changes folder, environment and streams."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.fuzz.fuzz_cli import leaves

FUZZER = Path(__file__).with_name("fuzz_cli.py")


def test_hostile_command_lines_are_refused_in_one_line() -> None:
    words = [sys.executable, str(FUZZER), "--inputs", "2500", "--processes", "15", "--seed", "20261116"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=115, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    missing = [leaf.name for leaf in leaves() if f" {leaf.name}: exit" not in done.stdout]
    assert set(missing) <= {"server start", "executor start", "relay start", "watch", "browse"}
