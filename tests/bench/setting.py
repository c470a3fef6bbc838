"""What every live measurement needs: a warm session and, beside it, a warm process pool of the same size."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import calls
import timing

import bough

WORKERS = 2
_numbers = itertools.count(1)


class Pair(NamedTuple):
    session: Any
    pool: ProcessPoolExecutor

    def ours(self, run: Callable[[], object]) -> timing.Side:
        return timing.Side(run, lambda: [os.getpid(), *timing.family(self.session.pid)], self.settle)

    def theirs(self, run: Callable[[], object]) -> timing.Side:
        return timing.Side(run, lambda: [os.getpid(), *self.pool._processes])

    def settle(self) -> None:
        """Let the server finish what it does in quiet moments."""
        self.session.ask("project")


def store(folder: str) -> str:
    """A new place for a store; nothing is deleted between measurements, because that slows down what follows."""
    return os.path.join(folder, f"store{next(_numbers)}")


@contextlib.contextmanager
def pair(folder: str) -> Iterator[Pair]:
    """A session and a pool, both with two warm workers."""
    with (
        bough.Session(name="bench", store=store(folder), cores=WORKERS) as session,
        ProcessPoolExecutor(WORKERS) as pool,
    ):
        for executor in (session, pool):
            for _ in range(3):
                list(executor.map(calls.same, range(100)))
                [future.result() for future in [executor.submit(calls.nothing) for _ in range(20)]]
        found = Pair(session, pool)
        found.settle()
        yield found
