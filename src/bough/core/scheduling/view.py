"""What a policy sees: lookups and lazy iterators over the state's indexes.

What `ready` yields is taken out of the queue and returned after the policy has been heard, so that
an iteration costs what it looks at, never what exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import cast

from bough.core.records.array_record import Record
from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.ready_queue import Entry, LimitTree, ReadyQueue, is_valid
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.model.ids import Seconds
from bough.model.resources import Needs
from bough.policy.interface import ExecutorView, ReadyWork

Offer = tuple[Record | None, ExecutorRecord | None, bool]  # work, who would take it, and whether it fits there at once
_NO_OFFER: Offer = (None, None, False)


class StateView:
    """The world at one instant."""

    def __init__(self, state: State, now: Seconds, random: Random) -> None:
        self._state = state
        self._now = now
        self._random = random
        self._taken: list[Entry] = []
        self._skipped: set[Needs] = set()
        self._full: set[ReadyQueue | LimitTree] = set()  # queues of hosts that have no room
        self._offer: Offer = _NO_OFFER
        self._barred = False  # the work last asked for could not go where others could

    @property
    def now(self) -> Seconds:
        """The time."""
        return self._now

    @property
    def random(self) -> Random:
        """The only dice."""
        return self._random

    def ready(self) -> Iterator[ReadyWork]:
        """What is ready, best first."""
        waiting = self._state.waiting
        taken = self._taken
        while True:
            best: ReadyQueue | None
            if len(waiting) == 1:
                (only,) = waiting
                if self._is_shut(only):
                    return
                best = only.best()
            else:
                best = self._best_queue()
            entry = best.take() if best is not None else None
            if entry is None:
                return
            taken.append(entry)
            yield entry[4]

    def _is_shut(self, queue: ReadyQueue | LimitTree) -> bool:
        """Whether nothing of a queue is to be looked at now."""
        return queue.needs in self._skipped or queue in self._full

    def _best_queue(self) -> ReadyQueue | None:
        """The queue with the best head, of the workflow that holds the fewest cores; skipped ones left out."""
        best: ReadyQueue | LimitTree | None = None
        first: Entry | None = None
        least = 0.0
        for queue in self._state.waiting:
            if self._is_shut(queue):
                continue
            head = queue.head()
            if head is None:
                continue
            held = queue.workflow.cores
            if first is None or held < least or (held == least and head < first):
                best, first, least = queue, head, held
        return best.best() if best is not None else None

    def take_like(self, record: TaskRecord, most: int) -> list[TaskRecord]:
        """The ready work that is best after a loose task, as long as it is of the same template and needs."""
        queue, runtime = record.queue, record.runtime
        found: list[TaskRecord] = []
        alone = len(self._state.waiting) == 1 and queue.root is queue
        while len(found) < most and (alone or self._best_queue() is queue):
            entry = queue.take()
            if entry is None:
                break
            following = entry[4]
            if following.runtime is not runtime or type(following) is not TaskRecord or following.trouble is not None:
                queue.put_back(entry)
                break
            self._taken.append(entry)
            found.append(following)
        return found

    def skip(self, needs: Needs) -> None:
        """Leave out work with these needs, unless the last one asked for is barred where others are not."""
        if not self._barred:
            self._skipped.add(needs)

    def room_for(self, work: ReadyWork, excluding: frozenset[int] | set[int] = frozenset()) -> ExecutorView | None:
        """The executor that has had room the longest and would take a task of this work."""
        record = cast("Record", work)
        later: ExecutorRecord | None = None
        if record.queue.limits and record.queue.spare <= 0:
            self._offer, self._barred = (record, None, False), True
            return None
        place = record.queue.place if record.queue.place in self._state.hosts else ""
        shunned = self._state.shunned_by(record) if record.avoid else ()
        self._barred = False
        for executor in self._state.roomy.values():
            if excluding and executor.id in excluding:
                continue
            late = executor.until and not executor.ends_before(record, self._now)
            if late or executor.id in shunned or (place and executor.host != place):
                self._barred = True
                continue
            if executor.fits(record):
                self._offer = (record, executor, True)
                return executor
            if later is None and executor.takes_backlog(record):
                later = executor
        if later is None and place:
            self._full.add(record.queue.root)  # nobody else of it can go either
        self._offer = (record, later, False)
        return later

    def take_offer(self) -> Offer:
        """The last answer of `room_for`, once: a wish that takes it up at once need not be checked again."""
        offer, self._offer = self._offer, _NO_OFFER
        return offer

    def rooms(self) -> list[ExecutorView]:
        """Every executor that may take something."""
        return list(self._state.roomy.values())

    def roomiest(self, needs: Needs) -> ExecutorView | None:
        """The executor most of whose cores are free, among those that could ever fit these needs."""
        if self._barred:
            return None  # whoever asks cannot go there
        able = [executor for executor in self._state.roomy.values() if executor.could_fit(needs)]
        return max(able, key=lambda executor: executor.cores_free) if able else None

    def give_back(self) -> None:
        """Return to the queues what was looked at; the policy has been heard."""
        for entry in reversed(self._taken):  # the last one taken goes back first, so that all keep their order
            record = entry[4]
            if record.ready:
                record.queue.put_back(entry)
            elif is_valid(entry):
                record.queue_key = ()
        self._taken.clear()
        empty = [queue for queue in self._state.waiting if not queue]
        for queue in empty:
            del self._state.waiting[queue]
