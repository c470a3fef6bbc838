"""Falkon's two-phase dispatch, which its policies max-cache-hit, max-compute-util and good-cache-compute share.

Source: `spec/falkon.md` 3.2 and 3.3. Phase A looks for the executor that has the most of a task's files, phase B for
the tasks that an executor which asks has the most of. Both meet in the core's index: an executor with room gets the
task that has the most of its input there, and there is no window to search. The corner cases are settled as 3.2 says:
a task whose data nobody holds, or no longer, may go anywhere; so may one without inputs. Beyond Falkon: a task that has
waited for `patience` seconds goes anywhere.
Rule: what waits for its data's place is passed over at no cost; only the oldest few are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from bough.model.ids import Seconds
from bough.policy.data_scheduling import at_data, overdue, plain_first, unheld_anywhere, wish_for
from bough.policy.interface import DataMatch, DataView, Place, View
from bough.policy.list_scheduling import while_room

_OLDEST = 16  # tasks that are looked at one by one, because what very many hold is in no place's list


def max_cache_hit(view: View, data: DataView, patience: Seconds) -> Iterator[Place]:
    """Each task goes where most of its data is, and waits for that place if it is busy."""
    yield from overdue(view, data, patience)
    yield from at_data(data, lambda found: has_most(data, found))
    yield from unheld_anywhere(view, data)
    if view.has_room:
        yield from _where_most_is(data)
        yield from plain_first(view)


def max_compute_util(view: View, data: DataView) -> Iterator[Place]:
    """Each free executor gets the task that has the most of its data there, or else the next."""
    yield from at_data(data)
    yield from while_room(view)


def has_most(data: DataView, found: DataMatch) -> bool:
    """Whether no other place has more of a task's input."""
    return found.here >= found.total or found.here >= data.most_held(found.task)


def _where_most_is(data: DataView) -> Iterator[Place]:
    for task in islice(data.waiting(), _OLDEST):
        holders = data.holders(task)
        most = max((holder.amount for holder in holders), default=0.0)
        for holder in holders:
            if holder.amount == most and (executor := data.executor_at(task, holder.place)) is not None:
                yield wish_for(task, executor)
                break
