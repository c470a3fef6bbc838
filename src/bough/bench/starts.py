"""Starting: from nothing to a first result, and a finished workflow started again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from bough.bench.setting import ROUNDS, Setting, store
from bough.bench.timing import Row, Side, alone, by_turns, limit_row, milliseconds

_COLD = 0.35
_AGAIN_LIMIT = 0.4
_OURS = """
import sys, bough, os
with bough.Session(store=sys.argv[1]) as session:
    session.submit(os.getpid).result()
"""
_POOL = """
import os
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(2) as pool:
    pool.submit(os.getpid).result()
"""
_AGAIN = """
import sys, bough
def double(x): return 2 * x
with bough.Session(store=sys.argv[1]) as session:
    found = [session.submit(double, i) for i in range(int(sys.argv[2]))]
    for number, task in enumerate(found): assert task.result() == 2 * number
    if len(sys.argv) > 3: assert all(task.reused for task in found)
"""
_AGAIN_ARRAY = """
import sys, bough
def double(x): return 2 * x
with bough.Session(store=sys.argv[1]) as session:
    found = session.map(double, range(int(sys.argv[2])))
    assert list(found) == list(range(0, 2 * int(sys.argv[2]), 2))
    if len(sys.argv) > 3: assert found[0].reused and found[-1].reused
"""


def measure_cold(setting: Setting) -> Iterator[Row]:
    """Whole processes, from their start to their end."""
    command, script, pool = by_turns(
        [
            Side(lambda: _bough_run(setting.folder)),
            Side(lambda: _python(_OURS, store(setting.folder))),
            Side(lambda: _python(_POOL)),
        ],
        setting.size(ROUNDS, 3 * ROUNDS),
    )
    beside = f"pool: {milliseconds(pool.seconds)}"
    yield limit_row("cold start: `bough run` of one command to its end", command.seconds, _COLD, peer=beside)
    yield limit_row("cold start: script to its end, one function", script.seconds, _COLD, peer=beside)


def measure_again(setting: Setting, count: int = 5_000) -> Iterator[Row]:
    """Everything is known already: how long until that is clear."""
    for name, script in (("loose tasks", _AGAIN), ("array", _AGAIN_ARRAY)):
        words = (script, store(setting.folder), str(count))
        _python(*words)
        found = alone(Side(partial(_python, *words, "again")), ROUNDS)
        yield limit_row(f"a finished workflow of {count:,} ({name}) run again", found.seconds, _AGAIN_LIMIT)


def _python(script: str, *words: str) -> None:
    subprocess.run([sys.executable, "-c", script, *words], check=True)


def _bough_run(folder: str) -> None:
    place = store(folder)
    os.makedirs(place)
    with open(os.path.join(place, "one.txt"), "w") as file:
        file.write("true\n")
    command = [sys.executable, "-m", "bough.cli.main", "run", "one.txt"]
    subprocess.run(command, check=True, cwd=place, capture_output=True)
