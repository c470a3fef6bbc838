"""XSufferage as a plan: all tasks of a job are assigned when it begins, by what is known of processors and link then.

CT(t, p) = when p is free + the transfer of t's missing input + t's run time on p. The task that would suffer most if it
did not get its best site is assigned first. What is known of run times is a function (`expected`); the link is thought
to be there for each transfer alone, to be shared by those under way when a transfer begins, or to serve one after the
other (`link`). The live policy `xsufferage` decides anew at each event; this is what the dissertation compares with.
Source: `spec/storage-affinity.md` 3.6, 8. Rule: it knows of tasks and processors only what it is told, and of the world
what the view shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from bough.errors import SiteError
from bough.model.ids import Seconds
from bough.policy.interface import Place, ReadyWork, View

# a processor, the costs of some tasks, and when each would begin there: how long each would run; arrays of numpy
Expected = Callable[[int, Any, Any], Any]
PlannedLink = Literal["alone", "fair-share", "serial"]


class StaticXSufferage:
    """See the module. `sites` names the site of each processor; these are numbered from 1 as executors are."""

    def __init__(self, sites: Sequence[str], expected: Expected, link: PlannedLink) -> None:
        self._sites = sites
        self._expected = expected
        self._link = link
        self._queues: list[deque[int]] = [deque() for _ in sites]

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """What was planned."""
        for executor in view.executors():
            queue = self._queues[executor.id - 1]
            if queue and executor.free("cores") >= 1:
                yield Place(queue.popleft(), executor.id, 1)

    def plan(self, first: int, costs: Sequence[Seconds], now: Seconds, stage: Callable[[int, str], Seconds]) -> None:
        """Assign the tasks of a job that begins now, whose records begin with `first`.

        `stage` says how long the missing input of a task, by its place, travels to a site.
        """
        for task, processor in self._assignments(costs, now, stage):
            self._queues[processor].append(first + task)

    def _assignments(
        self, costs: Sequence[Seconds], now: Seconds, stage: Callable[[int, str], Seconds]
    ) -> Iterator[tuple[int, int]]:
        """A task and its processor, one after the other."""
        np = _numpy()
        order = sorted(range(len(self._sites)), key=lambda one: self._sites[one])  # processors of a site stand together
        names = [self._sites[one] for one in order]
        starts = [at for at, name in enumerate(names) if not at or names[at - 1] != name]
        sites = [names[at] for at in starts]
        tasks, cost = np.arange(len(costs)), np.array(costs)
        travels = np.array([[stage(task, site) for site in sites] for task in range(len(costs))])
        site_of = np.repeat(np.arange(len(sites)), np.diff([*starts, len(order)]))
        free, link_free = np.full(len(order), now), now
        moving: list[float] = []  # when transfers that are planned will have ended

        def ends_at(column: int) -> Any:
            own = travels[:, site_of[column]] * sharers(column)
            begins = np.full(len(tasks), free[column])
            if self._link == "serial":
                begins = np.where(own > 0, np.maximum(begins, link_free), begins)
            begins = begins + own
            return begins + self._expected(order[column] + 1, cost, begins)

        def sharers(column: int) -> int:
            """How many share the link when a processor would fetch its next input."""
            return 1 + sum(end > free[column] for end in moving) if self._link == "fair-share" else 1

        ends = np.stack([ends_at(column) for column in range(len(order))], axis=1)
        while True:
            best = np.minimum.reduceat(ends, starts, axis=1)
            two = np.partition(best, 1, axis=1) if len(sites) > 1 else np.hstack([-best, 0 * best])
            row = int(np.argmax(two[:, 1] - two[:, 0]))
            column = int(np.argmin(ends[row]))
            length = travels[row, site_of[column]]
            yield int(tasks[row]), order[column]
            if length > 0 and self._link == "serial":
                link_free = max(free[column], link_free) + length
            elif length > 0:
                moving.append(free[column] + length * sharers(column))
            free[column] = ends[row, column]
            kept = np.arange(len(tasks)) != row
            tasks, cost, travels, ends = tasks[kept], cost[kept], travels[kept], ends[kept]
            if not len(tasks):
                return
            if length > 0 and self._link != "alone":
                ends = np.stack([ends_at(one) for one in range(len(order))], axis=1)
            else:
                ends[:, column] = ends_at(column)


def _numpy() -> Any:
    try:
        import numpy as np
    except ImportError as error:
        raise SiteError("this study needs numpy: pip install 'bough[plot]'") from error
    return np
