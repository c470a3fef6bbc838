"""The record of an array: one byte of state a task, and anything more only for elements that have it.

An array and a loose task offer the same few operations over ranges of elements, so that there is one scheduling path
for both; a policy sees both as `Work`. An array that a generator feeds forgets, as its elements succeed, their
arguments, attempts and exact turns: a success behind the window is known by the range it is part of, and the jobs
database knows its turn (`turn` 0 says so). Rule: a record changes only through the modules of this package and is never
serialised as it is; what has not succeeded keeps all it had, because a person may ask for another try; forgetting
happens when pages come, which is a fact, so that a replay forgets the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from bough.core.records.group_record import GroupRecord, Waiter
from bough.core.records.indexes.ready_queue import CAME_BACK, HAD_RUN, ReadyQueue
from bough.core.records.task_record import TaskRecord, longest_path
from bough.model.arrays import ranges
from bough.model.arrays.element_reads import ElementReads, ReadTable
from bough.model.arrays.ranges import Ranges
from bough.model.arrays.runtimes import RunTime
from bough.model.ids import FileId, Seconds
from bough.model.outcomes import Failure, Success
from bough.model.sites.resources import Needs
from bough.model.states import (
    ENDED,
    OCCUPYING,
    OPEN,
    PENDING,
    UNSUCCESSFUL,
    StateWindow,
    TaskState,
    as_bytes,
    holds_any,
)
from bough.model.tasks import ArraySpec, Dep, Page

WAITING, HELD, READY, PLACED, RUNNING, DONE, FAILED, SKIPPED, CANCELLED = (int(state) for state in TaskState)
# The sets of the model as `runs` wants them
PENDING_STATES = as_bytes(PENDING)
OCCUPYING_STATES = as_bytes(OCCUPYING)
OPEN_STATES = as_bytes(OPEN)
ENDED_STATES = as_bytes(ENDED)
_NO_READS = ReadTable(ElementReads((), b""), 0)
_TABLES = 64  # of pages that were fed, whose reads are kept ready
UNSUCCESSFUL_STATES = as_bytes(UNSUCCESSFUL)


class ArrayRecord(msgspec.Struct, eq=False):
    """Many tasks as one record: a byte of state each; anything more only for elements that have it."""

    id: int
    spec: ArraySpec
    group: GroupRecord
    priority: int
    runtime: RunTime
    queue: ReadyQueue
    length: int
    states: bytearray | StateWindow  # the latter if it is fed
    counts: list[int]  # of its elements by state
    ready_ranges: deque[list[int]]  # [start, stop, attempt] in the order they go out
    given_back: deque[list[int]]  # the same, of elements that had run: these go before
    ready: int = 0
    waits: int = 0  # of the array as a whole
    generation: int = 0
    held: bool = False
    held_ranges: Ranges = []  # elements that are held one by one
    urgent: int = 0  # see `ready_queue`
    open: bool = False
    awaits_memo: bool = False
    avoided: dict[int, tuple[int, ...]] = {}  # where elements failed for reasons of the place
    attempts: dict[int, int] = {}  # last attempt, of elements on their second or later
    trouble: dict[int, tuple[int, int]] = {}  # failures and losses, of elements that had any
    failures: dict[int, Failure] = {}
    skip_reason: Failure | None = None  # why all elements that never ran did not
    own_deps: dict[int, tuple[Dep, ...]] = {}  # of elements that wait for something of their own
    element_waits: dict[int, int] = {}
    dependents: list[Waiter] | None = None  # what waits for all of it
    element_dependents: dict[int, list[Waiter]] = {}
    found: list[Success] = []  # in order of their elements while `sorted`
    sorted: bool = True
    paged: list[Page] = []
    queue_key: tuple[object, ...] = ()  # its valid entry in the ready queue
    ready_since: Seconds = 0.0  # when what is ready of it became so, on average; kept where ranks age
    has_gaps: bool = False  # `ready_ranges` and `given_back` may hold elements that went out of turn, see `skip_gaps`
    read_table: ReadTable | None = None  # made when it is first asked for
    short_spec: ArraySpec | None = None  # likewise: see `spec_for_executors`
    fed_reads: bool = False  # some page says what its elements read
    fed_inputs: bool = False  # and that hosts may have some of it already
    fed_tables: dict[int, ReadTable] = {}  # likewise, of pages that were fed: by their first elements

    is_array = True

    @property
    def spec_for_executors(self) -> ArraySpec:
        """The spec without what only the core needs: which element reads which file."""
        if self.spec.reads is None:
            return self.spec
        if self.short_spec is None:
            self.short_spec = msgspec.structs.replace(self.spec, reads=None)
        return self.short_spec

    def files_of(self, index: int) -> Sequence[int]:
        """The numbers of the files that an element reads."""
        table, place = self._reads_at(index)
        return table.of(place) if self.spec.reads is not None else [file for file in table.of(place) if file]

    def reusable_files_of(self, index: int) -> Sequence[int]:
        """Of these those that a host may have already, and not those that are sent for each attempt anew."""
        table, place = self._reads_at(index)
        found = table.reusable(place)
        return found if self.spec.reads is not None else [file for file in found if file]

    def _reads_at(self, index: int) -> tuple[ReadTable, int]:
        """The table that says what an element reads, and its place there."""
        if self.read_table is None:
            reads = self.spec.reads
            if reads is None:
                return self._fed_reads_at(index)
            self.read_table = ReadTable(reads, self.spec.length)
        return self.read_table, index

    def add_pages(self, pages: Iterable[Page]) -> None:
        """More elements have arguments."""
        for page in pages:
            self.paged.append(page)
            if page.reads is not None:
                self.fed_reads = True
                self.fed_inputs |= len(page.reads.files) > page.reads.fresh

    def _fed_reads_at(self, index: int) -> tuple[ReadTable, int]:
        """The same of an element that was fed: its page says it, by paths."""
        at = bisect_right(self.paged, index, key=_stop)
        page = self.paged[at] if at < len(self.paged) else None
        if page is None or page.reads is None or index < page.start:
            return _NO_READS, 0
        table = self.fed_tables.get(page.start)
        if table is None:
            known = [self.group.workflow.files.find(path) for path in page.reads.files]  # type: ignore[arg-type]
            numbers = tuple([FileId(file.id if file is not None else 0) for file in known])
            table = ReadTable(msgspec.structs.replace(page.reads, files=numbers), page.stop - page.start)
            while len(self.fed_tables) >= _TABLES:
                del self.fed_tables[next(iter(self.fed_tables))]
            self.fed_tables[page.start] = table
        return table, index - page.start

    @property
    def needs(self) -> Needs:
        """What one element occupies."""
        return self.queue.needs

    @property
    def after(self) -> tuple[Dep, ...]:
        """See `TaskRecord.after`."""
        return self.spec.after

    @property
    def workflow(self) -> int:
        """The number of the run that it belongs to."""
        return self.group.workflow.run

    @property
    def declares_reads(self) -> bool:
        """Whether its elements declare files that they read."""
        return self.spec.reads is not None or self.fed_reads

    @property
    def has_inputs(self) -> bool:
        """Whether these are files that a host may have already."""
        reads = self.spec.reads
        return self.fed_inputs if reads is None else len(reads.files) > reads.fresh

    @property
    def dependents_count(self) -> int:
        """How many wait for it directly."""
        return len(self.dependents) if self.dependents is not None else 0

    @property
    def path_below(self) -> Seconds:
        """The expected run time of it and of the longest chain of dependents."""
        return longest_path(self)

    @property
    def attributes(self) -> dict[str, str]:
        """See `TaskRecord.attributes`."""
        return self.group.attributes_with(self.spec.extras.attributes)

    @property
    def place(self) -> str:
        """See `TaskRecord.place`."""
        return self.queue.place

    @property
    def expected(self) -> Seconds:
        """Expected run time of one element: measured, or the user's estimate, or 0 when unknown."""
        return self.runtime.mean or self.spec.limits.walltime

    @property
    def avoid(self) -> tuple[int, ...]:
        """Executors that the elements that go next should rather not go to."""
        shunned = self.avoided
        if self.has_gaps and shunned:
            self.skip_gaps()
        first = self.given_back or self.ready_ranges
        return shunned.get(first[0][0], ()) if shunned and first else ()

    def avoid_at(self, index: int, executor: int) -> None:
        """See `TaskRecord.avoid_at`."""
        self.avoided[index] = (*self.avoided.get(index, ()), executor)

    def next_range(self, limit: int) -> tuple[int, int, int]:
        """The ready elements that go next, at most `limit` of them, and the number of their attempt.

        An element with dependencies of its own goes alone, because its memo key is its own; so does one that is
        not to go everywhere.
        """
        if self.has_gaps:
            self.skip_gaps()
        start, stop, attempt = (self.given_back or self.ready_ranges)[0]
        stop = min(stop, start + limit)
        if self.has_gaps:
            stop = next((index for index in range(start, stop) if not self._waits_here(index, attempt)), stop)
        for special in (self.own_deps, self.avoided):
            if special:
                alone = next((index for index in range(start, stop) if index in special), stop)
                stop = max(alone, start + 1)
        return start, stop, attempt

    def range_at(self, start: int, limit: int) -> tuple[int, int, int]:
        """As `next_range`, from a given element that is ready."""
        attempt, stop = self.attempt_of(start), start + 1
        if start not in self.own_deps and start not in self.avoided:
            special = (self.own_deps, self.avoided)
            while stop < min(start + limit, self.length) and self._waits_here(stop, attempt):
                if any(stop in one for one in special):
                    break
                stop += 1
        return start, stop, attempt

    def attempt_of(self, index: int) -> int:
        """The number of the attempt that a ready element would have."""
        return self.attempts.get(index, 0) + 1

    def _waits_here(self, index: int, attempt: int) -> bool:
        """Whether an element of a range of what is ready is ready still, under that attempt."""
        return self.states[index] == READY and self.attempts.get(index, 0) + 1 == attempt

    def skip_gaps(self) -> None:
        """Let the ranges of what is ready begin with something that is.

        An element may be sent out of turn. It stays in its range, which would cost too much to cut, until it is at the
        front of it. What came back meanwhile is in a range of its own, and maybe twice: the first one counts.
        """
        for waiting in (self.given_back, self.ready_ranges):
            while waiting:
                head = waiting[0]
                start, stop, attempt = head
                while start < stop and not self._waits_here(start, attempt):
                    start += 1
                if start < stop:
                    head[0] = start
                    break
                waiting.popleft()
        if not self.ready:
            self.given_back.clear()
            self.ready_ranges.clear()
            self.has_gaps = False

    def state_of(self, index: int) -> int:
        """See `TaskRecord.state_of`."""
        return self.states[index]

    def count(self, state: int, start: int, stop: int) -> int:
        """See `TaskRecord.count`."""
        return self.states.count(state, start, stop)

    def runs(self, wanted: bytes, start: int, stop: int) -> Ranges:
        """See `TaskRecord.runs`."""
        states = self.states
        if type(states) is not bytearray:
            return states.runs(wanted, start, stop)  # type: ignore[union-attr]
        return ranges.runs_of(states, wanted, start, min(stop, self.length))

    def make_ready(self, start: int, stop: int, *, first: int = 0) -> None:
        """See `TaskRecord.make_ready`; `first`: how urgent they are, see `ready_queue`."""
        self.ready += stop - start
        tried = self.attempts
        if not tried or not any(index in tried for index in range(start, stop)):
            self._enqueue([start, stop, 1], first=first)
            return
        runs: list[list[int]] = []
        for index in range(start, stop):
            attempt = tried.get(index, 0) + 1
            if runs and runs[-1][2] == attempt:
                runs[-1][1] = index + 1
            else:
                runs.append([index, index + 1, attempt])
        for entry in reversed(runs) if first == CAME_BACK else runs:
            self._enqueue(entry, first=first)

    def _enqueue(self, entry: list[int], *, first: int) -> None:
        waiting = self.given_back if first == HAD_RUN else self.ready_ranges
        if first == CAME_BACK:
            waiting.appendleft(entry)
        elif waiting and waiting[-1][1] == entry[0] and waiting[-1][2] == entry[2]:
            waiting[-1][1] = entry[1]
        else:
            waiting.append(entry)

    def took(self, start: int, stop: int, attempt: int) -> None:
        """Note that elements were sent; their state says so already."""
        waiting = self.given_back or self.ready_ranges
        head = waiting[0]
        if self.has_gaps or not (head[0] == start and stop <= head[1]):
            self.ready -= stop - start
            self.has_gaps = True
            self.skip_gaps()
            if self.urgent == HAD_RUN and not self.given_back:
                self.urgent = 0
        else:
            self.unready(start, stop)
        if attempt > 1:
            for index in range(start, stop):
                self.attempts[index] = attempt

    def unready(self, start: int, stop: int) -> None:
        """See `TaskRecord.unready`."""
        self.ready -= stop - start
        waiting = self.given_back or self.ready_ranges
        head = waiting[0]
        if head[0] == start and stop <= head[1] and not self.has_gaps:  # the usual case: from the front
            if stop == head[1]:
                waiting.popleft()
            else:
                head[0] = stop
        else:
            self.ready_ranges = _without(self.ready_ranges, start, stop)
            if self.given_back:
                self.given_back = _without(self.given_back, start, stop)
        if self.urgent == HAD_RUN and not self.given_back:
            self.urgent = 0

    def withdraw(self, start: int, stop: int) -> None:
        """See `TaskRecord.withdraw`."""
        for low, high in self.runs(bytes((READY,)), start, stop):
            self.unready(low, high)

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
        elif stop - start > 1 and self.skip_reason in {None, failure}:
            self.skip_reason = failure
        else:
            for index in range(start, stop):
                self.failures[index] = failure

    def failure_of(self, index: int) -> Failure | None:
        """See `TaskRecord.failure_of`."""
        return self.failures.get(index, self.skip_reason)

    def succeed(self, success: Success) -> None:
        """See `TaskRecord.succeed`."""
        self.sorted = self.sorted and (not self.found or self.found[-1].start < success.start)
        self.found.append(success)

    def successes(self) -> list[Success]:
        """See `TaskRecord.successes`."""
        if not self.sorted:
            self.found.sort(key=_start)
            self.sorted = True
        return self.found

    def success_of(self, index: int) -> Success | None:
        """See `TaskRecord.success_of`."""
        found = self.successes()
        at = bisect_right(found, index, key=_start) - 1
        return found[at] if at >= 0 and index < found[at].stop else None

    def wait_for_element(self, index: int, waiter: Waiter) -> None:
        """See `TaskRecord.wait_for_element`."""
        self.element_dependents.setdefault(index, []).append(waiter)

    def pages(self, start: int, stop: int) -> tuple[Page, ...]:
        """The pages with the arguments of a range; found by bisection, they are sorted."""
        paged = self.paged
        low = bisect_right(paged, start, key=_stop)
        found = []
        while low < len(paged) and paged[low].start < stop:
            page = paged[low]
            found.append(page if page.reads is None else msgspec.structs.replace(page, reads=None))
            low += 1
        return tuple(found)


def _without(waiting: deque[list[int]], start: int, stop: int) -> deque[list[int]]:
    """What waits, without [start, stop)."""
    kept: deque[list[int]] = deque()
    for low, high, attempt in waiting:
        if low < start:
            kept.append([low, min(high, start), attempt])
        if high > stop:
            kept.append([max(low, stop), high, attempt])
    return kept


_start = attrgetter("start")
_stop = attrgetter("stop")

Record = TaskRecord | ArrayRecord


def forget_succeeded(array: ArrayRecord, unsaved: Iterable[int] = ()) -> None:
    """Keep of what succeeded only that it did; of `unsaved`, which may have to run again, also what that takes."""
    states = array.states
    if not isinstance(states, StateWindow) or not states.advance():
        return
    base, odd = states.first_kept, states.exceptions
    ordered = sorted({*odd, *unsaved})
    array.paged = [page for page in array.paged if page.stop > base or holds_any(ordered, page.start, page.stop)]
    array.found = _merged(array.successes(), base)
    tables: tuple[dict[int, Any], ...] = (
        array.attempts, array.trouble, array.failures, array.avoided, array.element_dependents,
    )  # fmt: skip
    for table in tables:
        for index in [index for index in table if index < base and index not in odd]:
            del table[index]


def _merged(found: list[Success], base: int) -> list[Success]:
    """Neighbours below the base as one."""
    kept: list[Success] = []
    for success in found:
        if kept and success.stop <= base and _continues(kept[-1], success):
            last = kept[-1]
            turn = last.turn if last.turn == success.turn else 0
            kept[-1] = Success(last.start, success.stop, turn, last.source, last.source_start, last.attempt)
        else:
            kept.append(success)
    return kept


def _continues(last: Success, success: Success) -> bool:
    return (
        last.stop == success.start
        and last.source == success.source
        and last.attempt == success.attempt
        and last.source_start + last.stop - last.start == success.source_start
    )
