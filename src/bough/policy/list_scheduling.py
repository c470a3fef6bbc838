"""Placing in the order of the queue: what every list-scheduling policy shares.

The first task that fits nowhere now, but could, keeps the roomiest executor for itself, so that big
tasks are not starved by small ones; later tasks go to the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from bough.policy.interface import Place, View


def in_order(view: View) -> Iterator[Place]:
    """Give each ready task, best first, to the executor that has had room the longest."""
    reserved: set[int] = set()
    for work in view.ready():
        while work.ready:
            room = view.room_for(work, reserved)
            if room is None:
                kept = view.roomiest(work.needs)
                if kept is not None:
                    reserved.add(kept.id)
                view.skip(work.needs)
                break
            yield Place(work.id, room.id)
