"""Measuring on a machine that is not quiet: interleaved runs, medians, and CPU time beside wall time.

Rule: ours and the peers' runs alternate (A B A B ...), so that other load falls on all; what a session does
behind its tasks (folding the journal) is finished before the peer's turn, so that the peer does not pay for it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import NamedTuple


class Took(float):
    """Seconds that a run measured by itself; what runs elsewhere gives it back, and it counts instead of our clock."""


class Side(NamedTuple):
    """One of the things compared."""

    run: Callable[[], object]
    pids: Callable[[], Iterable[int]] = tuple  # processes whose CPU time it uses
    settle: Callable[[], object] = lambda: None  # waits until its server has finished what it does in quiet moments


class Measured(NamedTuple):
    """What the runs of one side took."""

    seconds: float  # median
    cpu: float  # median, of all its processes


class BenchRow(NamedTuple):
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
        """Whether the target is met; None without one."""
        if self.ratio is None or self.target is None:
            return None
        return self.ratio >= self.target if self.better == "high" else self.ratio <= self.target


def compare(ours: Side, peer: Side, rounds: int, most_seconds: float = math.inf) -> tuple[Measured, Measured]:
    """Run two by turns."""
    first, second = by_turns([ours, peer], rounds, most_seconds)
    return first, second


def by_turns(sides: Iterable[Side], rounds: int, most_seconds: float = math.inf) -> list[Measured]:
    """Run all of them, one after the other, so many times; fewer when another round would take too long."""
    sides, begun = list(sides), time.monotonic()
    found: list[list[Measured]] = [[] for _ in sides]
    for done in range(1, rounds + 1):
        for side, runs in zip(sides, found, strict=True):
            runs.append(once(side))
            side.settle()
        used = time.monotonic() - begun
        if used + used / done > most_seconds:
            break
    return [_middle(runs) for runs in found]


def alone(side: Side, rounds: int) -> Measured:
    """Run what has no peer."""
    return by_turns([side], rounds)[0]


def once(side: Side) -> Measured:
    """One run."""
    pids = list(side.pids())
    cpu, begun = cpu_time(pids), time.perf_counter()
    answer = side.run()
    seconds = time.perf_counter() - begun
    return Measured(float(answer) if isinstance(answer, Took) else seconds, cpu_time(pids) - cpu)


def _middle(runs: list[Measured]) -> Measured:
    return Measured(median(run.seconds for run in runs), median(run.cpu for run in runs))


# --- processes --------------------------------------------------------------------------------------------


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


# --- rows -------------------------------------------------------------------------------------------------


def rate_row(
    subject: str,
    count: int,
    ours: Measured,
    peer_name: str,
    peer: Measured,
    *,
    target: float | None = None,
    peer_count: int = 0,
) -> BenchRow:
    """Tasks a second beside a peer's, which may have done another number of them."""
    theirs = peer_count or count
    return BenchRow(
        subject,
        per_second(count, ours.seconds),
        peer_name,
        per_second(theirs, peer.seconds),
        (count / ours.seconds) / (theirs / peer.seconds),
        target=target,
        cpu=cpu_each(count, ours, peer) if theirs == count and peer.cpu else cpu_each(count, ours),
    )


def time_row(subject: str, seconds: float, peer_name: str, peer: float, *, target: float | None = None) -> BenchRow:
    """A time beside a peer's; it should be short."""
    return BenchRow(
        subject, milliseconds(seconds), peer_name, milliseconds(peer), seconds / peer, better="low", target=target
    )


def limit_row(subject: str, seconds: float, limit: float, *, peer: str = "") -> BenchRow:
    """A time beside the longest it may be."""
    name = f"limit {limit:g} s{f' ({peer})' if peer else ''}"
    return BenchRow(
        subject, milliseconds(seconds), name, milliseconds(limit), seconds / limit, better="low", target=1.0
    )


def bytes_row(subject: str, grown: float, limit: float) -> BenchRow:
    """Bytes beside the most they may be."""
    figure = f"{grown:,.1f} bytes"
    return BenchRow(subject, figure, "limit", f"{limit:,.0f} bytes", grown / limit, better="low", target=1.0)


def per_second(count: int, seconds: float) -> str:
    """A rate for people."""
    return f"{count / seconds:,.0f}/s"


def milliseconds(seconds: float) -> str:
    """A time for people."""
    return f"{seconds * 1e3:,.2f} ms" if seconds < 0.1 else f"{seconds * 1e3:,.0f} ms"


def cpu_each(count: int, ours: Measured, peer: Measured | None = None) -> str:
    """CPU time per task: ours, and the peer's."""
    text = f"{ours.cpu / count * 1e6:,.1f}"
    return f"{text} / {peer.cpu / count * 1e6:,.1f}" if peer is not None else text
