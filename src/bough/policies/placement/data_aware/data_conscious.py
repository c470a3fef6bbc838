"""Data-conscious (DC): a task is given out where running it now is cheaper than at the executors that ask next.

Source: Lamb's thesis, `spec/trellis-driver.md` 3.3, with its defaults: a penalty of 25 on transfers, the next 32
arrivals, at most 128 ready tasks. The priority of task x for the executor c that asks is

    affinity * (min over p of cost(x, p) - cost(x, c)) + age * waited / latency + dependents * (tasks that wait for x)
    cost(x, p) = arrival(p) + penalty * transfer(x, p)

in seconds; a transfer takes `startup` seconds for each file, and its bytes. The thesis' setting is affinity 100, age 1,
dependents 0. The task with the highest priority goes out if that is not below 0; otherwise c waits. `hold` bounds how
long a task is held back, which the thesis lacks.

Among executors that hold nothing of x only the one that asks first matters, because transfers to all of them cost the
same. So it is enough to look at the holders of x and at the first arrival. A task with data at c, or with data nowhere,
has a higher priority than any whose data is elsewhere: the 128 are walked only if there is neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

import msgspec
from msgspec import Meta

from bough.model.bounds import IN_SECONDS, Duration
from bough.model.ids import Seconds
from bough.policy.data_scheduling import in_turn, overdue, plain_first, wish_for
from bough.policy.interface import DataMatch, DataNeeds, DataTask, DataView, ExecutorView, Place, ReadyWork, View
from bough.policy.list_scheduling import in_order

_LOCAL = 3  # tasks with data where an executor is that are compared
_Weight = Annotated[float, Meta(ge=0, le=1e9)]


class DataConscious(msgspec.Struct, frozen=True):
    """See the module."""

    penalty: _Weight = 25.0
    arrivals: Annotated[int, Meta(ge=1, le=1000)] = 32
    window: Annotated[int, Meta(ge=1, le=1000)] = 128
    affinity: _Weight = 100.0
    age: _Weight = 1.0
    dependents: _Weight = 0.0
    latency: Annotated[float, IN_SECONDS, Meta(gt=0, le=3600)] = 0.15  # one way between an executor and the server
    rate: Annotated[float, Meta(gt=0, le=1e15)] = 1e7  # bytes a second, while none was measured
    startup: Annotated[float, IN_SECONDS, Meta(ge=0, le=3600)] = 0.0  # before the first byte of each file
    hold: Duration = 600.0  # after so many seconds a task goes anywhere; 0: never

    @property
    def data_needs(self) -> DataNeeds:
        """What the core keeps for it."""
        return DataNeeds(per_file=round(self.startup * self.rate))

    def rank(self, work: ReadyWork, /) -> float:
        """Work without inputs stands first: its cost is the same everywhere."""
        return 1.0 if work.has_inputs else 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """By priority, if that is not below 0."""
        data = view.data
        return in_order(view) if data is None else self._place(view, data)

    def _place(self, view: View, data: DataView) -> Iterator[Place]:
        yield from overdue(view, data, self.hold)
        yield from in_turn(view, data, data.best_here, waits=True)
        next_ones = data.next_arrivals(self.arrivals + 1)
        for executor in view.executors():
            while data.has_room(executor) and (task := self._best(view, data, executor, next_ones)) is not None:
                yield wish_for(task, executor)
        yield from plain_first(view)

    def _best(
        self, view: View, data: DataView, executor: ExecutorView, next_ones: list[tuple[Seconds, ExecutorView]]
    ) -> DataTask | None:
        found: Iterable[DataMatch] = sorted(data.some_here(executor, _LOCAL), key=_most_here)
        if not found:
            unheld = data.unheld(executor)
            if unheld is not None:
                return unheld
            some = islice(data.waiting(), self.window)
            found = (data.match(task, executor) for task in some if data.could_go(task, executor))
        best: DataTask | None = None
        most, now, rate = 0.0, view.now, self.penalty / (data.rate_to(executor) or self.rate)
        first, last = _first_and_last(next_ones, executor)
        for task, here, total in found:
            waited = self.age * (now - task.since) / self.latency + self.dependents * task.work.dependents_count
            cost_here = (total - here) * rate
            later = first - now + total * rate if first is not None else cost_here
            priority = self.affinity * (later - cost_here) + waited
            if priority < most or (priority == most and best is not None):
                continue  # what holders elsewhere would cost can only lower it
            if first is not None:
                later = min(later, data.cost_elsewhere(task, executor, rate, last))
                priority = self.affinity * (later - cost_here) + waited
            if priority > most or (priority == most and best is None):
                best, most = task, priority
        return best


def _most_here(found: DataMatch) -> float:
    return -found.here


def _first_and_last(
    next_ones: list[tuple[Seconds, ExecutorView]], executor: ExecutorView
) -> tuple[Seconds | None, Seconds]:
    """When the first and the last of those that ask next come, apart from one executor."""
    at, end = 0, len(next_ones) - 1
    if end >= 0 and next_ones[at][1].id == executor.id:
        at += 1
    if end >= at and next_ones[end][1].id == executor.id:
        end -= 1
    return (next_ones[at][0], next_ones[end][0]) if at <= end else (None, 0.0)
