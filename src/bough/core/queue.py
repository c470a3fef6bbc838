"""The ready index: which records have something to hand out, best first, by workflow and by what they need.

Records of one workflow with equal needs share one queue, so that a shape of task that fits nowhere costs one look a
turn, however many of them wait. What comes in order of its number without rank or priority, as most of it does, goes to
the end of a run, where a million cost nothing but their places; the rest goes through a heap, with an entry each. Rule:
an entry is valid while its record's `queue_key` says so and something is ready; stale ones go when they surface.
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
IN_ORDER = (0, 1, 0.0)  # the `queue_key` of what stands in the run, and how its entry begins


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
        self._run: deque[Record] = deque()
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
        if not (record.priority or record.urgent or rank):
            if record.queue_key is IN_ORDER:
                return
            run = self._run
            if not run or run[-1].id < record.id:
                record.queue_key = IN_ORDER
                run.append(record)
                return
        entry: Entry = (-record.priority, 0 if record.urgent else 1, rank, record.id, record)
        if record.queue_key != entry:
            record.queue_key = entry
            heappush(self._heap, entry)

    def clear(self) -> None:
        """Nothing is in it any more."""
        self._run.clear()
        self._heap.clear()

    def head(self) -> Entry | None:
        """The best valid entry."""
        entry = self.take()
        if entry is not None:
            self._return(entry)
        return entry

    def take(self) -> Entry | None:
        """Remove the best valid entry and return it."""
        run, heap = self._run, self._heap
        while run or heap:
            if heap and (not run or heap[0] < (0, 1, 0.0, run[0].id)):
                entry = heappop(heap)
                record = entry[4]
                valid = record.queue_key is entry
            else:
                record = run.popleft()
                entry = (0, 1, 0.0, record.id, record)
                valid = record.queue_key is IN_ORDER
            if valid:
                if record.ready:
                    return entry
                record.queue_key = ()
        return None

    def put_back(self, entry: Entry) -> None:
        """Return an entry that was taken, if its record still has something ready under this key."""
        if is_valid(entry):
            if entry[4].ready:
                self._return(entry)
            else:
                entry[4].queue_key = ()

    def _return(self, entry: Entry) -> None:
        """Put a valid entry where it was."""
        record, run = entry[4], self._run
        if record.queue_key is not IN_ORDER:
            heappush(self._heap, entry)
        elif not run or record.id < run[0].id:
            run.appendleft(record)
        else:
            record.queue_key = entry
            heappush(self._heap, entry)

    def entries(self) -> list[Entry]:
        """All entries, stale ones included; for checks."""
        return [*((0, 1, 0.0, record.id, record) for record in self._run), *self._heap]

    def __len__(self) -> int:
        """How many entries there are, stale ones included."""
        return len(self._run) + len(self._heap)


def is_valid(entry: Entry) -> bool:
    """Whether an entry is the one that its record has."""
    key = entry[4].queue_key
    return key is entry or (key is IN_ORDER and entry[:3] == IN_ORDER)
