from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import pytest

from bough.server import cleanup

DETACHED = """
import os, sys
if os.fork(): sys.exit()  # so that it is nobody's child, as leftovers are
os.setsid()
{body}
print(os.getpid(), flush=True)
os.close(1)
import time
time.sleep(100)
"""


def started(mark: str, body: str = "") -> int:
    """A process that bears a mark and whose parent is gone."""
    environment = {**os.environ, "BOUGH_RUN": mark}
    words = [sys.executable, "-c", DETACHED.format(body=body)]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True)
    return int(done.stdout)


def is_alive(pid: int) -> bool:
    return bool(cleanup._stat(pid)) and not cleanup._is_zombie(pid)


@pytest.fixture
def mark() -> Iterator[str]:
    mark = uuid.uuid4().hex
    yield mark
    cleanup.end(mark)


def test_processes_are_found_by_the_mark_in_their_environment(mark: str) -> None:
    ours = started(f"{mark}:7")
    started(f"{mark}x:7")
    started("another")

    assert cleanup.find(f"{mark}:") == [ours]
    assert cleanup.find(f"{mark}:", spare=[ours]) == []


def test_own_children_and_ancestors_are_spared(mark: str) -> None:
    code = f"from bough.server import cleanup; print(cleanup.find({mark!r}))"
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "BOUGH_RUN": mark}, stdout=subprocess.PIPE, check=True
    )
    assert found.stdout.strip() == b"[]"
    child = subprocess.Popen(["sleep", "100"], env={**os.environ, "BOUGH_RUN": mark})
    try:
        assert cleanup.find(mark) == []
    finally:
        child.kill()
        child.wait()


def test_what_is_found_is_ended_with_its_group(mark: str) -> None:
    disguised = "from subprocess import *; print(Popen(['/bin/sleep', '100'], env={}, stdout=DEVNULL).pid)"
    environment = {**os.environ, "BOUGH_RUN": f"{mark}:1"}
    words = [sys.executable, "-c", DETACHED.format(body=disguised)]
    output = subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True).stdout.split()
    child, parent = map(int, output)
    assert is_alive(child)

    assert cleanup.end(f"{mark}:") == [parent]

    assert not is_alive(parent)
    until = time.monotonic() + 60
    while is_alive(child) and time.monotonic() < until:
        time.sleep(0.01)
    assert not is_alive(child)


def test_an_executor_gets_time_to_leave_by_itself(mark: str, tmp_path) -> None:
    note = tmp_path / "spilled"
    body = f"import time; time.sleep(0.3); open({str(note)!r}, 'w').close(); os._exit(0)"
    script = DETACHED.replace("{body}", "").replace("time.sleep(100)", body)
    words = [sys.executable, "-c", script, "bough.executor"]
    subprocess.run(words, env={**os.environ, "BOUGH_RUN": mark}, stdout=subprocess.PIPE, check=True)

    cleanup.end(mark, patience=10)

    assert note.exists()
