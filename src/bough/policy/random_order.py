"""Placing at random: what policies that know nothing share.

Rule: the dice are the view's, so that a seed gives the same placements again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from bough.policy.interface import Place, ReadyWork, View
from bough.policy.list_scheduling import in_order

_LOOK = 6  # ready records of the same priority, and executors, among which one is chosen


def at_random(view: View) -> Iterator[Place]:
    """While the next task fits somewhere: any of the first few to any executor that takes it; then all in order."""
    while True:
        some = _first_alike(view)
        view.random.shuffle(some)
        found = next((offer for work in some if (offer := _any_executor(view, work)) is not None), None)
        if found is None:
            break
        yield found
    yield from in_order(view)


def _first_alike(view: View) -> list[ReadyWork]:
    """The first ready work, of one priority; none, if the very first fits nowhere at once."""
    ready = iter(view.ready())
    first = next(ready, None)
    if first is None or not view.executor_for(first).fits_now:
        return []
    return [first, *(work for work in islice(ready, _LOOK - 1) if work.priority == first.priority)]


def _any_executor(view: View, work: ReadyWork) -> Place | None:
    """A wish for some work, with an executor chosen among the first that would take it at once."""
    tried: set[int] = set()
    able: list[int] = []
    while len(able) < _LOOK:
        offer = view.executor_for(work, tried)
        if offer.executor is None or not offer.fits_now:
            break
        able.append(offer.executor.id)
        tried.add(offer.executor.id)
    return Place(work.id, view.random.choice(able), 1) if able else None
