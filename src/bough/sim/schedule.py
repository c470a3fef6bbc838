"""What ran when: the intervals of a simulated run, and the degree of concurrency of any intervals.

The degree of concurrency is how many tasks run at each moment (TrellisDAG 3.7).
Rule: what ends at a moment has ended before what starts then, so that tasks that follow each other count as one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from bough.model.events.facts import Placed, Replicated, SpanEnded
from bough.model.ids import Seconds
from bough.sim.simulation import Simulation


class Concurrency(msgspec.Struct):
    """The step function and what follows from it."""

    steps: list[tuple[float, int]]  # from when on how many run; the last is 0
    at: dict[int, float]  # seconds at each degree above 0

    @property
    def highest(self) -> int:
        """The most that ran at once."""
        return max(self.at, default=0)

    @property
    def mean(self) -> float:
        """Over the time from the first start to the last end."""
        if not self.steps:
            return 0.0
        length = self.steps[-1][0] - self.steps[0][0]
        return sum(degree * seconds for degree, seconds in self.at.items()) / length if length else 0.0


def concurrency(intervals: Iterable[tuple[float, float, int]]) -> Concurrency:
    """From when to when how many tasks ran."""
    changes = (change for start, end, many in intervals for change in ((start, many), (end, -many)))
    events = sorted(changes)
    steps: list[tuple[float, int]] = []
    at: dict[int, float] = {}
    degree, since = 0, 0.0
    for when, change in events:
        if degree and when > since:
            at[degree] = at.get(degree, 0.0) + when - since
        degree, since = degree + change, when
        if steps and steps[-1][0] == when:
            steps.pop()
        steps.append((when, degree))
    return Concurrency(steps, dict(sorted(at.items())))


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
            if isinstance(fact, Placed | Replicated):
                where[fact.span] = fact.executor
            elif isinstance(fact, SpanEnded):
                found[fact.record] = Interval(fact.record, now - fact.seconds, now, where[fact.span])
    return found


def degrees(ran: Iterable[Interval]) -> dict[int, Seconds]:
    """For how long how many tasks ran at once; times are compared in microseconds, finer is rounding."""
    return concurrency((round(one.start, 6), round(one.end, 6), 1) for one in ran).at
