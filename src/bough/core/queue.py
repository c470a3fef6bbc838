"""The ready index: which records have something to hand out, best first, by workflow and by what they need.

Records of one workflow with equal needs share one queue, so that a shape of task that fits nowhere costs one look a
turn, however many of them wait. What comes in order, as most of it does, goes to the end of a sorted
run; only the rest goes through a heap. Rule: an entry is valid while it is its record's `queue_key` and the record
still has something ready; stale entries are dropped when they surface.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from bough.model.resources import Needs

if TYPE_CHECKING:
    from bough.core.groups import GroupRecord, Workflow
    from bough.core.records import Record
    from bough.core.throttled import Crown

# Priority (negated), 0 if it is urgent, rank, number; the record itself never decides, since no two have one number.
Entry = tuple[int, int, float, int, "Record"]


class ReadyQueue:
    """The ready records of one workflow, one shape of needs, the same limits and the same place."""

    __slots__ = ("_heap", "_run", "cores", "limits", "needs", "place", "plain", "workflow")

    def __init__(self, needs: Needs, workflow: Workflow, limits: tuple[GroupRecord, ...] = (), place: str = "") -> None:
        self.needs = needs
        self.workflow = workflow
        self.limits = limits  # groups that bound how many of its tasks are out at once
        self.place = place  # the host where its tasks must run, as long as that is there
        self.cores = needs.cores
        self.plain = not (needs.memory or needs.gpus or needs.named)  # cores are all that is needed
        self._run: deque[Entry] = deque()
        self._heap: list[Entry] = []

    @property
    def root(self) -> ReadyQueue | Crown:
        """What stands for it among all that waits: itself, if it has no limits."""
        return self

    def best(self) -> ReadyQueue:
        """The queue with the best entry: itself."""
        return self

    def leaves(self) -> list[ReadyQueue]:
        """The queues it stands for."""
        return [self]

    @property
    def spare(self) -> int:
        """How many more of its tasks may be out now; only asked where there are limits."""
        return min(group.limit - group.busy for group in self.limits)

    def push(self, record: Record, rank: float) -> None:
        """Add a record at the place it has now, or move it there."""
        entry: Entry = (-record.priority, 0 if record.urgent else 1, rank, record.id, record)
        if record.queue_key == entry:
            return
        record.queue_key = entry
        run = self._run
        if not run or run[-1] < entry:
            run.append(entry)
        else:
            heappush(self._heap, entry)

    def head(self) -> Entry | None:
        """The best valid entry."""
        entry = self.take()
        if entry is not None:
            self._run.appendleft(entry)  # it was before all others
        return entry

    def take(self) -> Entry | None:
        """Remove the best valid entry and return it."""
        run, heap = self._run, self._heap
        while run or heap:
            entry = heappop(heap) if heap and (not run or heap[0] < run[0]) else run.popleft()
            record = entry[4]
            if record.queue_key is entry:
                if record.ready:
                    return entry
                record.queue_key = ()
        return None

    def put_back(self, entry: Entry) -> None:
        """Return an entry that was taken, if its record still has something ready under this key."""
        record = entry[4]
        if record.queue_key is entry:
            if not record.ready:
                record.queue_key = ()
            elif not self._run or entry < self._run[0]:
                self._run.appendleft(entry)
            else:
                heappush(self._heap, entry)

    def entries(self) -> list[Entry]:
        """All entries, stale ones included; for checks."""
        return [*self._run, *self._heap]

    def __len__(self) -> int:
        """How many entries there are, stale ones included."""
        return len(self._run) + len(self._heap)
