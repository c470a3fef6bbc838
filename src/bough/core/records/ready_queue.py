"""What is ready, best first, by workflow and needs; queues under group limits.

The ready index: which records have something to hand out, best first, by workflow and by what they need.

Records of one workflow with equal needs share one queue, so that a shape of task that fits nowhere costs one look a
turn, however many of them wait. What comes in order of its number without rank or priority, as most of it does, goes to
the end of a run, where a million cost nothing but their places; the rest goes through a heap, with an entry each. Rule:
an entry is valid while its record's `queue_key` says so and something is ready; stale ones go when they surface.

Ready queues under limits: the one with the best head is found without looking at all of them.

Queues of one workflow, shape of needs and place whose groups have limits hang on one *crown*, each in the branch of its
limited group, and that in the branch of the limited group around it. Every branch keeps a heap of its children by the
head they had when they were offered last. Rule: a child that has something ready and is not full is offered with its
head, or with something better; what is stale is mended when it surfaces, and what is full comes back when it is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING

from bough.model.resources import Needs

if TYPE_CHECKING:
    from bough.core.records.array_record import Record
    from bough.core.records.group_record import GroupRecord, Workflow

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
    def root(self) -> ReadyQueue | LimitTree:
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


_numbers = count()  # decide between offers with the same entry: a stale one and a new one


class LimitedQueue(ReadyQueue):
    """The ready records under the same limits."""

    __slots__ = ("branch", "crown", "offer")

    is_full = False  # the groups around it may be

    def __init__(self, branch: LimitNode, crown: LimitTree, limits: tuple[GroupRecord, ...]) -> None:
        super().__init__(crown.needs, crown.workflow, limits, crown.place)
        self.branch = branch
        self.crown = crown
        self.offer: Entry | None = None

    @property
    def root(self) -> LimitTree:
        """What stands for it among all that waits."""
        return self.crown

    def push(self, record: Record, rank: float) -> None:
        """As for any queue; the branch hears of it."""
        super().push(record, rank)
        self._hear()

    def put_back(self, entry: Entry) -> None:
        """As for any queue; the branch hears of it."""
        super().put_back(entry)
        self._hear()

    def clear(self) -> None:
        """As for any queue; no branch offers it."""
        super().clear()
        self.crown.filled.discard(self)
        branch: LimitNode | None = self.branch
        while branch is not None:
            branch.clear()
            branch = branch.parent

    def _hear(self) -> None:
        if self:
            self.crown.filled.add(self)
            self.branch.propose(self)

    def take(self) -> Entry | None:
        """As for any queue."""
        entry = super().take()
        if not self:
            self.crown.filled.discard(self)
        return entry

    def head(self) -> Entry | None:
        """As for any queue."""
        entry = super().head()
        if entry is not None:
            self.crown.filled.add(self)
        return entry


class LimitNode:
    """Queues and branches inside one limited group; see the module."""

    __slots__ = ("_heap", "group", "offer", "parent")

    def __init__(self, group: GroupRecord | None, parent: LimitNode | None) -> None:
        self.group = group
        self.parent = parent
        self.offer: Entry | None = None
        self._heap: list[tuple[Entry, int, LimitNode | LimitedQueue]] = []

    @property
    def is_full(self) -> bool:
        """Whether as many tasks of its group are out as may be."""
        group = self.group
        return group is not None and group.busy >= group.limit

    def clear(self) -> None:
        """It offers nothing any more."""
        self._heap.clear()

    def propose(self, child: LimitNode | LimitedQueue) -> None:
        """The head of a child may be better than it was."""
        head = child.head()
        if head is not None and (child.offer is None or head < child.offer):
            child.offer = head
            heappush(self._heap, (head, next(_numbers), child))
            if self.parent is not None:
                self.parent.propose(self)

    def reopen(self) -> None:
        """Its group has room again: it counts with those around it."""
        if self.offer is None and self.parent is not None:
            self.parent.propose(self)

    def head(self) -> Entry | None:
        """The best entry of all that is not full."""
        child = self._first()
        return child.offer if child is not None else None

    def best(self) -> ReadyQueue | None:
        """The queue that has it."""
        child = self._first()
        return child.best() if child is not None else None

    def _first(self) -> LimitNode | LimitedQueue | None:
        heap = self._heap
        while heap:
            entry, _, child = heap[0]
            if child.offer is not entry:  # it was offered again meanwhile, with something better
                heappop(heap)
                continue
            head = None if child.is_full else child.head()
            if head == entry:
                return child
            child.offer = head
            if head is None:
                heappop(heap)
            else:
                heapreplace(heap, (head, next(_numbers), child))
        return None


class LimitTree(LimitNode):
    """All throttled queues of one workflow, shape of needs and place."""

    __slots__ = ("filled", "needs", "place", "workflow")

    def __init__(self, needs: Needs, workflow: Workflow, place: str) -> None:
        super().__init__(None, None)
        self.needs = needs
        self.workflow = workflow
        self.place = place
        self.filled: set[LimitedQueue] = set()  # the queues that hold entries, stale ones included

    def __len__(self) -> int:
        """How many queues hold something."""
        return len(self.filled)

    def leaves(self) -> list[ReadyQueue]:
        """The queues in it that hold something."""
        return list(self.filled)

    def grow(self, limits: tuple[GroupRecord, ...]) -> LimitedQueue:
        """A queue under these limits, the outermost first."""
        branch: LimitNode = self
        for group in limits:
            known = next((own for own in group.branches if own.parent is branch), None)
            if known is None:
                known = LimitNode(group, branch)
                group.branches.append(known)
            branch = known
        return LimitedQueue(branch, self, limits)


def occupy_limits(groups: Iterable[GroupRecord], tasks: int) -> None:
    """Count tasks that are out against the limits of their groups; those that have room again say so."""
    for group in groups:
        was_full = group.busy >= group.limit
        group.busy += tasks
        if was_full and group.busy < group.limit:
            for branch in group.branches:
                branch.reopen()
