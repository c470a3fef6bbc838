"""Named queues: what is decided of them is applied here, and what is submitted is held against them.

Rule: these functions only apply what is decided; `intake` decides. A replay does not ask whether a queue was defined.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from bough.core.effects import Effects
from bough.core.records.queue_record import QueueRecord
from bough.core.state import State
from bough.model.events import facts
from bough.model.ids import number_of
from bough.model.tasks import ArraySpec, GroupSpec, Item, TaskSpec


def queue_defined(state: State, effects: Effects | None, fact: facts.QueueDefined) -> None:
    """A queue has these limits from now on."""
    state.named_queues.define(fact.queue, fact.spec)
    state.offer_all()


def queue_removed(state: State, effects: Effects | None, fact: facts.QueueRemoved) -> None:
    """A queue has no definition any more; tasks that name it have no limits."""
    state.named_queues.define(fact.queue, None)
    state.offer_all()


def check_queues(state: State, items: Iterable[Item]) -> str | None:
    """Say why items cannot be accepted because of the queues that they name, or None."""
    for item in items:
        if isinstance(item, GroupSpec) or not item.needs.queue:  # as most
            continue
        name = item.name or f"task {number_of(item.id)}"
        queue = state.named_queues.records.get(item.needs.queue)
        if queue is None or not queue.is_defined:
            there = ", ".join(one.name for one in state.named_queues.defined())
            known = f"there are: {there}" if there else "queues are made at a server, with bough queue add"
            return f"{name}: there is no queue {item.needs.queue}; {known}"
        most = queue.spec.max_cores
        if most and item.needs.cores > most:
            return f"{name} asks for {item.needs.cores:g} cores, and queue {queue.name} has at most {most:g}"
    return None


def capped(spec: TaskSpec | ArraySpec, queue: QueueRecord) -> TaskSpec | ArraySpec:
    """A spec as it is sent: with the smaller one of its timeout and its queue's ceiling."""
    most = queue.spec.max_time
    if not most or 0 < spec.limits.timeout <= most:
        return spec
    return replace(spec, limits=replace(spec.limits, timeout=most))
