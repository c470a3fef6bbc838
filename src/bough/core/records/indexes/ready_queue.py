"""What is ready: which records have something to place, best first, by workflow and needs, and how much of each shape.

Records of one workflow with equal needs share one queue, so that a shape of task that fits nowhere costs one look a
turn, however many of them wait. A record that comes in order of its number, without rank or priority, as most do,
goes to the end of a run, where a million cost nothing but their places. The rest goes through a heap.

Queues of one workflow, shape and host whose groups have limits are the leaves of one `LimitTree`. Each hangs on the
node of its innermost limited group, and that on the node of the limited group around it. A node keeps a heap of its
children by the head that they had when they were offered last, so the queue with the best head is found without
looking at all of them.

All queues with the same needs share one `Shape`, which counts their ready tasks.

Rule: an entry is valid while its record's `queue_key` says so and something is ready; stale ones go when they surface.
Rule: a child of a node that has something ready and is not full is offered with its head, or with something better;
a stale offer is mended when it surfaces, and a full child is offered again when it is not full any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import heappop, heappush, heapreplace
from itertools import count, islice
from typing import Final, Protocol

from bough.core.records.group_record import Bid, GroupRecord, Share, Workflow
from bough.core.records.queue_record import QueueRecord, QueueTable
from bough.model.arrays.runtimes import RunTime
from bough.model.bounds import MOST_TASKS
from bough.model.ids import Seconds
from bough.model.sites.resources import Needs
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policy.interface import ExecutorView


class Queued(Protocol):
    """What a queue asks of a record."""

    id: int
    group: GroupRecord
    priority: int
    queue: ReadyQueue
    queue_key: tuple[object, ...]
    ready: int
    runtime: RunTime
    urgent: int

    @property
    def spec(self) -> TaskSpec | ArraySpec:
        """As it was submitted."""

    @property
    def expected(self) -> Seconds:
        """Expected run time of one task of it, 0: unknown."""


# How urgent a record is: something of it had run and was given back; came back unstarted; neither.
HAD_RUN, CAME_BACK, IN_TURN = 2, 1, 0
# Priority and urgency (negated), rank, number; the record itself never decides, since no two have one number.
Entry = tuple[int, int, float, int, Queued]
IN_ORDER = (0, 0, 0.0)  # the `queue_key` of what stands in the run, and how its entry begins

_SAMPLED: Final = 32  # queues of a shape, and records of a queue from either end, that stand for all


class Shape:
    """All tasks with the same needs, whatever their workflow; a policy sees it as a `Demand`."""

    __slots__ = ("fits", "fits_at", "named", "needs", "offers", "queues", "ready")

    def __init__(self, needs: Needs, named: QueueRecord) -> None:
        self.needs = needs
        self.named = named  # the named queue of its tasks
        self.fits = False  # an executor that gets work could run them; see `QueueTable`
        self.fits_at = -1
        self.offers: list[tuple[Bid, int, ReadyQueue | LimitTree]] = []  # a heap, see `fair_index`
        self.ready = 0  # how many of its tasks are ready; kept by the state as it moves them
        self.queues: dict[ReadyQueue | LimitTree, None] = {}  # that have it

    def first(self) -> Queued | None:
        """The record that goes next, of all that is not held up by a limit."""
        heads = [head for queue in self.queues if (head := queue.head()) is not None]
        return min(heads)[4] if heads else None

    @property
    def expected(self) -> Seconds:
        """The mean expected run time of its ready tasks, 0: unknown; some stand for all, so that it costs little."""
        tasks, seconds = 0, 0.0
        leaves = (leaf for queue in self.queues for leaf in queue.leaves())
        for leaf in islice(leaves, _SAMPLED):
            for record in leaf.sample():
                if record.ready and (each := record.expected):
                    tasks += record.ready
                    seconds += record.ready * each
        return self.named.at_most(seconds / tasks) if tasks else 0.0

    def could_end_within(self, time: Seconds) -> bool:
        """Whether something of it is expected to run no longer than this; some stand for all, so it costs the same."""
        if 0 < self.named.spec.max_time <= time:
            return True  # each of them is ended by then
        leaves = islice((leaf for queue in self.queues for leaf in queue.leaves()), _SAMPLED)
        return any(record.ready and record.expected <= time for leaf in leaves for record in leaf.sample())


class DemandIndex:
    """How many tasks are ready, by shape. An answer costs one step a shape, however many tasks there are."""

    __slots__ = ("_named", "_shapes")

    def __init__(self, named: QueueTable) -> None:
        self._named = named
        self._shapes: dict[Needs, Shape] = {}

    def __iter__(self) -> Iterator[Shape]:
        """The shapes of which something is ready."""
        return (shape for shape in self._shapes.values() if shape.ready)

    def shape_of(self, needs: Needs) -> Shape:
        """The shape of all tasks with these needs."""
        shape = self._shapes.get(needs)
        if shape is None:
            named = self._named[needs.queue]
            shape = self._shapes[needs] = Shape(needs, named)
            named.shapes[shape] = None
        return shape

    def could_end_within(self, needs: Needs, time: Seconds) -> bool:
        """Whether something with these needs is expected to run no longer than this; perhaps, if nothing is ready."""
        shape = self._shapes.get(needs)
        return shape is None or not shape.ready or shape.could_end_within(time)

    def forget(self, queue: ReadyQueue | LimitTree) -> None:
        """A queue is not used any more, and its shape neither, if it was the last one and nothing is ready."""
        shape = queue.shape
        shape.queues.pop(queue, None)
        if not (shape.queues or shape.ready):
            self._shapes.pop(shape.needs, None)
            shape.named.shapes.pop(shape, None)

    def unplaceable(self, executors: Collection[ExecutorView]) -> dict[Needs, int]:
        """Needs of ready tasks that none of these executors could ever meet, each with the record that goes next."""
        found: dict[Needs, int] = {}
        for shape in self if executors else ():
            if not any(executor.could_fit(shape.needs) and shape.named.admits(executor.site) for executor in executors):
                first = shape.first()
                if first is not None:
                    found[shape.needs] = first.id
        return found


class ReadyQueue:
    """The ready records of one workflow, one shape of needs, the same limits and the same place."""

    __slots__ = (
        "_heap",
        "_run",
        "bid",
        "cores",
        "limits",
        "named",
        "needs",
        "picky",
        "place",
        "plain",
        "shape",
        "share",
        "workflow",
    )

    def __init__(self, shape: Shape, share: Share, limits: tuple[GroupRecord, ...] = (), place: str = "") -> None:
        needs = shape.needs
        self.shape = shape
        self.needs = needs
        self.share = share
        self.named = share.named
        self.workflow: Workflow = share.workflow
        self.bid: Bid | None = None  # with which it is offered, see `fair_index`
        self.limits = limits  # groups that bound how many of its tasks are out at once
        self.place = place  # the host where its tasks must run, as long as that is there
        self.cores = needs.cores
        # of all amounts only cores are needed, and no named queue says where it may run
        self.plain = not (needs.memory or needs.gpus or needs.named or needs.queue)
        self.picky = needs.is_picky  # it matters where the amounts are
        self._run: deque[Queued] = deque()
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
        limits = self.limits
        spare = min([group.limit - group.busy for group in limits]) if limits else MOST_TASKS
        return min(spare, self.named.spare(self.cores)) if self.named.bounded else spare

    def push(self, record: Queued, rank: float) -> None:
        """Add a record at the place it has now, or move it there."""
        if not (record.priority or record.urgent or rank):
            if record.queue_key is IN_ORDER:
                return
            run = self._run
            if not run or run[-1].id < record.id:
                record.queue_key = IN_ORDER
                run.append(record)
                return
        entry: Entry = (-record.priority, -record.urgent, rank, record.id, record)
        if record.queue_key != entry:
            record.queue_key = entry
            heappush(self._heap, entry)

    def clear(self) -> None:
        """Nothing is in it any more."""
        self._run.clear()
        self._heap.clear()

    def head(self) -> Entry | None:
        """The best valid entry; stale ones before it are dropped."""
        run, heap = self._run, self._heap
        while run or heap:
            if heap and (not run or heap[0] < (0, 0, 0.0, run[0].id)):
                entry = heap[0]
                record = entry[4]
                is_there = record.queue_key is entry
                if is_there and record.ready and -entry[1] <= record.urgent:
                    return entry
                heappop(heap)
                if is_there:
                    record.queue_key = ()
                    if record.ready:  # what came back of it was withdrawn: the rest stands where it would
                        ReadyQueue.push(self, record, entry[2])
            else:
                record = run[0]
                if record.queue_key is IN_ORDER and record.queue is self:  # it may be in another one by now
                    if record.ready:
                        return (0, 0, 0.0, record.id, record)
                    record.queue_key = ()
                run.popleft()
        return None

    def take(self) -> Entry | None:
        """Remove the best valid entry and return it."""
        run = self._run
        if not self._heap:  # as in most queues
            while run:
                record = run.popleft()
                if record.queue_key is IN_ORDER and record.queue is self:
                    if record.ready:
                        return (0, 0, 0.0, record.id, record)
                    record.queue_key = ()
            return None
        entry = self.head()
        if entry is not None:
            if entry[4].queue_key is entry:
                heappop(self._heap)
            else:
                run.popleft()
        return entry

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

    def sample(self) -> Iterator[Queued]:
        """Some of its records, from the beginning and from the end; maybe some that have nothing ready."""
        run = self._run
        yield from islice(run, _SAMPLED)
        yield from islice(reversed(run), min(_SAMPLED, max(0, len(run) - _SAMPLED)))
        for entry in islice(self._heap, 2 * _SAMPLED):
            yield entry[4]

    def entries(self) -> list[Entry]:
        """All entries, stale ones included; for checks."""
        return [*((0, 0, 0.0, record.id, record) for record in self._run), *self._heap]

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

    __slots__ = ("node", "offer", "tree")

    is_full = False  # the groups around it may be

    def __init__(self, node: LimitNode, tree: LimitTree, limits: tuple[GroupRecord, ...]) -> None:
        super().__init__(tree.shape, tree.share, limits, tree.place)
        self.tree = tree
        self.node = node
        self.offer: Entry | None = None

    @property
    def root(self) -> LimitTree:
        """What stands for it among all that waits."""
        return self.tree

    def push(self, record: Queued, rank: float) -> None:
        """As for any queue; its node is told."""
        super().push(record, rank)
        self._propose()

    def put_back(self, entry: Entry) -> None:
        """As for any queue; its node is told."""
        super().put_back(entry)
        self._propose()

    def clear(self) -> None:
        """As for any queue; no node offers it."""
        super().clear()
        self.tree.non_empty.discard(self)
        node: LimitNode | None = self.node
        while node is not None:
            node.clear()
            node = node.parent

    def _propose(self) -> None:
        if self._run or self._heap:
            self.tree.non_empty.add(self)
            self.node.propose(self)

    def head(self) -> Entry | None:
        """As for any queue."""
        entry = super().head()
        if entry is None:
            self.tree.non_empty.discard(self)
        return entry

    def take(self) -> Entry | None:
        """As for any queue."""
        entry = super().take()
        if not (self._run or self._heap):
            self.tree.non_empty.discard(self)
        return entry


class LimitNode:
    """The queues and nodes inside one limited group; see the module."""

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
    """All limited queues of one workflow, shape and host."""

    __slots__ = ("_nodes", "_touch", "bid", "needs", "non_empty", "place", "shape", "share", "workflow")

    def __init__(self, shape: Shape, share: Share, place: str, touch: Callable[[LimitTree], None]) -> None:
        super().__init__(None, None)
        self.shape = shape
        self.needs = shape.needs
        self.share = share
        self.workflow: Workflow = share.workflow
        self.bid: Bid | None = None  # with which it is offered, see `fair_index`
        self._touch = touch
        self.place = place
        self._nodes: dict[int, LimitNode] = {}  # by group
        self.non_empty: set[LimitedQueue] = set()  # the queues that hold entries, stale ones included

    def clear(self) -> None:
        """It is not used any more."""
        super().clear()
        self._nodes.clear()  # they know it: without this only the garbage collector would free them

    def __len__(self) -> int:
        """How many queues hold something."""
        return len(self.non_empty)

    def leaves(self) -> list[ReadyQueue]:
        """The queues in it that hold something."""
        return list(self.non_empty)

    def propose(self, child: LimitNode | LimitedQueue) -> None:
        """As for any node; the tree itself may be better than it was."""
        super().propose(child)
        self._touch(self)

    def queue_under(self, limits: tuple[GroupRecord, ...]) -> LimitedQueue:
        """A new queue under these limits, the outermost first."""
        node: LimitNode = self
        for group in limits:
            known = self._nodes.get(group.id)
            if known is None:
                known = self._nodes[group.id] = LimitNode(group, node)
                group.limit_nodes.append(known)
            node = known
        return LimitedQueue(node, self, limits)


def occupy_limits(groups: Iterable[GroupRecord], tasks: int) -> None:
    """Count tasks that are out against the limits of their groups; a group that is not full any more is offered."""
    for group in groups:
        was_full = group.busy >= group.limit
        group.busy += tasks
        if was_full and group.busy < group.limit:
            for node in group.limit_nodes:
                node.reopen()
