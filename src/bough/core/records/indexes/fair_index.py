"""Whose turn it is: among all that waits, the queue of the workflow that holds the fewest cores.

Of several named queues that goes first which holds the fewest cores for its share; of equal ones that whose virtual
time is lowest: what is placed moves it on by its cores for the share, and one that had nothing ready saves nothing up.

What waits is grouped by shape of needs. Each shape keeps a heap of its queues by the *bid* that they had when they were
offered last: the cores that the workflow holds, its best entry, and when it was served. So the next one is found
without looking at the others, however many workflows are open; a shape that is left out costs one look.

Rule: a queue that has something ready is offered with its bid, or with a better one. A bid gets better when an entry is
added or returned, when a limit lets go, and when its workflow gives cores back: each marks the queue, and marked ones
are offered anew before the next choice. A bid that got worse is mended when it surfaces.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import heappop, heappush, heapreplace
from itertools import count

from bough.core.records.group_record import Bid, Share
from bough.core.records.indexes.ready_queue import LimitTree, ReadyQueue, Shape
from bough.core.records.queue_record import QueueTable

Root = ReadyQueue | LimitTree

_numbers = count()  # decide between offers with the same bid: a stale one and a new one


class FairIndex:
    """See the module."""

    __slots__ = ("_named", "_offering", "looks", "marked", "touched", "waiting")

    def __init__(self, named: QueueTable) -> None:
        self._named = named
        self.waiting: dict[Root, None] = {}  # the queues that may hold something
        self.touched: dict[Root, None] = {}  # those of them whose bid may be better than it was
        self.marked: dict[Share, None] = {}  # shares that hold fewer cores than they did
        self.looks = 0  # bids that were computed; for tests and figures
        self._offering: dict[Shape, None] = {}  # shapes whose heaps hold something

    def forget(self, root: Root) -> None:
        """A queue holds nothing any more."""
        self.waiting.pop(root, None)
        self.touched.pop(root, None)

    def remove(self, share: Share) -> None:
        """All queues of a share go."""
        for root in share.roots:
            self.forget(root)  # type: ignore[arg-type] # what a share knows as a root is one
            root.bid = None
        share.roots.clear()
        self.marked.pop(share, None)

    def best(self, skipped: Collection[object], left_out: Collection[Root], aside: list[Root]) -> Root | None:
        """The queue whose turn it is; shapes with `skipped` needs are not looked at.

        A queue that is left out is taken from its heap and noted in `aside`: whoever asked returns it with `touch`.
        """
        if self.touched or self.marked:
            self._settle()
        best: Root | None = None
        empty: list[Shape] = []
        several, least = self._named.several, (0.0, 0.0)
        for shape in self._offering:
            if skipped and shape.needs in skipped:
                continue
            if several and shape.named.bounded and not shape.named.spare(shape.needs.cores):
                continue
            root = self._first(shape, left_out, aside)
            if root is None:
                empty.append(shape)
                continue
            standing = self._named.standing(shape.named) if several else least
            if best is None or standing < least or (standing == least and root.bid < best.bid):  # type: ignore[operator]
                best, least = root, standing
        for shape in empty:
            del self._offering[shape]
        return best

    def touch(self, root: Root) -> None:
        """The bid of a queue may be better than it was."""
        if root in self.waiting:
            self.touched[root] = None

    def _settle(self) -> None:
        """Offer anew what was marked."""
        touched, waiting = self.touched, self.waiting
        for share in self.marked:
            for root in share.roots:
                if root in waiting:
                    touched[root] = None
        self.marked.clear()
        for root in touched:
            bid = self._bid(root)
            if bid is not None and (root.bid is None or bid < root.bid):
                root.bid = bid
                heappush(root.shape.offers, (bid, next(_numbers), root))
                self._offering[root.shape] = None
        touched.clear()

    def _bid(self, root: Root) -> Bid | None:
        self.looks += 1
        head = root.head()
        share = root.share
        share.offered = True
        return (share.cores, head[0], head[1], head[2], share.served, head[3]) if head is not None else None

    def _first(self, shape: Shape, left_out: Collection[Root], aside: list[Root]) -> Root | None:
        """The queue of a shape whose turn it is."""
        heap = shape.offers
        while heap:
            bid, _, root = heap[0]
            if root.bid is not bid:  # it was offered again meanwhile, with a better one
                heappop(heap)
                continue
            if left_out and root in left_out:
                heappop(heap)
                root.bid = None
                aside.append(root)
                continue
            now = self._bid(root)
            if now == bid:
                return root
            root.bid = now
            if now is None:
                heappop(heap)
                if not root:
                    self.forget(root)
            else:
                heapreplace(heap, (now, next(_numbers), root))
        return None
