"""Functions: arrays, loose tasks and round trips, beside `ProcessPoolExecutor` and, where it is installed, joblib."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from statistics import median, quantiles
from typing import Any

from bough.bench import calls
from bough.bench.limits import ping_pong
from bough.bench.setting import ROUNDS, WORKERS, Pair, Setting
from bough.bench.timing import Row, Side, by_turns, compare, cpu_each, milliseconds, rate_row, time_row


def measure_map(setting: Setting) -> Iterator[Row]:
    """One array of 100,000, over a range and over a list."""
    both = setting.pair()
    # a tenth of a second each: three rounds of that would measure the machine's other load
    rounds = (4 if setting.full else 2) * ROUNDS
    for what, items in (("range", range(100_000)), ("list", list(range(100_000)))):
        sides = [both.ours(partial(map_all, both.session, items)), _pool_map(both, items)]
        names = ["pool, chunksize=100"]
        parallel = _joblib()
        if parallel is not None:
            parallel(items)
            sides.append(Side(partial(parallel, items)))
            names.append("joblib")
        ours, *peers = by_turns(sides, rounds)
        subject = f"map of {len(items):,} no-ops over a {what}"
        for name, peer in zip(names, peers, strict=True):
            yield rate_row(subject, len(items), ours, name, peer, target=2.0)


def _pool_map(both: Pair, items: Sequence[int]) -> Side:
    return both.theirs(lambda: list(both.pool.map(calls.same, items, chunksize=100)))


def _joblib() -> Any:
    """A warm pool of joblib's, if this environment happens to have it: it is not one of our dependencies."""
    try:
        joblib = importlib.import_module("joblib")
    except ImportError:
        return None
    pool, call = joblib.Parallel(n_jobs=WORKERS), joblib.delayed(calls.same)
    return lambda items: pool(call(item) for item in items)


def map_all(session: Executor, items: Sequence[int]) -> None:
    """One array, all its values collected."""
    assert len(list(session.map(calls.same, items))) == len(items)


def submit_all(executor: Executor, count: int) -> None:
    """Loose tasks with a future each, all their values collected."""
    futures = [executor.submit(calls.same, i) for i in range(count)]
    assert [future.result() for future in futures] == list(range(count))


def measure_submit(setting: Setting) -> Iterator[Row]:
    """Loose tasks, one by one."""
    both, count = setting.pair(), setting.size(5_000, 20_000)
    ours, peer = compare(
        both.ours(lambda: submit_all(both.session, count)),
        both.theirs(lambda: submit_all(both.pool, count)),
        ROUNDS,
        setting.patience,
    )
    yield rate_row(f"submit of {count:,} no-ops one by one", count, ours, "pool", peer, target=5.0)


def trips(executor: Executor, times: list[float], count: int) -> None:
    """Submit one and wait for it, so many times."""
    for _ in range(count):
        begun = time.perf_counter()
        executor.submit(calls.nothing).result()
        times.append(time.perf_counter() - begun)


def measure_round_trip(setting: Setting) -> Iterator[Row]:
    """One function there and back, on warm workers."""
    both, bunch = setting.pair(), 50
    times: tuple[list[float], list[float]] = ([], [])
    ours, peer = compare(
        both.ours(lambda: trips(both.session, times[0], bunch)),
        both.theirs(lambda: trips(both.pool, times[1], bunch)),
        setting.size(18, 60),
    )
    mine = median(times[0])
    yield _trip("median", mine, median(times[1]), 1.2, cpu_each(bunch, ours, peer))
    yield _trip("p99", _p99(times[0]), _p99(times[1]), 1.5)
    yield time_row("round trip, median", mine, "two processes' bare ping-pong", 1 / ping_pong(2_000))


def _p99(times: list[float]) -> float:
    return quantiles(times, n=100)[98]


def _trip(which: str, mine: float, theirs: float, target: float, cpu: str = "") -> Row:
    return Row(
        f"round trip, {which}",
        milliseconds(mine),
        "pool",
        milliseconds(theirs),
        mine / theirs,
        better="low",
        target=target,
        cpu=cpu,
    )
