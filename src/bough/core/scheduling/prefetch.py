"""Announcing: an executor that is busy is told which inputs it will likely need next, so that they travel meanwhile.

An executor that has had no room for a moment is announced the ready task that would best follow there: the one with the
most of its input at that place, else the first of whose input no place has more. Nothing is bound by it: the task stays
ready, and goes wherever the policy sends it. Since its data is soon where it was announced, a policy that looks at data
sends it there. No task is announced to two executors at once, and an executor has no more announced to it than would
fill its cores.

Where places are sites (Storage Affinity), what a site's hosts and its shared store have counts, as it does for the
policy; among a site's executors the one that has been busy the longest hears first, since it is likely the next to be
free. It brings what its own host lacks. If another one of the site gets the task, it has the bytes near by.

Rules: it is advice: no fact is written. Executors whose tasks are so short that they ask again within the moment cost
one entry in a table; the look at ready tasks is bounded. Without declared inputs, or with a policy that does not look
at data, nothing of it is done.
"""

from __future__ import annotations

from typing import Final

from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.indexes.affinity_index import AffinityIndex
from bough.core.records.indexes.waiting_units import Unit, files_read
from bough.core.state import State
from bough.model.events.orders import AnnounceInputs, Order
from bough.model.ids import FileId, RecordId, Seconds

_LOOK: Final = 32  # readers of a content that are looked at for one announcement


def announce(state: State, affinity: AffinityIndex, now: Seconds, orders: list[Order]) -> None:
    """See the module."""
    announcements = affinity.announcements
    for executor in announcements.look(state.executors, now):
        room = announcements.room(executor, affinity.units)
        while room > 0:
            found = _next_for(state, affinity, executor)
            if found is None:
                announcements.unsatisfied(executor, now)
                return
            unit, here = found
            cores = max(unit.work.needs.cores, 0.01)
            announcements.note(unit.key, executor, cores)
            room -= cores
            if not _is_all_there(affinity, unit, executor, here):
                files = tuple([FileId(file) for file in files_read(unit.work, unit.element)])
                orders.append(AnnounceInputs(executor.id, RecordId(unit.work.id), unit.element, files))
        announcements.satisfied(executor)


def _is_all_there(affinity: AffinityIndex, unit: Unit, executor: ExecutorRecord, here: int) -> bool:
    """Whether a task finds all of its input on an executor's host; `here`: how much of it is at the place."""
    if not unit.total or here < unit.total:
        return False
    host = affinity.data.host_of(executor) if affinity.by_site else None
    return host is None or all(affinity.data.holds(content, host.number) for content in affinity.contents_of(unit))


def _next_for(state: State, affinity: AffinityIndex, executor: ExecutorRecord) -> tuple[Unit, int] | None:
    """The task that would best follow what an executor has, of those announced to nobody; what it has there."""
    place = affinity.place_of(executor)
    best: tuple[Unit, int] | None = None
    for content in affinity.wanted_at(place) if place is not None else ():
        for unit in affinity.readers(content, _LOOK):
            if _is_free(state, affinity, unit, executor):
                here = affinity.here(unit, place)
                if best is None or here > best[1]:
                    best = unit, here
                break  # those after it came later, and read this content as well
    if best is not None and best[1] > 0:
        return best

    def choose(unit: Unit) -> bool | None:
        if not _could_run(state, unit, executor):
            return None
        return affinity.most_held(unit) <= affinity.here(unit, place)

    chosen = affinity.announcements.first_unheard(choose)
    return (chosen, affinity.here(chosen, place)) if chosen is not None else None


def _is_free(state: State, affinity: AffinityIndex, unit: Unit, executor: ExecutorRecord) -> bool:
    """Whether a task is announced to nobody and could run on an executor, were that not busy."""
    if not unit.is_ready or affinity.announcements.is_announced(unit.key):
        return False
    return _could_run(state, unit, executor)


def _could_run(state: State, unit: Unit, executor: ExecutorRecord) -> bool:
    """Whether a task could run on an executor, were that not busy."""
    record = unit.work
    if executor.fits(record):
        return False  # it is not busy, and the policy does not want it there
    queue, avoid = record.queue, record.avoid
    if queue.place in state.hosts and executor.host != queue.place:
        return False
    if avoid and executor.id in state.avoidable(record, avoid):
        return False
    return executor.ends_before(record, state.now) and state.named_queues.could_fit(executor, record.needs)
