"""The tasks that run and may be replicated, by how often they were and how long they have been running; and the waste.

A task is noted when its executor says that it has begun, if replication is on. It is not taken out when it ends: who
looks drops what does not run any more, and so does every noting once such entries are the majority. Rule: what is kept
follows from the facts alone, so that a replay knows the same; without replication nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import msgspec

from bough.core.records.array_record import RUNNING, Record
from bough.core.records.attempts import Span
from bough.core.records.task_record import TaskRecord
from bough.model.ids import Seconds
from bough.model.sites.resources import Needs

_UNTOLD: Final = 1000  # superseded attempts whose executors may still say what they have moved
_MOST_BYTES: Final = (1 << 63) - 1
_FEW: Final = 64  # entries that are not worth a look

_AT_ONCE: Final = 32  # entries that are looked at in one go

Element = tuple[int, int]  # record, index
Attempt = tuple[int, int, int]  # record, index, number


class Candidate:
    """A running task that may be replicated; a policy sees it as `RunningWork`."""

    __slots__ = ("index", "record", "replicas", "since", "span")

    def __init__(self, record: Record, index: int, span: int, since: Seconds, replicas: int = 0) -> None:
        self.record = record
        self.index = index
        self.span = span  # of the attempt that began
        self.since = since  # when it began
        self.replicas = replicas  # that were made of it since then

    @property
    def id(self) -> int:
        """The number of its record."""
        return self.record.id

    @property
    def needs(self) -> Needs:
        """What it occupies."""
        return self.record.needs

    @property
    def expected(self) -> Seconds:
        """Expected time from when it began, with the wait for its inputs; 0: unknown."""
        return max(self.record.expected, self.record.runtime.slot)

    @property
    def measured(self) -> int:
        """How many tasks of its template have ended well."""
        return self.record.runtime.seen


_NONE: Final[dict[Element, Candidate]] = {}


class ReplicaStart(msgspec.Struct, array_like=True):
    """When a replica was sent and why."""

    since: Seconds
    reason: str = ""
    is_heard: bool = False  # its executor said that it runs, and `since` is when


class Waste(msgspec.Struct, array_like=True):
    """What replicas have cost since the beginning; see section 4.8 of the specification of Storage Affinity."""

    made: int = 0  # replicas
    superseded: int = 0  # attempts that were ended because another one of the same task had succeeded
    seconds: float = 0.0  # core-seconds of those
    bytes: int = 0  # of inputs that were moved for those; what a host had in its cache was not moved


class ReplicaIndex:
    """See the module."""

    __slots__ = ("_by_replicas", "_clean_at", "_is_unasked", "by_element", "is_on", "started", "untold", "waste")

    def __init__(self, *, is_on: bool, is_unasked: bool = False) -> None:
        self.is_on = is_on
        self._is_unasked = is_unasked  # nobody chose this replication, so it needs the word of each task
        self.by_element: dict[Element, Candidate] = {}
        self.started: dict[int, ReplicaStart] = {}  # by span: of replicas
        self.waste = Waste()
        self.untold: dict[Attempt, int] = {}  # superseded attempts, the oldest first, with their spans
        self._by_replicas: dict[int, dict[Element, Candidate]] = {}  # each in the order in which they came
        self._clean_at = _FEW

    def allows(self, record: Record) -> bool:
        """Whether tasks of a record may be replicated, by what was said of them."""
        return may_be_replicated(record) and not (self._is_unasked and not _may_be_unasked(record))

    def note(self, records: dict[int, Record], candidate: Candidate) -> None:
        """A task runs that may be replicated."""
        if len(self.by_element) >= self._clean_at:
            self._clean(records)
        at = (candidate.id, candidate.index)
        self.forget(at)
        self.by_element[at] = candidate
        self._by_replicas.setdefault(candidate.replicas, {})[at] = candidate

    def note_started(self, records: dict[int, Record], span: Span, start: int, stop: int, now: Seconds) -> bool:
        """Elements of a span have begun; whether they may be replicated."""
        if not self.allows(span.record):
            return False
        for index in range(start, stop):
            self.note(records, Candidate(span.record, index, span.id, now))
        return True

    def replicated(self, record: Record, index: int, span: int, start: ReplicaStart) -> None:
        """One more replica of a task was sent."""
        self.waste.made += 1
        self.started[span] = start
        at = (record.id, index)
        candidate = self.by_element.get(at)
        if candidate is not None:
            self._take(candidate)
            candidate.replicas += 1
            self._by_replicas.setdefault(candidate.replicas, {})[at] = candidate

    def began(self, span: int, now: Seconds) -> None:
        """An executor said that a span runs, which may be a replica."""
        start = self.started.get(span)
        if start is not None and not start.is_heard:
            start.since, start.is_heard = now, True

    def is_unheard(self, span: int) -> bool:
        """Whether a span is a replica that was not said to run yet."""
        return span in self.started and not self.started[span].is_heard

    def superseded(self, span: Span, index: int, now: Seconds) -> float:
        """An attempt was ended because another one of its task had succeeded; the core-seconds that it took."""
        record = span.record
        if span.id in self.started:
            began = self.started[span.id].since
        else:
            candidate = self.by_element.get((record.id, index))
            began = candidate.since if candidate is not None and candidate.span == span.id else now
        wasted = max(0.0, now - began) * span.queue.cores
        if len(self.untold) >= _UNTOLD:
            del self.untold[next(iter(self.untold))]
        self.untold[record.id, index, span.attempt] = span.id
        self.waste.superseded += 1
        self.waste.seconds += wasted
        return wasted

    def moved(self, attempt: Attempt, count: int) -> None:
        """So many bytes were moved for an attempt; what was moved for a superseded one is waste, and counts once."""
        if self.untold.pop(attempt, None) is not None:
            self.waste.bytes = min(_MOST_BYTES, self.waste.bytes + count)

    def find_untold(self, span: int, index: int) -> Attempt | None:
        """A superseded attempt, by its span."""
        return next((one for one, number in self.untold.items() if number == span and one[1] == index), None)

    def forget(self, at: Element) -> None:
        """Nothing more is to be known of a task."""
        candidate = self.by_element.pop(at, None)
        if candidate is not None:
            self._take(candidate)

    def get(self, records: dict[int, Record], record: int, index: int) -> Candidate | None:
        """A task that runs and may be replicated."""
        candidate = self.by_element.get((record, index))
        return candidate if candidate is not None and _runs(records, candidate) else None

    def in_order(
        self, records: dict[int, Record], most: int, is_young: Callable[[Candidate], bool]
    ) -> Iterator[Candidate]:
        """Those that were replicated less often than `most` times: the least replicated first, of these the oldest.

        What was never replicated is in the order of age, so that the first young one ends it. What is replicated while
        one looks is not seen again where it came from. Costs what is looked at.
        """
        for replicas in sorted(number for number in self._by_replicas if number < most):
            passed = 0
            while alike := list(islice(self._by_replicas.get(replicas, _NONE).values(), passed, passed + _AT_ONCE)):
                for candidate in alike:
                    if candidate.replicas != replicas:
                        continue
                    if not _runs(records, candidate):
                        self.forget((candidate.id, candidate.index))
                        continue
                    if is_young(candidate):
                        passed = len(self.by_element)  # which is all of them
                        break
                    yield candidate
                    passed += candidate.replicas == replicas

    def running(self, records: dict[int, Record]) -> list[Candidate]:
        """All of them, in the order in which they are kept."""
        kept = (one for many in self._by_replicas.values() for one in many.values())
        return [candidate for candidate in kept if _runs(records, candidate)]

    def _take(self, candidate: Candidate) -> None:
        alike = self._by_replicas[candidate.replicas]
        del alike[candidate.id, candidate.index]
        if not alike:
            del self._by_replicas[candidate.replicas]

    def _clean(self, records: dict[int, Record]) -> None:
        for at, candidate in list(self.by_element.items()):
            if not _runs(records, candidate):
                self.forget(at)
        self._clean_at = max(_FEW, 2 * len(self.by_element))


def _runs(records: dict[int, Record], candidate: Candidate) -> bool:
    record = candidate.record
    return records.get(record.id) is record and record.state_of(candidate.index) == RUNNING


def may_be_replicated(record: Record) -> bool:
    """Whether the tasks of a record may run twice at the same time, by what their user said of them."""
    if type(record) is TaskRecord:
        own = record.own
        return record.shared_spec.limits.replicable and (own is None or own.extras.checkpoint is None)
    spec = record.spec
    return spec.limits.replicable and spec.extras.checkpoint is None


def _may_be_unasked(record: Record) -> bool:
    """Whether they may although nobody asked for replication: their user says so, or what they write cannot clash."""
    if type(record) is TaskRecord:
        return record.shared_spec.limits.repeatable or (record.own is not None and record.own.atomic_outputs)
    return record.spec.limits.repeatable or record.spec.atomic_outputs
