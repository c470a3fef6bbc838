"""Attempts: slices of records that executors have, and the index that finds them.

An attempt of some elements is a `Span`. The index has the current ones by their number and by the elements they hold,
and the late ones: those of executors that were lost, which may be alive behind a broken network and report results. A
task may have several attempts at once: replicas, which run at the same time, and late attempts. Rule: what is left of a
span is what nothing final was said of; of all attempts of a task the first success counts, and the others are ended;
a search looks at no more than the blocks of elements that the longest span could reach from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bough.model.arrays import ranges
from bough.model.arrays.ranges import Ranges
from bough.model.ids import Seconds, SpanId

if TYPE_CHECKING:
    from bough.core.records.array_record import Record
    from bough.core.records.executor_record import ExecutorRecord

NOTHING: Final = SpanId(0)
WHOLE: Final[Ranges] = [[0, 1]]  # what a loose task's span holds; shared, so never changed
MOST_LATE: Final = 10_000  # late attempts that are remembered
_NO_SPANS: Final[dict[int, Span]] = {}
_BLOCK: Final = 6  # bits of an element's number within its block: spans of an array are found by blocks of 64 elements


class Span:
    """A slice of a record that an executor has."""

    __slots__ = (
        "attempt",
        "behind",
        "counted",
        "executor",
        "heard",
        "id",
        "left",
        "load",
        "many",
        "queue",
        "queued",
        "record",
        "start",
        "stop",
        "width",
    )

    def __init__(  # noqa: PLR0917 made for every dispatch: names would cost
        self,
        number: SpanId,
        record: Record,
        start: int,
        stop: int,
        attempt: int,
        executor: ExecutorRecord,
        left: Ranges,
        queued: bool,
        load: Seconds = 0.0,
        behind: SpanId = NOTHING,
    ) -> None:
        self.id = number
        self.record = record
        self.queue = record.queue  # whose needs it occupies; the record may ask for more by now
        self.start = start
        self.stop = stop
        self.attempt = attempt
        self.executor = executor
        self.left = left  # elements of which nothing final was heard
        self.queued = queued  # it was placed to wait behind others
        self.behind = behind  # the span that must succeed first, 0: none
        self.load = load  # expected seconds of work when it was placed, if its tasks are short
        self.heard: Seconds = 0.0  # when something was last said of it, for tasks that are sent again after silence
        self.width = 1  # how many of its elements run at once; more only on a wide executor
        self.counted = 0  # tasks of it that count for a bound, see `TaskBound`
        self.many = 1  # elements that are left, as last counted there

    def has(self, index: int) -> bool:
        """Whether an element is still with it, that is, with its executor."""
        return any(low <= index < high for low, high in self.left)

    def parts(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The parts of [start, stop) that are still with it."""
        found = ((max(low, start), min(high, stop)) for low, high in self.left)
        return [(low, high) for low, high in found if low < high]

    def take(self, start: int, stop: int) -> Ranges:
        """Remove [start, stop); the parts of it that were there."""
        if self.left is WHOLE:
            if start <= 0 < stop:
                self.left = []
                return [[0, 1]]
            return []
        return ranges.take(self.left, start, stop)


class AttemptIndex:
    """The attempts there are: see the module."""

    __slots__ = ("_blocks", "_late_of", "current", "late", "replicas", "several", "tasks")

    def __init__(self) -> None:
        self.current: dict[int, Span] = {}  # by number
        self.late: dict[int, Span] = {}  # by number, the oldest first
        self.replicas: dict[int, Span] = {}  # by number: current ones of tasks that had another one
        self.tasks: dict[int, Span] = {}  # of loose tasks, by record: the newest
        self.several = False  # whether there are replicas or late attempts at all
        self._blocks: dict[int, _Blocks] = {}  # of elements, by record
        self._late_of: dict[int, list[Span]] = {}  # by record

    # --- current attempts ------------------------------------------------------------------------

    def add_task(self, span: Span) -> None:
        """A loose task has a new attempt."""
        self.current[span.id] = span
        self.tasks[span.record.id] = span

    def add_elements(self, span: Span) -> None:
        """Elements of an array have a new attempt."""
        self.current[span.id] = span
        blocks = self._blocks.get(span.record.id)
        if blocks is None:
            blocks = self._blocks[span.record.id] = _Blocks()
        blocks.add(span)

    def add_replica(self, span: Span) -> None:
        """Tasks that have, or had, a current attempt have another one."""
        id_ = span.record.id
        self.replicas[span.id] = span
        self.several = True
        if span.record.is_array:
            self.add_elements(span)
            return
        if id_ in self.tasks:  # from now on its attempts are found as those of an element
            if id_ not in self._blocks:
                self.add_elements(self.tasks[id_])
            self.add_elements(span)
        self.add_task(span)

    def remove(self, span: Span) -> None:
        """An attempt has ended, or its executor is lost."""
        del self.current[span.id]
        id_ = span.record.id
        blocks = self._blocks.get(id_)
        if blocks is None:
            del self.tasks[id_]
        else:
            blocks.remove(span)
            if not span.record.is_array:
                self._remove_replica(id_, list(blocks.spans[0].values()))
            elif not blocks.spans:
                del self._blocks[id_]
        if span.id in self.replicas:
            del self.replicas[span.id]
            self.several = bool(self.replicas or self.late)

    def _remove_replica(self, id_: int, left: list[Span]) -> None:
        """A loose task has an attempt less, and these are left."""
        self.tasks[id_] = left[-1]
        if len(left) == 1:
            del self._blocks[id_]

    def of(self, record: Record, start: int, stop: int) -> list[Span]:
        """The current attempts that have something of the elements [start, stop), the oldest first."""
        blocks = self._blocks.get(record.id)
        if blocks is None:
            span = self.tasks.get(record.id)
            return [span] if span is not None and start <= 0 < stop else []
        return [span for span in blocks.near(start, stop) if span.parts(start, stop)]

    def at(self, record: Record, index: int) -> Span | None:
        """The newest current attempt of an element."""
        found = self.of(record, index, index + 1)
        return found[-1] if found else None

    def only_with(self, span: Span, start: int, stop: int) -> Ranges:
        """The parts of [start, stop) that no other current attempt has."""
        alone = [[start, stop]]
        if self.replicas:
            for other in self.of(span.record, start, stop):
                if other is not span:
                    for low, high in other.left:
                        ranges.take(alone, low, high)
        return alone

    # --- late attempts ---------------------------------------------------------------------------

    def keep_late(self, span: Span, start: int, stop: int) -> None:
        """Elements were taken from a lost executor, which may still report their results."""
        late = self.late.get(span.id)
        if late is None:
            if len(self.late) >= MOST_LATE:
                self._forget_late(next(iter(self.late.values())))
            late = Span(span.id, span.record, span.start, span.stop, span.attempt, span.executor, [], queued=False)
            late.behind = span.behind
            self.add_late(late)
        ranges.add(late.left, start, stop)

    def add_late(self, late: Span) -> None:
        """Remember a late attempt."""
        self.late[late.id] = late
        self.several = True
        self._late_of.setdefault(late.record.id, []).append(late)

    def late_of(self, record: Record) -> list[Span]:
        """The late attempts of a record."""
        return list(self._late_of.get(record.id, ()))

    def end_late(self, record: Record, start: int, stop: int) -> list[tuple[Span, int, int]]:
        """Nothing more is expected of elements from late attempts; those that may still run, and where."""
        ended: list[tuple[Span, int, int]] = []
        for late in self.late_of(record):
            ended += [(late, low, high) for low, high in ranges.take(late.left, start, stop)]
            if not late.left:
                self._forget_late(late)
        return ended

    def _forget_late(self, late: Span) -> None:
        del self.late[late.id]
        self.several = bool(self.replicas or self.late)
        others = self._late_of[late.record.id]
        others.remove(late)
        if not others:
            del self._late_of[late.record.id]


class _Blocks:
    """The current attempts of the elements of one record, each in the block of its first element."""

    __slots__ = ("longest", "spans")

    def __init__(self) -> None:
        self.spans: dict[int, dict[int, Span]] = {}  # by block and number
        self.longest = 0  # blocks after its first one that one of them reached into

    def add(self, span: Span) -> None:
        first, last = span.start >> _BLOCK, span.stop - 1 >> _BLOCK
        self.longest = max(self.longest, last - first)
        block = self.spans.get(first)
        if block is None:
            self.spans[first] = {span.id: span}
        else:
            block[span.id] = span

    def remove(self, span: Span) -> None:
        block = self.spans[span.start >> _BLOCK]
        if len(block) > 1:
            del block[span.id]
        else:
            del self.spans[span.start >> _BLOCK]

    def near(self, start: int, stop: int) -> list[Span]:
        """Those that may have something of the elements [start, stop), the oldest first."""
        spans, numbers = self.spans, range((start >> _BLOCK) - self.longest, (stop - 1 >> _BLOCK) + 1)
        wanted = (
            [at for at in numbers if at in spans]
            if len(numbers) < len(spans)
            else [at for at in spans if at in numbers]
        )
        found = {number: span for at in wanted for number, span in spans[at].items()}
        return [found[number] for number in sorted(found)]
