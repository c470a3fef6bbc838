"""What the server gave to a relay that shares out work: lots, and the parts of them that its executors have.

Rule: every element of a lot waits here, is with one executor, or has been told of to its end.
"""

from __future__ import annotations

from msgspec.structs import replace

from bough.core import ranges
from bough.core.ranges import Ranges
from bough.core.timing import SHORT, RunTime
from bough.model.facts import ElementFailed, SpanEnded
from bough.model.ids import ExecutorId, Seconds, SpanId
from bough.model.pickles import cut
from bough.relay.members import Member
from bough.wire.work import Run

NOTHING = SpanId(0)


class Lot:
    """A span of the server's."""

    __slots__ = (
        "head",
        "is_queued",
        "left",
        "order",
        "parts",
        "queue",
        "returns",
        "run",
        "runtime",
        "share",
        "train",
        "tries",
    )

    def __init__(self, run: Run, order: int, runtime: RunTime) -> None:
        self.run = run
        self.order = order
        self.runtime = runtime
        self.queue: Ranges = [[run.start, run.stop]]  # what nobody has yet
        self.left = run.stop - run.start  # elements of which nothing final was said
        self.parts: dict[int, Part] = {}
        self.is_queued = False  # it stands in the queue of its pool
        self.share = 0  # elements for each that had room when it began: fewer towards the end is the server's doing
        self.train: list[Lot] | None = None  # goes with it: each is to be run behind it, or behind one before
        self.head: Lot | None = None  # with which it goes
        self.returns = 0  # times in a row that something of it was given back
        self.tries: dict[int, set[ExecutorId]] | None = None  # elements that failed by the place, and where

    @property
    def mean(self) -> Seconds:
        """Expected seconds of one element."""
        return self.runtime.mean or self.run.expected

    @property
    def is_chained(self) -> bool:
        """Whether it travels with others."""
        return self.head is not None or self.train is not None


class Part:
    """A slice of a lot that an executor has, under a number of its own."""

    __slots__ = ("left", "load", "lot", "member", "number", "running")

    def __init__(self, number: SpanId, lot: Lot, member: Member, start: int, stop: int) -> None:
        self.number = number
        self.lot = lot
        self.member = member
        self.left: Ranges = [[start, stop]]
        self.running: Ranges | None = None  # said to run
        mean = lot.mean
        self.load = mean * (stop - start) if 0 < mean <= SHORT else 0.0  # 0: not known to be short

    def probably_running(self, *, in_front: bool) -> list[int]:
        """The elements that were said to run, or must be next."""
        found = {i for low, high in self.running or () for i in range(low, high) if self.has(i)}
        if in_front and self.left and not self.lot.run.behind:
            found.add(self.left[0][0])
        return sorted(found)

    def has(self, index: int) -> bool:
        """Whether nothing final was heard of an element."""
        return any(low <= index < high for low, high in self.left)


class Retry:
    """An element that is to be tried elsewhere before its failure is told of."""

    __slots__ = ("failed", "index", "lot")

    def __init__(self, lot: Lot, failed: ElementFailed) -> None:
        self.lot = lot
        self.index = failed.index
        self.failed = failed

    @property
    def avoid(self) -> set[ExecutorId]:
        """Where it has failed."""
        return (self.lot.tries or {}).get(self.index, set())


def part_run(lot: Lot, number: SpanId, start: int, stop: int, behind: SpanId = NOTHING) -> Run:
    """What an executor is told to run."""
    run = lot.run
    if not run.is_array:
        return replace(run, span=number, expected=lot.mean, behind=behind)
    pages = run.pages
    if len(pages) > 1:
        pages = tuple(page for page in pages if page.start < stop and start < page.stop)
    return replace(run, span=number, start=start, stop=stop, pages=pages, expected=lot.mean, behind=behind)


def success(news: SpanEnded, span: SpanId, start: int, stop: int, host: str) -> SpanEnded:
    """What the server is told of the elements [start, stop) of an executor's news."""
    seconds, results, details = news.seconds, news.results, news.details
    if (start, stop) != (news.start, news.stop):
        if isinstance(results, bytes):
            results = cut(results, start - news.start, stop - start)
        seconds = seconds * (stop - start) / (news.stop - news.start)
        details = tuple(detail for detail in details if start <= detail.index < stop)
    return SpanEnded(span, start, stop, seconds, results, details, host=host)


def whole(left: Ranges) -> int:
    """How many elements there are."""
    return ranges.size(left)
