"""What every live measurement needs: a warm session and, beside it, a warm process pool of the same size.

Rule: the two are opened when a measurement first asks for them, and shared until one needs the machine for itself.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import bough
from bough.bench import calls
from bough.bench.timing import Side, family
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.session import Session

WORKERS = 2
ROUNDS = 3
QUICK_PATIENCE = 10.0  # seconds for a row of the quick form: a slow machine gets fewer rounds
_numbers = itertools.count(1)


class Pair(NamedTuple):
    """A session and a pool, both with two warm workers."""

    session: Session
    pool: ProcessPoolExecutor

    def ours(self, run: Callable[[], object]) -> Side:
        """A run of the session."""
        return session_side(self.session, run)

    def theirs(self, run: Callable[[], object]) -> Side:
        """A run of the pool."""
        return Side(run, lambda: [os.getpid(), *self.pool._processes])

    def settle(self) -> None:
        """Let the server finish what it does in quiet moments."""
        self.session.ask(questions.Project())


def session_side(session: Session, run: Callable[[], object]) -> Side:
    """A run of an embedded session."""
    return Side(run, lambda: [os.getpid(), *family(session.pid)], lambda: session.ask(questions.Project()))


class Setting:
    """Where the measurements of one run of the benchmarks take place, and how thorough they are."""

    def __init__(self, folder: str, *, full: bool = False) -> None:
        self.folder = folder
        self.full = full
        self.patience = math.inf if full else QUICK_PATIENCE
        self._stack = ExitStack()
        self._pair: Pair | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def size(self, quick: int, full: int) -> int:
        """One number or the other."""
        return full if self.full else quick

    def pair(self) -> Pair:
        """The session and the pool, opened if they are not."""
        if self._pair is None:
            self._pair = self._stack.enter_context(pair(self.folder))
        return self._pair

    def clear(self) -> None:
        """Close them: what comes next has the machine for itself."""
        self._pair = None
        self._stack.close()


def store(folder: str) -> str:
    """A new place for a store; nothing is deleted between measurements, because that slows down what follows."""
    return os.path.join(folder, f"store{next(_numbers)}")


@contextmanager
def pair(folder: str) -> Iterator[Pair]:
    """Open the two, and warm them."""
    with (
        bough.Session(name="bench", store=store(folder), cores=WORKERS) as session,
        ProcessPoolExecutor(WORKERS) as pool,
    ):
        warm(session)
        warm(pool)
        found = Pair(session, pool)
        found.settle()
        yield found


def warm(executor: Executor) -> None:
    """Let every worker have loaded what it needs."""
    for _ in range(3):
        list(executor.map(calls.same, range(100)))
        for future in [executor.submit(calls.nothing) for _ in range(20)]:
            future.result()
