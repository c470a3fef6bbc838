"""All that the core knows: records, groups, executors, spans, and the indexes over them.

Rule: states change only through `move`, which checks the edge table and keeps the counts, and every
index is kept up to date by what changed, never rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from heapq import heappop, heappush
from math import inf
from typing import cast

from bough.core.data.data_index import DataIndex
from bough.core.data.estimates import Estimates
from bough.core.data.file_lives import LastRead
from bough.core.data.remakes import RemakeIndex
from bough.core.records.array_record import DONE, HELD, OCCUPYING_STATES, PLACED, READY, WAITING, ArrayRecord, Record
from bough.core.records.attempts import AttemptIndex, Span
from bough.core.records.executor_record import ExecutorRecord, RelayExecutorRecord
from bough.core.records.group_record import GroupRecord, QueueKey, Share, Workflow
from bough.core.records.indexes.affinity_index import AffinityIndex
from bough.core.records.indexes.fair_index import FairIndex
from bough.core.records.indexes.ready_queue import DemandIndex, LimitTree, ReadyQueue, is_valid
from bough.core.records.indexes.replicas import ReplicaIndex
from bough.core.records.indexes.room_index import RoomIndex, has_room
from bough.core.records.indexes.unsaved_outputs import UnsavedOutputs
from bough.core.records.indexes.watch_index import WatchIndex
from bough.core.records.locks import LockTable
from bough.core.records.pilot_record import PilotRecord
from bough.core.records.population_record import PopulationIndex
from bough.core.records.queue_record import QueueTable
from bough.core.records.site_record import SiteRecord
from bough.core.records.task_bound import ALL, TaskBound
from bough.core.records.task_record import TaskRecord
from bough.errors import InvalidTransition
from bough.model.arrays import ranges
from bough.model.arrays.runtimes import MAX_SPAN, RunTime
from bough.model.ids import ROOT, BlobId, Seconds, number_of
from bough.model.sites.resources import Needs
from bough.model.states import BEFORE, TaskState
from bough.model.tasks import GroupSpec, TaskSpec
from bough.policy.interface import Policies, is_unasked

_FIRST_ENDED = int(TaskState.DONE)

Like = tuple[TaskSpec, GroupRecord, RunTime, ReadyQueue]  # what tasks that are alike have in common
Timer = tuple[Seconds, int, int, int]  # (when, a `TimerKind`, id, index)


class TimerKind(IntEnum):
    """What is due at a time, and whose number the timer has; what is due at the same time is done in this order."""

    RETRY = 0  # another attempt of an element of a record
    GROUP_LIMIT = 1  # the time limit of a group is over
    SUSPENSION = 2  # that of an executor is over
    SILENCE = 3  # a span of which nothing was said is to be looked at
    CLEARANCE = 4  # an executor whose site left must have given back all it had
    PILOTS = 5  # a site has rested after a pilot that failed
    REPLICAS = 6  # a task is old enough to be replicated


class State:
    """See the module."""

    def __init__(self, policies: Policies, pickup: int = 0, *, accounts: bool = False) -> None:
        self.policies = policies
        self.accounts = accounts  # core-hours are added up for all executors, not only for those that pilots brought
        self.asks_policy = False  # only a turn does; what is queued otherwise has rank 0 until the first turn
        self._ageing = 0.0  # by so much a rank is higher for each second later that a task became ready
        self.pickup = pickup or MAX_SPAN  # most tasks in one dispatch to one core
        self.run = 0  # of the session or service itself
        self.stopping = False
        self.turn = 0  # the number of the turn that is being applied
        self.now: Seconds = 0.0
        self.records: dict[int, Record] = {}
        root = GroupRecord(GroupSpec(ROOT, ""), None)
        self.groups: dict[int, GroupRecord] = {ROOT: root}
        self.workflows: dict[int, Workflow] = {}  # by run
        self.executors: dict[int, ExecutorRecord] = {}
        self.sites: dict[str, SiteRecord] = {}  # see `core.pilots.sites`
        self.defined_sites: dict[str, SiteRecord] = {}  # those of them that have a definition, see `core.pilots.pilots`
        self.pilots: dict[int, PilotRecord] = {}  # that have not ended
        self.last_pilot = 0
        self.pilots_due = False  # something changed at a site: the provisioning policy is asked at once
        self.demand_due = False  # what is ready or idle changed: it is asked when `provision_at` has come
        self.is_demanded = False  # something was ready when it was asked last
        self.provision_at: Seconds = 0.0
        self.demanded: Seconds = 0.0  # when something was ready, as far as it was asked
        self.provision_again: Seconds | None = None  # when it wants to be asked in any case
        self.open_executors: dict[
            int, ExecutorRecord
        ] = {}  # those that may take something, longest open_executors first
        self.vacant = RoomIndex()  # where something may start at once
        self.room = RoomIndex(has_room, self.vacant)  # or where a short task may wait
        self.crowded: dict[int, ExecutorRecord] = {}  # those that were given a backlog since they had none
        self.recall_at: Seconds = 0.0  # when backlogs are looked at next; 0: they are not
        self.task_bound = TaskBound(ALL, policies.max_tasks) if policies.max_tasks else None
        self.attempts = AttemptIndex()
        replication = policies.replication
        self.replicas = ReplicaIndex(is_on=replication is not None, is_unasked=is_unasked(replication))
        self.replicas_at: Seconds = 0.0  # when it is asked in any case; in the past: at no time
        self.replicas_looked = -inf  # when it was asked last and something was old enough
        self.replicas_due = False  # a task began, or grew old enough, since the replication policy was asked
        self.spans = self.attempts.current  # the same, because most of what is said names a span
        self.last_span = 0
        self.cores = 0.0  # of all executors
        self.runtimes: dict[str | int, RunTime] = {}
        self.used_runtimes = 0  # of these, when it was last looked which of them are in use
        self.queues: dict[QueueKey, ReadyQueue] = {}
        self.limit_trees: dict[tuple[Needs, int, str], LimitTree] = {}  # of queues under limits
        self.named_queues = QueueTable(self.executors)
        self.demand = DemandIndex(self.named_queues)  # ready tasks by shape of needs
        self.fair = FairIndex(self.named_queues)  # whose turn it is
        self.waiting = self.fair.waiting  # the same, and that below: most that becomes ready is in both
        self._touched = self.fair.touched
        self.shared_specs: dict[BlobId, Like] = {}  # by body: the last kind of loose tasks, see `loose.py`
        self.held_groups = 0
        self.timed_groups = 0  # that have a time limit
        self.hosts: dict[str, int] = {}  # executors by host that may get work
        self.data = DataIndex()  # advice, of which a replay knows nothing
        self.remakes = RemakeIndex()
        self.unsaved = UnsavedOutputs()
        self.last_reads: list[LastRead] = []  # in this turn
        data_needs = getattr(policies.placement, "data_needs", None)
        # whether short tasks may wait at an executor for a core; a policy that mimics another system may say no
        self.uses_backlogs: bool = getattr(policies.placement, "uses_backlogs", True)
        self.announces = True  # inputs may travel before their task is placed; False: nobody would bring them
        self.estimates = Estimates()
        self.affinity = (
            AffinityIndex(self.data, data_needs, self.executors, self.estimates) if data_needs is not None else None
        )
        self.failing = False  # a workflow has stopped, or will, at its first failure
        self.has_near = False  # some tasks are to run where another one ran
        self.timers: list[Timer] = []  # a heap; one whose object is gone, or was put off, is passed over when it is due
        self.checkpoints: dict[int, dict[int, bytes]] = {}  # digests, by record and index, of what the server keeps
        self.locks = LockTable()
        self._lock_users = self.locks.users
        self.watch = WatchIndex()
        self.populations = PopulationIndex()
        self.seen = self.watch.seen.by_record  # the same, and that below: most tasks are in neither
        self.ruled = self.populations.by_target
        self._endings = self.watch.endings
        self.unfinished = 0  # tasks that have not ended
        self.open_arrays = 0  # arrays that may still grow
        self.place_again: Seconds | None = None  # when a policy that held something back wants to be asked in any case
        self.due = False  # something became ready or open_executors since the policy was asked
        self.complaints: list[str] = []  # for the operator: of a policy that raised, and of what was refused

    def queue_for(self, needs: Needs, group: GroupRecord, place: str = "") -> ReadyQueue:
        """The queue of tasks with these needs, a group's workflow and limits, and the host where they must run."""
        limits = group.limits
        key = (needs, group.workflow.run, limits[-1].id if limits else 0, place)
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = self._new_queue(needs, group, place)
            group.workflow.queue_keys.append(key)
        return queue

    def _new_queue(self, needs: Needs, group: GroupRecord, place: str) -> ReadyQueue:
        workflow = group.workflow
        shape = self.demand.shape_of(needs)
        share = self.share_of(workflow, needs.queue)
        if not group.limits:
            queue = ReadyQueue(shape, share, (), place)
            shape.queues[queue] = share.roots[queue] = None
            return queue
        key = (needs, workflow.run, place)
        tree = self.limit_trees.get(key)
        if tree is None:
            tree = self.limit_trees[key] = LimitTree(shape, share, place, self.fair.touch)
            shape.queues[tree] = share.roots[tree] = None
        return tree.queue_under(group.limits)

    def share_of(self, workflow: Workflow, queue: str = "") -> Share:
        """What a workflow holds through a named queue."""
        share = workflow.shares.get(queue)
        if share is None:
            share = workflow.shares[queue] = Share(workflow, self.named_queues[queue], self.fair.marked)
        return share

    def offer_all(self) -> None:
        """The limits of a queue have changed: ask the policies again."""
        self.due = self.pilots_due = True

    def roots_of(self, workflow: Workflow) -> list[ReadyQueue | LimitTree]:
        """The queues of a workflow that may hold something."""
        roots = (root for share in workflow.shares.values() for root in share.roots)
        return [root for root in roots if root in self.waiting]

    def forget_queues(self, workflow: Workflow) -> None:
        """The queues of a workflow go, with all that is in them."""
        for share in workflow.shares.values():
            self.fair.remove(share)
        for key in workflow.queue_keys:
            queue = self.queues.pop(key)
            queue.clear()
            self.demand.forget(queue.root)
            self.limit_trees.pop((key[0], key[1], key[3]), None)
        workflow.queue_keys.clear()

    def runtime_of(self, template: str | int) -> RunTime:
        """What is known of the run time of a template."""
        runtime = self.runtimes.get(template)
        if runtime is None:
            runtime = self.runtimes[template] = RunTime()
        return runtime

    # --- states ----------------------------------------------------------------------------------

    def move(self, record: Record, start: int, stop: int, new: int) -> None:
        """Bring elements [start, stop) into a new state; an edge that is not in the table is our bug."""
        if type(record) is TaskRecord:
            self.move_task(record, new)
        else:
            self._move_elements(record, start, stop, new)  # type: ignore[arg-type]

    def move_task(self, record: TaskRecord, new: int) -> None:
        """As `move`, for a loose task."""
        old = record.state
        if old not in BEFORE[new]:
            self._forbid(record, bytes((old,)), new)
        record.state = new
        if old == READY:
            record.ready = 0
            record.queue.shape.ready -= 1
        elif new == READY:
            record.ready = 1
            record.queue.shape.ready += 1
        group = record.group
        counts = group.counts
        counts[old] -= 1
        counts[new] += 1
        if new >= _FIRST_ENDED:
            self.unfinished -= 1
            group.unfinished -= 1
        elif old >= _FIRST_ENDED:
            self.unfinished += 1
            group.unfinished += 1
        if DONE in {old, new} and record.declares_reads:
            self._count_reads(record, 0, record.own.reads, done=new == DONE)  # type: ignore[union-attr, arg-type]

    def task_placed(self, record: TaskRecord, before: int) -> None:
        """As `move_task`, for the step that every task takes: from ready to placed, or from waiting in a chain."""
        if record.state != before:
            self._forbid(record, bytes((record.state,)), PLACED)
        record.state = PLACED
        if before == READY:
            record.ready = 0
            record.queue.shape.ready -= 1
        counts = record.group.counts
        counts[before] -= 1
        counts[PLACED] += 1

    def task_done(self, record: TaskRecord) -> None:
        """As `move_task`, for a success: from placed or running to done."""
        old = record.state
        if old not in OCCUPYING_STATES:
            self._forbid(record, bytes((old,)), DONE)
        record.state = DONE
        group = record.group
        group.unfinished -= 1
        counts = group.counts
        counts[old] -= 1
        counts[DONE] += 1
        self.unfinished -= 1
        if record.own is not None and record.own.reads:
            self._count_reads(record, 0, record.own.reads, done=True)  # type: ignore[arg-type]

    def _count_reads(self, record: Record, index: int, files: Iterable[int], *, done: bool) -> None:
        """An element that declares inputs has succeeded, or is as if it had not."""
        workflow = record.group.workflow
        if not done:
            workflow.lives.wanted(files)
            return
        over = workflow.lives.read(files)
        if over and workflow.lives.has_temporary:
            self.last_reads += [LastRead(workflow.run, file, record.id, index) for file in over]

    def count_reads_anew(self, workflow: Workflow) -> None:
        """Count anew how many readers the files of a workflow have."""
        lives = workflow.lives
        lives.clear()
        for record in workflow.group.records():
            lives.note_keep(record.spec.limits.keep)
            if record.group.workflow is not workflow:
                continue  # the root's has the others in it
            if type(record) is TaskRecord:
                if record.state != DONE and record.own is not None:
                    lives.wanted(record.own.reads)  # type: ignore[arg-type]
                continue
            array = cast("ArrayRecord", record)
            for index in range(array.length) if array.declares_reads else ():
                if array.states[index] != DONE:
                    lives.wanted(array.files_of(index))

    def task_free(self, record: TaskRecord) -> None:
        """As `free`, for a loose task that waited."""
        if record.state != WAITING or record.held or self.held_groups:
            self.free(record, 0, 1)
            return
        record.state = READY
        record.ready = 1
        record.queue.shape.ready += 1
        counts = record.group.counts
        counts[WAITING] -= 1
        counts[READY] += 1
        self.enqueue(record)
        if record.own is not None and record.own.reads and self.affinity is not None and self.asks_policy:
            self.affinity.became_ready(record, 0, 1, self.now)

    def _move_elements(self, record: ArrayRecord, start: int, stop: int, new: int) -> None:
        olds = record.states[start:stop]
        if olds.translate(None, BEFORE[new]):
            self._forbid(record, bytes(olds), new)
        counts, own, count = record.group.counts, record.counts, stop - start
        ended = count if new >= _FIRST_ENDED else 0
        for old in set(olds) if count > 1 else olds:
            many = olds.count(old)
            counts[old] -= many
            own[old] -= many
            if old == READY:
                record.queue.shape.ready -= many
            if old >= _FIRST_ENDED:
                ended -= many
        counts[new] += count
        own[new] += count
        if new == READY:
            record.queue.shape.ready += count
        record.states[start:stop] = bytes((new,)) * count
        self.unfinished -= ended
        record.group.unfinished -= ended
        if record.declares_reads and (new == DONE or DONE in olds):
            for index, old in enumerate(olds, start):
                if DONE in {old, new}:
                    self._count_reads(record, index, record.files_of(index), done=new == DONE)

    def _forbid(self, record: Record, olds: bytes, new: int) -> None:
        names = sorted({TaskState(old).name for old in olds})
        raise InvalidTransition(f"record {record.id} cannot go from {', '.join(names)} to {TaskState(new).name}")

    # --- ready -----------------------------------------------------------------------------------

    def free(self, record: Record, start: int, stop: int, *, first: int = 0) -> None:
        """Elements that waited, or came back, may run: make them ready, or held if a user holds them.

        `first`: how urgent they are, see `ready_queue`.
        """
        self.move(record, start, stop, READY)
        if record.held or (self.held_groups and record.group.is_held()):
            self.move(record, start, stop, HELD)
            return
        if type(record) is not TaskRecord:
            if record.held_ranges:  # type: ignore[union-attr]
                self._free_around_holds(record, start, stop, first=first)  # type: ignore[arg-type]
            else:
                record.make_ready(start, stop, first=first)
            if not record.ready:
                return
        record.urgent = max(record.urgent, first)
        self.enqueue(record, stop - start)
        if self.affinity is not None and self.asks_policy and record.has_inputs:
            self.affinity.became_ready(record, start, stop, self.now)

    def _free_around_holds(self, record: ArrayRecord, start: int, stop: int, *, first: int) -> None:
        """As `free`, for an array some elements of which are held one by one."""
        held = [[max(low, start), min(high, stop)] for low, high in record.held_ranges if low < stop and start < high]
        for low, high in held:
            if start < low:
                record.make_ready(start, low, first=first)
            self.move(record, low, high, HELD)
            start = high
        if start < stop:
            record.make_ready(start, stop, first=first)

    def enqueue(self, record: Record, new: int = 0) -> None:
        """Put a record with ready elements into the queue, under the key it has now.

        `new`: how many of them became ready just now; 0: all count as new, which is so of what a person changed.
        """
        queue = record.queue
        rank = 0.0
        if record.priority and self.affinity is not None:
            self.affinity.has_priorities = True
        if self.asks_policy:
            try:
                rank = self.policies.placement.rank(record)
                if self._ageing:
                    rank += self._ageing * self._ready_since(record, new)
            except Exception as error:  # noqa: BLE001 a policy is anybody's code: it must not stop the machine
                self.complaints.append(f"the policy could not rank task {number_of(record.id)}: {error!r}")
        queue.push(record, rank)
        root = queue.root if queue.limits else queue
        if root not in self._touched:
            self._touched[root] = self.waiting[root] = None
        self.due = True

    def _ready_since(self, record: Record, new: int) -> Seconds:
        """When a record became ready: the mean of its elements, so that one that is fed for ever ages as it is served.

        The age of those that went out meanwhile stays in it, and is outweighed by what comes.
        """
        if type(record) is TaskRecord:
            return self.now
        array = cast("ArrayRecord", record)
        before = array.ready - new if new else 0
        array.ready_since = (array.ready_since * before + self.now * new) / array.ready if before > 0 else self.now
        return array.ready_since

    def requeue(self, record: Record, queue: ReadyQueue) -> None:
        """Put a record into another queue, because what its tasks need has changed."""
        record.queue.shape.ready -= record.ready
        queue.shape.ready += record.ready
        record.queue, record.queue_key = queue, ()
        if record.ready:
            self.enqueue(record)

    def rank_queued(self) -> None:
        """From now on the policy is asked: it ranks what was queued without it, by a replay or from a snapshot."""
        self.asks_policy = True
        self._ageing = getattr(self.policies.placement, "rank_ageing", 0.0)
        for several in list(self.waiting):
            for queue in several.leaves():
                for entry in queue.entries():
                    if entry[4].ready and is_valid(entry):
                        record = self.records[entry[4].id]
                        self.enqueue(record)
                        self.list_ready(record)

    def list_ready(self, record: Record) -> None:
        """Tell the index of wanted data what is ready of a record, some of which declares inputs, maybe only now."""
        if self.affinity is not None and self.asks_policy and record.has_inputs:
            for start, stop in record.runs(bytes((READY,)), 0, record.length):
                self.affinity.became_ready(record, start, stop, self.now)

    # --- time ------------------------------------------------------------------------------------

    def set_timer(self, when: Seconds, kind: TimerKind, id_: int, index: int = 0) -> None:
        """Remember to look at something at a time."""
        heappush(self.timers, (when, kind, id_, index))

    def due_timer(self, now: Seconds) -> Timer | None:
        """Remove the next timer that is due, and return it."""
        timers = self.timers
        return heappop(timers) if timers and timers[0][0] <= now else None

    # --- room ------------------------------------------------------------------------------------

    def avoided_by(self, record: Record) -> tuple[int, ...]:
        """Where the tasks of a record that go next should not go, as long as there is another place for them."""
        return self.avoidable(record, record.avoid)

    def avoidable(self, record: Record, avoid: tuple[int, ...]) -> tuple[int, ...]:
        """Of executors where tasks of a record should not go: these, as long as there is another place for them."""
        others = (x for x in self.executors.values() if x.id not in avoid and not (x.draining or x.away))
        return avoid if any(self.named_queues.could_fit(executor, record.needs) for executor in others) else ()

    def count_host(self, host: str) -> None:
        """One executor more gets work on a host."""
        self.hosts[host] = self.hosts.get(host, 0) + 1

    def forget_host(self, host: str) -> None:
        """One executor less gets work on a host."""
        self.hosts[host] -= 1
        if not self.hosts[host]:
            del self.hosts[host]  # tasks that wanted to run there go anywhere

    def drop(self, span: Span) -> None:
        """Forget a span, and let its executor use what it occupied."""
        attempts, record = self.attempts, span.record
        if attempts.several or record.is_array:
            attempts.remove(span)
        else:  # the same, for what is most frequent
            del self.spans[span.id], attempts.tasks[record.id]
        if self.replicas.started:
            self.replicas.started.pop(span.id, None)
        if self._lock_users and span.id in self._lock_users:
            self.locks.free_all(span)
        if self._endings:
            self._endings.pop(span.id, None)
        executor = span.executor
        executor.drop(span)
        if executor.bound is not None:
            self.count_out(span, 0)
        if self.affinity is not None:
            self.affinity.roomy.got_room(executor)
        if executor.id in self.open_executors:
            self.due = True  # a span that goes leaves more room, never less
            self.vacant.got_room(executor.id)
        elif executor.id in self.executors:
            self.update_open(executor)
        if executor.pilot and not executor.spans:
            self._fell_idle(executor)

    def _fell_idle(self, executor: ExecutorRecord) -> None:
        """An executor that a pilot brought has nothing to do any more."""
        executor.idle_since = self.now
        self.demand_due = True
        pilot = self.pilots.get(executor.pilot)
        if pilot is not None and not pilot.released and executor.id in pilot.executors and pilot.is_idle:
            self.defined_sites[pilot.site].idle[pilot.id] = pilot

    def shrink_span(self, span: Span) -> None:
        """After elements left a span: forget it, or let a wide executor use what they occupied."""
        if not span.left:
            self.drop(span)
            return
        if self._lock_users and span.id in self.locks.by_span:
            self.locks.free_ended(span)
        if span.executor.bound is not None:
            self.count_out(span, ranges.size(span.left))
        if span.executor.wide:
            cast("RelayExecutorRecord", span.executor).narrow(span)
            self.update_open(span.executor)

    def count_out(self, span: Span, tasks: int) -> None:
        """So many tasks of a span count for the bound of its executor now; those that waited for less may be open."""
        bound: TaskBound | None = span.executor.bound
        assert bound is not None
        more, span.counted = tasks - span.counted, tasks
        bound.count(more)
        while bound is not None:
            for _ in range(min(-more, len(bound.parked))):
                self._unpark(bound)
            bound = bound.above

    def park(self, executor: ExecutorRecord, bound: TaskBound) -> None:
        """A bound is reached: an executor gets nothing until a task has ended."""
        executor.parked = True
        bound.parked[executor.id] = executor
        self.open_executors.pop(executor.id, None)

    def _unpark(self, bound: TaskBound) -> None:
        number = next(iter(bound.parked))
        executor = bound.parked.pop(number)
        executor.parked = False
        if number in self.executors:
            self.update_open(executor)

    def set_bound(self, executor: ExecutorRecord, bound: TaskBound | None) -> None:
        """From now on what an executor has counts for this bound."""
        old = executor.bound
        for span in executor.spans.values():
            if old is not None:
                self.count_out(span, 0)
        while old is not None:
            if old.parked.pop(executor.id, None) is not None:
                executor.parked = False
            old = old.above
        executor.bound = bound
        if bound is not None:
            for span in executor.spans.values():
                self.count_out(span, ranges.size(span.left))

    def update_open(self, executor: ExecutorRecord) -> None:
        """Keep the index of executors that may take something, after the room of one changed."""
        if executor.is_open():
            if executor.id not in self.open_executors:
                self.open_executors[executor.id] = executor
                self.vacant.opened(executor.id)
                self.room.opened(executor.id)
            else:
                self.vacant.got_room(executor.id)
            self.due = True
            if self.affinity is not None:
                self.affinity.roomy.got_room(executor)
        else:
            self.open_executors.pop(executor.id, None)
