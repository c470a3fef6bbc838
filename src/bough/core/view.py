"""What a policy sees: lookups and lazy iterators over the state's indexes.

What `ready` yields is taken out of the queue and returned after the policy has been heard, so that
an iteration costs what it looks at, never what exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from bough.core.queue import Entry
from bough.core.room import ExecutorRecord
from bough.core.state import State
from bough.model.ids import Seconds
from bough.model.resources import Needs
from bough.policy.api import Room, Work


class StateView:
    """The world at one instant."""

    def __init__(self, state: State, now: Seconds, random: Random) -> None:
        self._state = state
        self._now = now
        self._random = random
        self._taken: list[Entry] = []
        self._skipped: set[Needs] = set()

    @property
    def now(self) -> Seconds:
        """The time."""
        return self._now

    @property
    def random(self) -> Random:
        """The only dice."""
        return self._random

    def ready(self) -> Iterator[Work]:
        """What is ready, best first."""
        waiting = self._state.waiting
        while True:
            best: Entry | None = None
            for queue in list(waiting) if len(waiting) > 1 else waiting:
                if queue.needs in self._skipped if self._skipped else False:
                    continue
                head = queue.head()
                if head is not None and (best is None or head < best):
                    best = head
            if best is None:
                return
            best[2].queue.pop()
            self._taken.append(best)
            yield best[2]

    def skip(self, needs: Needs) -> None:
        """Leave out work with these needs."""
        self._skipped.add(needs)

    def room_for(self, work: Work, excluding: frozenset[int] | set[int] = frozenset()) -> Room | None:
        """The executor that has had room the longest and would take a task of this work."""
        record = self._state.records[work.id]
        later: ExecutorRecord | None = None
        for executor in self._state.roomy.values():
            if executor.id in excluding:
                continue
            if executor.fits(record):
                return executor
            if later is None and executor.takes_backlog(record):
                later = executor
        return later

    def rooms(self) -> list[Room]:
        """Every executor that may take something."""
        return list(self._state.roomy.values())

    def roomiest(self, needs: Needs) -> Room | None:
        """The executor most of whose cores are free, among those that could ever fit these needs."""
        able = [executor for executor in self._state.roomy.values() if executor.could_fit(needs)]
        return max(able, key=lambda executor: executor.cores_free) if able else None

    def give_back(self) -> None:
        """Return to the queues what was looked at; the policy has been heard."""
        for entry in self._taken:
            entry[2].queue.put_back(entry)
        self._taken.clear()
        empty = [queue for queue in self._state.waiting if not queue]
        for queue in empty:
            del self._state.waiting[queue]
