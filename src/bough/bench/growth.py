"""Twice the work should take twice the time: the main measurements at n, 2n and 4n, by turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from bough.bench.functions import map_all, submit_all
from bough.bench.graphs import chain, fan
from bough.bench.programs import array_of, one_by_one
from bough.bench.setting import ROUNDS, Setting
from bough.bench.timing import Row, by_turns, milliseconds

_TARGET = 2.2  # time at 4n over time at 2n


def measure(setting: Setting) -> Iterator[Row]:
    """Each row is the time at 4n beside that at 2n."""
    both, size = setting.pair(), setting.size
    session = both.session
    works: tuple[tuple[str, int, Callable[[int], None]], ...] = (
        ("map", size(100_000, 500_000), lambda count: map_all(session, range(count))),
        ("submit", size(1_500, 20_000), lambda count: submit_all(session, count)),
        ("chain", size(1_000, 5_000), lambda count: chain(session, count)),
        ("fan", size(1_000, 5_000), lambda count: fan(session, count)),
        ("commands, one array", size(100, 2_500), lambda count: array_of(session, count)),
        ("commands, one by one", size(100, 2_500), lambda count: one_by_one(session, count)),
    )
    for name, n, work in works:
        work(n)  # the first round is as warm as the others
        sides = [both.ours(partial(work, times * n)) for times in (1, 2, 4)]
        once, twice, four = by_turns(sides, ROUNDS, setting.patience / 2)
        yield Row(
            f"growth of {name}: time at 4n over 2n, n = {n:,}",
            milliseconds(four.seconds),
            f"2n (n: {milliseconds(once.seconds)})",
            milliseconds(twice.seconds),
            four.seconds / twice.seconds,
            better="low",
            target=_TARGET,
        )
