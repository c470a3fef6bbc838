"""Tasks that wait for each other: chains and fans. A pool has none of that: beside it the script waits itself."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from bough.bench import calls
from bough.bench.setting import ROUNDS, Setting
from bough.bench.timing import Row, compare, rate_row

if TYPE_CHECKING:
    from bough.api.session import Session

WAITING = "pool, the script waits"


def chain(session: Session, length: int) -> None:
    """Every task takes the value of the one before it."""
    task = session.submit(calls.one_more, 0)
    for _ in range(length - 1):
        task = session.submit(calls.one_more, task)
    assert task.result() == length


def chain_by_hand(pool: ProcessPoolExecutor, length: int) -> None:
    """The same where the script must wait for each."""
    value = 0
    for _ in range(length):
        value = pool.submit(calls.one_more, value).result()


def fan(session: Session, width: int) -> None:
    """One task, many that take its value, one that takes all of theirs."""
    first = session.submit(calls.one_more, 0)
    middle = [session.submit(calls.one_more, first) for _ in range(width)]
    assert session.submit(calls.how_many, middle).result() == width


def fan_by_hand(pool: ProcessPoolExecutor, width: int) -> None:
    """The same where the script must wait."""
    value = pool.submit(calls.one_more, 0).result()
    middle = [pool.submit(calls.one_more, value) for _ in range(width)]
    assert pool.submit(calls.how_many, [future.result() for future in middle]).result() == width


def measure_chain(setting: Setting) -> Iterator[Row]:
    """A chain of 2,000."""
    both, length = setting.pair(), 2_000
    ours, peer = compare(
        both.ours(lambda: chain(both.session, length)),
        both.theirs(lambda: chain_by_hand(both.pool, length)),
        ROUNDS,
        setting.patience,
    )
    yield rate_row(f"chain of {length:,} dependent functions", length, ours, WAITING, peer)


def measure_fan(setting: Setting) -> Iterator[Row]:
    """1 to 5,000 to 1."""
    both, width = setting.pair(), 5_000
    ours, peer = compare(
        both.ours(lambda: fan(both.session, width)),
        both.theirs(lambda: fan_by_hand(both.pool, width)),
        ROUNDS,
        setting.patience,
    )
    yield rate_row(f"fan 1 to {width:,} to 1", width + 2, ours, WAITING, peer)
