"""Executors that pilots start: they have waited in a queue, and do not give up when the way to the server breaks."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path


def hung_up_on(folder: Path, *words: str) -> tuple[int, int]:
    """Start an executor at a server that hangs up on every hello; how often it came, and its exit code."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "sock"))
        listener.listen()
        listener.settimeout(0.1)
        begin = [sys.executable, "-m", "bough.executor", "--server", f"unix:{folder}/sock", "--cores", "1", *words]
        process = subprocess.Popen(begin, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        came = 0
        try:
            while process.poll() is None:
                try:
                    peer, _ = listener.accept()
                except TimeoutError:
                    continue
                came += 1
                with peer:
                    peer.recv(1000)
        finally:
            process.kill()
            process.wait()
    return came, process.returncode


def test_a_pilot_that_is_hung_up_on_before_its_welcome_tries_again_until_its_time_is_over(tmp_path: Path) -> None:
    came, code = hung_up_on(tmp_path, "--pilot", "1", "--give-up", "1.5s")
    assert came > 1
    assert code == 0


def test_another_executor_says_so_and_ends(tmp_path: Path) -> None:
    assert hung_up_on(tmp_path, "--give-up", "1s") == (1, 3)
