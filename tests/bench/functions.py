"""Functions: arrays, loose tasks, round trips, chains and fans, beside `ProcessPoolExecutor`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Executor
from statistics import median, quantiles
from typing import Any

import calls
from setting import Pair, pair
from timing import Row, compare, cpu_each, milliseconds, once, per_second


def measure(folder: str, *, full: bool) -> Iterator[Row]:
    rounds = 7 if full else 3
    with pair(folder) as both:
        # a tenth of a second each: three rounds of that would measure the machine's other load
        yield _map(both, 4 * rounds, "range", range(100_000))
        yield _map(both, 4 * rounds, "list", list(range(100_000)))
        yield _loose(both, rounds)
        yield from _round_trip(both, 2_000 if full else 500)
        yield _chain(both, rounds)
        yield _fan(both, rounds)
        yield from _growth(both, rounds, 25_000 if full else 5_000)


def _map(both: Pair, rounds: int, what: str, items: Any) -> Row:
    ours, peer = compare(
        both.ours(lambda: list(both.session.map(calls.same, items))),
        both.theirs(lambda: list(both.pool.map(calls.same, items, chunksize=100))),
        rounds,
    )
    count = len(items)
    return Row(
        f"map of {count:,} no-ops over a {what}",
        per_second(count, ours.seconds),
        "pool, chunksize=100",
        per_second(count, peer.seconds),
        peer.seconds / ours.seconds,
        target=1.0,
        cpu=cpu_each(count, ours, peer),
    )


def _submit_all(executor: Executor, count: int) -> None:
    futures = [executor.submit(calls.same, i) for i in range(count)]
    assert [future.result() for future in futures] == list(range(count))


def _loose(both: Pair, rounds: int, count: int = 20_000) -> Row:
    ours, peer = compare(
        both.ours(lambda: _submit_all(both.session, count)),
        both.theirs(lambda: _submit_all(both.pool, count)),
        rounds,
    )
    return Row(
        f"submit of {count:,} no-ops one by one",
        per_second(count, ours.seconds),
        "pool",
        per_second(count, peer.seconds),
        peer.seconds / ours.seconds,
        target=3.0,
        cpu=cpu_each(count, ours, peer),
    )


def _trips(executor: Executor, times: list[float], count: int) -> None:
    for _ in range(count):
        begun = time.perf_counter()
        executor.submit(calls.nothing).result()
        times.append(time.perf_counter() - begun)


def _round_trip(both: Pair, count: int) -> Iterator[Row]:
    times: tuple[list[float], list[float]] = ([], [])
    bunch = 50
    ours, peer = compare(
        both.ours(lambda: _trips(both.session, times[0], bunch)),
        both.theirs(lambda: _trips(both.pool, times[1], bunch)),
        count // bunch,
    )
    for name, pick, target in (("median", median, 1.5), ("p99", lambda found: quantiles(found, n=100)[98], None)):
        mine, theirs = pick(times[0]), pick(times[1])
        cpu = cpu_each(bunch, ours, peer) if name == "median" else ""
        yield Row(
            f"round trip, {name}",
            milliseconds(mine),
            "pool",
            milliseconds(theirs),
            mine / theirs,
            better="low",
            target=target,
            cpu=cpu,
        )


def _chain(both: Pair, rounds: int, length: int = 2_000) -> Row:
    def ours() -> None:
        task = both.session.submit(calls.one_more, 0)
        for _ in range(length - 1):
            task = both.session.submit(calls.one_more, task)
        assert task.result() == length

    def theirs() -> None:
        value = 0
        for _ in range(length):
            value = both.pool.submit(calls.one_more, value).result()

    mine, peer = compare(both.ours(ours), both.theirs(theirs), rounds)
    return Row(
        f"chain of {length:,} dependent functions",
        per_second(length, mine.seconds),
        "pool, the script waits",
        per_second(length, peer.seconds),
        peer.seconds / mine.seconds,
        cpu=cpu_each(length, mine, peer),
    )


def _fan(both: Pair, rounds: int, width: int = 5_000) -> Row:
    def ours() -> None:
        first = both.session.submit(calls.one_more, 0)
        middle = [both.session.submit(calls.one_more, first) for _ in range(width)]
        assert both.session.submit(calls.how_many, middle).result() == width

    def theirs() -> None:
        value = both.pool.submit(calls.one_more, 0).result()
        middle = [both.pool.submit(calls.one_more, value) for _ in range(width)]
        assert both.pool.submit(calls.how_many, [future.result() for future in middle]).result() == width

    mine, peer = compare(both.ours(ours), both.theirs(theirs), rounds)
    return Row(
        f"fan 1 to {width:,} to 1",
        per_second(width + 2, mine.seconds),
        "pool, the script waits",
        per_second(width + 2, peer.seconds),
        peer.seconds / mine.seconds,
        cpu=cpu_each(width + 2, mine, peer),
    )


def _growth(both: Pair, rounds: int, n: int) -> Iterator[Row]:
    """Time per task at n, 2n and 4n, by turns: it should not grow."""
    for name, run, size in (
        ("map", lambda count: list(both.session.map(calls.same, range(count))), 10 * n),
        ("submit", lambda count: _submit_all(both.session, count), n),
    ):
        each: dict[int, list[float]] = {1: [], 2: [], 4: []}
        for _ in range(rounds):
            for times, found in each.items():
                side = both.ours(lambda run=run, count=times * size: run(count))
                found.append(once(side).seconds / (times * size) * 1e6)
                side.settle()
        small, double, big = (median(found) for found in each.values())
        yield Row(
            f"growth of {name}: time per task at 4n over n, n = {size:,}",
            f"{big:.2f} us (2n: {double:.2f})",
            "n",
            f"{small:.2f} us",
            big / small,
            better="low",
            target=1.25,
        )
