"""Named queues: what is decided of them is applied here.

Rule: these functions only apply what is decided; `intake` decides.
"""

from __future__ import annotations

from msgspec.structs import replace

from bough.core.effects import Effects
from bough.core.records.queue_record import QueueRecord
from bough.core.state import State
from bough.model.events import facts
from bough.model.tasks import ArraySpec, TaskSpec


def queue_defined(state: State, effects: Effects | None, fact: facts.QueueDefined) -> None:
    """A queue has these limits from now on."""
    state.named_queues.define(fact.queue, fact.spec)
    state.offer_all()


def queue_removed(state: State, effects: Effects | None, fact: facts.QueueRemoved) -> None:
    """A queue has no definition any more; tasks that name it have no limits."""
    state.named_queues.define(fact.queue, None)
    state.offer_all()


def capped(spec: TaskSpec | ArraySpec, queue: QueueRecord) -> TaskSpec | ArraySpec:
    """A spec as it is sent: with the smaller one of its timeout and its queue's ceiling."""
    most = queue.spec.max_time
    if not most or 0 < spec.limits.timeout <= most:
        return spec
    return replace(spec, limits=replace(spec.limits, timeout=most))
