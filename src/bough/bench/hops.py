"""A chain whose links must alternate between two executors, so that no link can travel with the one before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import bough
from bough.bench import calls
from bough.bench.graphs import WAITING, chain_by_hand
from bough.bench.services import Home, home
from bough.bench.setting import ROUNDS, Setting, warm
from bough.bench.timing import Row, compare, rate_row

if TYPE_CHECKING:
    from bough.api.session import Session

_SIDES = ("left", "right")


@contextmanager
def two_executors(folder: str) -> Iterator[tuple[Home, Session]]:
    """A service on a Unix socket with two executors of one core, each with something that the other has not."""
    with home(folder) as there:
        there.serve()
        for side in _SIDES:
            there.execute(1, "--resource", f"{side}=1", tls=False)
        with bough.Session(there.socket, name="hops") as session:
            hop(session, 4)  # both are there
            warm(session)
            yield there, session


def hop(session: Session, length: int) -> None:
    """The chain."""
    left, right = (session.options(resources={side: 1}) for side in _SIDES)
    task = left.submit(calls.one_more, 0)
    for number in range(1, length):
        task = (right if number % 2 else left).submit(calls.one_more, task)
    assert task.result() == length


def measure(setting: Setting) -> Iterator[Row]:
    """Beside a pool whose script waits for every link."""
    length, pool = setting.size(500, 2_000), setting.pair().pool
    with two_executors(setting.folder) as (there, session):
        ours, peer = compare(
            there.side(session, lambda: hop(session, length)),
            setting.pair().theirs(lambda: chain_by_hand(pool, length)),
            ROUNDS,
            setting.patience,
        )
    yield rate_row(f"chain of {length:,} that hops between two executors", length, ours, WAITING, peer)
