"""The mutable records of the core: tasks, arrays, groups, spans, executors.

Rule: records hold facts about themselves and change only through the modules of this package; they
are never serialised as they are. A task's record and an array's offer the same few operations over
ranges of elements, so that there is one scheduling path for both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from bough.core import ranges
from bough.core.ranges import Ranges
from bough.core.states import TaskState
from bough.model.ids import ExecutorId, GroupId, Seconds, SpanId
from bough.model.outcomes import Failure
from bough.model.resources import Needs
from bough.model.tasks import ArraySpec, Dep, Page, TaskSpec

WAITING, HELD, READY, PLACED, RUNNING, DONE, FAILED, NOTRUN, CANCELLED = (int(state) for state in TaskState)
STATES = len(TaskState)

# Who waits for something: (record or group, element or -1 for all of it, generation of the waiter)
Waiter = tuple["TaskRecord | ArrayRecord | GroupRecord", int, int]


class Success(msgspec.Struct, frozen=True, gc=False):
    """Where elements [start, stop) succeeded: the turn that says so and, if recalled, the original."""

    start: int
    stop: int
    turn: int
    source: int
    source_start: int
    attempt: int


class GroupRecord(msgspec.Struct, eq=False):
    """A node of the workflow tree: counts of its own tasks, a gate, and who waits for its end."""

    id: GroupId
    name: str
    parent: GroupRecord | None
    after: tuple[Dep, ...]
    counts: list[int]  # its own tasks by state
    members: list[TaskRecord | ArrayRecord]
    children: list[GroupRecord]
    dependents: list[Waiter]
    gated: list[Waiter]  # who waits for its gate to open
    waits: int = 0  # unsatisfied dependencies; the gate is open at 0
    generation: int = 0
    unfinished: int = 0  # own tasks and subgroups that have not ended
    closed: bool = False
    settled: bool = False
    held: bool = False
    failed_by: int = 0  # a record that did not succeed in it or below
    doomed: Failure | None = None  # its dependencies failed: nothing in it will run

    @property
    def path(self) -> str:
        """Its name from the root, as in align/sub."""
        above = self.parent.path if self.parent else ""
        return f"{above}/{self.name}" if above else self.name

    def chain(self) -> Iterator[GroupRecord]:
        """Itself and the groups above it."""
        group: GroupRecord | None = self
        while group is not None:
            yield group
            group = group.parent

    def is_held(self) -> bool:
        """Whether it, or a group above it, is held."""
        return any(group.held for group in self.chain())


class Span(msgspec.Struct, eq=False, gc=False):
    """A slice of a record that an executor has."""

    id: SpanId
    record: TaskRecord | ArrayRecord
    start: int
    stop: int
    attempt: int
    executor: ExecutorRecord
    left: Ranges  # elements of which nothing final was heard
    front: bool  # holds resources; otherwise it waits behind others
    load: Seconds  # expected seconds of work when it was placed


class ExecutorRecord(msgspec.Struct, eq=False):
    """An executor: what it has, what is free, and which spans it holds."""

    id: ExecutorId
    site: str
    host: str
    pid: int
    capacity: Needs
    free: dict[str, float]
    spans: dict[int, Span]
    backlog: dict[int, Span]  # those of its spans that hold no resources, in order
    until: Seconds = 0
    load: Seconds = 0  # expected seconds of work in the backlog
    draining: bool = False

    def fits(self, needs: Needs) -> bool:
        """Whether a task with these needs could start now."""
        free = self.free
        if needs.cores > free["cores"]:
            return False
        others = _others(needs)
        return not others or all(amount <= free.get(name, 0) for name, amount in others)

    def could_fit(self, needs: Needs) -> bool:
        """Whether a task with these needs could start if nothing else ran."""
        if needs.cores > self.capacity.cores:
            return False
        others = _others(needs)
        if not others:
            return True
        has = self.capacity.amounts()
        return all(amount <= has.get(name, 0) for name, amount in others)

    def occupy(self, needs: Needs, sign: int = -1) -> None:
        """Take resources, or give them back with sign 1."""
        self.free["cores"] += sign * needs.cores
        for name, amount in _others(needs):
            self.free[name] = self.free.get(name, 0) + sign * amount


def _others(needs: Needs) -> tuple[tuple[str, float], ...]:
    """The amounts besides cores; most tasks have none."""
    if not (needs.memory or needs.gpus or needs.named):
        return ()
    return (("memory", needs.memory), ("gpus", needs.gpus), *needs.named)


class TaskRecord(msgspec.Struct, eq=False, gc=False):
    """A loose task."""

    spec: TaskSpec
    group: GroupRecord
    priority: int
    occurrence: int = 0
    state: int = WAITING
    attempt: int = 0  # of the last hand-out
    waits: int = 0
    generation: int = 0
    failures: int = 0
    losses: int = 0
    held: bool = False
    recalling: bool = False
    urgent: bool = False  # lost with its executor: goes first
    dependents: list[Waiter] | None = None
    success: Success | None = None
    failure: Failure | None = None
    queue_key: tuple[float, ...] = ()  # of its valid entry in the ready queue

    length = 1  # class attributes: a loose task is an array of one
    is_array = False

    @property
    def id(self) -> int:
        """Its record's number."""
        return self.spec.id

    @property
    def ready(self) -> int:
        """How many of its elements are ready."""
        return 1 if self.state == READY else 0

    def next_range(self, limit: int) -> tuple[int, int, int]:
        """The ready elements that go next, at most `limit` of them, and the number of their attempt."""
        return 0, 1, self.attempt + 1

    def state_of(self, index: int) -> int:
        """The state of an element."""
        return self.state

    def count(self, state: int, start: int, stop: int) -> int:
        """How many elements of a range are in a state."""
        return 1 if self.state == state else 0

    def runs(self, wanted: bytes, start: int, stop: int) -> Ranges:
        """The runs of elements within a range that are in one of the wanted states."""
        return [[0, 1]] if self.state in wanted and start <= 0 < stop else []

    def put(self, start: int, stop: int, state: int) -> None:
        """Set the state of a range."""
        self.state = state

    def make_ready(self, start: int, stop: int, *, first: bool = False) -> None:
        """Note that elements may be handed out: their attempt number is the next one."""

    def took(self, start: int, stop: int, attempt: int) -> None:
        """Note a hand-out."""
        self.attempt = attempt

    def unready(self, start: int, stop: int) -> None:
        """Note that ready elements may not be handed out any more."""

    def failures_of(self, index: int) -> tuple[int, int]:
        """Failures of its own and losses so far."""
        return self.failures, self.losses

    def blame(self, index: int, failures: int, losses: int) -> None:
        """Set failures and losses."""
        self.failures, self.losses = failures, losses

    def set_failure(self, start: int, stop: int, failure: Failure | None) -> None:
        """Keep why elements did not succeed."""
        self.failure = failure

    def failure_of(self, index: int) -> Failure | None:
        """Why an element did not succeed."""
        return self.failure

    def succeed(self, success: Success) -> None:
        """Keep where elements succeeded."""
        self.success = success

    def successes(self) -> list[Success]:
        """All successes, in order of their elements."""
        return [self.success] if self.success else []

    def wait_for_element(self, index: int, waiter: Waiter) -> None:
        """Let somebody wait for one element."""
        if self.dependents is None:
            self.dependents = []
        self.dependents.append(waiter)

    def waiters_of(self, index: int) -> list[Waiter]:
        """Who waits for one element alone."""
        return self.dependents or []

    def pages(self, start: int, stop: int) -> tuple[Page, ...]:
        """The pages with the arguments of a range."""
        return ()


class ArrayRecord(msgspec.Struct, eq=False):
    """Many tasks as one record: a byte of state each; anything more only for elements that have it."""

    spec: ArraySpec
    group: GroupRecord
    priority: int
    length: int
    states: bytearray
    counts: list[int]  # of its elements by state
    ready_ranges: deque[list[int]]  # [start, stop, attempt] in the order they go out
    ready: int = 0
    waits: int = 0  # of the array as a whole
    generation: int = 0
    held: bool = False
    held_ranges: Ranges = []  # elements that are held one by one
    urgent: bool = False
    open: bool = False
    recalling: bool = False
    attempts: dict[int, int] = {}  # last attempt, of elements on their second or later
    trouble: dict[int, tuple[int, int]] = {}  # failures and losses, of elements that had any
    failures: dict[int, Failure] = {}
    doomed: Failure | None = None  # why all elements that never ran did not
    element_waits: dict[int, int] = {}
    dependents: list[Waiter] | None = None  # who waits for all of it
    element_dependents: dict[int, list[Waiter]] = {}
    found: list[Success] = []
    paged: list[Page] = []
    queue_key: tuple[float, ...] = ()

    is_array = True

    @property
    def id(self) -> int:
        """Its record's number."""
        return self.spec.id

    def next_range(self, limit: int) -> tuple[int, int, int]:
        """See `TaskRecord.next_range`."""
        start, stop, attempt = self.ready_ranges[0]
        return start, min(stop, start + limit), attempt

    def state_of(self, index: int) -> int:
        """See `TaskRecord.state_of`."""
        return self.states[index]

    def count(self, state: int, start: int, stop: int) -> int:
        """See `TaskRecord.count`."""
        return self.states.count(state, start, stop)

    def runs(self, wanted: bytes, start: int, stop: int) -> Ranges:
        """See `TaskRecord.runs`."""
        return ranges.runs_of(self.states, wanted, start, min(stop, self.length))

    def put(self, start: int, stop: int, state: int) -> None:
        """See `TaskRecord.put`."""
        self.states[start:stop] = bytes((state,)) * (stop - start)

    def make_ready(self, start: int, stop: int, *, first: bool = False) -> None:
        """See `TaskRecord.make_ready`; `first`: before those that never ran."""
        self.ready += stop - start
        tried = self.attempts
        if not tried or not any(index in tried for index in range(start, stop)):
            self._enqueue([start, stop, 1], first=first)
            return
        for index in range(start, stop):
            self._enqueue([index, index + 1, tried.get(index, 0) + 1], first=first)

    def _enqueue(self, entry: list[int], *, first: bool) -> None:
        waiting = self.ready_ranges
        if first:
            waiting.appendleft(entry)
        elif waiting and waiting[-1][1] == entry[0] and waiting[-1][2] == entry[2]:
            waiting[-1][1] = entry[1]
        else:
            waiting.append(entry)

    def took(self, start: int, stop: int, attempt: int) -> None:
        """See `TaskRecord.took`."""
        self.unready(start, stop)
        if attempt > 1:
            for index in range(start, stop):
                self.attempts[index] = attempt

    def unready(self, start: int, stop: int) -> None:
        """See `TaskRecord.unready`."""
        self.ready -= stop - start
        waiting = self.ready_ranges
        head = waiting[0]
        if head[0] == start and stop <= head[1]:  # the usual case: from the front
            if stop == head[1]:
                waiting.popleft()
            else:
                head[0] = stop
            return
        kept: deque[list[int]] = deque()
        for low, high, attempt in waiting:
            if low < start:
                kept.append([low, min(high, start), attempt])
            if high > stop:
                kept.append([max(low, stop), high, attempt])
        self.ready_ranges = kept

    def failures_of(self, index: int) -> tuple[int, int]:
        """See `TaskRecord.failures_of`."""
        return self.trouble.get(index, (0, 0))

    def blame(self, index: int, failures: int, losses: int) -> None:
        """See `TaskRecord.blame`."""
        self.trouble[index] = (failures, losses)

    def set_failure(self, start: int, stop: int, failure: Failure | None) -> None:
        """See `TaskRecord.set_failure`."""
        if failure is None:
            for index in range(start, stop) if stop - start < len(self.failures) else list(self.failures):
                if start <= index < stop:
                    self.failures.pop(index, None)
        elif stop - start > 1 and self.doomed in {None, failure}:
            self.doomed = failure
        else:
            for index in range(start, stop):
                self.failures[index] = failure

    def failure_of(self, index: int) -> Failure | None:
        """See `TaskRecord.failure_of`."""
        return self.failures.get(index, self.doomed)

    def succeed(self, success: Success) -> None:
        """See `TaskRecord.succeed`."""
        self.found.append(success)

    def successes(self) -> list[Success]:
        """See `TaskRecord.successes`."""
        self.found.sort(key=lambda success: success.start)
        return self.found

    def wait_for_element(self, index: int, waiter: Waiter) -> None:
        """See `TaskRecord.wait_for_element`."""
        self.element_dependents.setdefault(index, []).append(waiter)

    def waiters_of(self, index: int) -> list[Waiter]:
        """See `TaskRecord.waiters_of`."""
        return self.element_dependents.get(index, [])

    def pages(self, start: int, stop: int) -> tuple[Page, ...]:
        """See `TaskRecord.pages`: found by bisection, they are sorted."""
        paged = self.paged
        low, high = 0, len(paged)
        while low < high:
            middle = (low + high) // 2
            if paged[middle].stop <= start:
                low = middle + 1
            else:
                high = middle
        found = []
        while low < len(paged) and paged[low].start < stop:
            found.append(paged[low])
            low += 1
        return tuple(found)


Record = TaskRecord | ArrayRecord
