"""Data-conscious (DC): a task is given out where running it now is cheaper than at the executors that ask next.

Source: Lamb's thesis, `spec/trellis-driver.md` 3.3, with its defaults: a penalty of 25 on transfers, the next 32
arrivals, at most 128 ready tasks. The priority of task x for the executor c that asks is

    affinity * (min over p of cost(x, p) - cost(x, c)) + age * waited / latency + dependents * (tasks that wait for x)
    cost(x, p) = arrival(p) + penalty * transfer(x, p)

in seconds; a transfer takes `startup` seconds for each file, and its bytes. The thesis' setting is affinity 100, age 1,
dependents 0. The task with the highest priority goes out if that is not below 0; otherwise c waits. `hold` bounds how
long a task is held back, which the thesis lacks.

Among executors that hold nothing of x only the one that asks first matters, because transfers to all of them cost the
same. So it is enough to look at the holders of x and at the first arrival. Nothing is left to a holder that could never
run it. A task with most of its data at c, or with data nowhere, has a higher priority than any whose data is elsewhere:
the 128 are walked only if none of those goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import nextafter
from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta

from bough.model.bounds import IN_SECONDS, Duration
from bough.model.ids import Seconds
from bough.policy.data_scheduling import in_turn, overdue, plain_first, wish_for
from bough.policy.interface import DataMatch, DataNeeds, DataTask, DataView, ExecutorView, Place, ReadyWork, View
from bough.policy.list_scheduling import in_order

_HERE = attrgetter("here")  # of a match
_NONE = nextafter(0.0, -1.0)  # a priority that is just below that of a task that may go
_LOCAL = 3  # tasks with data where an executor is that are compared
Others = tuple[Seconds | None, Seconds]  # when the first and the last of them ask for work next; None: there are none
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
        next_ones = data.next_arrivals(self.arrivals + 1)  # one more: it may be the one that asks
        named = {executor.id for _, executor in next_ones}
        for executor in view.executors():
            others = _first_and_last(next_ones, executor, self.arrivals, is_named=executor.id in named)
            while (task := self._best(view, data, executor, others)) is not None:
                yield wish_for(task, executor)
                if not data.has_room(executor):
                    break
            else:
                if view.data is None:
                    break  # nothing waits any more
        yield from plain_first(view)

    def _best(self, view: View, data: DataView, executor: ExecutorView, others: Others) -> DataTask | None:
        best = self._best_here(view, data, executor, others)
        if best is not None:
            return best
        unheld = data.unheld(executor)
        if unheld is not None:
            return unheld
        some = islice(data.waiting(), self.window)
        anywhere = [data.match(task, executor) for task in some if data.could_go(task, executor)]
        return self._cheapest(view, data, executor, others, anywhere)

    def _best_here(self, view: View, data: DataView, executor: ExecutorView, others: Others) -> DataTask | None:
        """The best of some tasks that have data where an executor is."""
        found = data.some_here(executor, _LOCAL, unchecked=True)
        best = self._cheapest(view, data, executor, others, found) if found else None
        if best is not None:
            if data.could_go(best, executor):
                return best
        elif not found or all(data.could_go(match.task, executor) for match in found):
            return None
        return self._cheapest(view, data, executor, others, data.some_here(executor, _LOCAL))

    def _cheapest(
        self, view: View, data: DataView, executor: ExecutorView, others: Others, found: list[DataMatch]
    ) -> DataTask | None:
        """The one of some tasks with the highest priority, if that is not below 0."""
        found.sort(key=_HERE, reverse=True)
        first, last = others
        best: DataTask | None = None
        most, now, rate = _NONE, view.now, self.penalty / (data.rate_to(executor) or self.rate)
        affinity, age, dependents = self.affinity, self.age / self.latency, self.dependents
        until_first = first - now if first is not None else 0.0
        for match in found:
            task, cost_here = match.task, (match.total - match.here) * rate
            waited = age * (now - task.since)
            if dependents:
                waited += dependents * task.work.dependents_count
            later = until_first + match.total * rate if first is not None else cost_here
            priority = affinity * (later - cost_here) + waited
            if priority <= most:
                continue  # what holders elsewhere would cost can only lower it
            if first is not None and (elsewhere := data.cost_elsewhere(task, executor, rate, last)) < later:
                priority = affinity * (elsewhere - cost_here) + waited
            if priority > most:
                best, most = task, priority
        return best


def _first_and_last(
    next_ones: list[tuple[Seconds, ExecutorView]], executor: ExecutorView, most: int, *, is_named: bool
) -> Others:
    """When the first and the last of so many others than an executor ask; `is_named`: it is among the next ones."""
    if not is_named:
        next_ones = next_ones[:most]
    elif executor.id in {next_ones[0][1].id, next_ones[-1][1].id}:
        next_ones = [one for one in next_ones if one[1].id != executor.id]
    return (next_ones[0][0], next_ones[-1][0]) if next_ones else (None, 0.0)
