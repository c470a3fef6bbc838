"""What this machine is, and what it can do without any scheduler: start programs, pass messages, write rows, sync.

Rule: each limit is a rate, and nothing of ours stands beside it; the machine is described with how busy it is.
"""

from __future__ import annotations

import os
import platform
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from statistics import median

from bough.bench import timed_functions
from bough.bench.bench_setup import ROUNDS, WORKERS, BenchSetting, store
from bough.bench.timing import BenchRow

_ECHO = """
import socket, sys
line = socket.socket(fileno=int(sys.argv[1]))
while data := line.recv(1 << 16): line.sendall(data)
"""
_SINK = """
import socket, sys
line = socket.socket(fileno=int(sys.argv[1]))
left = int(sys.argv[2])
while left: left -= len(line.recv(1 << 16))
line.sendall(b"x")
"""


def measure_limits(setting: BenchSetting) -> Iterator[BenchRow]:
    """Each as a rate; nothing of ours stands beside it."""
    with ProcessPoolExecutor(WORKERS) as pool:
        list(pool.map(timed_functions.same, range(100)))
        for name, loop in (("posix_spawn", timed_functions.spawn_loop), ("subprocess.run", timed_functions.run_loop)):
            yield _limit(f"{name} of /bin/true, two processes", _two_loops(pool, loop, setting.size(500, 2_000)))
    yield _limit("ping-pong between two processes", lambda: ping_pong(setting.size(2_000, 20_000)))
    for each in (1, 100):
        frames = setting.size(20_000, 100_000) // each
        yield _limit(f"messages of 64 bytes to another process, {each} a write", _stream(frames, each))
    folder = store(setting.folder)
    os.makedirs(folder)
    yield _limit("SQLite, one row a commit", lambda: sqlite_rate(f"{store(folder)}.db", 5_000, 1))
    yield _limit("SQLite, rows in commits of 100", lambda: sqlite_rate(f"{store(folder)}.db", 50_000, 100))
    yield _limit("fsync of a file that grew by 128 bytes", lambda: _fsync_rate(folder, setting.size(200, 2_000)))


def _limit(subject: str, rate: Callable[[], float]) -> BenchRow:
    found = median(rate() for _ in range(ROUNDS))
    return BenchRow(f"limit: {subject}", "", "this machine", f"{found:,.0f}/s", None)


def _two_loops(pool: ProcessPoolExecutor, loop: Callable[[int], float], count: int) -> Callable[[], float]:
    return lambda: WORKERS * count / max(pool.map(loop, [count] * WORKERS))


def ping_pong(count: int) -> float:
    """Messages there and back a second, between two Python processes on a Unix socket."""
    here, there = socket.socketpair()
    with here, _other(_ECHO, there):
        here.sendall(b"x")
        here.recv(64)  # it is up
        begun = time.perf_counter()
        for _ in range(count):
            here.sendall(b"0123456789abcdef")
            here.recv(64)
        rate = count / (time.perf_counter() - begun)
        here.shutdown(socket.SHUT_WR)
    return rate


def _stream(frames: int, each: int) -> Callable[[], float]:
    def run() -> float:
        here, there = socket.socketpair()
        data = b"x" * 64 * each
        with here, _other(_SINK, there, str(len(data) * (frames + 1))):
            here.sendall(data)
            begun = time.perf_counter()
            for _ in range(frames):
                here.sendall(data)
            here.recv(1)
            return frames * each / (time.perf_counter() - begun)

    return run


class _other:  # noqa: N801 - used as a verb
    """Another Python process with its end of a socket, until the block is left."""

    def __init__(self, script: str, end: socket.socket, *words: str) -> None:
        command = [sys.executable, "-c", script, str(end.fileno()), *words]
        self._process = subprocess.Popen(command, pass_fds=[end.fileno()])
        end.close()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def sqlite_rate(path: str, count: int, each: int, data: bytes = b"x" * 64) -> float:
    """Rows a second, so many of them a commit, set up as our journal is."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("CREATE TABLE journal (turn INTEGER PRIMARY KEY, time REAL, facts BLOB)")
    begun = time.perf_counter()
    for first in range(0, count, each):
        if each > 1:
            database.execute("BEGIN")
        rows = ((turn, 0.0, data) for turn in range(first, first + each))
        database.executemany("INSERT INTO journal VALUES (?, ?, ?)", rows)
        if each > 1:
            database.execute("COMMIT")
    rate = count / (time.perf_counter() - begun)
    database.close()
    return rate


def _fsync_rate(folder: str, count: int) -> float:
    with open(store(folder), "wb", buffering=0) as file:
        begun = time.perf_counter()
        for _ in range(count):
            file.write(b"x" * 128)
            os.fsync(file.fileno())
        return count / (time.perf_counter() - begun)


# --- the machine --------------------------------------------------------------------------------------


def machine() -> dict[str, object]:
    """For programs."""
    model = next((_after(line) for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    memory = next((int(_after(line).split()[0]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "processor": model or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 2**20, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[1], 1),
        "date": time.strftime("%Y-%m-%d"),
    }


def machine_line() -> str:
    """For people."""
    found = machine()
    return (
        f"{found['cores']} cores of {found['processor']}, {found['memory_gb']} GB, {found['system']}, "
        f"Python {found['python']}; load average over 5 minutes {found['load']}; {found['date']}"
    )


def _lines(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.readlines()
    except OSError:
        return []


def _after(line: str) -> str:
    return line.partition(":")[2].strip()
