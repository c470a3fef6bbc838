"""Starting: from nothing to a first result, and a finished workflow started again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from setting import store
from timing import Row, Side, alone, compare, milliseconds

_OURS = """
import sys, bough, os
with bough.Session(store=sys.argv[1]) as session:
    session.submit(os.getpid).result()
    if len(sys.argv) > 2: os._exit(0)
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
    assert sum(session.map(double, range(int(sys.argv[2])))) >= 0
"""


def measure(folder: str, *, full: bool) -> Iterator[Row]:
    rounds = 11 if full else 5
    yield _row(
        "cold start: `bough run` of one command to its end",
        *_pair(lambda: _bough_run(folder), lambda: _python(_POOL), rounds),
        0.4,
    )
    yield _row(
        "cold start: script to its end, one function",
        *_pair(lambda: _python(_OURS, store(folder)), lambda: _python(_POOL), rounds),
        0.4,
    )
    yield from _again(folder, 5 if full else 3)


def _python(script: str, *words: str) -> None:
    subprocess.run([sys.executable, "-c", script, *words], check=True)


def _bough_run(folder: str) -> None:
    place = store(folder)
    os.makedirs(place)
    with open(os.path.join(place, "one.txt"), "w") as file:
        file.write("true\n")
    command = [sys.executable, "-m", "bough.cli.main", "run", "one.txt"]
    subprocess.run(command, check=True, cwd=place, capture_output=True)


def _pair(ours, theirs, rounds: int):
    return compare(Side(ours), Side(theirs), rounds)


def _row(subject: str, mine, peer, target: float) -> Row:
    return Row(
        subject,
        milliseconds(mine.seconds),
        f"limit {target:g} s (pool: {milliseconds(peer.seconds)})",
        milliseconds(target),
        mine.seconds / target,
        better="low",
        target=1.0,
    )


def _again(folder: str, rounds: int, count: int = 5_000) -> Iterator[Row]:
    for name, script, more in (("loose tasks", _AGAIN, ("again",)), ("array", _AGAIN_ARRAY, ())):
        place = store(folder)
        _python(script, place, str(count))
        words = (script, place, str(count), *more)
        mine = alone(Side(lambda words=words: _python(*words)), rounds)
        yield Row(
            f"a finished workflow of {count:,} ({name}) run again",
            milliseconds(mine.seconds),
            "limit 1 s",
            milliseconds(1.0),
            mine.seconds,
            better="low",
            target=1.0,
        )
