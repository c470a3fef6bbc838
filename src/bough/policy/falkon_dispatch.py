"""Falkon's two-phase dispatch, which its policies max-cache-hit, max-compute-util and good-cache-compute share.

Source: `spec/falkon.md` 3.2 and 3.3. Phase A looks for the executor that has the most of a task's files, phase B for
the tasks that an executor which asks has the most of. Both meet in the core's index: an executor with room gets the
task that has the most of its input there. Falkon looks at the first W tasks of its queue; the index finds a task among
all that wait, and `window` makes it as short-sighted. `backlog=no` is Falkon's executor, which picks a task up when a
processor is free. Both are there for comparisons, see `docs/studies/data-diffusion.md`. The corner cases are settled as
3.2 says: a task whose data nobody holds, or no longer, may go anywhere; so may one without inputs. Beyond Falkon: a
task that has waited for `patience` seconds goes to any executor that is left idle, and one that is overtaken by a task
that became ready so much later has a turn for that; 0 is Falkon's: neither.
Falkon's phase B compares the share of a task's files that are there; here it is how many, or how many bytes: what is
saved by sending the task there.
Rule: what waits for its data's place is passed over at no cost; only the oldest few are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bough.model.bounds import Duration
from bough.model.ids import Seconds
from bough.policy.data_scheduling import (
    at_data,
    at_most_data,
    first_that_takes,
    in_turn,
    overdue,
    plain_first,
    unheld_anywhere,
    wish_for,
)
from bough.policy.interface import DataNeeds, DataView, Place, View
from bough.policy.list_scheduling import while_room

_OLDEST = 16  # tasks that are looked at one by one, because what very many hold is in no place's list


class FalkonOptions(msgspec.Struct, frozen=True):
    """What the three policies have in common."""

    by: Literal["files", "bytes"] = "files"
    window: Annotated[int, Meta(ge=0, le=1_000_000)] = 0  # tasks that are looked at, the first that wait; 0: all
    backlog: Literal["yes", "no"] = "yes"  # whether short tasks may wait at an executor for a core
    patience: Duration = 600.0  # see the module; 0: no bound

    @property
    def data_needs(self) -> DataNeeds:
        """What the core keeps for it."""
        return DataNeeds(self.by, window=self.window, patience=self.patience, arrivals=False)

    @property
    def uses_backlogs(self) -> bool:
        """Whether executors get tasks before a core is free."""
        return self.backlog == "yes"


def max_cache_hit(view: View, data: DataView, patience: Seconds) -> Iterator[Place]:
    """Each task goes where most of its data is, and waits for that place if it is busy."""
    yield from in_turn(view, data, data.most_here, waits=True)
    yield from at_most_data(data)
    yield from unheld_anywhere(view, data)
    if view.has_room:
        yield from overdue(view, data, patience)
        yield from _where_most_is(data)
        yield from plain_first(view)


def max_compute_util(view: View, data: DataView) -> Iterator[Place]:
    """Each free executor gets the task that has the most of its data there, or else the next."""
    yield from in_turn(view, data, data.best_here, waits=False)
    yield from at_data(data)
    yield from while_room(view)


def before_plain(view: View, data: DataView, patience: Seconds) -> Iterator[Place]:
    """Place the oldest task that has waited for longer than its patience before work without inputs.

    That stands first under max-cache-hit, and may come for ever. It is one task each time: a long queue of tasks that
    wait for their data shall not go anywhere because of some work without inputs.
    """
    first = next(iter(view.ready()), None)
    if not patience or first is None or first.has_inputs:
        return
    oldest = next(iter(data.waiting()), None)
    if oldest is not None and view.now >= oldest.since + patience:
        executor = first_that_takes(data, oldest)
        if executor is not None:
            yield wish_for(oldest, executor)


def _where_most_is(data: DataView) -> Iterator[Place]:
    for task in islice(data.waiting(), _OLDEST):
        executor = data.where_most_is(task)
        if executor is not None:
            yield wish_for(task, executor)
