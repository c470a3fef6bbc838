"""Ready queues under limits: the one with the best head is found without looking at all of them.

Queues of one workflow, shape of needs and place whose groups have limits hang on one *crown*, each in the branch of its
limited group, and that in the branch of the limited group around it. Every branch keeps a heap of its children by the
head they had when they were offered last. Rule: a child that has something ready and is not full is offered with its
head, or with something better; what is stale is mended when it surfaces, and what is full comes back when it is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING

from bough.core.queue import Entry, ReadyQueue
from bough.model.resources import Needs

if TYPE_CHECKING:
    from bough.core.groups import GroupRecord, Workflow
    from bough.core.records import Record

_numbers = count()  # decide between offers with the same entry: a stale one and a new one


class ThrottledQueue(ReadyQueue):
    """The ready records under the same limits."""

    __slots__ = ("branch", "crown", "offer")

    is_full = False  # the groups around it may be

    def __init__(self, branch: Branch, crown: Crown, limits: tuple[GroupRecord, ...]) -> None:
        super().__init__(crown.needs, crown.workflow, limits, crown.place)
        self.branch = branch
        self.crown = crown
        self.offer: Entry | None = None

    @property
    def root(self) -> Crown:
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
        branch: Branch | None = self.branch
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


class Branch:
    """Queues and branches inside one limited group; see the module."""

    __slots__ = ("_heap", "group", "offer", "parent")

    def __init__(self, group: GroupRecord | None, parent: Branch | None) -> None:
        self.group = group
        self.parent = parent
        self.offer: Entry | None = None
        self._heap: list[tuple[Entry, int, Branch | ThrottledQueue]] = []

    @property
    def is_full(self) -> bool:
        """Whether as many tasks of its group are out as may be."""
        group = self.group
        return group is not None and group.busy >= group.limit

    def clear(self) -> None:
        """It offers nothing any more."""
        self._heap.clear()

    def propose(self, child: Branch | ThrottledQueue) -> None:
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

    def _first(self) -> Branch | ThrottledQueue | None:
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


class Crown(Branch):
    """All throttled queues of one workflow, shape of needs and place."""

    __slots__ = ("filled", "needs", "place", "workflow")

    def __init__(self, needs: Needs, workflow: Workflow, place: str) -> None:
        super().__init__(None, None)
        self.needs = needs
        self.workflow = workflow
        self.place = place
        self.filled: set[ThrottledQueue] = set()  # the queues that hold entries, stale ones included

    def __len__(self) -> int:
        """How many queues hold something."""
        return len(self.filled)

    def leaves(self) -> list[ReadyQueue]:
        """The queues in it that hold something."""
        return list(self.filled)

    def grow(self, limits: tuple[GroupRecord, ...]) -> ThrottledQueue:
        """A queue under these limits, the outermost first."""
        branch: Branch = self
        for group in limits:
            known = next((own for own in group.branches if own.parent is branch), None)
            if known is None:
                known = Branch(group, branch)
                group.branches.append(known)
            branch = known
        return ThrottledQueue(branch, self, limits)


def occupy_limits(groups: Iterable[GroupRecord], tasks: int) -> None:
    """Count tasks that are out against the limits of their groups; those that have room again say so."""
    for group in groups:
        was_full = group.busy >= group.limit
        group.busy += tasks
        if was_full and group.busy < group.limit:
            for branch in group.branches:
                branch.reopen()
