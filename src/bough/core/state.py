"""All that the core knows: records, groups, executors, spans, and the indexes over them.

Rule: states change only through `move`, which checks the edge table and keeps the counts, and every
index is kept up to date by what changed, never rebuilt.
"""

from __future__ import annotations

from heapq import heappush

from bough.core.queue import ReadyIndex
from bough.core.records import (
    HELD,
    READY,
    STATES,
    ArrayRecord,
    ExecutorRecord,
    GroupRecord,
    Record,
    Span,
    TaskRecord,
)
from bough.core.states import BEFORE, TaskState
from bough.core.timing import BACKLOG, MAX_BACKLOG, SHORT, RunTimes
from bough.errors import InvalidTransition
from bough.model.ids import ROOT, Seconds
from bough.model.orders import Order
from bough.model.outcomes import Failure
from bough.model.resources import Needs
from bough.policy.api import PlacementPolicy

_FIRST_ENDED = int(TaskState.DONE)


class State:
    """See the module."""

    def __init__(self, policy: PlacementPolicy) -> None:
        self.policy = policy
        self.run = 0
        self.name = ""
        self.fail_fast = False
        self.memos = False  # earlier runs may hold results: look before running
        self.stopping = False
        self.turn = 0  # the number of the turn that is being applied
        self.now: Seconds = 0.0
        self.records: dict[int, Record] = {}
        root = GroupRecord(ROOT, "", None, (), [0] * STATES, [], [], [], [])
        self.groups: dict[int, GroupRecord] = {ROOT: root}
        self.executors: dict[int, ExecutorRecord] = {}
        self.roomy: dict[int, ExecutorRecord] = {}  # those that may take something, longest roomy first
        self.spans: dict[int, Span] = {}
        self.last_span = 0
        self.cores = 0.0  # of all executors
        self.times = RunTimes()
        self.queue = ReadyIndex()
        self.occurrences: dict[bytes, int] = {}
        self.timers: list[tuple[Seconds, int, int]] = []  # (when, record, index) of retries that are not due
        self.unended = 0  # tasks that have not ended
        self.open_arrays = 0  # arrays that may still grow
        self.due = False  # something became ready or roomy since the policy was asked
        # what applying a fact calls for; dropped in a replay, where the journal has the consequences
        self.orders: list[Order] = []
        self.doomed: list[tuple[Record, int, int, Failure]] = []

    # --- states ----------------------------------------------------------------------------------

    def move(self, record: Record, start: int, stop: int, new: int) -> None:
        """Bring elements [start, stop) into a new state; an edge that is not in the table is our bug."""
        counts = record.group.counts
        if type(record) is TaskRecord:
            old = record.state
            if old not in BEFORE[new]:
                self._forbid(record, bytes((old,)), new)
            counts[old] -= 1
            counts[new] += 1
            record.state = new
            ended = (new >= _FIRST_ENDED) - (old >= _FIRST_ENDED)
        else:
            assert isinstance(record, ArrayRecord)
            olds = record.states[start:stop]
            if olds.translate(None, BEFORE[new]):
                self._forbid(record, bytes(olds), new)
            own = record.counts
            count = stop - start
            ended = 0
            for old in set(olds) if count > 1 else olds:
                many = olds.count(old)
                counts[old] -= many
                own[old] -= many
                if old >= _FIRST_ENDED:
                    ended -= many
            counts[new] += count
            own[new] += count
            if new >= _FIRST_ENDED:
                ended += count
            record.states[start:stop] = bytes((new,)) * count
        if ended:
            self.unended -= ended
            record.group.unfinished -= ended

    def _forbid(self, record: Record, olds: bytes, new: int) -> None:
        names = sorted({TaskState(old).name for old in olds})
        raise InvalidTransition(f"record {record.id} cannot go from {', '.join(names)} to {TaskState(new).name}")

    # --- ready -----------------------------------------------------------------------------------

    def free(self, record: Record, start: int, stop: int, *, first: bool = False) -> None:
        """Elements that waited, or came back, may run: make them ready, or held if somebody holds them."""
        self.move(record, start, stop, READY)
        if record.held or record.group.is_held():
            self.move(record, start, stop, HELD)
            return
        if isinstance(record, ArrayRecord) and record.held_ranges:
            self._free_around_holds(record, start, stop, first=first)
        else:
            record.make_ready(start, stop, first=first)
        if first:
            record.urgent = True
        if record.ready:
            self.enqueue(record)

    def _free_around_holds(self, record: ArrayRecord, start: int, stop: int, *, first: bool) -> None:
        """As `free`, for an array some elements of which are held one by one."""
        held = [[max(low, start), min(high, stop)] for low, high in record.held_ranges if low < stop and start < high]
        for low, high in held:
            if start < low:
                record.make_ready(start, low, first=first)
            self.move(record, low, high, HELD)
            start = high
        if start < stop:
            record.make_ready(start, stop, first=first)

    def enqueue(self, record: Record) -> None:
        """Put a record with ready elements into the queue, under the key it has now."""
        rank = self.policy.rank(WorkView(self, record))
        self.queue.push(record, (-record.priority, 0.0 if record.urgent else 1.0, rank, record.id))
        self.due = True

    def retry_later(self, record: Record, index: int, when: Seconds) -> None:
        """Remember to make an element ready at some time."""
        heappush(self.timers, (when, record.id, index))

    # --- room ------------------------------------------------------------------------------------

    def note_room(self, executor: ExecutorRecord) -> None:
        """Keep the index of executors that may take something, after its room changed."""
        has_room = not executor.draining and (
            executor.free["cores"] > 0
            or (executor.load < BACKLOG * executor.capacity.cores and len(executor.backlog) < MAX_BACKLOG)
        )
        if has_room:
            if executor.id not in self.roomy:
                self.roomy[executor.id] = executor
            self.due = True
        else:
            self.roomy.pop(executor.id, None)

    def takes_backlog(self, executor: ExecutorRecord, record: Record) -> bool:
        """Whether a short task may wait on an executor whose cores are busy."""
        return (
            executor.load < BACKLOG * executor.capacity.cores
            and 0 < self.times.expected(template(record)) <= SHORT
            and len(executor.backlog) < MAX_BACKLOG
            and executor.could_fit(record.spec.needs)
        )


def template(record: Record) -> str | int:
    """What a record's run times are kept under."""
    return record.spec.template or record.id


class WorkView:
    """What a policy sees of a ready task or array. Nothing is copied."""

    __slots__ = ("_record", "_state")

    def __init__(self, state: State, record: Record) -> None:
        self._state = state
        self._record = record

    @property
    def id(self) -> int:
        """Its record's number: the order of submission."""
        return self._record.id

    @property
    def ready(self) -> int:
        """How many tasks of it could be placed now."""
        return self._record.ready

    @property
    def needs(self) -> Needs:
        """What one task of it occupies."""
        return self._record.spec.needs

    @property
    def priority(self) -> int:
        """Higher goes first, before any rank."""
        return self._record.priority

    @property
    def expected(self) -> Seconds:
        """Expected run time of one task: measured, or the user's estimate, or 0 when unknown."""
        return self._state.times.expected(template(self._record)) or self._record.spec.limits.walltime
