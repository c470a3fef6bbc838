"""Placing in the order of the queue: what every list-scheduling policy shares.

Rule: the first task that fits nowhere now, but could, keeps the executor with the most free cores for itself, so that
small tasks do not starve big ones; later tasks go to the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from bough.policy.interface import Place, View


def in_order(view: View) -> Iterator[Place]:
    """Give each ready task, best first, to the executor that has been open the longest."""
    reserved: set[int] = set()
    ready = view.ready()
    for work in ready:
        urgent = work.urgent
        while work.ready and work.urgent == urgent:
            offer = view.executor_for(work, reserved)
            if offer.executor is None:
                if not offer.barred and (kept := view.most_free(work.needs)) is not None:
                    reserved.add(kept.id)
                ready.skip_like(offer)
                break
            yield Place(work.id, offer.executor.id)


def while_room(view: View) -> Iterator[Place]:
    """As `in_order`, for a view that knows which executors have room: it ends when none has."""
    reserved: set[int] = set()
    ready = view.ready()
    for work in ready:
        urgent = work.urgent
        while work.ready and work.urgent == urgent:
            if not view.has_room:
                return
            offer = view.executor_for(work, reserved)
            if offer.executor is None:
                if not offer.barred and (kept := view.most_free(work.needs)) is not None:
                    reserved.add(kept.id)
                ready.skip_like(offer)
                break
            yield Place(work.id, offer.executor.id)
