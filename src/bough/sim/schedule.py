"""What a simulated run looked like: when each task ran and where, and how many ran at once.

Rule: an interval ends before another one begins at the same time, so that a relay of tasks counts as one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bough.model.concurrency import concurrency
from bough.model.facts import Placed, SpanEnded
from bough.model.ids import Seconds
from bough.sim.driver import Simulation


class Interval(NamedTuple):
    """One loose task: when it ran, and on which executor."""

    record: int
    start: Seconds
    end: Seconds
    executor: int


def intervals(simulation: Simulation) -> dict[int, Interval]:
    """The loose tasks that succeeded in a run, by their records. A task runs for the seconds before its end."""
    where: dict[int, int] = {}
    found: dict[int, Interval] = {}
    for _, now, written in simulation.journal:
        for fact in written:
            if isinstance(fact, Placed):
                where[fact.span] = fact.executor
            elif isinstance(fact, SpanEnded):
                found[fact.record] = Interval(fact.record, now - fact.seconds, now, where[fact.span])
    return found


def degrees(ran: Iterable[Interval]) -> dict[int, Seconds]:
    """For how long how many tasks ran at once; times are compared in microseconds, finer is rounding."""
    return concurrency((round(one.start, 6), round(one.end, 6), 1) for one in ran).at
