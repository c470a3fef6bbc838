"""What a policy sees: lookups and lazy iterators over the state's indexes.

What `ready` yields is taken out of the queue and returned after the policy has been heard, so that
an iteration costs what it looks at, never what exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from bough.core.queue import Entry
from bough.core.records import ExecutorRecord, Record
from bough.core.state import State, WorkView
from bough.model.ids import Seconds
from bough.model.resources import Needs
from bough.policy.api import Room, Work


class RoomView:
    """What a policy sees of an executor."""

    __slots__ = ("_executor",)

    def __init__(self, executor: ExecutorRecord) -> None:
        self._executor = executor

    @property
    def id(self) -> int:
        """Its number."""
        return self._executor.id

    @property
    def site(self) -> str:
        """Its site."""
        return self._executor.site

    @property
    def host(self) -> str:
        """Its host."""
        return self._executor.host

    def free(self, resource: str) -> float:
        """How much of a resource is free now."""
        return self._executor.free.get(resource, 0.0)

    def fits(self, work: Work) -> bool:
        """Whether a task of this work could start there now."""
        return self._executor.fits(work.needs)


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
        queue = self._state.queue
        shapes = queue.shapes()
        while True:
            best: Entry | None = None
            for needs in shapes:
                if needs not in self._skipped and (head := queue.head(needs)) and (best is None or head < best):
                    best = head
            if best is None:
                return
            queue.pop(best[2].spec.needs)
            self._taken.append(best)
            yield WorkView(self._state, best[2])

    def skip(self, needs: Needs) -> None:
        """Leave out work with these needs."""
        self._skipped.add(needs)

    def room_for(self, work: Work, excluding: frozenset[int] | set[int] = frozenset()) -> Room | None:
        """The executor that has had room the longest and would take a task of this work."""
        record = self._record(work)
        later: ExecutorRecord | None = None
        for executor in self._state.roomy.values():
            if executor.id in excluding:
                continue
            if executor.fits(record.spec.needs):
                return RoomView(executor)
            if later is None and self._state.takes_backlog(executor, record):
                later = executor
        return RoomView(later) if later is not None else None

    def _record(self, work: Work) -> Record:
        return self._state.records[work.id]

    def rooms(self) -> list[Room]:
        """Every executor that may take something."""
        return [RoomView(executor) for executor in self._state.roomy.values()]

    def roomiest(self, needs: Needs) -> Room | None:
        """The executor most of whose cores are free, among those that could ever fit these needs."""
        able = [x for x in self._state.roomy.values() if x.could_fit(needs)]
        return RoomView(max(able, key=lambda x: x.free["cores"])) if able else None

    def give_back(self) -> None:
        """Return to the queue what was looked at; the policy has been heard."""
        for entry in self._taken:
            self._state.queue.put_back(entry)
        self._taken.clear()
