"""Our own: a task goes where its data is, unless waiting for that place would take longer than moving the data.

1. An executor with room gets the task that has the most bytes of its input there.
2. A task whose input nobody holds goes to the next executor with room.
3. A task whose data is only at busy places is weighed: the seconds that its missing bytes would travel, by measured
   bandwidths, against the seconds until an executor of a holder is expected to ask for work. If waiting is shorter, it
   is held back until then.
4. What has waited for `patience` seconds goes to any executor that nothing of the above goes to. A task that is
   overtaken by one that became ready `patience` seconds later has a turn for that, wherever its data is: so nothing
   starves, and a long queue that came at once is still worked off by its data.

In 1 to 3 an executor that leaves before the data has come, the task has run and its output is home is passed over.
`affinity` multiplies the seconds that data would travel (soft affinity: 0 places in order, 10 waits for data ten times
as long as it is worth). `delay` is delay scheduling (Zaharia et al., EuroSys 2010): a task whose data is elsewhere
waits for so many seconds at least, measured bandwidths or not.
It comes with tail replication for users who did not ask for it (`policies.replication.careful_tail`).
Rule: without declared files, and while no cache holds anything, tasks go in order, as under `fifo`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from math import inf
from typing import Annotated

import msgspec
from msgspec import Meta

from bough.model.bounds import Duration
from bough.model.ids import Seconds
from bough.policy.data_scheduling import (
    at_data,
    first_that_takes,
    in_turn,
    overdue,
    plain_behind,
    unheld_anywhere,
    wish_for,
)
from bough.policy.interface import DataMatch, DataNeeds, DataTask, DataView, ExecutorView, Place, ReadyWork, View
from bough.policy.list_scheduling import in_order

_LOOK = 64  # tasks whose data is elsewhere that are weighed in one turn


class Bough(msgspec.Struct, frozen=True):
    """See the module."""

    affinity: Annotated[float, Meta(ge=0, le=1000)] = 1.0
    delay: Duration = 0.0
    patience: Duration = 60.0

    @property
    def own_replication(self) -> str:
        """What holds up the end of a workload is run again elsewhere, where that is known to be harmless."""
        return "careful-tail"

    @property
    def data_needs(self) -> DataNeeds:
        """What the core keeps for it."""
        return DataNeeds(patience=self.patience)

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """Where the data is, or where it can be soonest."""
        data = view.data
        return in_order(view) if data is None or not data.is_known else self._place(view, data)

    def _place(self, view: View, data: DataView) -> Iterator[Place]:
        def best_in_time(executor: ExecutorView, accept: Callable[[DataMatch], bool] | None = None) -> DataMatch | None:
            if not executor.until:
                return data.best_here(executor, accept)
            return data.best_here(
                executor,
                lambda found: (accept is None or accept(found)) and _in_time(view, data, found.task, executor),
            )

        yield from in_turn(view, data, best_in_time, waits=True)
        yield from at_data(data, best_in_time)
        if view.has_room:
            yield from unheld_anywhere(view, data, partial(_in_time, view, data))
        if view.has_room:
            yield from overdue(view, data, self.patience)
        if view.has_room:
            yield from self._weigh(view, data)
        if view.has_room:
            yield from plain_behind(view, 4 * _LOOK)

    def _weigh(self, view: View, data: DataView) -> Iterator[Place]:
        for task in islice(data.waiting(), _LOOK):
            executor = first_that_takes(data, task, lambda one, task=task: _in_time(view, data, task, one))  # type: ignore[misc]
            if executor is None:
                continue
            until = self._worth_waiting_until(view, data, task, executor)
            if until > view.now:
                view.ask_again(until)
            elif data.could_go(task, executor):
                yield wish_for(task, executor)
            if not view.has_room:
                return

    def _worth_waiting_until(self, view: View, data: DataView, task: DataTask, executor: ExecutorView) -> Seconds:
        """Until when a task is better held back than sent to an executor without its data; the past: not at all."""
        now = view.now
        missing, travel = data.missing(task, executor)
        here = data.match(task, executor).here
        better = [holder.ready_at for holder in data.holders(task) if here < holder.amount and holder.ready_at < inf]
        if not missing or not better:
            return now
        if self.delay and now < task.since + self.delay:
            return task.since + self.delay
        soonest = min(better)
        worth = soonest - now < self.affinity * travel and soonest > now
        return soonest if worth else now


def _in_time(view: View, data: DataView, task: DataTask, executor: ExecutorView) -> bool:
    """Whether an executor stays until a task's data has come, the task has run, and its expected output is home."""
    if not executor.until:
        return True
    _, travel = data.missing(task, executor)
    return view.now + travel + task.work.expected + data.return_time(task, executor) <= executor.until
