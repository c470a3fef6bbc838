"""A long queue: how fast it is taken in, what it weighs, and whether it drains as fast at its end as at its beginning.

Each is measured in a process of its own (`python -m bough.bench.measure_queues`), so that the memory of a client is
that of these futures alone. Rule: nothing drains before all has arrived: a task that takes both cores keeps it waiting.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING

import bough
from bough.bench import timed_functions
from bough.bench.bench_setup import ROUNDS, WORKERS, BenchSetting, store, submit_numbers, warm
from bough.bench.timing import BenchRow, bytes_row, limit_row, resident
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.session.session import Session

_MILLION = 1_000_000
_LIMITS = {"array": (0.5, 16.0), "loose": (15.0, 600.0)}  # seconds for a million, bytes a task in the server
_TOGETHER = 1_000.0  # bytes a loose task in server and client


def measure_queue(setting: BenchSetting) -> Iterator[BenchRow]:
    """As one array, and one by one."""
    for kind, (seconds, most) in _LIMITS.items():
        count = _MILLION if kind == "array" else setting.size(100_000, _MILLION)
        runs = [_run(setting.folder, kind, count) for _ in range(setting.size(1, ROUNDS))]
        found = {key: median(run[key] for run in runs) for key in runs[0]}
        what = f"{count:,} tasks queued, {'one array' if kind == 'array' else 'one by one'}"
        yield limit_row(f"{what}: all arrived", found["arrived"], seconds * count / _MILLION)
        yield bytes_row(f"{what}: server memory a task", found["server"] / count, most)
        if kind == "loose":
            both = (found["server"] + found["client"]) / count
            yield bytes_row(f"{what}: memory a task, client's future included", both, _TOGETHER)
        yield BenchRow(
            f"{what}: drained, last 10% beside the first",
            f"{count / 10 / found['last']:,.0f}/s",
            "first 10%",
            f"{count / 10 / found['first']:,.0f}/s",
            found["first"] / found["last"],
            target=0.9,
        )


def _run(folder: str, kind: str, count: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bough.bench.measure_queues", store(folder), kind, str(count)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {key: float(value) for key, value in found.items()}


# --- in the process of its own ----------------------------------------------------------------------------


def main(place: str, kind: str, count: int) -> dict[str, float]:
    """Queue, weigh and drain."""
    with bough.Session(name="queue", store=place, cores=WORKERS) as session:
        warm(session)
        with _closed_gate(session, os.path.join(place, "gate")):
            gc.collect()
            server, client = _weigh(session)
            begun = time.perf_counter()
            values = submit_numbers(session, kind, count)
            session.ask(questions.Status())  # everything sent before is in a turn when this is answered
            arrived = time.perf_counter() - begun
            full_server, full_client = _weigh(session)
        first, last = _drain(values, count)
    return {
        "arrived": arrived,
        "server": full_server - server,
        "client": full_client - client,
        "first": first,
        "last": last,
    }


@contextlib.contextmanager
def _closed_gate(session: Session, path: str) -> Iterator[None]:
    """Nothing starts inside of the block."""
    gate = session.options(cores=WORKERS, memo=False).submit(timed_functions.wait_for, path)
    try:
        while not gate.running():
            time.sleep(0.002)
        yield
    finally:
        with open(path, "w"):
            pass
    gate.result()


def _weigh(session: Session) -> tuple[int, int]:
    return resident(session.pid), resident(os.getpid())


def _drain(values: Iterator[object], count: int) -> tuple[float, float]:
    """Seconds that the first and the last tenth took, in the order of submission."""
    tenth, marks = count // 10, [time.perf_counter()]
    for many in (tenth, count - 2 * tenth, tenth):
        assert sum(1 for _ in islice(values, many)) == many
        marks.append(time.perf_counter())
    return marks[1] - marks[0], marks[3] - marks[2]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))  # noqa: T201 - for the process that asked
