"""Big values where /dev/shm is small, and while others fill it: a real one, in a mount namespace of its own.

That takes root; without, these tests are skipped.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bough.movers.value_places import MEMORY

pytest.importorskip("numpy")
_SIZE = "100m"  # 64 MB of it stay free for others


def _can_mount() -> bool:
    words = ["unshare", "-m", "mount", "-t", "tmpfs", "none", MEMORY]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(
    not _can_mount(), reason="a small /dev/shm is mounted in a namespace, which needs root: run the tests as root"
)

COMMON = """
import gc, os, signal, subprocess, sys, time
import numpy as np
import bough

MB = 1 << 20

def made(seed, size):
    return np.random.default_rng(seed).integers(0, 255, size * MB, dtype=np.uint8)

def total(x, *_):
    return int(x.sum(dtype=np.int64))

def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, os.listdir("/dev/shm")
        time.sleep(0.05)

def taken():
    found = os.statvfs("/dev/shm")
    return (found.f_blocks - found.f_bfree) * found.f_frsize
"""

LARGER = """
arrays = [made(seed, 24) for seed in range(4)]
with bough.Session(cores=2, store="store", preload=False) as s:
    calls = [s.submit(total, one) for one in arrays]
    assert taken() >= 24 * MB  # what has room goes there
    larger = s.submit(total, made(9, 120))
    results = [s.submit(made, seed, size) for seed, size in enumerate([30, 120, 30])]
    shared = s.share(made(5, 30))
    more = [s.submit(total, shared, number) for number in range(3)]
    assert [call.result() for call in calls] == [total(one) for one in arrays]
    assert larger.result() == total(made(9, 120))
    for seed, (task, size) in enumerate(zip(results, [30, 120, 30])):
        assert (task.result() == made(seed, size)).all()
    assert [task.result() for task in more] == [total(made(5, 30))] * 3

    # another program takes all that is left
    with open("/dev/shm/others", "wb") as file:
        try:
            while True:
                file.write(bytes(MB))
        except OSError:
            pass
    x = made(11, 24)
    assert s.submit(total, x).result() == total(x)
    assert (s.submit(made, 12, 30).result() == made(12, 30)).all()
    found = s.submit(np.copy, x)  # a chain, from the disk to the disk
    assert s.submit(total, found).result() == total(x)
    os.unlink("/dev/shm/others")
    del x, arrays, shared, calls, larger, results, more, found, task
    gc.collect()
    until(lambda: not [one for one in os.scandir("store/args") if one.stat().st_size > MB])
assert not os.listdir("/dev/shm"), os.listdir("/dev/shm")
until(lambda: taken() == 0)
print("all is well")
"""

KILLED = """
if len(sys.argv) > 1:
    with bough.Session(cores=2, store="store", preload=False) as s:
        kept = [s.submit(made, seed, 10) for seed in range(3)]
        x = made(5, 24)
        def stays(x):
            open("began", "w").close()
            time.sleep(1000)
        s.submit(stays, x)
        assert (kept[0].result() == made(0, 10)).all()
        until(lambda: os.path.exists("began"))
        print(s.host.pid, flush=True)
        time.sleep(1000)
script = subprocess.Popen([sys.executable, "script.py", "inner"], stdout=subprocess.PIPE)
server = int(script.stdout.readline())
assert taken() >= 24 * MB
os.kill(server, signal.SIGKILL)
time.sleep(0.5)  # the executor notices that first
script.kill()
script.wait()
until(lambda: taken() == 0 and not os.listdir("/dev/shm"))  # the worker that maps the argument has ended, too
with bough.Session(cores=2, store="store", preload=False) as s:  # the same calls: from the store, or made anew
    for seed in range(3):
        assert (s.submit(made, seed, 10).result() == made(seed, 10)).all()
until(lambda: taken() == 0 and not os.listdir("/dev/shm"))
print("all is well")
"""


@pytest.mark.parametrize("script", [LARGER, KILLED], ids=["larger", "killed"])
def test_values_are_right_and_nothing_is_left(tmp_path: Path, script: str) -> None:
    (tmp_path / "script.py").write_text(COMMON + script)
    mounted = f'mount -t tmpfs -o size={_SIZE} none {MEMORY} && exec "$0" script.py'
    words = ["unshare", "-m", "--propagation", "private", "/bin/sh", "-c", mounted, sys.executable]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.endswith("all is well\n"), done.stdout + done.stderr
