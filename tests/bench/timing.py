"""Measuring on a machine that is not quiet: interleaved pairs, medians, and CPU time beside wall time.

Rule: ours and the peer's runs alternate (A B A B ...), so that other load falls on both; what a session does
behind its tasks (folding the journal) is finished before the peer's turn, so that the peer does not pay for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import NamedTuple


class Side(NamedTuple):
    """One of the two things compared."""

    run: Callable[[], object]
    pids: Callable[[], Iterable[int]] = tuple  # processes whose CPU time it uses
    settle: Callable[[], object] = lambda: None  # brings work that goes on behind it to an end


class Measured(NamedTuple):
    seconds: float  # median
    cpu: float  # median, of all its processes


class Row(NamedTuple):
    """One line of the table. `ratio` is ours to the peer's: `better` says whether it should be high or low."""

    subject: str
    ours: str
    peer_name: str
    peer: str
    ratio: float | None
    better: str = "high"
    target: float | None = None
    cpu: str = ""

    @property
    def met(self) -> bool | None:
        if self.ratio is None or self.target is None:
            return None
        return self.ratio >= self.target if self.better == "high" else self.ratio <= self.target


def compare(ours: Side, peer: Side, rounds: int) -> tuple[Measured, Measured]:
    """Run both by turns."""
    found: tuple[list[Measured], list[Measured]] = ([], [])
    for _ in range(rounds):
        for side, runs in zip((ours, peer), found, strict=True):
            runs.append(once(side))
            side.settle()
    return _middle(found[0]), _middle(found[1])


def alone(side: Side, rounds: int) -> Measured:
    """Run what has no peer."""
    runs = []
    for _ in range(rounds):
        runs.append(once(side))
        side.settle()
    return _middle(runs)


def once(side: Side) -> Measured:
    pids = list(side.pids())
    cpu, begun = cpu_time(pids), time.perf_counter()
    side.run()
    return Measured(time.perf_counter() - begun, cpu_time(pids) - cpu)


def _middle(runs: list[Measured]) -> Measured:
    return Measured(median(run.seconds for run in runs), median(run.cpu for run in runs))


def cpu_time(pids: Iterable[int]) -> float:
    """Seconds that the threads of these processes have run; nanoseconds precise where the kernel counts them."""
    total = 0.0
    for pid in pids:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                    total += int(file.read().split()[0]) / 1e9
        except (OSError, IndexError):
            continue
    return total


def family(pid: int) -> list[int]:
    """A process and all that came from it."""
    found = [pid]
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                for child in file.read().split():
                    found += family(int(child))
    except OSError:
        pass
    return found


def resident(pid: int) -> int:
    """Bytes of memory a process has."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def per_second(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f}/s"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms" if seconds < 0.1 else f"{seconds * 1e3:,.0f} ms"


def cpu_each(count: int, ours: Measured, peer: Measured | None = None) -> str:
    """CPU time per task: ours, and the peer's."""
    text = f"{ours.cpu / count * 1e6:,.1f}"
    return f"{text} / {peer.cpu / count * 1e6:,.1f}" if peer is not None else text
