"""Commands beside two bare loops of `posix_spawn`, and short sleeps beside two bare loops of `sleep`."""

from __future__ import annotations

from collections.abc import Iterator

import calls
from setting import WORKERS, Pair, pair
from timing import Row, compare, cpu_each, per_second

import bough


def measure(folder: str, *, full: bool) -> Iterator[Row]:
    rounds = 5 if full else 3
    with pair(folder) as both:
        yield _array(both, rounds, 10_000 if full else 2_500)
        yield _loose(both, rounds, 5_000 if full else 1_000)
        yield _sleeps(both, rounds, 400 if full else 200, 0.01)


def _bare(both: Pair, count: int) -> None:
    list(both.pool.map(calls.spawn_loop, [count // WORKERS] * WORKERS))


def _array(both: Pair, rounds: int, count: int) -> Row:
    def ours() -> None:
        # memo=False: otherwise the second round would find what the first has done
        both.session.sweep("/bin/true {i}", bough.product(i=range(count)), memo=False).wait_all()

    mine, peer = compare(both.ours(ours), both.theirs(lambda: _bare(both, count)), rounds)
    return _row(f"{count:,} commands /bin/true, one array", count, mine, peer, 0.85)


def _loose(both: Pair, rounds: int, count: int) -> Row:
    def ours() -> None:
        tasks = [both.session.command(["/bin/true"], memo=False) for _ in range(count)]
        for task in tasks:
            task.result()

    mine, peer = compare(both.ours(ours), both.theirs(lambda: _bare(both, count)), rounds)
    return _row(f"{count:,} commands /bin/true, one by one", count, mine, peer, None)


def _row(subject: str, count: int, mine, peer, target) -> Row:
    return Row(
        subject,
        per_second(count, mine.seconds),
        "two posix_spawn loops",
        per_second(count, peer.seconds),
        peer.seconds / mine.seconds,
        target=target,
        cpu=cpu_each(count, mine, peer),
    )


def _sleeps(both: Pair, rounds: int, count: int, seconds: float) -> Row:
    mine, peer = compare(
        both.ours(lambda: list(both.session.map(_sleep, [seconds] * count))),
        both.theirs(lambda: list(both.pool.map(calls.sleep_loop, [count // 2] * 2, [seconds] * 2))),
        rounds,
    )
    ideal = count * seconds / WORKERS
    return Row(
        f"efficiency of {count} sleeps of {seconds * 1e3:g} ms",
        f"{ideal / mine.seconds:.3f}",
        "two sleep loops",
        f"{ideal / peer.seconds:.3f}",
        peer.seconds / mine.seconds,
        target=0.95,
    )


def _sleep(seconds: float) -> int:
    return calls.sleep_loop(1, seconds)
