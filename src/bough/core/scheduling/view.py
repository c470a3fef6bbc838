"""What a policy sees: lookups and lazy iterators over the state's indexes.

A scan of what is ready takes entries out of their queues. The view returns them when another scan continues, and at the
end. So a scan costs what it looks at, never what exists.
Rule: a question changes no answer. What a policy wants left out belongs to the scan that it told so.
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
from bough.policy.interface import Demand, ExecutorView, Offer, ReadyWork


class StateView:
    """The world at one instant."""

    scan: StateScan | None = None  # the one that has entries of the queues
    offer: Offer | None = None  # the last executor found: a wish that follows it at once is lawful, and is not checked

    def __init__(self, state: State, now: Seconds, random: Random) -> None:
        self._state = state
        self._now = now
        self._random = random

    @property
    def now(self) -> Seconds:
        """The time."""
        return self._now

    @property
    def random(self) -> Random:
        """The only dice."""
        return self._random

    def ready(self) -> StateScan:
        """What is ready, best first."""
        return StateScan(self, self._state)

    def executor_for(self, work: ReadyWork, excluding: frozenset[int] | set[int] = frozenset()) -> Offer:
        """The executor that has been open the longest and would take a task of this work."""
        record: Record = work  # type: ignore[assignment] # what a policy sees as work is a record
        state = self._state
        queue = record.queue
        if (queue.limits or queue.named.bounded) and queue.spare <= 0:
            return Offer(work, None, False, True)
        place = queue.place if queue.place in state.hosts else ""
        avoided = state.avoided_by(record) if record.avoid else ()
        later: ExecutorRecord | None = None
        barred = False
        parked: list[ExecutorRecord] = []
        for executor in state.open_executors.values():
            if executor.bound is not None and executor.bound.reached() is not None:
                parked.append(executor)
                continue
            if excluding and executor.id in excluding:
                continue
            late = executor.until and not executor.ends_before(record, self._now)
            if late or executor.id in avoided or (place and executor.host != place):
                barred = True
                continue
            if executor.fits(record):
                offer = self.offer = Offer(work, executor, True)
                break
            if later is None and executor.takes_backlog(record):
                later = executor
        else:
            offer = Offer(work, None, False, barred)
            if later is not None:
                offer = self.offer = Offer(work, later, False)
        for executor in parked:
            state.park(executor, executor.bound.reached())  # type: ignore[union-attr, arg-type]
        return offer

    def executors(self) -> list[ExecutorView]:
        """Every executor that may take something."""
        return list(self._state.open_executors.values())

    def most_free(self, needs: Needs) -> ExecutorView | None:
        """The executor with the most free cores, among those that could ever fit these needs."""
        could_fit = self._state.named_queues.could_fit
        able = [executor for executor in self._state.open_executors.values() if could_fit(executor, needs)]
        return max(able, key=lambda executor: executor.cores_free) if able else None

    def demand(self) -> Iterator[Demand]:
        """What is ready, by needs."""
        return iter(self._state.demand)

    # --- what the core does between two wishes -------------------------------------------------------

    def take_like(self, record: TaskRecord, most: int) -> list[TaskRecord]:
        """The ready work that comes after a loose task, as long as it is of the same template and needs."""
        return (self.scan or self.activate(self.ready())).take_like(record, most)

    def activate(self, scan: StateScan) -> StateScan:
        """Let a scan take entries, after another one has returned what it had."""
        if self.scan is not None:
            self.scan.suspend()
        self.scan = scan
        return scan

    def give_back(self) -> None:
        """Return to the queues what was looked at; the policy has been heard."""
        scan = self.scan
        if scan is not None:
            self.scan = None
            scan.put_back()


class StateScan:
    """One walk through what is ready, best first."""

    # most scans skip nothing: these are replaced when something is in them
    _seen: frozenset[int] = frozenset()  # records that it looked at before another scan continued
    _skipped: frozenset[Needs] = frozenset()
    _full: frozenset[ReadyQueue | LimitTree] = frozenset()  # queues of hosts where nothing fits

    def __init__(self, view: StateView, state: State) -> None:
        self._view = view
        self._state = state
        self._taken: list[Entry] = []  # out of the queues, in the order they were looked at
        self._aside: list[ReadyQueue | LimitTree] = []  # full ones, out of the index

    def __iter__(self) -> Iterator[ReadyWork]:
        """From where it stands."""
        view, waiting, taken = self._view, self._state.waiting, self._taken
        while True:
            if view.scan is not self:
                view.activate(self)
            best: ReadyQueue | None
            if len(waiting) == 1:
                (only,) = waiting
                named = only.share.named
                if named.bounded and not named.spare(only.needs.cores):
                    return
                if (self._skipped or self._full) and self._is_left_out(only):
                    return
                best = only.best()
            else:
                best = self._best_queue()
            entry = best.take() if best is not None else None
            if entry is None:
                if best is not None and not best.root:
                    self._state.fair.forget(best.root)
                return
            taken.append(entry)
            record = entry[4]
            if not self._seen or record.id not in self._seen:
                yield record  # type: ignore[misc]

    def skip(self, needs: Needs) -> None:
        """Leave out work with these needs from here on."""
        self._skipped |= {needs}

    def skip_like(self, offer: Offer) -> None:
        """Leave out from here on what would get the same answer."""
        queue = cast("Record", offer.work).queue
        if not offer.barred or (queue.named.bounded and queue.named.spare(queue.cores) <= 0):
            self._skipped |= {queue.needs}
        elif queue.place in self._state.hosts and not (queue.limits and queue.spare <= 0):
            self._full |= {queue.root}

    def take_like(self, record: TaskRecord, most: int) -> list[TaskRecord]:
        """See `StateView.take_like`."""
        queue, runtime = record.queue, record.runtime
        found: list[TaskRecord] = []
        alone = len(self._state.waiting) == 1 and queue.root is queue
        while len(found) < most and (alone or self._best_queue() is queue):
            entry = queue.take()
            if entry is None:
                break
            following = entry[4]
            if type(following) is not TaskRecord or following.runtime is not runtime or following.trouble is not None:
                queue.put_back(entry)
                break
            self._taken.append(entry)
            found.append(following)
        return found

    def suspend(self) -> None:
        """Let another scan look at all of it."""
        self._seen = self._seen.union([entry[4].id for entry in self._taken])
        self.put_back()

    def put_back(self) -> None:
        """Return to the queues what was looked at."""
        fair = self._state.fair
        waiting, touched = fair.waiting, fair.touched
        for entry in reversed(self._taken):  # the last one taken goes back first, so that all keep their order
            record = entry[4]
            if record.ready:
                record.queue.put_back(entry)
            elif is_valid(entry):
                record.queue_key = ()
            root = record.queue.root
            if not root:
                fair.forget(root)
            elif root not in touched:
                touched[root] = waiting[root] = None
        self._taken.clear()
        for root in self._aside:
            fair.touch(root)
        self._aside.clear()

    def _is_left_out(self, queue: ReadyQueue | LimitTree) -> bool:
        """Whether nothing of a queue is to be looked at."""
        return queue.needs in self._skipped or queue in self._full

    def _best_queue(self) -> ReadyQueue | None:
        """The queue with the best head, of the workflow that holds the fewest cores; skipped ones left out.

        Of workflows that hold equally many, and heads of one priority and rank, that which was served longest ago.
        """
        best = self._state.fair.best(self._skipped, self._full, self._aside)
        return best.best() if best is not None else None
