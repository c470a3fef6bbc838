"""Forks of users: Python 3.12 and later warn of threads, but not of ours alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FORK = """
def fork():
    import multiprocessing, os, sys
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(abs, (-1,))
"""


def run(folder: Path, text: str) -> str:
    """Run a script with every warning shown; what it said of threads."""
    (folder / "flow.py").write_text(text)
    words = [sys.executable, "-W", "always::DeprecationWarning", "flow.py"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return "".join(line for line in (done.stdout + done.stderr).splitlines() if "multi-threaded" in line)


def test_a_script_that_forks_is_not_warned_of_the_threads_of_its_session(tmp_path: Path) -> None:
    body = "import bough\nwith bough.Session(cores=1) as s:\n    s.submit(abs, -1).result()\n    fork()\n"
    assert run(tmp_path, FORK + body) == ""


def test_a_function_that_forks_is_not_warned_of_the_thread_of_its_worker(tmp_path: Path) -> None:
    body = """
import bough
with bough.Session(cores=1) as s:
    def twice():
        fork()
        import os, threading
        return [t.name for t in threading.enumerate()]
    t = s.submit(twice)
    print(t.result(), t.stderr)
"""
    assert run(tmp_path, FORK + body) == ""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 does not warn")
def test_a_script_with_threads_of_its_own_is_warned(tmp_path: Path) -> None:
    body = """
import bough, threading
with bough.Session(cores=1) as s:
    done = threading.Event()
    fork()  # not told
    thread = threading.Thread(target=done.wait)
    thread.start()
    import os
    pid = os.fork()
    if not pid:
        os._exit(0)
    done.set()
    thread.join()
"""
    assert run(tmp_path, FORK + body).count("multi-threaded") == 1
