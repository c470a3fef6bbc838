"""Efficiency: short sleeps on two slots, beside two processes that do nothing but sleep."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from functools import partial

from bough.bench import calls
from bough.bench.setting import ROUNDS, WORKERS, Pair, Setting
from bough.bench.timing import Measured, Row, Side, Took, by_turns

TARGETS = {0.01: 0.985, 0.1: 0.995, 1.0: 0.999}
BUSY = 0.9


def measure(setting: Setting) -> Iterator[Row]:
    """10 ms, 100 ms and 1 s; 10 ms also while the script computes."""
    both, work = setting.pair(), setting.size(4, 64)
    for seconds, target in TARGETS.items():
        count = round(work / seconds)
        list(both.session.map(time.sleep, [seconds] * WORKERS))  # how long these tasks take is known from here on
        sides = [both.ours(partial(_ours, both, count, seconds)), _bare(both, count, seconds)]
        if busy_too(seconds):
            sides.append(both.ours(partial(_beside_a_busy_thread, both, count, seconds)))
        ours, peer, *busy = by_turns(sides, setting.size(2 if busy_too(seconds) else 1, ROUNDS))
        what = f"{count:,} sleeps of {seconds * 1e3:g} ms on {WORKERS} slots"
        yield _row(what, count * seconds / WORKERS, ours, peer, target)
        for found in busy:
            yield _row(f"{what}, the script computing", count * seconds / WORKERS, found, peer, BUSY)


def busy_too(seconds: float) -> bool:
    """Whether this length is also measured beside a script that computes: the shortest one suffers most."""
    return seconds == min(TARGETS)


def _row(subject: str, ideal: float, ours: Measured, peer: Measured, target: float) -> Row:
    return Row(
        f"efficiency of {subject}",
        f"{ideal / ours.seconds:.4f}",
        "two bare sleep loops",
        f"{ideal / peer.seconds:.4f}",
        peer.seconds / ours.seconds,
        target=target,
    )


def _ours(both: Pair, count: int, seconds: float) -> None:
    list(both.session.map(time.sleep, [seconds] * count))


def _bare(both: Pair, count: int, seconds: float) -> Side:
    def run() -> Took:
        loops = both.pool.map(calls.sleep_loop, [count // WORKERS] * WORKERS, [seconds] * WORKERS)
        return Took(max(loops))

    return both.theirs(run)


def _beside_a_busy_thread(both: Pair, count: int, seconds: float) -> None:
    with _computing():
        _ours(both, count, seconds)


@contextlib.contextmanager
def _computing() -> Iterator[None]:
    """A thread of this process that never lets go of the interpreter by itself."""
    over = False

    def compute() -> None:
        total = 0
        while not over:
            for number in range(10_000):
                total += number * number

    thread = threading.Thread(target=compute, name="bench-computing", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over = True
        thread.join()
