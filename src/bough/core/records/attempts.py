"""An attempt in flight: a slice of a record that an executor has.

Rule: what is left of a span is what nothing final was heard of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bough.model import ranges
from bough.model.ids import Seconds, SpanId
from bough.model.ranges import Ranges

if TYPE_CHECKING:
    from bough.core.records.array_record import Record
    from bough.core.records.executor_record import ExecutorRecord

NOTHING = SpanId(0)
WHOLE: Ranges = [[0, 1]]  # what a loose task's span holds; shared, so never changed


class Span:
    """A slice of a record that an executor has."""

    __slots__ = (
        "attempt",
        "behind",
        "executor",
        "heard",
        "id",
        "left",
        "load",
        "many",
        "queued",
        "record",
        "start",
        "stop",
        "width",
    )

    def __init__(  # noqa: PLR0917 made for every hand-out: names would cost
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
        self.many = 1  # elements that are left, as last counted there

    def take(self, start: int, stop: int) -> Ranges:
        """Let go of [start, stop); return the parts of it that were there."""
        if self.left is WHOLE:
            if start <= 0 < stop:
                self.left = []
                return [[0, 1]]
            return []
        return ranges.take(self.left, start, stop)
