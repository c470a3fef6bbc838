"""Placing in the order of the queue: what every list-scheduling policy shares.

Rule: the first task that fits nowhere now, but could, keeps the executor with the most free cores for itself, so that
small tasks do not starve big ones; later tasks go to the others.

A list that is not in order of submission ages: each second later that a task became ready counts as `ageing` seconds of
run time against it. So the order among tasks that are ready together is that of the list, and none waits for ever while
others keep coming that stand before it: ten times as long as they run longer, or shorter, with the usual 0.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bough.policy.interface import Place, ReadyScan, ReadyWork, View

Ageing = Annotated[float, Meta(ge=0, le=1000)]
AGEING: Final = 0.1  # a chain, whose tasks become ready one after the other, leads for ten elevenths of its way


class AgeingList(msgspec.Struct, frozen=True):
    """What policies share that place in the order of their ranks."""

    ageing: Ageing = AGEING

    @property
    def rank_ageing(self) -> float:
        """How much a rank is higher for each second later that a task became ready."""
        return self.ageing


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
        if not view.has_room:
            return
        for wish in all_of(view, ready, work, reserved):
            yield wish
            if not view.has_room:
                return


def all_of(view: View, ready: ReadyScan, work: ReadyWork, reserved: set[int] | None = None) -> Iterator[Place]:
    """Place what is ready of some work; `in_order` has the same in its own loop, which is gone through for every task.

    `reserved`: executors that are kept, one more if it fits nowhere; None: nothing is kept.
    """
    urgent = work.urgent
    while work.ready and work.urgent == urgent:
        offer = view.executor_for(work, reserved or frozenset())
        if offer.executor is None:
            if reserved is not None and not offer.barred and (kept := view.most_free(work.needs)) is not None:
                reserved.add(kept.id)
            ready.skip_like(offer)
            return
        yield Place(work.id, offer.executor.id)
