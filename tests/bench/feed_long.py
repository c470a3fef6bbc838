"""A feed of any length in constant memory: memory of every process, the store's growth and the rate, as it goes.

    python tests/bench/feed_long.py 10_000_000 --how values

Rule: figures are taken where the generator is, so that they cost nothing that grows with the tasks.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

import bough
from bough.bench.timing import family

STEPS = 20


class Figures(NamedTuple):
    """How things were at one point of the way."""

    fed: int
    seconds: float
    client: int  # bytes resident
    server: int
    executor: int  # and its workers
    store: int  # bytes on disk
    cpu: float  # seconds of all processes

    @property
    def resident(self) -> int:
        return self.client + self.server + self.executor


def nothing(_: int) -> None:
    """As little as a task can do."""


def same(value: int) -> int:
    """A result that takes room."""
    return value


def run(count: int, folder: str, *, how: str = "wait", show: bool = False) -> list[Figures]:
    """Feed so many tasks; what is seen at every twentieth of the way, and at the end."""
    seen: list[Figures] = []
    store = os.path.join(folder, "store")
    function = nothing if how == "wait" else same
    with bough.Session(name="feed_long", store=store) as session:
        session.map(function, range(1000)).results()  # everybody is there
        begun, before = time.monotonic(), _cpu(session)

        def look(fed: int) -> None:
            processes = family(session.pid)
            figures = Figures(
                fed,
                time.monotonic() - begun,
                resident(os.getpid()),
                resident(session.pid),
                sum(resident(pid) for pid in processes if pid != session.pid),
                _size(store),
                _cpu(session) - before,
            )
            if show:
                _show(figures, seen[-1] if seen else None)
            seen.append(figures)

        def numbers() -> Iterator[int]:
            for step in range(STEPS):
                yield from range(count * step // STEPS, count * (step + 1) // STEPS)
                if step < STEPS - 1:
                    look(count * (step + 1) // STEPS)

        feed = session.feed(function, numbers(), keep=False)
        if how == "values":
            assert sum(1 for _ in feed) == count
        elif how == "ends":
            assert sum(1 for _ in feed.as_completed()) == count
        else:
            feed.wait_all()
        assert feed.counts()["done"] == count
        look(count)
    return seen


def resident(pid: int) -> int:
    """Bytes of memory a process has."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cpu(session: bough.Session) -> float:
    total = 0.0
    for pid in [os.getpid(), *family(session.pid)]:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _size(store: str) -> int:
    return sum(os.path.getsize(os.path.join(root, name)) for root, _, names in os.walk(store) for name in names)


def _show(figures: Figures, last: Figures | None) -> None:
    fed, seconds = (last.fed, last.seconds) if last else (0, 0.0)
    rate = (figures.fed - fed) / max(figures.seconds - seconds, 1e-9)
    memory = "  ".join(f"{name} {getattr(figures, name) / 1e6:6.1f}" for name in ("client", "server", "executor"))
    print(
        f"{figures.fed:>13,}  {rate:>9,.0f}/s  {figures.cpu / figures.fed * 1e6:5.2f} us CPU a task  MB: {memory}"
        f"  store {figures.store / figures.fed:6.2f} bytes a task",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=10**6)
    parser.add_argument("--how", choices=["wait", "values", "ends"], default="wait", help="what becomes of the results")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen = run(args.count, folder, how=args.how, show=True)
    first, last = seen[STEPS // 4 - 1], seen[-1]
    print(
        f"{last.fed / last.seconds:,.0f} tasks/s; from a quarter of the way to the end resident memory grew by"
        f" {(last.resident - first.resident) / 1e6:.1f} MB, the store by"
        f" {(last.store - first.store) / (last.fed - first.fed) * 1e6 / 1e6:.2f} MB per million tasks;"
        f" peak of the client {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB",
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
